"""A verdict: labels, the rules behind them with their numbers, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ablation.plan.deviations import Deviation, decorated
from ablation.plan.model import START, Plan
from ablation.plan.tables import labels_of
from ablation.rollouts.attempts import Attempts
from ablation.rollouts.imported import IMPORTED
from ablation.verdict.rules import Figures, RuleResult, out_of_reach
from ablation.verdict.tables import Decided
from ablation.verdict.unread import Unread

if TYPE_CHECKING:
    from ablation.verdict.claims import ClaimVerdict
    from ablation.verdict.evaluated import Compared

FROM_ROLLOUTS = "rollouts"
FROM_REPORT = "reported figures, no rollouts"

GATE_SHUT = "not allowed"
"""Mark of a label whose rollouts neither plan nor deviation allowed."""

UNDECLARED = "UNDECLARED_DEVIATION"
"""Code of a reported step that the plan did not allow, or whose ground is not in the file, where no deviation is declared."""
UNDECLARED_MARK = "undeclared deviation"

DAMAGED, STABLE, UNDECIDED, STOPPED, MISSING = "DAMAGED", "STABLE", "UNDECIDED", "STOPPED", "MISSING"
NO_STEP = "NO_STEP"
"""An arm none of whose updates took a step: its readout is of the starting model, so it is neither damaged nor stable."""
REPLICATED, NOT_REPLICATED, INCOMPLETE, NOT_RUN = "REPLICATED", "NOT_REPLICATED", "INCOMPLETE", "NOT_RUN"
WIN_VERIFIED, WIN_UNVERIFIED, NO_WIN = "WIN_VERIFIED", "WIN_UNVERIFIED", "NO_WIN"
CONFIRMED, NOT_CONFIRMED = "CONFIRMED", "NOT_CONFIRMED"
WIN, PASSED, FAILED = "WIN", "PASSED", "FAILED"
RELEASE, NO_RELEASE = "RELEASE", "NO_RELEASE"
SELECTED, NONE_ELIGIBLE = "SELECTED", "NONE_ELIGIBLE"

SECTION_LABELS = {
    "replication": (REPLICATED, NOT_REPLICATED),
    "held_out": (WIN_VERIFIED, WIN_UNVERIFIED, NO_WIN),
    "never_used": (CONFIRMED, NOT_CONFIRMED),
    "selection": (SELECTED, NONE_ELIGIBLE),
    "main": (WIN, NO_WIN),
    "release": (RELEASE, NO_RELEASE),
}
"""What each part of a verdict can say by the study's tables; any can be UNDECIDED, INCOMPLETE or NOT_RUN, too."""


def section_labels(plan: Plan) -> dict[str, tuple[str, ...]]:
    """What each section can say by this plan's tables, and where nothing is decided."""
    verdict, found = plan.verdict, {}
    tables = {"replication": verdict.replication, "held_out": verdict.held_out, "never_used": verdict.never_used}
    tables |= {"main": verdict.release and verdict.release.main, "release": verdict.release}
    for name, standard in SECTION_LABELS.items():
        own = tables.get(name)
        of_table = standard if own is None else labels_of(name, own.table)
        found[name] = tuple(dict.fromkeys((*of_table, UNDECIDED, INCOMPLETE, NOT_RUN)))
    return found


UNIT_OF_CLAIM = (
    "These labels speak of these checkpoints. Each family has one training run per arm, so they do not show what the recipe "
    "does in general: that needs several training seeds. Intervals are over cells (problems at one effort), not over runs."
)
PHASE_2_CLUSTERS = "On the sets of phase 2 they are over problems, and for agent turns over tasks."


@dataclass(frozen=True)
class Reason:
    """Why a label is what it is: a code that scripts can rely on, and a sentence."""

    code: str
    text: str
    family: str | None = None
    """The one family that it is about."""

    def as_json(self) -> dict[str, str | None]:
        return {"code": self.code, "text": self.text, "family": self.family}


