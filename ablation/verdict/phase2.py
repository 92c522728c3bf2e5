"""The sections of phase 2, from the rollouts of their comparisons to their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablation.plan.judging import READ_LABELS
from ablation.plan.phase2 import guard_set
from ablation.plan.rules import Rule
from ablation.plan.tables import labels_of
from ablation.verdict.evaluated import Compared, Evaluations
from ablation.verdict.gated import not_as_planned, why_not_allowed
from ablation.verdict.labels import Earlier, decide_section, must_hold, read_reason
from ablation.verdict.locked import Locked
from ablation.verdict.model import (
    INCOMPLETE,
    NOT_RUN,
    SELECTED,
    UNDECIDED,
    ArmVerdict,
    Missing,
    Reason,
    SectionVerdict,
)
from ablation.verdict.rules import Figures, RuleResult, judge

if TYPE_CHECKING:
    from ablation.verdict.run import RunReader

REFERENCE = "the start"
SETS = {"held_out": "held-out", "never_used": "never-used", "main": "main", "agent": "agent", "safety": "safety"}
"""Where a rule is measured, as plans say it -> the set, as commands and folders name it."""
TOO_FEW, SEALED = "READ_TOO_FEW_PAIRS", "READ_SEALED"
"""Reasons of a blinded read that was not made."""


Check = Callable[[str, str, int], ArmVerdict | None]
"""(family, arm, update) -> what the damage rules say of that check of the extension; None if it is not there."""


@dataclass(frozen=True)
class Read:
    """A blinded read as a section sees it."""

    label: str = NOT_RUN
    passes: int | None = None
    content: dict[str, Any] | None = None
    reasons: tuple[Reason, ...] = ()


class Phase2:
    """Each section of each subject, once."""

    def __init__(self, reader: Evaluations, replication: str, stable_arm: str | None, check: Check) -> None:
        """`replication`: the label of the headline; `stable_arm`: the arm that was replicated."""
        self.reader, self.plan, self.check = reader, reader.plan, check
        self.replication, self.stable_arm = replication, stable_arm
        self.section: Callable[[str, str], SectionVerdict] = cache(self._section)
        self.read: Callable[[str], Read] = cache(self._read)
        self.selection: Callable[[], SectionVerdict] = cache(self._selection)

    def sections(self) -> dict[str, SectionVerdict]:
        """Every section that the plan has, for the subject that its headline is of, with the others beside it."""
        verdict, found = self.plan.verdict, {}
        names = ["held_out"] if verdict.held_out is not None else []
        names += ["never_used"] if verdict.never_used is not None else []
        names += ["selection"] if self.plan.extension is not None and self.plan.extension.selection is not None else []
        if verdict.release is not None:
            names += ["main"] if verdict.release.main is not None else []
            names += ["release"]
        for name in names:
            found[name] = self.selection() if name == "selection" else self._headline(name)
        return found

    def subjects(self, section: str) -> list[str]:
        """Every model that the section has something of."""
        names = ("main", "agent", "safety") if section == "release" else (SETS[section],)
        found = [subject for name in names if name in self.reader.sets for subject in self.reader.subjects(name)]
        return list(dict.fromkeys(found))

    def _headline(self, name: str) -> SectionVerdict:
        subjects = self.subjects(name)
        if not subjects:
            return SectionVerdict(NOT_RUN)
        first = self._named(name)
        first = first if first in subjects and len(subjects) > 1 else subjects[0]
        others = tuple(self.section(name, one) for one in subjects if one != first)
        return replace(self.section(name, first), others=others)

    def _named(self, section: str) -> str | None:
        """The subject that the plan means, where several were compared."""
        if section in ("main", "release") and self.plan.extension is not None and self.plan.extension.selection is not None:
            chosen = self.selection()
            if chosen.label == SELECTED:
                return chosen.subject
        return None if self.stable_arm is None else f"{self.stable_arm}@{self.plan.training.updates}"

    def _section(self, name: str, subject: str) -> SectionVerdict:
        if name == "selection":
            return self.selection()
        return self._release(subject) if name == "release" else self._answers(name, subject)

    def _answers(self, name: str, subject: str) -> SectionVerdict:
        """Held-out, never-used or the main set: rules on one comparison."""
        release = self.plan.verdict.release
        section = (release and release.main) if name == "main" else getattr(self.plan.verdict, name)
        assert section is not None
        compared = self._compared(name, subject)
        if compared is None:
            return SectionVerdict(NOT_RUN, subject=subject)
        wrong = self._wrong(name, subject, compared)
        if compared.figures is None:
            return SectionVerdict(
                INCOMPLETE,
                subject=subject,
                missing=compared.missing,
                wrong=wrong,
                compared=(compared,),
                reasons=[*not_as_planned(self, name, subject, compared), _gone(compared)],
            )
        results = self._results(section.rules, compared.figures)
        earlier, reasons = self._earlier(name, subject), not_as_planned(self, name, subject, compared) + must_hold(results)
        missing: list[Missing] = []
        read: Read | None = None
        sealed = False
        if name == "held_out":
            read = self.read(subject)
            reasons += list(read.reasons)
            sealed = any(one.code == SEALED for one in read.reasons)
            if all(one.holds for one in results) and not sealed:
                reasons.append(read_reason(section.blinded_read, read.label, read.passes))
            missing += self._read_missing(subject, read, results)
        decided = decide_section(name, section.table, results, earlier)
        return SectionVerdict(
            INCOMPLETE if decided.label == UNDECIDED and sealed else decided.label,
            results,
            reasons,
            subject,
            decided=decided,
            missing=missing,
            wrong=wrong,
            compared=(compared,),
            read=None if read is None or read.label == NOT_RUN else read.content,
        )

    def _compared(self, name: str, subject: str) -> Compared | None:
        """The comparison, None where nothing of it was begun."""
        known = SETS[name] in self.reader.sets and subject in self.reader.subjects(SETS[name])
        return self.reader.compared(SETS[name], subject) if known else None

    def _results(self, rules: Sequence[Rule], figures: Figures) -> list[RuleResult]:
        return [judge(rule, figures, REFERENCE) for rule in rules]

    def _earlier(self, name: str, subject: str) -> Earlier:
        """The labels that the table of section `name` may ask for."""
        verdict = self.plan.verdict
        found: Earlier = {"replication": (self.replication, labels_of("replication", verdict.replication.table))}
        if verdict.held_out is not None:
            found["blinded_read"] = (self.read(subject).label, READ_LABELS[:2] + READ_LABELS[3:])
        order = ["held_out", "never_used", "main", "release"]
        for one in order[: order.index(name)]:
            of_plan = verdict.release and verdict.release.main if one == "main" else getattr(verdict, one)
            if of_plan is not None:
                found[one] = (self.section(one, subject).label, labels_of(one, of_plan.table))
        return found

    def _read(self, subject: str) -> Read:
        from ablation.blind.result import read_result

        found = read_result(self.reader.run, "held-out", subject, self.plan) if self._compared("held_out", subject) else None
        if found is None:
            return Read()
        reasons = tuple(Reason(f"READ_{one.code}", one.text) for one in found.reasons if found.label == UNDECIDED)
        if any(one.code == TOO_FEW for one in reasons):  # there is nothing to read, so it can neither pass nor fail
            return Read(NOT_RUN, None, None, reasons)
        return Read(found.label, found.passes, found.as_json(), reasons)

    def _read_missing(self, subject: str, read: Read, results: Sequence[RuleResult]) -> list[Missing]:
        """The blinded read that could still change the label."""
        options = self.reader.options
        if any(one.holds is False for one in results) or any(one.code == TOO_FEW for one in read.reasons):
            return []
        sealed = any(one.code == SEALED for one in read.reasons)
        if not sealed and read.label != NOT_RUN:
            return []
        step, what = ("status", "ratings, or the key") if sealed else ("pairs", "no blinded read")
        command = f"ablation blind {step} --subject {subject}{options}"
        command = f"whoever made the run `{self.reader.run.root.name}` has to finish it" if options is None else command
        return [Missing(f"held-out/{subject}: {what}", command)]

    def _release(self, subject: str) -> SectionVerdict:
        release = self.plan.verdict.release
        assert release is not None
        results, compared, missing = [], {}, []
        for guard in release.guards:
            where = guard_set(guard)
            one = compared.setdefault(where, self._compared(where, subject))
            if one is None or one.figures is None:
                name = SETS[where]
                why = f"`{name}` was not sampled for {subject}" if one is None else f"`{name}` is not whole for {subject}"
                missing += one.missing if one is not None else self._to_sample(name, subject)
                results.append(judge(guard, Figures(absent={guard.measure: why}), REFERENCE))
            else:
                results.append(judge(guard, one.figures, REFERENCE))
        earlier, reasons = self._earlier("release", subject), must_hold(results)
        if release.main is None:
            reasons.append(Reason("NO_MAIN_SET", "The plan names no main set, so no win on it can be found here."))
        elif compared.setdefault("main", self._compared("main", subject)) is None:
            missing += self._to_sample("main", subject)
        else:
            missing += self.section("main", subject).missing
            label = self.section("main", subject).label
            reasons.insert(0, Reason("MAIN_SET", f"The main set says {label}."))
        missing += self._labels_missing(subject, compared.get("safety"))
        decided = decide_section("release", release.table, results, earlier)
        missing = list(dict.fromkeys(missing))
        label = INCOMPLETE if decided.label == UNDECIDED and missing else decided.label
        there = tuple(one for one in compared.values() if one is not None)
        wrong = [reason for where, one in compared.items() if one is not None for reason in self._wrong(where, subject, one)]
        otherwise = [reason for where, one in compared.items() if one for reason in not_as_planned(self, where, subject, one)]
        reasons = list(dict.fromkeys([*otherwise, *reasons]))
        return SectionVerdict(label, results, reasons, subject, decided=decided, missing=missing, wrong=wrong, compared=there)

    def _to_sample(self, name: str, subject: str) -> list[Missing]:
        if name not in self.reader.sets:
            return [Missing(f"{name}: the plan names no such set", "it takes a plan that does")]
        return [Missing(f"{name}/{subject}: was not sampled", self.reader.command(name, subject))]

    def _labels_missing(self, subject: str, compared: Compared | None) -> list[Missing]:
        if compared is None or compared.figures is None or compared.details.get("labelled", True):
            return []
        options = self.reader.options
        command = f"ablation blind pairs safety --subject {subject}{options}"
        command = f"whoever made the run `{self.reader.run.root.name}` has to finish it" if options is None else command
        return [Missing(f"safety/{subject}: its answers are not labelled", command)]

    def _wrong(self, name: str, subject: str, compared: Compared) -> list[Reason]:
        return [*compared.wrong, *why_not_allowed(self, name, subject, compared)]

    def _selection(self) -> SectionVerdict:
        from ablation.verdict.selection import judge_selection

        return judge_selection(self)


def _gone(compared: Compared) -> Reason:
    return Reason("MISSING", "; ".join(one.what for one in compared.missing) + ".")


def phase2_of(root: Path, locked: Locked, reader: RunReader | None = None) -> Phase2:
    """Phase 2 of the run in `root`. Raises as `judge_run` does."""
    from ablation.verdict.run import open_phase2

    return open_phase2(root, locked, reader)


def section_label(root: Path, locked: Locked, section: str, subject: str) -> str:
    """The bare label of a section (`held_out`, `never_used`, `main`, `release`) for a subject. Raises as `judge_run` does."""
    return phase2_of(root, locked).section(section, subject).label


def selected_subject(root: Path, locked: Locked) -> str | None:
    """The checkpoint that was selected (`ARM@UPDATES`), None if none was. Raises as `judge_run` does."""
    if locked.plan.extension is None or locked.plan.extension.selection is None:
        return None
    found = phase2_of(root, locked).selection()
    return found.subject if found.label == SELECTED else None
