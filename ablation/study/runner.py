"""The study: which stage comes when, what may start, and how a stopped run goes on.

Everything here is decided from what is on disk, so the same command continues a run that was killed anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ablation.errors import CommandFailed, GateError, IncompleteError, StopRuleFired, WorkerLost
from ablation.files import json_bytes, parse_json, sha256_bytes, write_bytes, write_json
from ablation.measures.measure import measure
from ablation.plan.deviations import opened_by, pause_gate
from ablation.plan.lock import LockedPlan
from ablation.plan.model import START
from ablation.plan.runs import planned_runs
from ablation.problems.problem import load_problems
from ablation.rollouts.folder import RunFolder, measures_file
from ablation.rollouts.grades import grades_of
from ablation.rollouts.outcomes import Outcomes, outcomes
from ablation.rollouts.schema import Cell
from ablation.rollouts.store import read_stage, stage_is_complete
from ablation.study.deviations import take_up_deviations
from ablation.study.extension import check_record, need_readout, not_as_planned, open_gate, paused, run_options
from ablation.study.external import GradedUpdate, Outside, exported, external_audit, graded_update, mark_whole_arm
from ablation.study.gates import check_family_gate
from ablation.study.grading import grade_stage
from ablation.study.journal import Journal
from ablation.study.machine import DEFAULT, Machine
from ablation.study.models import Models
from ablation.study.sampler import Prompts, Reporter, stage_items
from ablation.study.schedule import cells_of_update, plan_cells
from ablation.study.session import run_session
from ablation.study.updates import OUTCOMES, STEPPED, save_checkpoint, train_on_stage, update_is_done
from ablation.training.scale import fixed_scale, sweep_reference
from ablation.training.stops import fired_rule
from ablation.verdict.run import first_stable_arm, judge_check


class Study:
    """One open run of one locked plan. Use `open_study`."""

    def __init__(self, locked: LockedPlan, run: RunFolder, journal: Journal, reporter: Reporter, machine: Machine) -> None:
        self.locked, self.plan, self.run = locked, locked.plan, run
        self.journal, self.reporter = journal, reporter
        self.problems = load_problems(run.problems)
        self.outside = Outside(locked, run, journal, reporter)
        self.models = Models(
            locked, run, journal, reporter, machine, lambda tokenizer: Prompts(self.plan, self.problems, tokenizer)
        )
        self._take_up_deviations()
        self._sweeps: dict[str, Outcomes] = {}  # every arm of a family asks for its sweep, and it never changes

    def _take_up_deviations(self) -> None:
        """All that are known by now: one may have been written while the study is open."""
        self.deviations = self.models.deviations = take_up_deviations(self.run, self.locked, self.journal)

    def run_all(self) -> None:
        """Every arm in plan order, then the control and the first stable arm in the second family, then what claims need.

        An arm that a stop rule ended is a result: the others still run. They also do if the command of an external arm failed,
        which is raised after them.
        """
        replication = self.plan.verdict.replication
        for arm in self.plan.arms:  # now, not on the day when its turn comes
            if not stage_is_complete(self.run.readout(self.plan.main_family, arm)):
                self.outside.check(arm)
        first = [*((self.plan.main_family, arm) for arm in self.plan.arms), (replication.family, replication.control)]
        self._run_each(first)
        stable, undecided = None, None
        try:
            stable = first_stable_arm(self.run.root, self.locked)
        except IncompleteError as error:  # claims need their runs all the same
            undecided = error
        if stable is None and undecided is None:
            self.reporter.say(f"no arm was stable in {self.plan.main_family}: there is nothing to replicate beside the control")
        self._run_each([run for run in planned_runs(self.plan, stable) if run not in first])
        if undecided is not None:
            raise undecided

    def _run_each(self, pairs: Sequence[tuple[str, str]]) -> None:
        """`run_arm` of each (family, arm); the first command or worker that failed is raised after all of them."""
        failed = [error for pair in pairs if (error := self._run_or_note(*pair)) is not None]
        if failed:
            raise failed[0]

    def run_arm(self, family: str, arm: str) -> None:
        """Sweep (if this family has none yet), updates, readout. Raises StopRuleFired if a stop rule ended the arm."""
        self._take_up_deviations()
        self._check_gate(family, arm)
        self._raise_if_stopped(self.run.stopped(family, arm), f"{family}/{arm}")
        if stage_is_complete(self.run.readout(family, arm)) and measures_file(self.run.readout(family, arm)).is_file():
            self.reporter.say(f"{family}/{arm}: finished already")
            return
        self.outside.check(arm)
        self.sweep(self.plan.main_family)
        self.sweep(family)
        if self.plan.arms[arm].trained_as_a_whole:
            self._train_whole(family, arm)
        else:
            self._updates(family, arm, 1, self.plan.training.updates)
        self._readout(family, arm)
        self.journal.append("arm_finished", arm=f"{family}/{arm}")

    def extend_arm(self, family: str, arm: str, continue_to: int) -> None:
        """Further updates of an arm that has its readout, up to update `continue_to`, and the plan's checks between them.

        `family` is what `extension.check_request` returned. Raises `GateError` if neither plan nor deviation allows it,
        `StopRuleFired` if a stop rule ended it, `ExtensionPaused` if a check pauses it and no deviation lets it go on.
        """
        self._take_up_deviations()
        extension, name = self.plan.extension, f"{family}/{arm}"
        assert extension is not None
        if self.plan.arms[arm].trained_as_a_whole:
            raise GateError(f"{name}: one run of its command trains the whole arm (`each: arm`), so it has no further update")
        self.outside.check(arm)
        if self.run.stopped(family, arm).is_file():
            raise GateError(f"{name}: a stop rule ended it, so it has no readout, and nothing goes on from it")
        opened = open_gate(self.run.root, self.locked, self.deviations, arm)
        if opened is not None:
            otherwise = not_as_planned(self.run.root, self.locked, arm)
            self.reporter.say(f"{name}: {'; '.join([*otherwise, f'is extended under deviation {opened.number}'])}")
        need_readout(stage_is_complete(self.run.readout(family, arm)), self.locked, self.run.root, family, arm)
        self._raise_if_stopped(self.run.extension_stopped(family, arm), name)
        worked = False
        for k in range(self.plan.training.updates + 1, continue_to + 1):
            worked |= self._updates(family, arm, k, k)
            if k in extension.checks:
                worked |= self._check(family, arm, k)
        if worked:
            self.journal.append("extension_reached", arm=name, update=continue_to)
        else:
            self.reporter.say(f"{name}: finished already, up to update {continue_to}")

    def sweep(self, family: str) -> Outcomes:
        """The starting model on all cells of `family`, sampled unless it is there."""
        if family in self._sweeps:
            return self._sweeps[family]
        folder = self.run.sweep(family)
        if not stage_is_complete(folder):
            self._sample_all_cells(folder, family, START, "sweep", 0)
        own = self._outcomes(folder)
        if not measures_file(folder).is_file():
            write_json(measures_file(folder), measure(own))
        self._sweeps[family] = own
        return own

    def _outcomes(self, folder: Path) -> Outcomes:
        """What became of the rollouts of the complete stage in `folder`, graded once."""
        grade_stage(self.run, folder, self.problems, self.journal)
        stage = read_stage(folder)
        return outcomes(stage, self.problems, self.plan.loops, grades_of(folder, stage, self.problems))

    def _updates(self, family: str, arm: str, first: int, last: int) -> bool:
        """Updates `first` up to `last`, one after the other; whether there was anything to do."""
        return any([self._update(family, arm, k) for k in range(first, last + 1)])

    def _update(self, family: str, arm: str, k: int) -> bool:
        """Update `k` unless it is done, then the stop rules; whether there was anything to do."""
        done = update_is_done(self.run, family, arm, k)
        if not done:
            self._train(family, arm, k)
        self._apply_stop_rules(family, arm, k)
        return not done

    def _train(self, family: str, arm: str, k: int) -> None:
        sweep = self.sweep(family)
        reference = sweep_reference(sweep)
        folder = self.run.update(family, arm, k)
        self.models.hold(family, arm, k - 1)
        self._sample(folder, family, arm, "update", k, cells_of_update(self.plan, family, k))
        grade_stage(self.run, folder, self.problems, self.journal)
        self.models.held = None  # what is below moves the weights: they are nothing known until the checkpoint is on disk
        if self.plan.arms[arm].external is not None:
            self._train_outside(family, arm, k, graded_update(self.plan, arm, folder, self.problems, reference))
            return
        s0 = self._scale()
        audit = train_on_stage(
            self.plan,
            self.plan.arms[arm],
            self.models.policy,
            self.models.prompts,
            self.problems,
            folder,
            reference=reference,
            s0=s0,
            journal=self.journal,
        )
        save_checkpoint(self.models.policy, self.run, self.journal, family, arm, k)
        self.models.held = (family, arm, k)
        outcome = audit["step"]["outcome"]
        if outcome != STEPPED:
            self.reporter.say(f"{family}/{arm}: update {k}: {outcome}: {OUTCOMES[outcome]}")

    def _train_whole(self, family: str, arm: str) -> None:
        """The one run of a command that trains all of the arm."""
        last = self.plan.training.updates
        if not update_is_done(self.run, family, arm, last):
            mark_whole_arm(self.locked, f"{family}/{arm}", self.problems, self.journal)
            self._train_outside(family, arm, last, None)

    def _train_outside(self, family: str, arm: str, k: int, graded: GradedUpdate | None) -> None:
        """Let the arm's command train, and make what it left the checkpoint of update `k`."""
        rows = None if graded is None else list(exported(graded, self.models.prompts, self.problems))
        self.models.release()
        with self.outside.trained(family, arm, k, rows) as left:
            before = graded.stage.info.adapter_sha256 if graded is not None else self.models.policy.adapter_sha256()
            self.models.policy.load_adapter(left.folder)
            rate = self.plan.training.learning_rate_of(self.plan.arms[arm])
            audit = external_audit(rate, k, left, before=before, after=self.models.policy.adapter_sha256(), graded=graded)
            self.outside.keep(family, arm, k, left, audit, graded)
        self.models.held = (family, arm, k)

    def _readout(self, family: str, arm: str) -> None:
        folder = self.run.readout(family, arm)
        if not stage_is_complete(folder):
            self._sample_all_cells(folder, family, arm, "readout", self.plan.training.updates)
        if not measures_file(folder).is_file():
            write_json(measures_file(folder), measure(self._outcomes(folder)))

    def _check(self, family: str, arm: str, k: int) -> bool:
        """The check after update `k`: whether there was anything to do. Raises `ExtensionPaused`."""
        folder, path = self.run.check(family, arm, k), self.run.check_result(family, arm, k)
        done = stage_is_complete(folder) and path.is_file()
        if not stage_is_complete(folder):
            self._sample_all_cells(folder, family, arm, "check", k)
        if not measures_file(folder).is_file():
            write_json(measures_file(folder), measure(self._outcomes(folder)))
        if not path.is_file():
            found = judge_check(self.run.root, self.locked, family, arm, k)
            assert found is not None, folder
            record = check_record(self.locked, found, k)
            # The event goes first, see StageSampler.sample.
            told = {"arm": f"{family}/{arm}", "update": k, "label": record["label"], "pauses": record["pauses"]}
            self.journal.append("check_judged", **told, check_sha256=sha256_bytes(json_bytes(record)))
            write_json(path, record)
            self.reporter.say(f"{family}/{arm}: check after update {k}: {record['label']}")
        record = parse_json(path.read_bytes())
        if record["pauses"] is not None:
            opened = opened_by(self.deviations, pause_gate(arm, k))
            if opened is None:
                raise paused(self.locked, self.run.root, record)
            self.reporter.say(f"{family}/{arm}: goes on past the check after update {k} under deviation {opened.number}")
        return not done

    def _apply_stop_rules(self, family: str, arm: str, k: int) -> None:
        fired = self._fired(family, arm, k)
        if fired is not None:
            # The event goes first, see StageSampler.sample.
            record = json_bytes(fired)
            told = {"arm": f"{family}/{arm}", "rule": fired["rule"], "update": k, "reason": fired["reason"]}
            extends = k > self.plan.training.updates
            path = self.run.extension_stopped(family, arm) if extends else self.run.stopped(family, arm)
            event = "extension_stopped" if extends else "arm_stopped"
            self.journal.append(event, **told, stopped_sha256=sha256_bytes(record))
            write_bytes(path, record)
            self._raise_if_stopped(path, f"{family}/{arm}")

    def _fired(self, family: str, arm: str, k: int) -> dict[str, Any] | None:
        """What `stopped.json` says of the stop rule that fires after update `k`; None if none does."""
        metrics = [parse_json(self.run.audit(family, arm, done).read_bytes())["metrics"] for done in range(1, k + 1)]
        return fired_rule(self.plan.stop_rules, metrics)

    def _raise_if_stopped(self, path: Path, name: str) -> None:
        if path.is_file():
            fired = parse_json(path.read_bytes())
            raise StopRuleFired(
                f"{name}: stop rule `{fired['rule']}` ended the run after update {fired['update']}: {fired['reason']}",
                hint="The run stays as it is and counts in the verdict; "
                f"`ablation run --all{run_options(self.locked, self.run.root)}` goes on with the other arms.",
            )

    def _run_or_note(self, family: str, arm: str) -> CommandFailed | WorkerLost | None:
        try:
            self.run_arm(family, arm)
        except StopRuleFired as stopped:
            self.reporter.say(stopped.message)
        except (CommandFailed, WorkerLost) as failed:
            self.reporter.say(failed.message)
            return failed
        return None

    def _check_gate(self, family: str, arm: str) -> None:
        opened = check_family_gate(self.locked, self.run.root, self.deviations, family, arm)
        if opened is not None:
            self.reporter.say(f"{family}/{arm}: not what the plan replicates; it runs under deviation {opened.number}")

    def _sample_all_cells(self, folder: Path, family: str, arm: str, stage: str, updates: int) -> None:
        """A sweep, a readout or a check: `arm` after `updates` updates."""
        self.models.hold(family, arm, updates)
        self._sample(folder, family, arm, stage, updates, plan_cells(self.plan))

    def _sample(self, folder: Path, family: str, arm: str, stage: str, update: int, cells: list[Cell]) -> None:
        self.models.sample(folder, family, arm, stage, update, stage_items(self.plan, family, stage, update, cells))

    def _scale(self) -> float:
        """s0: the plan's number, or the mean thinking length of the first family's untruncated sweep rollouts."""
        return fixed_scale(self.plan.training, lambda: self.sweep(self.plan.main_family))


@contextmanager
def open_study(locked: LockedPlan, root: Path, reporter: Reporter, machine: Machine = DEFAULT):
    """The run in `root`, held by this process alone until the block ends.

    Raises GateError if another runner holds it, IntegrityError if it belongs to another plan or was changed.
    """
    with run_session(locked, root, reporter) as (run, journal):
        study = Study(locked, run, journal, reporter, machine)
        for deviation in study.deviations:
            reporter.say(f"note: {deviation.in_words()}")
        yield study
