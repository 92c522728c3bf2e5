"""Comparing a finished model with the start on a set of phase 2: both sampled in one session, in the same seeds.

Everything is decided from what is on disk, so the same command goes on where a killed one was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ablation.errors import GateError, IncompleteError, IntegrityError, UsageError
from ablation.files import json_bytes, parse_json, sha256_bytes, write_bytes, write_json
from ablation.ledger.ledger import ledger_path, write_mark
from ablation.ledger.never_used import used_before
from ablation.measures.drift import drift
from ablation.measures.measure import measure
from ablation.plan.deviations import Deviation, opened_by
from ablation.plan.lock import LockedPlan
from ablation.plan.model import START
from ablation.rollouts.comparisons import OPENED, SIDES, comparison_hours, earlier_references, in_words, reused_from, stage_name
from ablation.rollouts.folder import RunFolder, measures_file, stage_file
from ablation.rollouts.grades import grades_of
from ablation.rollouts.outcomes import Outcomes, outcomes
from ablation.rollouts.store import part_info, read_stage, stage_is_begun, stage_is_complete, stage_parts
from ablation.study.deviations import take_up_deviations
from ablation.study.evaluate_sets import SampledSet, copy_set, find_set, read_set
from ablation.study.evaluate_subject import Subject, find_subject
from ablation.study.extension import deviate_command, run_options
from ablation.study.grading import grade_stage
from ablation.study.journal import Journal
from ablation.study.machine import DEFAULT, Machine
from ablation.study.models import Models
from ablation.study.phase_gates import Gates, check_phase_gate
from ablation.study.sampler import Reporter, stage_items
from ablation.study.session import run_session
from ablation.verdict.gated import extended_by_plan


@dataclass(frozen=True)
class Compared:
    """What a comparison came to."""

    record: dict[str, Any]
    """What `evaluation.json` holds."""
    hours: float | None
    """From the first rollout of the two models to the last."""
    worked: bool
    """False if all of it was there already."""


def evaluate(
    locked: LockedPlan,
    root: Path,
    reporter: Reporter,
    set_name: str,
    subject: str,
    reuse: str | None = None,
    machine: Machine = DEFAULT,
) -> Compared:
    """Sample the start and `subject` (ARM@UPDATES) on a set of the plan, unless they are there, and compare what is the same.

    `reuse`: the subject of an earlier comparison on the set, whose reference is taken over.

    Raises:
        UsageError: the plan has no such set or subject.
        IncompleteError: the subject is not there yet.
        GateError: neither plan nor deviation allows it now.
        IntegrityError: a file, the run or the engine is not what it was.
    """
    spec, run = find_set(locked, set_name), RunFolder(root)
    if not run.plan.is_file():
        raise IncompleteError(f"{root}: this run was not begun, so there is nothing to compare", hint="First: ablation run --all")
    model = find_subject(locked, run, subject)
    if spec.name == "selection" and model.updates == locked.plan.training.updates:
        raise UsageError(
            f"--subject: found {model.name}; a selection is between the eligible checks of the extension",
            hint="Name one of them.",
        )
    with run_session(locked, root, reporter) as (_, journal):
        deviations = take_up_deviations(run, locked, journal)
        done = run.evaluation_result(spec.name, model.name)
        if done.is_file() and all(stage_is_complete(one) for one in _folders(run, spec.name, model)):
            return Compared(parse_json(done.read_bytes()), comparison_hours(journal.events, spec.name, model.name), False)
        opened = check_phase_gate(locked, root, deviations, spec.name, model.name)
        gates = Gates(locked, root)
        if spec.name == "selection":
            _need_candidate(gates, model)
        chosen = read_set(locked.plan, spec, copy_set(locked, run, spec))
        comparison = Comparison(locked, run, journal, reporter, deviations, chosen, model, machine)
        comparison.ask_ledger()
        comparison.check(reuse)
        if opened is not None:
            said = [*gates.not_as_planned(spec.name, model.name), f"{model.name} is sampled under deviation {opened.number}"]
            reporter.say(f"{in_words(spec.name)}: {'; '.join(said)}")
        comparison.sample(opened, reuse)
        record = comparison.finish()
        return Compared(record, comparison_hours(journal.events, spec.name, model.name), True)


def _folders(run: RunFolder, set_name: str, subject: Subject) -> tuple[Path, Path]:
    return run.evaluated_reference(set_name, subject.name), run.evaluated(set_name, subject.name)


def _need_candidate(gates: Gates, subject: Subject) -> None:
    """Raise `UsageError` if the selection cannot choose the subject, as the plan does not extend its arm."""
    allowed = extended_by_plan(gates.phase2)
    if allowed is not None and subject.arm not in allowed:
        raise UsageError(
            f"--subject: found {subject.name}; a selection is between checkpoints of the arms that the plan extends: "
            f"{', '.join(allowed)}",
            hint="Its checkpoints are no candidates, whatever a deviation opens.",
        )


class Comparison:
    """One model against the start on one set, in an open run."""

    def __init__(
        self,
        locked: LockedPlan,
        run: RunFolder,
        journal: Journal,
        reporter: Reporter,
        deviations: Sequence[Deviation],
        chosen: SampledSet,
        subject: Subject,
        machine: Machine = DEFAULT,
    ) -> None:
        self.locked, self.plan, self.run = locked, locked.plan, run
        self.journal, self.reporter, self.deviations = journal, reporter, deviations
        self.chosen, self.subject = chosen, subject
        self.reference, self.own = _folders(run, chosen.name, subject)
        self.models = Models(locked, run, journal, reporter, machine, chosen.make_prompts)
        self.models.deviations = deviations

    def ask_ledger(self) -> None:
        """Raise `GateError` if a never-used problem was used; say how many of another set's were."""
        used = used_before(
            self.plan, self.locked.path, self.locked.digest, self.chosen.name, self.subject.name, self.chosen.problems.values()
        )
        if not used:
            return
        if self.chosen.name == "never-used":
            raise GateError(
                "\n".join(one.in_words() for one in used),
                hint=f"{len(used)} of {len(self.chosen.problems)} problems are not new any more, so this set confirms nothing; "
                "a plan with other problems is needed.",
            )
        self.reporter.say(
            f"note: {in_words(self.chosen.name)}: {len(used)} problems were used before, for instance {used[0].in_words()}"
        )

    def check(self, reuse: str | None) -> None:
        """Raise if it cannot be sampled so, before anything of it is said or done."""
        self._check_reuse(reuse)
        if stage_is_begun(self.reference) or stage_is_begun(self.own):
            self._check_day()

    def sample(self, opened: Deviation | None, reuse: str | None) -> None:
        """Both stages, the reference first."""
        name, subject = self.chosen.name, self.subject
        folders = dict(zip(SIDES, (self.reference, self.own), strict=True))
        there = {side: len(stage_parts(folder)) or int(stage_is_begun(folder)) for side, folder in folders.items()}
        told = {"set": name, "subject": subject.name, "reference": START, "reused": reuse}
        self.journal.append(OPENED, **told, deviation=None if opened is None else opened.number, there=there)
        if not stage_is_complete(self.reference):
            if reuse is None:
                self._sample_side(self.reference, START, 0)
            else:
                self._take_over(reuse)
        if not stage_is_complete(self.own):
            self._check_day()
            self._check_engine()
            self._sample_side(self.own, subject.arm, subject.updates)

    def finish(self) -> dict[str, Any]:
        """Grades, measures, and `evaluation.json`."""
        counts = {}
        for side, folder in zip(SIDES, (self.reference, self.own), strict=True):
            counts[side] = self._measure(folder)
        opened = [event for event in self.journal.events if event["event"] == OPENED and event["set"] == self.chosen.name]
        numbers = {event["deviation"] for event in opened if event["subject"] == self.subject.name} - {None}
        record = {
            "set": self.chosen.name,
            "subject": self.subject.name,
            "reference": START,
            "reused": reused_from(self.journal.events, self.chosen.name, self.subject.name),
            "family": self.subject.family,
            "rollouts": self.chosen.rollouts,
            "per_cell": self.chosen.per_cell,
            "deviations": sorted(numbers),
            "correct": counts if self.chosen.aside is None else None,
            "drift": self._drift(),
        }
        path = self.run.evaluation_result(self.chosen.name, self.subject.name)
        told = {"set": self.chosen.name, "subject": self.subject.name}
        # The event goes first, see StageSampler.sample.
        self.journal.append("evaluation_finished", **told, evaluation_sha256=sha256_bytes(json_bytes(record)))
        write_json(path, record)
        return record

    def _sample_side(self, folder: Path, arm: str, updates: int) -> None:
        family, name = self.subject.family, self.chosen.name
        self.models.hold(family, arm, updates)
        items = stage_items(self.plan, family, name, 0, self.chosen.cells, self.chosen.per_cell)
        self.models.sample(folder, family, arm, name, updates, items)

    def _check_reuse(self, reuse: str | None) -> None:
        """Raise `UsageError` if the reference was begun another way than this command would make it, `IncompleteError` if there
        is none of `reuse` to take over.
        """
        if not stage_is_begun(self.reference):
            if reuse is not None and not stage_is_complete(self.run.evaluated_reference(self.chosen.name, reuse)):
                self._no_reference(reuse)
            return
        begun = next((one for one in reversed(self.journal.events) if self._is_own(one)), None)
        before = None if begun is None else begun["reused"]
        if before != reuse:
            how = "without --reuse-reference" if before is None else f"with --reuse-reference {before}"
            raise UsageError(f"{self.reference}: was begun {how}", hint="Go on with the same command.")

    def _is_own(self, event: dict[str, Any]) -> bool:
        wanted = (OPENED, self.chosen.name, self.subject.name)
        return (event.get("event"), event.get("set"), event.get("subject")) == wanted

    def _check_day(self) -> None:
        """Raise `GateError` if what is sampled now would be too far from what is there."""
        name, subject, limit = self.chosen.name, self.subject.name, self.plan.evaluation.same_day_hours
        hours = comparison_hours(self.journal.events, name, subject, datetime.now(UTC))
        if hours is None or hours <= limit:
            return
        opened = opened_by(self.deviations, "same-day")
        if opened is None:
            raise GateError(
                f"{self.run.evaluation(name, subject)}: its first rollout was sampled {hours:.1f} hours ago; models that are "
                f"compared are sampled within {limit:g} hours (evaluation.same_day_hours)",
                hint="Remove that folder and run the same command again: both are sampled anew, in the same seeds. Going on is "
                f"a deviation: {deviate_command(self.locked, self.run.root, 'same-day')}.",
            )
        self.journal.append("same_day_exceeded", set=name, subject=subject, hours=round(hours, 3), deviation=opened.number)
        self.reporter.say(f"{in_words(name)}: goes on {hours:.1f} hours after the first rollout under deviation {opened.number}")

    def _check_engine(self) -> None:
        """Raise `IntegrityError` if the reference was sampled with another engine than the subject would be."""
        assert self.models.policy
        began, now = part_info(stage_parts(self.reference)[0]).engine, self.models.engine
        changed = sorted(name for name in began.keys() | now.keys() if began.get(name) != now.get(name))
        if changed and opened_by(self.deviations, "engine") is None:
            words = ", ".join(f"{name} {began.get(name)} -> {now.get(name)}" for name in changed)
            raise IntegrityError(
                f"{self.reference}: was sampled with another engine: {words}",
                hint="Both models need one engine: go on with the machine and versions that it began with, or remove "
                f"{self.reference.parent} and sample both again. Mixing them is a deviation: "
                f"{deviate_command(self.locked, self.run.root, 'engine')}.",
            )

    def _take_over(self, other: str) -> None:
        """The reference of the comparison of `other` on this set, byte for byte."""
        name = self.chosen.name
        source = self.run.evaluated_reference(name, other)
        read_stage(source)  # its parts are still what they were
        title, marker = stage_name(name, self.subject.name, "reference"), stage_file(source).read_bytes()
        for part in stage_parts(source):
            write_bytes(self.reference / part.name, part.read_bytes())
        write_mark(
            ledger_path(self.locked.path),
            plan=self.locked.digest,
            study=self.plan.name,
            stage=title,
            use="evaluated",
            problems=list(self.chosen.problems.values()),
            run=self.journal.run,
            journal=self.journal.head,
        )
        told = {"of": other, "rollouts": self.chosen.rollouts, "stage_sha256": sha256_bytes(marker)}
        # The event goes first, see StageSampler.sample.
        self.journal.append("stage_reused", stage=title, **told)
        write_bytes(stage_file(self.reference), marker)
        self.reporter.say(f"{title}: {self.chosen.rollouts} rollouts, taken over from the comparison of {other}")

    def _no_reference(self, other: str) -> None:
        """Raise `IncompleteError` that names the references there are, and the command that samples one."""
        name = self.chosen.name
        source = self.run.evaluated_reference(name, other)
        whole = sorted(path.parent.parent.name for path in self.run.evaluation_set(name).glob("*/reference/stage.json"))
        command = f"ablation evaluate {name} --subject {self.subject.name}{run_options(self.locked, self.run.root)}"
        raise IncompleteError(
            f"--reuse-reference: {source}: there is no whole reference",
            hint=f"There: {', '.join(whole) or 'none yet'}. This samples one: {command}",
        )

    def _measure(self, folder: Path) -> int | None:
        """Grade and measure the stage; how many of its rollouts are correct."""
        if self.chosen.aside is not None:
            if not measures_file(folder).is_file():
                write_json(measures_file(folder), self.chosen.aside(read_stage(folder)))
            return None
        grade_stage(self.run, folder, self.chosen.problems, self.journal)
        own = self._outcomes(folder)
        if not measures_file(folder).is_file():
            write_json(measures_file(folder), measure(own))
        return int(own.correct.sum())

    def _outcomes(self, folder: Path) -> Outcomes:
        stage = read_stage(folder)
        return outcomes(stage, self.chosen.problems, self.plan.loops, grades_of(folder, stage, self.chosen.problems))

    def _drift(self) -> list[dict[str, Any]]:
        """The reference against each one that was sampled on the set before."""
        found, name = [], self.chosen.name
        for other in earlier_references(self.journal.events, name, self.subject.name):
            folder = self.run.evaluated_reference(name, other)
            if not stage_is_complete(folder):
                continue
            correct = None
            if self.chosen.aside is None:
                own, before = (self._outcomes(one) for one in (self.reference, folder))
                correct = int(own.correct.sum()), int(before.correct.sum())
            one = drift(read_stage(self.reference), read_stage(folder), correct, limit=self.plan.evaluation.drift, against=other)
            self.reporter.say(f"{in_words(name)}: {one.in_words()}")
            found.append(one.as_json())
        return found
