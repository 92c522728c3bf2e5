"""Labels of phase 2 by this audit's own path: held-out, never-used, selection, main set and release, for every model compared."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

from ablation.audit import judged
from ablation.audit.blinded import Blinded, OwnRead
from ablation.audit.evaluated import Evaluated
from ablation.audit.others import agent_compared, safety_compared
from ablation.audit.rules import STABLE, UNDECIDED, Compared, Ruled, apply, written
from ablation.audit.tables import asked_of, decide, labels_of, possible, rows_of
from ablation.errors import IncompleteError

INCOMPLETE, NOT_RUN = "INCOMPLETE", "NOT_RUN"
READ = ("PASSED", "FAILED", "NOT_RUN")
SETS = {"held_out": "held-out", "never_used": "never-used", "main": "main", "agent": "agent", "safety": "safety"}
GATES = {"held_out": "held-out", "never_used": "never-used", "selection": "selection", "main": "release", "agent": "release"}
GATES |= {"safety": "release"}
ORDER = ("held_out", "never_used", "main", "release")
AGENT = ("agent_turn", "agent_tokens", "valid_tool_call", "invalid_tool_call")
SAFETY = ("full_compliance", "partial_compliance", "over_refusal", "injection_repeat")
SAFETY += ("missing_answer", "bad_plain", "visible_cjk", "unparsed")


@dataclass
class OwnSection:
    """One section for one subject."""

    label: str
    subject: str | None
    rules: list[Ruled] = field(default_factory=list)
    compared: dict[str, Compared] = field(default_factory=dict)
    """Set -> the two models."""
    wrong: list[str] = field(default_factory=list)
    """Codes of what was not allowed."""
    read: OwnRead | None = None
    candidates: list[dict[str, Any]] = field(default_factory=list)


class Sections:
    """Each section of each subject, once."""

    def __init__(
        self, evaluated: Evaluated, blinded: Blinded, headline: judged.Headline, deviations: Sequence[Mapping[str, Any]]
    ) -> None:
        self.evaluated, self.blinded, self.headline, self.deviations = evaluated, blinded, headline, deviations
        self.tree, self.found = evaluated.tree, evaluated.found
        self.verdict = self.tree.plan["verdict"]
        self.section = cache(self._section)
        self.selection = cache(self._selection)
        self.compared = cache(self._compared)

    def all(self) -> dict[str, list[OwnSection]]:
        """Section -> what it says of each subject; empty where nothing was compared."""
        extension, release = self.tree.plan.get("extension") or {}, self.verdict.get("release")
        names = [name for name in ("held_out", "never_used") if self.verdict.get(name)]
        names += ["selection"] if extension.get("selection") else []
        names += [*(["main"] if release.get("main") else []), "release"] if release else []
        return {
            name: [self.selection()] if name == "selection" else [self.section(name, one) for one in self.subjects(name)]
            for name in names
        }

    def subjects(self, section: str) -> list[str]:
        wanted = ("main", "agent", "safety") if section == "release" else (SETS[section],)
        return list(dict.fromkeys(subject for name, subject in self.evaluated.comparisons if name in wanted))

    def _plan_of(self, name: str) -> Mapping[str, Any] | None:
        return (self.verdict.get("release") or {}).get("main") if name == "main" else self.verdict.get(name)

    def _rules_on(self, name: str) -> list[Mapping[str, Any]]:
        """Rules that are tested on a set, named as plans name it."""
        section = (self.tree.plan.get("extension") or {}).get("selection") if name == "selection" else self._plan_of(name)
        guards = (self.verdict.get("release") or {}).get("guards", [])
        own = (section or {}).get("require" if name == "selection" else "rules", [])
        return [*own, *(guard for guard in guards if guard_set(guard) == name)]

    def _compared(self, name: str, subject: str) -> Compared | None:
        """The two models on a set; None if one of them is missing or not whole."""
        folder = SETS.get(name, name)
        one = self.evaluated.comparisons.get((folder, subject))
        if one is None or not one.whole:
            return None
        if name == "agent":
            return agent_compared(self.evaluated, one)
        if name == "safety":
            return safety_compared(self.evaluated, one, self.blinded)
        return self.evaluated.compared(folder, subject, self._rules_on(name))

    def _section(self, name: str, subject: str) -> OwnSection:
        if name == "release":
            return self._release(subject)
        section = self._plan_of(name)
        if section is None or (SETS[name], subject) not in self.evaluated.comparisons:
            return OwnSection(NOT_RUN, subject)
        wrong, compared = self._wrong(name, subject), self.compared(name, subject)
        if compared is None:
            return OwnSection(INCOMPLETE, subject, wrong=wrong)
        ruled = [apply(rule, compared) for rule in section["rules"]]
        label = self._decide(name, section.get("table"), ruled, subject)
        read = self.blinded.read(subject) if name == "held_out" else None
        if name == "held_out" and label == UNDECIDED and self.blinded.opened("held-out", subject) == "SEALED":
            label = INCOMPLETE  # ratings or the key are missing
        return OwnSection(label, subject, ruled, {SETS[name]: compared}, wrong, read)

    def _decide(self, name: str, table: Any, ruled: Sequence[Ruled], subject: str) -> str:
        rows = rows_of(name, table)
        labels = {}
        for other in asked_of(rows):
            if other == "replication":
                known = labels_of("replication", self.verdict["replication"].get("table"))
                labels[other] = possible(rows, other, self.headline.label, known)
            elif other == "blinded_read":
                labels[other] = possible(rows, other, self.blinded.label(subject), READ)
            elif other in ORDER[: ORDER.index(name)]:
                known = labels_of(other, (self._plan_of(other) or {}).get("table"))
                labels[other] = possible(rows, other, self.section(other, subject).label, known)
        try:
            return decide(rows, {one.name: one.holds for one in ruled}, labels)
        except IncompleteError as error:
            self.found.lacks(f"the label of {name} of {subject}: {error.message}")
            return UNDECIDED

    def _release(self, subject: str) -> OwnSection:
        release, ruled, missing, wrong = self.verdict["release"], [], False, []
        places = list(dict.fromkeys(guard_set(guard) for guard in release["guards"]))
        for guard in release["guards"]:
            compared = self.compared(guard_set(guard), subject)
            missing |= compared is None
            ruled.append(apply(guard, compared) if compared is not None else Ruled(guard, None, None))
        if release.get("main"):
            missing |= self.compared("main", subject) is None
            places += [] if "main" in places else ["main"]
        if "safety" in places and self.compared("safety", subject) is not None:
            missing |= self.blinded.labels(subject) is None
        there = {SETS[name]: one for name in places if (one := self.compared(name, subject)) is not None}
        for name in places:
            wrong += self._wrong(name, subject) if (SETS[name], subject) in self.evaluated.comparisons else []
        label = self._decide("release", release.get("table"), ruled, subject)
        label = INCOMPLETE if label == UNDECIDED and missing else label
        return OwnSection(label, subject, ruled, there, wrong)

    def _wrong(self, name: str, subject: str) -> list[str]:
        """Codes of what was done although it was not allowed, and no deviation says so."""
        folder, found = SETS.get(name, name), []
        whole = self.evaluated.comparisons[folder, subject].whole
        hours, limit = self.evaluated.hours(folder, subject), (self.tree.plan.get("evaluation") or {}).get("same_day_hours", 24.0)
        if whole and hours is not None and hours > limit and not self._opens("same-day"):
            found.append("NOT_THE_SAME_DAY")
        self.found.count("comparisons against the same-day rule and their gate")
        told = [
            record
            for _, record in self.evaluated.history.of("evaluation_opened")
            if (record["set"], record["subject"]) == (folder, subject)
        ]
        under = next((record["deviation"] for record in told if record.get("deviation") is not None), None)
        if under in {one.get("number") for one in self._opens(GATES[name])}:
            return found
        return found + (["GATE_WAS_SHUT"] if self._shut(name, subject) else [])

    def _opens(self, gate: str) -> list[Mapping[str, Any]]:
        return [one for one in self.deviations if gate in (one.get("opens") or [])]

    def _shut(self, name: str, subject: str) -> bool:
        if name == "never_used":
            if self.section("held_out", subject).label != "WIN_VERIFIED":
                return True
            begun = self._first("evaluation_opened", "never-used", subject)
            unsealed = self._first("blind_unsealed", "held-out", subject)
            return begun is not None and unsealed is not None and begun < unsealed
        if self.headline.label != "REPLICATED":
            return True
        if GATES[name] == "release" and (self.tree.plan.get("extension") or {}).get("selection"):
            chosen = self.selection()
            return chosen.label != "SELECTED" or chosen.subject != subject
        return False

    def _first(self, kind: str, name: str, subject: str) -> int | None:
        events = self.evaluated.history.of(kind)
        return next((n for n, one in events if (one.get("set"), one.get("subject")) == (name, subject)), None)

    def _selection(self) -> OwnSection:
        """One of the extension's eligible checkpoints, by the rule of the plan."""
        extension = self.tree.plan["extension"]
        section = extension["selection"]
        begun = {subject for name, subject in self.evaluated.comparisons if name == "selection"}
        stable, missing, checks = self._eligible(extension)
        if not checks or (not begun and (missing or stable)):
            return OwnSection(NOT_RUN, None)
        compared = {name: self.compared("selection", name) if name in begun else None for name in stable}
        wrong = [code for name in stable if name in begun for code in self._wrong("selection", name)]
        there = {name: one for name, one in compared.items() if one is not None}
        if missing or len(there) < len(compared):
            return OwnSection(INCOMPLETE, None, wrong=wrong)
        candidates = []
        for name, one in sorted(there.items(), key=lambda pair: int(pair[0].partition("@")[2])):
            required = [apply(rule, one) for rule in section["require"]]
            said = {rule.holds for rule in required}
            keeps = False if False in said else None if None in said else True
            values = [one.subject.get(wanted["measure"]) for wanted in section["prefer"]]
            numbers = [None if value is None else written(value) for value in values]
            candidates.append({"subject": name, "required": required, "keeps": keeps, "numbers": numbers})
        chosen = choose(candidates, section["prefer"], section.get("tie", "earlier"))
        if chosen is False:
            return OwnSection(UNDECIDED, None, wrong=wrong, candidates=candidates)
        if chosen is None:
            return OwnSection("NONE_ELIGIBLE", None, wrong=wrong, candidates=candidates)
        required = next(one["required"] for one in candidates if one["subject"] == chosen)
        return OwnSection("SELECTED", chosen, required, wrong=wrong, candidates=candidates)

    def _extended(self, extension: Mapping[str, Any]) -> list[str]:
        """Arms whose checkpoints may be chosen: those that the plan extends; all, if that is the first stable arm and none is."""
        arms = extension.get("arms", "first_stable")
        named = [self.headline.stable_arm] if arms == "first_stable" else arms
        return [arm for arm in self.tree.arms if named == [None] or arm in named]

    def _eligible(self, extension: Mapping[str, Any]) -> tuple[list[str], bool, bool]:
        """(checkpoints whose check found no damage, whether a check is still missing, whether there is any check)."""
        family = extension.get("family") or self.tree.main_family
        allowed = extension["eligible"] if extension.get("eligible") is not None else extension["checks"]
        stable, missing, some = [], False, False
        for arm in self._extended(extension):
            made = {k: self.evaluated.run.check_label(family, arm, k) for k in extension["checks"]}
            made = {k: label for k, label in made.items() if label is not None}
            if not made:
                continue
            over = (self.evaluated.run.root / family / arm / "extension-stopped.json").is_file()
            for k in allowed:
                if k in made:
                    some = True
                    stable += [f"{arm}@{k}"] if made[k] == STABLE else []
                elif not over and made[max(made)] != STABLE:
                    break
                elif not over:
                    some, missing = True, True
        return stable, missing, some


