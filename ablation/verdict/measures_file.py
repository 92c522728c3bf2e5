"""The file of reported figures that `ablation verdict --measures` reads; `runs/README.md` is its reference.

Closed and typed like a plan. Counts that cannot be are refused here, so that no rule is ever tested on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, create_model, model_validator

from ablation.measures.bootstrap import Estimate
from ablation.plan.measures import ALL, COUNTS, OF_STAGES, PAIRED, RATIOS, Measure
from ablation.plan.section import (
    Count,
    Name,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
    Share,
    Text,
    did_you_mean,
    refuse_any,
)
from ablation.verdict.exact import exact
from ablation.verdict.possible import OWN_RATIOS, impossible, impossible_changes, of_count, of_numbers, undefined
from ablation.verdict.rules import REPORTED, Figures

At = tuple[str | int, ...]
_OF_STAGES = {name: ALL[name] for name in OF_STAGES}


def _number(one: Measure) -> Any:
    """The type of a model's own number."""
    if one.whole or one.high == 1.0:
        return Count if one.whole else Share
    if one.high == 0.0:
        return Annotated[float, Field(le=0)]
    return PositiveFloat if one.low == 1.0 else NonNegativeFloat


Numbers = create_model("Numbers", __base__=Section, **{name: (_number(one) | None, None) for name, one in _OF_STAGES.items()})
"""One model's own numbers; what was not published is left out."""
Changes = create_model(
    "Changes", __base__=Section, **{name: ((int if one.whole else float) | None, None) for name, one in _OF_STAGES.items()}
)
"""Subject minus reference."""


class ReportedNumber(Section):
    """A number with its interval if it was published."""

    value: float
    low: float | None = None
    high: float | None = None
    level: Share | None = None
    """Level of the interval; left out: the plan's."""

    @model_validator(mode="after")
    def _ordered(self) -> ReportedNumber:
        problems: list[tuple[At, str]] = []
        if (self.low is None) != (self.high is None):
            problems.append((("low" if self.low is None else "high",), "an interval has both ends"))
        elif self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            problems.append((("value",), f"{self.value} is not between low {self.low} and high {self.high}"))
        refuse_any(problems)
        return self

    def estimate(self, level: float) -> Estimate:
        """`level`: of an interval that names none."""
        return Estimate(self.value, self.low, self.high, None if self.low is None else self.level or level)


class ReportedRatio(ReportedNumber):
    """Subject / reference."""

    value: PositiveFloat
    low: PositiveFloat | None = None
    high: PositiveFloat | None = None


class ReportedRate(ReportedNumber):
    """A count / its rollouts."""

    value: Share
    low: Share | None = None
    high: Share | None = None


Ratios = create_model("Ratios", __base__=Section, **{name: (ReportedRatio | None, None) for name in RATIOS})


