"""The errors a user can cause or meet, each with the exit code that scripts may rely on.

Anything else that escapes is a bug of ours and exits with 1 and a traceback.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every `ablation` command."""

    DONE = 0
    BUG = 1
    USAGE = 2  # wrong use, or a plan that is not valid
    INTEGRITY = 3  # not locked, changed, tampered, or a run folder of another plan
    GATE = 4  # the plan does not allow this step now
    STOPPED = 5  # a stop rule ended the run, or a check paused its extension
    INCOMPLETE = 6  # data are missing, so there is no verdict
    LABEL_MISMATCH = 10  # `--expect LABEL` did not match


class AblationError(Exception):
    """An expected error: `message` says what is wrong, `hint` what to do about it."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def lines(self) -> list[str]:
        """The one or two lines that a terminal shows."""
        return [self.message] + ([self.hint] if self.hint else [])


class UsageError(AblationError):
    """Wrong use of a command, or input that is not valid."""


class IntegrityError(AblationError):
    """What was promised and what is on disk are not the same thing."""

    exit_code = ExitCode.INTEGRITY


class GateError(AblationError):
    """The plan does not allow this step now."""

    exit_code = ExitCode.GATE


class StopRuleFired(AblationError):
    """A stop rule of the plan ended this run."""

    exit_code = ExitCode.STOPPED


class ExtensionPaused(AblationError):
    """A check of an extension found damage; the run goes on only under a deviation."""

    exit_code = ExitCode.STOPPED


class IncompleteError(AblationError):
    """Data that the verdict needs are missing."""

    exit_code = ExitCode.INCOMPLETE


class CommandFailed(IncompleteError):
    """The command of an external arm failed, or what it left cannot be used."""


class EngineFailed(IncompleteError):
    """The engine that samples died, hung, or gave back less than was asked for; what it was asked can be asked again."""


class ProcessesFailed(IncompleteError):
    """A process of those that score and train together died, hung or failed; the run goes on from what is on disk."""


class WorkerLost(IncompleteError):
    """Worker after worker of a cluster was lost at the same piece of work; it can be tried again."""


class ClusterLost(IncompleteError):
    """The cluster that did the work is gone; the run goes on from what is on disk, there or elsewhere."""


class LabelMismatch(AblationError):
    """The verdict is another label than the one that `--expect` named."""

    exit_code = ExitCode.LABEL_MISMATCH