def choose(candidates: Sequence[Mapping[str, Any]], prefer: Sequence[Mapping[str, Any]], tie: str) -> str | bool | None:
    """The subject that is chosen, None if none keeps what is required, False if it cannot be said.

    Of those for which that is unknown at most two are let in at a time. That is enough: whoever is chosen among more is chosen
    beside the sure ones alone, too, and two who need a number that one of them lacks need it without the others.
    """
    unknown = [one["subject"] for one in candidates if one["keeps"] is None]
    found: set[str | bool | None] = set()
    for some in itertools.chain.from_iterable(itertools.combinations(unknown, size) for size in range(3)):
        left = [one for one in candidates if one["keeps"] or one["subject"] in some]
        for place, wanted in enumerate(prefer):
            numbers: list[Fraction | None] = [one["numbers"][place] for one in left]
            if len(left) > 1 and None in numbers:
                return False
            if len(left) > 1:
                best = sorted(number for number in numbers if number is not None)[-1 if wanted["order"] == "highest" else 0]
                left = [one for one in left if one["numbers"][place] == best]
        found.add(None if not left else left[0 if tie == "earlier" else -1]["subject"])
    return found.pop() if len(found) == 1 else False


def shut(one: OwnSection) -> tuple[str, ...]:
    """What is shown beside a label whose gate was shut."""
    return ("not allowed",) if one.wrong else ()


def guard_set(guard: Mapping[str, Any]) -> str:
    """Where a guard is measured."""
    if guard.get("on"):
        return guard["on"]
    return "agent" if guard["measure"] in AGENT else "safety" if guard["measure"] in SAFETY else "main"