class Comparison(Section):
    """A subject against its reference, on equally many rollouts."""

    rollouts: PositiveInt | None = None
    """Rollouts of each of the two models."""
    subject: Numbers = Field(default_factory=Numbers)
    reference: Numbers = Field(default_factory=Numbers)
    changes: Changes = Field(default_factory=Changes)
    ratios: Ratios = Field(default_factory=Ratios)
    change_intervals: dict[Text, ReportedNumber] = Field(default_factory=dict)
    """Measure -> its change with an interval."""
    rates: dict[Text, ReportedRate] = Field(default_factory=dict)
    """Measure -> the subject's share of rollouts with an interval."""

    def figures(self, level: float) -> Figures:
        """What a rule can be tested on; `level` is that of an interval that names none."""
        subject, reference = (side.model_dump(exclude_none=True) for side in (self.subject, self.reference))
        given = {name: one for name in Ratios.model_fields if (one := getattr(self.ratios, name)) is not None}
        ratios = {name: one.estimate(level) for name, one in given.items()}
        if "cjk_share" not in ratios and reference.get("cjk_share") and "cjk_share" in subject:
            ratios["cjk_share"] = Estimate(exact(subject["cjk_share"]) / exact(reference["cjk_share"]), reason="no_interval")
        size = {} if self.rollouts is None else {"rollouts": self.rollouts}
        changes = self.changes.model_dump(exclude_none=True)
        intervals = {name: one.estimate(level) for name, one in self.change_intervals.items()}
        rates = {name: one.estimate(level) for name, one in self.rates.items()}
        for side, found in ((subject, rates), (changes, intervals)):  # a share may be given as a plain number
            if "correct_rate" in side and "correct_rate" not in found:
                found["correct_rate"] = Estimate(side["correct_rate"], reason="no_interval")
        changes |= {name: one.value for name, one in self.change_intervals.items() if name not in changes}
        return Figures(
            size | subject, size | reference, changes, ratios, self.statements(), REPORTED, intervals=intervals, rates=rates
        )

    def statements(self) -> dict[str, bool]:
        """Rule name -> whether it holds, where the source says so."""
        return {}

    @model_validator(mode="after")
    def _possible(self) -> Comparison:
        counts = [*self._impossible_counts("subject"), *self._impossible_counts("reference")]
        refuse_any([*counts, *self._impossible_changes(), *self._impossible_ratios(), *self._unknown_measures()])
        return self

    def _impossible_counts(self, side: str) -> Iterator[tuple[At, str]]:
        one = getattr(self, side)
        for name, text in (*impossible(one.model_dump(), self.rollouts), *undefined(one.model_dump())):
            yield (side, name), text
        rate, correct, rollouts = one.correct_rate, one.correct, self.rollouts
        if not (rate is None or correct is None or rollouts is None or of_count(rate, correct, rollouts)):
            yield (side, "correct_rate"), f"{rate} is not {correct} of {rollouts}"

    def _unknown_measures(self) -> Iterator[tuple[At, str]]:
        for field, known in (("change_intervals", PAIRED), ("rates", (*COUNTS, "correct_rate"))):
            for name in getattr(self, field):
                if name not in known:
                    yield (field, name), f"`{name}` has none; these have: {', '.join(known)}{did_you_mean(name, known)}"

    def _impossible_changes(self) -> Iterator[tuple[At, str]]:
        changes: dict[str, tuple[At, float | int]] = {}
        given = [(("change_intervals", name), one) for name, one in self.change_intervals.items()]
        for at, one in given:
            yield from self._impossible_interval(at, one)
            changes[at[1]] = (*at, "value"), one.value
        changes |= {name: (("changes", name), one) for name, one in self.changes.model_dump(exclude_none=True).items()}
        for name, (at, change) in changes.items():
            own, other, interval = getattr(self.subject, name), getattr(self.reference, name), self.change_intervals.get(name)
            if own is not None and other is not None and exact(change) != exact(own) - exact(other):
                yield at, f"{change} is not subject {own} minus reference {other}"
            if interval is not None and exact(interval.value) != exact(change):
                yield ("change_intervals", name), f"{interval.value} is not the change, {change}"
            if at[0] == "changes":
                yield from ((at, text) for text in self._beyond(name, change))
        whole = {name: change for name, (_, change) in changes.items() if exact(change).denominator == 1}
        for name, text in impossible_changes(whole, self.subject.model_dump(), self.reference.model_dump(), self.rollouts):
            yield changes[name][0] if name in changes else ("changes",), text

    def _impossible_interval(self, at: At, one: ReportedNumber) -> Iterator[tuple[At, str]]:
        name = str(at[1])
        if name in COUNTS and not one.value.is_integer():
            yield (*at, "value"), f"found {one.value}; `{name}` is a count, so its change is a whole number"
        for end in ("value", "low", "high"):
            number = getattr(one, end)
            yield from (((*at, end), text) for text in ([] if number is None else self._beyond(name, number)))

    def _beyond(self, name: str, change: float | int) -> Iterator[str]:
        """Whether no change can be so large."""
        if name in COUNTS and self.rollouts is not None and abs(change) > self.rollouts:
            yield f"{change} is a change by more than the number of rollouts, {self.rollouts}"
        if ALL[name].high == 1.0 and abs(change) > 1:
            yield f"{change} is a change of a share by more than 1"

    def _impossible_ratios(self) -> Iterator[tuple[At, str]]:
        for name in OWN_RATIOS:
            own, other, ratio = (getattr(one, name) for one in (self.subject, self.reference, self.ratios))
            if ratio is not None and own and other and not of_numbers(ratio.value, own, other):
                yield ("ratios", name, "value"), f"{ratio.value} is not subject {own} / reference {other}"
        for name, rate in self.rates.items():
            own = getattr(self.subject, name, None) if name in COUNTS else None
            if own is not None and self.rollouts is not None and not of_count(rate.value, own, self.rollouts):
                yield ("rates", name, "value"), f"{rate.value} is not {own} of {self.rollouts}"


