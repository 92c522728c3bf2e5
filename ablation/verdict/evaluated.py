"""One finished model against the start on one set of phase 2: both stages read, checked, paired and measured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ablation.errors import IntegrityError
from ablation.files import sha256_file
from ablation.ledger.ledger import ledger_path, read_ledger
from ablation.measures.drift import Drift, drift
from ablation.measures.measure import measure
from ablation.plan.deviations import Deviation, opened_by
from ablation.plan.model import START, Plan
from ablation.plan.phase2 import EvaluationSet, evaluation_family, evaluation_sets, guard_set
from ablation.plan.rules import Rule
from ablation.problems.problem import Problem, load_problems
from ablation.rollouts.comparisons import OPENED, comparison_hours, earlier_references, reused_from
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.grades import grades_of
from ablation.rollouts.imported import absent_measures
from ablation.rollouts.outcomes import Outcomes, outcomes
from ablation.rollouts.stage import Stage
from ablation.rollouts.started import options_of_start
from ablation.rollouts.store import read_stage, stage_is_complete
from ablation.verdict.completeness import Cells, check_pairing, check_stage_of_plan, missing_of
from ablation.verdict.figures import figures_of
from ablation.verdict.locked import Locked
from ablation.verdict.model import Missing, Reason
from ablation.verdict.rules import Figures

SHOWN = ("tokens_per_correct", "jointly_correct_length", "cjk_share")
"""Ratios that a page shows whether or not a rule names them."""
ASIDE = ("agent", "safety")
"""Sets on which no answer is right or wrong."""
_SUBJECT = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,39})@([1-9][0-9]{0,5})")


@dataclass(frozen=True)
class Compared:
    """One model against the start on one set. Without `figures` something is missing."""

    name: str
    """The set: `held-out`, `main` ..."""
    subject: str
    """`ARM@UPDATES`."""
    figures: Figures | None = None
    missing: tuple[Missing, ...] = ()
    notes: tuple[str, ...] = ()
    wrong: tuple[Reason, ...] = ()
    """What should not have been done and no deviation allows."""
    hours: float | None = None
    """From the first rollout of the two models to the last; None if the journal does not tell."""
    drift: tuple[Drift, ...] = ()
    """The reference against each one that was sampled on the set before it."""
    opened: int | None = None
    """The deviation under which the comparison was begun."""
    reused: str | None = None
    """The comparison that the reference was taken over from."""
    details: Mapping[str, Any] = field(default_factory=dict)
    reference: Outcomes | None = None
    """The start's answers, where answers are right or wrong."""

    def as_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"set": self.name, "subject": self.subject, "hours": self.hours, "reused": self.reused}
        content |= {"opened_by": self.opened, "drift": [one.as_json() for one in self.drift]}
        content |= {"missing": [one.as_json() for one in self.missing], "notes": list(self.notes), "details": dict(self.details)}
        if self.figures is not None:
            content |= {
                "subject_measures": dict(self.figures.subject),
                "reference_measures": dict(self.figures.reference),
                "ratios": {name: one.as_json() for name, one in self.figures.ratios.items()},
            }
        return content


def rules_on(plan: Plan, name: str) -> list[Rule]:
    """Every rule of the plan that is tested on the set."""
    verdict, release, extension = plan.verdict, plan.verdict.release, plan.extension
    found: list[Rule] = []
    if name == "held-out" and verdict.held_out is not None:
        found += verdict.held_out.rules
    if name == "never-used" and verdict.never_used is not None:
        found += verdict.never_used.rules
    if name == "selection" and extension is not None and extension.selection is not None:
        found += extension.selection.require
    if release is not None:
        found += release.main.rules if name == "main" and release.main is not None else []
        found += [guard for guard in release.guards if guard_set(guard).replace("_", "-") == name]
    return found


