"""External arms: what a command is given, what it must leave, and what is kept of it.

`runs/README.md` (Your own trainer) is its contract.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablation.errors import CommandFailed, IntegrityError
from ablation.files import (
    MARKER,
    TEMPORARY_PREFIX,
    disk_errors,
    json_bytes,
    sha256_bytes,
    sha256_file,
    sha256_path,
    write_bytes,
    write_folder,
    write_json,
)
from ablation.ledger.ledger import ledger_path, write_mark
from ablation.measures.measure import measure
from ablation.plan.canonical import tree_digest
from ablation.plan.external import External
from ablation.plan.locate import locate
from ablation.plan.lock import LockedPlan
from ablation.plan.measures import OF_UPDATES
from ablation.plan.model import Plan
from ablation.problems.problem import Problem
from ablation.rollouts.folder import RunFolder, measures_file
from ablation.rollouts.grades import grades_of
from ablation.rollouts.outcomes import Outcomes, outcomes
from ablation.rollouts.schema import Cell
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import read_stage
from ablation.rollouts.thinking import thinking_span
from ablation.seeds import derive_seed
from ablation.study.command import find_program, run_command
from ablation.study.journal import Journal
from ablation.study.left import STATE, UnusableError, take_adapter, take_state
from ablation.study.sampler import Prompts, Reporter
from ablation.study.updates import OUTCOMES, STEPPED, UNCHANGED
from ablation.training.rewards import rewards
from ablation.training.stops import rollout_metrics

VARIABLES = {
    "ABLATION_PLAN": "the locked plan (the run folder's copy)",
    "ABLATION_PROBLEMS": "the training problems (the run folder's copy)",
    "ABLATION_FAMILY": "name of the family",
    "ABLATION_ARM": "name of the arm",
    "ABLATION_UPDATE": "1, 2, ...: the update; not set with `each: arm`",
    "ABLATION_UPDATES": "how many updates the plan gives an arm",
    "ABLATION_SEED": "a number below 2^63, a function of the family's seed and the update: all randomness should come from it",
    "ABLATION_LEARNING_RATE": "the arm's learning rate, or the plan's",
    "ABLATION_BASE": "folder of the base model; never written to",
    "ABLATION_ADAPTER_IN": "folder of the adapter to begin with: a copy, in peft's format",
    "ABLATION_STATE_IN": "folder of what the command left in `state/` at the update before: a copy; not set if it left nothing",
    "ABLATION_ROLLOUTS": "the update's rollouts, JSON Lines; not set with `each: arm`",
    "ABLATION_OUT": "an empty folder for what the command leaves",
}
"""What the command finds in its environment, all paths absolute; everything else there is inherited."""

COLUMNS = {
    "problem": "id of the problem",
    "effort": "its effort; problem and effort are the group of an advantage",
    "source": "the problem's source",
    "index": "0, 1, ... within the group",
    "prompt_ids": "token ids of the rendered prompt",
    "token_ids": "sampled ids, the end token included",
    "logprobs": "of each sampled token, nats, raw: full vocabulary at temperature 1; null where it is not finite",
    "thinking_start": "place in `token_ids` of the first thinking token",
    "thinking_length": "how many thinking tokens there are",
    "thinking_closed": "whether the token that closes the thinking follows them",
    "reward": "as the plan says: `training.reward`, or the arm's",
    "correct": "the visible answer was graded as correct",
    "clean": "correct, finished and not looping",
    "truncated": "hit the token cap",
    "looping": "the thinking repeats itself",
    "finished": "ended with an end token, and not inside its thinking",
    "answer": "what the grader read as the answer, or null",
    "thinking_text": "decoded thinking",
    "answer_text": "decoded visible answer",
}
"""Keys of a line of ABLATION_ROLLOUTS."""


@dataclass(frozen=True)
class GradedUpdate:
    """The rollouts of an update, what became of them and what they earn."""

    stage: Stage
    own: Outcomes
    rewards_R: np.ndarray


def graded_update(
    plan: Plan, arm: str, folder: Path, problems: Mapping[str, Problem], reference: dict[str, float]
) -> GradedUpdate:
    """The complete and graded stage in `folder`, an update of `arm`. `reference`: see `training.scale.sweep_reference`."""
    stage = read_stage(folder)
    own = outcomes(stage, problems, plan.loops, grades_of(folder, stage, problems))
    return GradedUpdate(stage, own, rewards(own.cell.tolist(), own, reference, plan.training.reward_of(plan.arms[arm])))


def mark_whole_arm(locked: LockedPlan, name: str, problems: Mapping[str, Problem], journal: Journal) -> None:
    """A mark in the ledger: the problems of all cells, which a command that trains the whole arm is free to train on."""
    write_mark(
        ledger_path(locked.path),
        plan=locked.digest,
        study=locked.plan.name,
        stage=f"{name}/external",
        use="trained",
        problems=[problems[one] for one in dict.fromkeys(problem for problem, _ in locked.plan.cells)],
        run=journal.run,
        journal=journal.head,
    )


@dataclass(frozen=True)
class Left:
    """What a command left, checked, in a folder that is gone when the block ends."""

    folder: Path
    """`adapter_model.safetensors` (float32), `adapter_config.json` and perhaps `state/`: what becomes the checkpoint."""
    change: float
    """Norm of the change of all adapter weights."""
    record: dict[str, Any]
    """What the audit says of the command: nothing in it depends on time or machine."""
    seconds: float
    log: str


class Outside:
    """Runs the commands of external arms in one open run."""

    def __init__(self, locked: LockedPlan, run: RunFolder, journal: Journal, reporter: Reporter) -> None:
        self.locked, self.plan, self.run, self.journal, self.reporter = locked, locked.plan, run, journal, reporter
        self.folder = locked.path.resolve().parent

    def check(self, arm: str) -> None:
        """Raise `UsageError` if a command trains the arm and its program is not here: before anything is sampled for it."""
        external = self.plan.arms[arm].external
        if external is not None:
            self._program(arm, external)

    @contextmanager
    def trained(self, family: str, arm: str, update: int, rollouts: Iterable[Mapping[str, Any]] | None) -> Iterator[Left]:
        """Run the command for `update` (with `each: arm` the last one, and no rollouts) and check what it left.

        Raises `CommandFailed` if it failed or left nothing that can be used, `IntegrityError` if a locked file of it changed.
        """
        external, stage = self._external(arm), self.run.update(family, arm, update)
        program = self._program(arm, external)
        files = self._files(arm, external)
        name = f"{family}/{arm}" + (f": update {update}" if external.each == "update" else "")
        with _work_folder(stage) as work:
            environment = self._environment(family, arm, update, work, rollouts)
            log = _next_log(stage)
            shown = log.relative_to(self.run.root).as_posix()
            told = {"arm": f"{family}/{arm}", "update": update, "log": shown}
            self.journal.append("command_started", **told, command=external.command, program=program)
            self.reporter.say(f"{name}: runs {external.words}; its output is in {log}")
            seconds = None if external.timeout_minutes is None else external.timeout_minutes * 60
            ended = run_command(external.command, folder=self.folder, environment=environment, log=log, seconds=seconds)
            outcome = {"exit_code": ended.exit_code, "ended": ended.words, "seconds": round(ended.seconds, 3)}
            self.journal.append("command_ended", **told, **outcome, log_sha256=sha256_file(log))
            if ended.exit_code != 0:
                raise _failed(name, f"the command {ended.words}", log)
            start = locate(self.plan.model.start_adapter, self.locked.path)
            kept = work / "kept"
            kept.mkdir()
            try:
                change = take_adapter(work / "out", kept, plan=self.plan, start=start, before=self._source(family, arm, update))
                take_state(work / "out", kept)
            except UnusableError as error:
                raise _failed(name, f"the command ended well, but {error}", log) from error
            record = {"each": external.each, "command_sha256": tree_digest(external.command), "files": files, "exit_code": 0}
            yield Left(kept, change, record, ended.seconds, shown)

    def keep(self, family: str, arm: str, update: int, left: Left, audit: dict[str, Any], graded: GradedUpdate | None) -> None:
        """Write the audit and, complete or not at all, the checkpoint."""
        folder, path = self.run.update(family, arm, update), self.run.audit(family, arm, update)
        if graded is not None:
            write_json(measures_file(folder), measure(graded.own))
        outcome, record = audit["step"]["outcome"], json_bytes(audit)
        self.journal.append(
            "update_trained",
            arm=f"{family}/{arm}",
            update=update,
            stepped=audit["step"]["stepped"],
            outcome=outcome,
            seconds=round(left.seconds, 3),
            audit_sha256=sha256_bytes(record),
        )
        write_bytes(path, record)  # the event goes first, see StageSampler.sample
        write_folder(self.run.checkpoint(family, arm, update), lambda empty: _copy_into(left.folder, empty))
        if outcome == UNCHANGED:
            self.reporter.say(f"{family}/{arm}: update {update}: {UNCHANGED}: {OUTCOMES[UNCHANGED]}")

    def _external(self, arm: str) -> External:
        external = self.plan.arms[arm].external
        assert external is not None, arm
        return external

    def _program(self, arm: str, external: External) -> str:
        return find_program(external.command, self.folder, f"{self.locked.path}: arms.{arm}.external.command")

    def _files(self, arm: str, external: External) -> dict[str, str]:
        """Place -> digest of each file that the command reads; they may have changed since the run was started."""
        found = {}
        for index, resource in enumerate(external.files):
            field = f"arms.{arm}.external.files[{index}]"
            path = locate(resource, self.locked.path)
            found[resource.at] = sha256_path(path)
            locked = self.locked.lock.resources.get(field, {}).get("sha256") or resource.sha256
            if locked not in (None, found[resource.at]):
                raise IntegrityError(
                    f"{path}: {field} has changed since {self.locked.path} was locked: {locked[:16]}... -> "
                    f"{found[resource.at][:16]}...",
                    hint="Put back the file that the plan was locked with.",
                )
        return found

    def _source(self, family: str, arm: str, update: int) -> Path:
        """Folder of the adapter that the command begins with."""
        if update == 1 or self._external(arm).each == "arm":
            return locate(self.plan.model.start_adapter, self.locked.path)
        return self.run.checkpoint(family, arm, update - 1)

    def _environment(
        self, family: str, arm: str, update: int, work: Path, rollouts: Iterable[Mapping[str, Any]] | None
    ) -> dict[str, str]:
        """The command's environment; makes the folders and copies that it names."""
        whole, source = self._external(arm).each == "arm", self._source(family, arm, update)
        values = {
            "ABLATION_PLAN": self.run.plan,
            "ABLATION_PROBLEMS": self.run.problems,
            "ABLATION_FAMILY": family,
            "ABLATION_ARM": arm,
            "ABLATION_UPDATES": self.plan.training.updates,
            "ABLATION_SEED": command_seed(self.plan.families[family].seed, None if whole else update),
            "ABLATION_LEARNING_RATE": self.plan.training.learning_rate_of(self.plan.arms[arm]),
            "ABLATION_BASE": locate(self.plan.model.base, self.locked.path),
            "ABLATION_ADAPTER_IN": work / "adapter",
            "ABLATION_OUT": work / "out",
        }
        with disk_errors(work):
            shutil.copytree(source, work / "adapter", ignore=shutil.ignore_patterns(STATE, MARKER))
            if not whole and update > 1 and (source / STATE).is_dir():
                values["ABLATION_STATE_IN"] = work / "state"
                shutil.copytree(source / STATE, work / "state")
            (work / "out").mkdir()
            if not whole:
                values["ABLATION_UPDATE"] = update
                values["ABLATION_ROLLOUTS"] = work / "rollouts.jsonl"
                with (work / "rollouts.jsonl").open("w", encoding="utf-8") as file:
                    for row in rollouts or ():
                        file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        inherited = {key: value for key, value in os.environ.items() if key not in VARIABLES}
        given = {key: str(value.resolve() if isinstance(value, Path) else value) for key, value in values.items()}
        return inherited | {"PYTHONDONTWRITEBYTECODE": "1"} | given  # a locked folder of scripts must stay as it is


