"""An arm that a command outside this program trains: what the plan says of it. `study.external` runs it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ablation.plan.resources import Resource, repeated
from ablation.plan.section import PositiveFloat, Section, Text

if TYPE_CHECKING:
    from ablation.plan.model import Plan

UNCHECKED = "What trains it is outside this program, which cannot check what it did."
"""Said wherever a label of such an arm is shown."""

Problem = tuple[tuple[str | int, ...], str]


class External(Section):
    """A command that trains the arm, in place of a weighting. It is run without a shell, in the plan's folder, with the
    environment variables that `runs/README.md` lists (Your own trainer).
    """

    command: list[Text] = Field(min_length=1)
    """The program and its arguments, each a text of its own. A program without `/` is looked for on the PATH."""
    each: Literal["update", "arm"]
    """`update`: one run an update, on the rollouts that this program sampled and graded. `arm`: one run for the whole arm."""
    timeout_minutes: PositiveFloat | None = None
    """A run that takes longer is ended and counts as failed; null: never."""
    files: list[Resource] = Field(default_factory=list)
    """Scripts and settings that the command reads: a run refuses (exit 3) if one of them is not the locked one."""

    @property
    def words(self) -> str:
        """The command as a shell would be given it."""
        return shlex.join(self.command)


def external_arms(plan: Plan) -> list[str]:
    """The arms that a command trains, in plan order."""
    return [name for name, arm in plan.arms.items() if arm.external is not None]


def external_sentence(plan: Plan) -> str | None:
    """What every verdict on the plan says of these arms; None if there is none."""
    named = external_arms(plan)
    if not named:
        return None
    which = f"Arm {named[0]} is" if len(named) == 1 else f"Arms {', '.join(named[:-1])} and {named[-1]} are"
    return f"{which} trained by a command outside this program, which samples, grades and judges but cannot check the training."


def external_problems(external: External) -> list[Problem]:
    """Files that are named twice."""
    names = [one.at for one in external.files]
    return [(("files", place, "at"), f"`{name}` is named before") for place, name in repeated(names)]


def external_in_words(external: External) -> list[str]:
    """Sentences that say how the arm is trained."""
    how = {
        "update": "At each update a command gets the graded rollouts and leaves the adapter that the next update is sampled with",
        "arm": "One run of a command trains the whole arm; this program samples only its readout, so no stop rule looks at it",
    }[external.each]
    limit = "" if external.timeout_minutes is None else f", for at most {external.timeout_minutes:g} minutes"
    files = len(external.files)
    pinned = f"{files} of its files {'is' if files == 1 else 'are'} locked by digest" if files else "no file of it is locked"
    return [f"{how}: {external.words}{limit}; {pinned}.", UNCHECKED]