class Evaluations:
    """Reads each comparison of a run once."""

    def __init__(
        self,
        root: Path,
        locked: Locked,
        events: Sequence[dict[str, Any]],
        deviations: Sequence[Deviation] = (),
        options: str | None = "",
        regrade: bool = False,
    ) -> None:
        """`events`: of the run's journal, whose chain holds. `options`: see `judge_run`."""
        self.run, self.locked, self.plan, self.events = RunFolder(Path(root)), locked, locked.plan, events
        self.deviations, self.options, self.regrade = deviations, options, regrade
        self.sets = evaluation_sets(self.plan)
        self.compared = cache(self._compared)
        self.outcomes = cache(self._outcomes)
        self.problems = cache(self._problems)
        self._stage = cache(self._read_stage)

    def subjects(self, name: str) -> list[str]:
        """Every model that was compared on the set or begun to be, in plan order."""
        folder = self.run.evaluation_set(name)
        found = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
        begun = {one["subject"] for one in self.events if one.get("event") == OPENED and one.get("set") == name}
        return sorted({*found, *begun}, key=self._order)

    def _order(self, subject: str) -> tuple[int, int]:
        match = _SUBJECT.fullmatch(subject)
        if match is None or match[1] not in self.plan.arms:
            raise IntegrityError(
                f"{self.run.root}: evaluations of `{subject}`: that is no model of this plan (ARM@UPDATES)",
                hint="Remove the folder, if nothing of this plan made it.",
            )
        return list(self.plan.arms).index(match[1]), int(match[2])

    def command(self, name: str, subject: str) -> str:
        """What makes the comparison, or who has to."""
        if self.options is None:
            return f"whoever made the run `{self.run.root.name}` has to finish it"
        return f"ablation evaluate {name} --subject {subject}{options_of_start(self.events)}{self.options}"

    def _compared(self, name: str, subject: str) -> Compared:
        spec = self.sets[name]
        folders = self.run.evaluated(name, subject), self.run.evaluated_reference(name, subject)
        about: dict[str, Any] = {"opened": self._opened(name, subject), "reused": reused_from(self.events, name, subject)}
        gaps = [self._gap(spec, subject, side) for side in ("subject", "reference")]
        if any(gaps):
            command = self.command(name, subject)
            return Compared(name, subject, missing=tuple(Missing(gap, command) for gap in gaps if gap), **about)
        own, other = (self._stage(one) for one in folders)
        notes = check_pairing(other, own, folders[0], f"{name}/{subject}", "reference", "subject")
        notes += self._ledgers_say(name, subject)
        hours = comparison_hours(self.events, name, subject)
        wrong = self._same_day(name, subject, hours)
        figures, details = self._figures(spec, subject, own, other)
        notes += details.get("warnings", [])
        moved = tuple(self._drift(name, subject))
        start = None if name in ASIDE else self.outcomes(name, folders[1])
        return Compared(name, subject, figures, (), tuple(notes), wrong, hours, moved, details=details, reference=start, **about)

    def _opened(self, name: str, subject: str) -> int | None:
        begun = (one for one in self.events if (one.get("event"), one.get("set"), one.get("subject")) == (OPENED, name, subject))
        return next((one["deviation"] for one in begun if one.get("deviation") is not None), None)

    def _gap(self, spec: EvaluationSet, subject: str, side: str) -> str | None:
        """What is missing of one of the two stages, in words."""
        name, own = spec.name, side == "subject"
        folder = self.run.evaluated(name, subject) if own else self.run.evaluated_reference(name, subject)
        what = f"{name}/{subject}: the {'rollouts of the subject' if own else 'reference'}"
        if not stage_is_complete(folder):
            return f"{what} {'are' if own else 'is'} not there"
        stage = self._stage(folder)
        arm, updates = subject.split("@")
        who = (evaluation_family(self.plan), arm if own else START, name, int(updates) if own else 0)
        check_stage_of_plan(stage, self.plan, self.locked.digest, who, folder)
        cells, each = self._cells(spec)
        return missing_of(stage, cells, each, what, folder)

    def _read_stage(self, folder: Path) -> Stage:
        return read_stage(folder)

    def _checked_set(self, name: str) -> Path:
        """The run's copy of the set. Raises `IntegrityError` if it is not what the plan was locked with."""
        path = self.run.set_problems(name)
        wanted = self.locked.lock.resources.get(self.sets[name].field, {}).get("sha256")
        if not path.is_file() or (wanted is not None and sha256_file(path) != wanted):
            found = "is not the file that the plan was locked with" if path.is_file() else "is not there"
            raise IntegrityError(f"{path}: {found}", hint="Put back the copy that the comparisons began with.")
        return path

    def _problems(self, name: str) -> dict[str, Problem]:
        return load_problems(self._checked_set(name))

    def _cells(self, spec: EvaluationSet) -> tuple[Cells, int]:
        """The (item, effort) cells of the set, and how many rollouts each model has in each."""
        if spec.name == "agent":
            from ablation.problems.agent_states import load_states

            states = load_states(self._checked_set(spec.name))
            return [(one.id, one.effort or spec.efforts[0]) for one in states.values()], spec.each
        if spec.name == "safety":
            from ablation.problems.safety_prompts import load_safety_prompts

            names = list(load_safety_prompts(self._checked_set(spec.name)))
        else:
            names = list(self.problems(spec.name))
        return [(name, effort) for name in names for effort in spec.efforts], spec.per_cell(len(names))

    def _outcomes(self, name: str, folder: Path) -> Outcomes:
        stage, problems = self._stage(folder), self.problems(name)
        return outcomes(stage, problems, self.plan.loops, grades_of(folder, stage, problems, again=self.regrade))

    def _figures(self, spec: EvaluationSet, subject: str, own: Stage, other: Stage) -> tuple[Figures, dict[str, Any]]:
        if spec.name in ASIDE:
            from ablation.verdict.aside import agent_figures, safety_figures

            path = self._checked_set(spec.name)
            if spec.name == "agent":
                return agent_figures(path, own, other, self.plan)
            return safety_figures(self.run, subject, own, other, self.plan)
        folders = self.run.evaluated(spec.name, subject), self.run.evaluated_reference(spec.name, subject)
        models = self.outcomes(spec.name, folders[0]), self.outcomes(spec.name, folders[1])
        measured = measure(models[0]), measure(models[1])
        absent = absent_measures(own.info) | absent_measures(other.info)
        rules, settings = rules_on(self.plan, spec.name), self.plan.statistics
        return figures_of(
            rules, models, measured, settings, cluster="problem", shown=SHOWN, absent=absent, unread=self.plan.verdict.unread
        ), {}

    def _same_day(self, name: str, subject: str, hours: float | None) -> tuple[Reason, ...]:
        limit = self.plan.evaluation.same_day_hours
        if hours is None or hours <= limit or opened_by(self.deviations, "same-day") is not None:
            return ()
        text = (
            f"{name}/{subject}: its two models were sampled {hours:.1f} hours apart, the plan allows {limit:g} "
            "(evaluation.same_day_hours), and no deviation opens `same-day`."
        )
        return (Reason("NOT_THE_SAME_DAY", text),)

    def _ledgers_say(self, name: str, subject: str) -> list[str]:
        """Never-used problems that the ledger beside the plan has an earlier mark of than this comparison's own."""
        if name != "never-used":
            return []
        ledger, own = read_ledger(ledger_path(self.locked.path)), f"evaluations/{name}/{subject}/"
        marks = enumerate(ledger.marks)
        first = next((at for at, one in marks if one.plan == self.locked.digest and one.stage.startswith(own)), 0)
        section = self.plan.verdict.never_used
        alike = section is not None and section.near_duplicates == "refuse"
        found = replace(ledger, marks=ledger.marks[:first]).conflicts(self.problems(name).values())
        return [f"{name}/{subject}: not new: {one.in_words()}" for one in found if alike or not one.near]

    def _drift(self, name: str, subject: str) -> list[Drift]:
        found, folder = [], self.run.evaluated_reference(name, subject)
        for other in earlier_references(self.events, name, subject):
            before = self.run.evaluated_reference(name, other)
            if not stage_is_complete(before):
                continue
            correct = None
            if name not in ASIDE:
                correct = int(self.outcomes(name, folder).correct.sum()), int(self.outcomes(name, before).correct.sum())
            limit = self.plan.evaluation.drift
            found.append(drift(self._stage(folder), self._stage(before), correct, limit=limit, against=other))
        return found