def command_seed(family_seed: int, update: int | None) -> int:
    """ABLATION_SEED at `update`; None: of a command that trains the whole arm."""
    return derive_seed(family_seed, "external", "arm" if update is None else update)


def exported(graded: GradedUpdate, prompts: Prompts, problems: Mapping[str, Problem]) -> Iterator[dict[str, Any]]:
    """The lines of ABLATION_ROLLOUTS, see `COLUMNS`, in stored order."""
    stage, own = graded.stage, graded.own
    for row in range(len(stage)):
        tokens = slice(stage.offsets[row], stage.offsets[row + 1])
        cell = Cell(stage.problem[row], stage.effort[row])
        prompt = prompts[cell]
        assert prompt.sha256 == stage.prompt_sha256[row], f"{stage.name(row)}: was sampled from another prompt"
        ids = stage.token_ids[tokens].tolist()
        thinking = thinking_span(
            ids,
            prompt_opens_thinking=bool(stage.prompt_opens_thinking[row]),
            open_id=stage.info.think_open_id,
            close_id=stage.info.think_close_id,
        )
        yield {
            "problem": cell.problem,
            "effort": cell.effort,
            "source": problems[cell.problem].source,
            "index": int(stage.index[row]),
            "prompt_ids": list(prompt.ids),
            "token_ids": ids,
            "logprobs": [one if np.isfinite(one) else None for one in stage.logprobs[tokens].tolist()],
            "thinking_start": thinking.start,
            "thinking_length": thinking.stop - thinking.start,
            "thinking_closed": thinking.closed,
            "reward": float(graded.rewards_R[row]),
            "correct": bool(own.correct[row]),
            "clean": bool(own.clean[row]),
            "truncated": bool(own.truncated[row]),
            "looping": bool(own.looping[row]),
            "finished": bool(own.finished[row]),
            "answer": own.extracted[row],
            "thinking_text": stage.thinking_text[row],
            "answer_text": stage.answer_text[row],
        }