@dataclass(frozen=True)
class Missing:
    """Something that the verdict needs and that is not there, and the command that makes it (or, if none can, who or what)."""

    what: str
    command: str

    def as_json(self) -> dict[str, str]:
        return {"what": self.what, "command": self.command}


@dataclass(frozen=True)
class ArmVerdict:
    """One arm in one family, against the sweep of that family."""

    family: str
    arm: str
    label: str
    rules: Sequence[RuleResult] = ()
    figures: Figures | None = None
    stopped: dict[str, Any] | None = None
    """The stop rule that ended the run, with its numbers."""
    marks: tuple[str, ...] = ()
    """What its label says of imported rollouts, see `rollouts.imported.marks`."""

    @property
    def name(self) -> str:
        return f"{self.family}/{self.arm}"

    @property
    def unread_marks(self) -> tuple[str, ...]:
        return () if self.figures is None else self.figures.unread_marks

    def cannot_fire(self) -> list[tuple[str, str]]:
        """(name, why) of each rule that no readout could have made fire, whatever it came to."""
        if self.figures is None:
            return []
        found = [(one.rule.name, out_of_reach(one.rule, self.figures)) for one in self.rules]
        return [(name, why) for name, why in found if why is not None]

    def as_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"family": self.family, "arm": self.arm, "label": self.label}
        content |= {"rules": [one.as_json() for one in self.rules], "stopped": self.stopped, "marks": list(self.marks)}
        if self.figures is not None:
            content |= {
                "measures": dict(self.figures.subject),
                "changes": dict(self.figures.changes),
                "ratios": {name: one.as_json() for name, one in self.figures.ratios.items()},
            }
        return content