Fired = dict[Name, Literal["fired", "not_fired"]]
Held = dict[Name, Literal["held", "not_held"]]


class ArmComparison(Comparison):
    """A readout against the sweep of its family."""

    family: Name
    arm: Name
    reported: Fired = Field(default_factory=dict)
    """Damage rule -> what the source says of it, where it gives no figure."""

    def statements(self) -> dict[str, bool]:
        return {name: word == "fired" for name, word in self.reported.items()}


class SectionComparison(Comparison):
    """A model on held-out, never-used or release problems against the start."""

    subject_name: Text
    reported: Held = Field(default_factory=dict)
    """Rule -> what the source says of it, where it gives no figure."""
    deviation: Text | None = None
    """The declared reason to run this although the plan did not allow it."""

    def statements(self) -> dict[str, bool]:
        return {name: word == "held" for name, word in self.reported.items()}


class SetComparison(Comparison):
    """A model on one set of a release against the start."""

    reported: Held = Field(default_factory=dict)
    """Rule or guard -> what the source says of it, where it gives no figure."""

    def statements(self) -> dict[str, bool]:
        return {name: word == "held" for name, word in self.reported.items()}


class Release(SectionComparison):
    """The figures of a release: of each set by itself, and beside `win` those of guards whose set is not told apart."""

    win: Literal["held", "not_held"] | None = None
    """What the source says of the win on the main set, where it gives no figures of it."""
    main: SetComparison | None = None
    agent: SetComparison | None = None
    safety: SetComparison | None = None

    def on(self, name: str) -> Comparison:
        """The figures that a guard on that set is tested on."""
        return getattr(self, name, None) or self


class ReportedCandidate(Section):
    """A checkpoint on the selection set."""

    subject_name: Text
    rollouts: PositiveInt
    subject: Numbers
    reference: Numbers = Field(default_factory=Numbers)

    @model_validator(mode="after")
    def _possible(self) -> ReportedCandidate:
        sides = ("subject", "reference")
        numbers = {side: getattr(self, side).model_dump() for side in sides}
        wrong = [(side, one) for side in sides for one in (*impossible(numbers[side], self.rollouts), *undefined(numbers[side]))]
        refuse_any([((side, name), text) for side, (name, text) in wrong])
        return self


class ReportedSelection(Section):
    """The eligible checkpoints, from the earliest to the latest."""

    candidates: Annotated[list[ReportedCandidate], Field(min_length=1)]
    deviation: Text | None = None
    """The declared reason to extend an arm although the plan did not allow it."""


class ReadResult(Section):
    """A blinded read."""

    pairs: PositiveInt
    passes: Count


class CountComparison(Section):
    """A further comparison that no rule looks at: `subject` of `rollouts` against `reference` of `rollouts`."""

    name: Text
    measure: Text
    rollouts: PositiveInt
    subject: Count
    reference: Count

    @model_validator(mode="after")
    def _possible(self) -> CountComparison:
        sides = ("subject", "reference")
        wrong = [(side, getattr(self, side)) for side in sides if getattr(self, side) > self.rollouts]
        refuse_any([((side,), f"{count} is more than the number of rollouts, {self.rollouts}") for side, count in wrong])
        return self

    @property
    def points(self) -> Fraction:
        """Subject minus reference in percentage points."""
        return Fraction(100 * (self.subject - self.reference), self.rollouts)


class MeasuresFile(Section):
    """Figures that somebody else published."""

    ablation_measures: Literal[1]
    """Version of this format."""
    source: Text
    """Where the figures are from."""
    comparisons: list[ArmComparison] = Field(default_factory=list)
    held_out: SectionComparison | None = None
    blinded_read: ReadResult | None = None
    never_used: SectionComparison | None = None
    selection: ReportedSelection | None = None
    release: Release | None = None
    counts: list[CountComparison] = Field(default_factory=list)