def external_audit(
    learning_rate: float, update: int, left: Left, *, before: str, after: str, graded: GradedUpdate | None
) -> dict[str, Any]:
    """`audit.json` of an update that a command trained. `before`, `after`: digests of the adapter; `graded` is
    None with `each: arm`.
    """
    metrics: dict[str, Any] = dict.fromkeys(OF_UPDATES)
    if graded is not None:
        metrics |= rollout_metrics(graded.own) | {"nonfinite": int((~np.isfinite(graded.stage.logprobs)).sum())}
    moved = before != after
    return {
        "update": update,
        "learning_rate": learning_rate,
        "reward_mean": None if graded is None else float(graded.rewards_R.mean()),
        "external": left.record | {"adapter_before": before, "adapter_after": after},
        "weights": None,
        "step": {"outcome": STEPPED if moved else UNCHANGED, "stepped": moved, "change_norm": left.change},
        "metrics": metrics,
    }


@contextmanager
def _work_folder(stage: Path) -> Iterator[Path]:
    """A new folder that is removed at the end, or by the next runner; no two runs of a command share one."""
    with disk_errors(stage):
        stage.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY_PREFIX}command-", dir=stage))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _copy_into(source: Path, empty: Path) -> None:
    shutil.copytree(source, empty, dirs_exist_ok=True)


def _next_log(stage: Path) -> Path:
    """`command-1.log`, or the next number that is free: the output of a run that failed is kept."""
    number = 1
    while (path := stage / f"command-{number}.log").exists():
        number += 1
    return path


def _failed(name: str, what: str, log: Path) -> CommandFailed:
    last = _last_line(log)
    said = f"; the last line of its output: {last}" if last else ""
    return CommandFailed(
        f"{name}: {what}{said}",
        hint=f"Nothing that it left was taken. Look at {log}, repair what made it fail and run the same command again: it begins "
        "again with the same inputs. Files that the plan locks by digest must stay as they are: a fault in one needs a new plan.",
    )


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