@dataclass(frozen=True)
class SectionVerdict:
    """One section of phase 2 for one subject: held-out, never-used, selection, main set or release."""

    label: str
    rules: Sequence[RuleResult] = ()
    reasons: Sequence[Reason] = ()
    subject: str | None = None
    """Whose figures these are."""
    deviation: str | None = None
    """Why a source ran this although the plan did not allow it: carried beside the label wherever it is shown."""
    decided: Decided | None = None
    """What the plan's table says; None where nothing was decided."""
    missing: Sequence[Missing] = ()
    """What the label still needs, or what could still change it."""
    wrong: Sequence[Reason] = ()
    """What was done although it was not allowed, and no deviation says so."""
    compared: Sequence[Compared] = ()
    """The comparisons behind it, set by set."""
    read: Mapping[str, Any] | None = None
    """The blinded read."""
    others: Sequence[SectionVerdict] = ()
    """The same section for the other subjects."""
    candidates: Sequence[Mapping[str, Any]] = ()
    """A selection's checkpoints, with the numbers that decide between them."""
    false_alarms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Guard -> how often a model equal to the start would fail it; see `power.guards`."""

    @property
    def figures(self) -> list[tuple[str, Figures]]:
        """(set, its figures) of each comparison that is whole."""
        return [(one.name, one.figures) for one in self.compared if one.figures is not None]

    @property
    def marks(self) -> tuple[str, ...]:
        """What is shown beside the label."""
        unread = tuple(f"{mark} on {name}" for name, one in self.figures for mark in one.unread_marks)
        undeclared = (UNDECLARED_MARK,) if any(one.code == UNDECLARED for one in self.reasons) else ()
        return (*((GATE_SHUT,) if self.wrong else ()), *undeclared, *unread)

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "subject": self.subject,
            "deviation": self.deviation,
            "rules": [one.as_json() for one in self.rules],
            "reasons": [one.as_json() for one in self.reasons],
            "row": None if self.decided is None else self.decided.row,
            "why": None if self.decided is None else self.decided.why,
            "missing": [one.as_json() for one in self.missing],
            "wrong": [one.as_json() for one in self.wrong],
            "compared": [one.as_json() for one in self.compared],
            "blinded_read": self.read,
            "candidates": [dict(one) for one in self.candidates],
            "false_alarms": {name: dict(one) for name, one in self.false_alarms.items()},
        }


@dataclass(frozen=True)
class Verdict:
    """What a plan's rules say of a run, or of reported figures."""

    plan: str
    digest: str
    source: str
    """FROM_ROLLOUTS or FROM_REPORT."""
    label: str
    """The replication's label: the headline."""
    reasons: Sequence[Reason]
    missing: Sequence[Missing]
    """Each thing once."""
    arms: Sequence[ArmVerdict]
    stable_arm: str | None = None
    """The first stable arm in plan order in the first family: the one that is replicated."""
    sweeps: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Family -> measures of its sweep."""
    sections: dict[str, SectionVerdict] = field(default_factory=dict)
    audits: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """`family/arm` -> name of an audited share -> [lowest, highest] over the updates."""
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    """`family/arm` -> how many of its audited updates took a step, and what each came to: see `verdict.steps`."""
    counts: Sequence[dict[str, Any]] = ()
    """Further comparisons of counts that a source reports."""
    reported_by: str | None = None
    """The source's own words on where its figures are from."""
    notes: Sequence[str] = ()
    deviations: Sequence[Deviation] = ()
    """What was done otherwise than the plan says: every label carries their numbers wherever it is shown."""
    external: Sequence[str] = ()
    """Arms that a command outside this program trained."""
    journal: dict[str, Any] | None = None
    """Length and head of the run's journal, so that a later cut of it is found; None for reported figures."""
    next_command: str | None = None
    """The one command that makes all that is missing; None if nothing is, or if no command of ours can."""

    claims: Sequence[ClaimVerdict] = ()
    """Tests between arms that the plan registered."""
    imported: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """`family/arm/stage` -> what is known of its rows, for each stage that was imported: see `rollouts.imported`."""
    attempts: Attempts = field(default_factory=Attempts)
    """What was done more than once: every label names it."""

    @property
    def marks(self) -> tuple[str, ...]:
        """Those of all arms, where only some rest on imported rollouts with their names; then what was done more than once, and
        whose answers could not be read."""
        found = [mark for one in self.arms for mark in one.marks]
        named = [one.name for one in self.arms if one.marks]
        first = IMPORTED if len(named) == len(self.arms) else f"{IMPORTED}: {', '.join(named)}"
        imported = (first, *(mark for mark in dict.fromkeys(found) if mark != IMPORTED)) if found else ()
        unread = [one.name for one in self.arms if one.unread_marks]
        return (*imported, *self.attempts.marks(), *([f"unread: {', '.join(unread)}"] if unread else []))

    @property
    def unread(self) -> dict[str, Unread]:
        """Stage -> its answers that could not be read, for each stage that a label rests on."""
        stages = [
            (f"{one.name}/readout", f"{one.family}/{START}/sweep", one.figures) for one in self.arms if one.figures is not None
        ]
        for section in self.sections.values():
            for part in (section, *section.others):
                for name, figures in part.figures:
                    at = f"evaluations/{name}/{part.subject}"
                    stages.append((f"{at}/subject", f"{at}/reference", figures))
        pairs = [(names, figures.unread) for *names, figures in stages if figures.unread is not None]
        return {name: one for names, sides in pairs for name, one in zip(names, sides, strict=True)}

    @property
    def unit_of_claim(self) -> str:
        """What the labels speak of, and what of it the plan's claims go beyond."""
        parts = [UNIT_OF_CLAIM]
        if any(section.compared for section in self.sections.values()):
            parts.append(PHASE_2_CLUSTERS)
        over_seeds = [one for one in self.claims if one.claim.method == "welch"]
        if over_seeds:
            names = ", ".join(f"{one.name} ({len(one.families)} seeds)" for one in over_seeds)
            parts.append(f"Claims over training seeds, by Welch's test, speak of the recipe: {names}.")
        return " ".join(parts)

    def beside(self) -> list[str]:
        """What stands beside every label, in words: deviations, what was done more than once, and unread answers."""
        deviations = (one.in_words() for one in self.deviations)
        return [*(f"{one[0].upper()}{one[1:]}" for one in deviations), *self.attempts.lines(), *self._unread_lines()]

    def _unread_lines(self) -> list[str]:
        """The shares of all stages in one line, and a warning for each arm and comparison that has too many."""
        known = sorted((one for one in self.unread.values() if one.share is not None), key=lambda one: one.share)
        if not known:
            return []
        figures = [(one.name, one.figures) for one in self.arms if one.figures is not None]
        parts = [part for section in self.sections.values() for part in (section, *section.others)]
        figures += [(f"{name}/{part.subject}", one) for part in parts for name, one in part.figures]
        low, high = known[0].shown, known[-1].shown
        of = "of the answers that ended could not be read"
        return [
            f"{low}{'' if low == high else f' to {high}'} {of} ({len(known)} stages).",
            *(f"UNREAD ANSWERS, {name}: {one.unread_warning}." for name, one in figures if one.unread_warning),
        ]

    def shown(self, label: str) -> str:
        """`label` of the whole run with what it was computed under: `NOT_REPLICATED (deviation 1; imported)`."""
        return decorated(label, self.deviations, self.marks)

    def shown_arm(self, one: ArmVerdict) -> str:
        """The label of an arm with what it was computed under."""
        return decorated(one.label, self.deviations, (*one.marks, *self.attempts.marks(one.name), *one.unread_marks))

    def shown_section(self, one: SectionVerdict) -> str:
        """The label of a section with what it was computed under, and what was done without being allowed."""
        return decorated(one.label, self.deviations, (*self.marks, *one.marks))

    def _section(self, one: SectionVerdict) -> dict[str, Any]:
        """The section and its other subjects, each label as it is shown."""
        others = [self._section(other) for other in one.others]
        return one.as_json() | {"label": self.shown_section(one), "bare_label": one.label, "others": others}

    def cannot_fire(self) -> list[dict[str, str]]:
        """Damage rules that no readout could have made fire, by family, each once."""
        found = {(one.family, name, why): None for one in self.arms for name, why in one.cannot_fire()}
        return [dict(zip(("family", "rule", "why"), one, strict=True)) for one in found]

    def labels(self) -> dict[str, str]:
        """Every label of the verdict by its section, bare."""
        return {"replication": self.label} | {name: one.label for name, one in self.sections.items()}

    def as_json(self) -> dict[str, Any]:
        """`label` and `labels` carry the deviations, so that nobody reads a label without them; `bare_label` does not."""
        shown = {"replication": self.shown(self.label)} | {name: self.shown_section(one) for name, one in self.sections.items()}
        arms = [one.as_json() | {"label": self.shown_arm(one)} for one in self.arms]
        sections = {name: self._section(one) for name, one in self.sections.items()}
        return {
            "plan": {"name": self.plan, "digest": self.digest},
            "source": self.source,
            "reported_by": self.reported_by,
            "label": self.shown(self.label),
            "bare_label": self.label,
            "labels": shown,
            "deviations": [one.as_json() for one in self.deviations],
            "imported": dict(self.imported),
            "external": list(self.external),
            "journal": self.journal,
            "reasons": [one.as_json() for one in self.reasons],
            "missing": [one.as_json() for one in self.missing],
            "next_command": self.next_command,
            "stable_arm": self.stable_arm,
            "arms": arms,
            "sweeps": self.sweeps,
            "sections": sections,
            "audits": self.audits,
            "steps": self.steps,
            "unread": {name: one.as_json() for name, one in self.unread.items()},
            "cannot_fire": self.cannot_fire(),
            "counts": list(self.counts),
            "notes": list(self.notes),
            "claims": [one.as_json() for one in self.claims],
            "integrity": [one.as_json() for section in self.sections.values() for one in section.wrong],
            "claim": self.unit_of_claim,
        } | self.attempts.as_json()
