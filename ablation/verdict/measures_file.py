"""The file of reported figures that `ablation verdict --measures` reads; `runs/README.md` is its reference.

Closed and typed like a plan. Counts that cannot be are refused here, so that no rule is ever tested on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ablation.measures.bootstrap import Estimate
from ablation.plan.rules import COUNT_MEASURES
from ablation.plan.section import Count, Name, NonNegativeFloat, PositiveFloat, PositiveInt, Section, Share, Text, refuse_any
from ablation.verdict.exact import exact
from ablation.verdict.rules import REPORTED, Figures

NonPositiveFloat = Annotated[float, Field(le=0)]
At = tuple[str | int, ...]


class Numbers(Section):
    """One model's own numbers; what was not published is left out."""

    correct: Count | None = None
    clean: Count | None = None
    truncated: Count | None = None
    looping: Count | None = None
    truncated_or_looping: Count | None = None
    no_answer: Count | None = None
    logprob: NonPositiveFloat | None = None
    top20_entropy: NonNegativeFloat | None = None
    top20_mass: Share | None = None
    cjk_share: Share | None = None
    tokens_per_correct: PositiveFloat | None = None
    clean_length: PositiveFloat | None = None
    agent_turn: PositiveFloat | None = None
    total_tokens: Count | None = None


class Changes(Section):
    """Subject minus reference."""

    correct: int | None = None
    clean: int | None = None
    truncated: int | None = None
    looping: int | None = None
    truncated_or_looping: int | None = None
    no_answer: int | None = None
    logprob: float | None = None
    top20_entropy: float | None = None
    top20_mass: float | None = None
    cjk_share: float | None = None
    tokens_per_correct: float | None = None
    clean_length: float | None = None
    agent_turn: float | None = None
    total_tokens: int | None = None


class ReportedRatio(Section):
    """Subject / reference, with its interval if it was published."""

    value: PositiveFloat
    low: PositiveFloat | None = None
    high: PositiveFloat | None = None
    level: Share | None = None
    """Level of the interval; left out: the plan's."""

    @model_validator(mode="after")
    def _ordered(self) -> ReportedRatio:
        problems: list[tuple[At, str]] = []
        if (self.low is None) != (self.high is None):
            problems.append((("low" if self.low is None else "high",), "an interval has both ends"))
        elif self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            problems.append((("value",), f"{self.value} is not between low {self.low} and high {self.high}"))
        refuse_any(problems)
        return self


class Ratios(Section):
    tokens_per_correct: ReportedRatio | None = None
    clean_length: ReportedRatio | None = None
    jointly_correct_length: ReportedRatio | None = None
    agent_turn: ReportedRatio | None = None
    cjk_share: ReportedRatio | None = None


class Comparison(Section):
    """A subject against its reference, on equally many rollouts."""

    rollouts: PositiveInt | None = None
    """Rollouts of each of the two models."""
    subject: Numbers = Field(default_factory=Numbers)
    reference: Numbers = Field(default_factory=Numbers)
    changes: Changes = Field(default_factory=Changes)
    ratios: Ratios = Field(default_factory=Ratios)

    def figures(self, level: float) -> Figures:
        """What a rule can be tested on; `level` is that of an interval that names none."""
        subject, reference = (side.model_dump(exclude_none=True) for side in (self.subject, self.reference))
        given = {name: one for name in Ratios.model_fields if (one := getattr(self.ratios, name)) is not None}
        ratios = {
            name: Estimate(one.value, one.low, one.high, None if one.low is None else one.level or level)
            for name, one in given.items()
        }
        if "cjk_share" not in ratios and reference.get("cjk_share") and "cjk_share" in subject:
            ratios["cjk_share"] = Estimate(exact(subject["cjk_share"]) / exact(reference["cjk_share"]), reason="no_interval")
        size = {} if self.rollouts is None else {"rollouts": self.rollouts}
        changes = self.changes.model_dump(exclude_none=True)
        return Figures(size | subject, size | reference, changes, ratios, self.statements(), REPORTED)

    def statements(self) -> dict[str, bool]:
        """Rule name -> whether it holds, where the source says so."""
        return {}

    @model_validator(mode="after")
    def _possible(self) -> Comparison:
        refuse_any([*self._impossible_counts("subject"), *self._impossible_counts("reference"), *self._impossible_changes()])
        return self

    def _impossible_counts(self, side: str) -> Iterator[tuple[At, str]]:
        one: Numbers = getattr(self, side)

        def more(name: str, limit: int | None, what: str) -> Iterator[tuple[At, str]]:
            count = getattr(one, name)
            if count is not None and limit is not None and count > limit:
                yield (side, name), f"{count} is more than {what} {limit}"

        for name in COUNT_MEASURES:
            yield from more(name, self.rollouts, "the number of rollouts,")
        yield from more("clean", one.correct, "the correct ones,")
        yield from more("truncated", one.truncated_or_looping, "the truncated or looping ones,")
        yield from more("looping", one.truncated_or_looping, "the truncated or looping ones,")
        if one.truncated is not None and one.looping is not None:
            yield from more("truncated_or_looping", one.truncated + one.looping, "the truncated and the looping ones together,")
        if self.rollouts is not None and one.clean is not None:
            for name in ("truncated", "looping", "truncated_or_looping"):
                yield from more(name, self.rollouts - one.clean, "the rollouts that are not clean,")
        if self.rollouts is not None and one.correct is not None:
            yield from more("no_answer", self.rollouts - one.correct, "the rollouts that are not correct,")

    def _impossible_changes(self) -> Iterator[tuple[At, str]]:
        for name in Changes.model_fields:
            change, own, other = (getattr(side, name) for side in (self.changes, self.subject, self.reference))
            if change is None:
                continue
            if own is not None and other is not None and exact(change) != exact(own) - exact(other):
                yield ("changes", name), f"{change} is not subject {own} minus reference {other}"
            if name in COUNT_MEASURES and self.rollouts is not None and abs(change) > self.rollouts:
                yield ("changes", name), f"{change} is a change by more than the number of rollouts, {self.rollouts}"


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


class Release(SectionComparison):
    win: Literal["held", "not_held"] | None = None
    """What the source says of the win on the main set."""


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
    release: Release | None = None
    counts: list[CountComparison] = Field(default_factory=list)
