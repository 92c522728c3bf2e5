"""One rule against the figures of one comparison: it holds, it does not, or nobody can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ablation.measures.bootstrap import REASONS, Estimate
from ablation.plan.measures import ALL, COUNTS
from ablation.plan.rules import OPERATORS, Rule
from ablation.plan.words import rule_in_words
from ablation.verdict.exact import exact
from ablation.verdict.unread import Unread, too_many

COMPUTED = "computed"
BOUND = "computed, exact bound"
REPORTED = "reported figure"
STATED = "as reported, no figure"
NOT_REPORTED = "not reported"
UNDEFINED = "undefined"


@dataclass(frozen=True)
class Figures:
    """What is known of a subject against its reference. A figure that is missing or None is unknown."""

    subject: Mapping[str, Any] = field(default_factory=dict)
    """Measure -> the subject's own number."""
    reference: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Measure -> subject minus reference, where the two themselves are not known."""
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    """Measure -> subject / reference."""
    stated: Mapping[str, bool] = field(default_factory=dict)
    """Rule name -> whether it holds, where a source says so and gives no figure."""
    how: str = COMPUTED
    """COMPUTED or REPORTED."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Measure -> why it is not known, where that can be said."""
    intervals: Mapping[str, Estimate] = field(default_factory=dict)
    """Measure -> subject minus reference, with its interval."""
    rates: Mapping[str, Estimate] = field(default_factory=dict)
    """Measure -> the subject's count / its rollouts, with its interval; `correct_rate` is in the plan's estimand."""
    open_counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Measure -> how many more of the subject's and of the reference's rollouts may count, because nobody could label them."""
    unread: tuple[Unread, Unread] | None = None
    """Of the subject and of the reference."""
    refused: str | None = None
    """Why no rule can be said of these two stages, whatever their numbers are."""

    @property
    def unread_warning(self) -> str | None:
        """That so many answers are unread that a label may tell of nothing else; None if they are not."""
        return self.refused or (too_many(*self.unread) if self.unread is not None else None)

    @property
    def unread_marks(self) -> tuple[str, ...]:
        """What stands behind a label of these figures."""
        return (f"unread {self.unread[0].shown} against {self.unread[1].shown}",) if self.unread and self.unread_warning else ()


@dataclass(frozen=True)
class RuleResult:
    """A rule and what came of it."""

    rule: Rule
    holds: bool | None
    """None: it cannot be said; `reason` says why."""
    value: Fraction | None
    how: str
    reason: str | None = None
    reference: str = "the sweep"
    """What a change or ratio is taken against, in words."""
    estimate: Estimate | None = None
    """Where the number is from, if it has an interval."""

    @property
    def words(self) -> str:
        where = getattr(self.rule, "on", None)
        return rule_in_words(self.rule, self.reference) + (f" (on {where})" if where else "")

    def as_json(self) -> dict[str, Any]:
        value = None if self.value is None else number(self.value)
        rule = {name: getattr(self.rule, name) for name in ("name", "measure", "compare", "op", "limit")}
        estimate = None if self.estimate is None else self.estimate.as_json()
        said = {"holds": self.holds, "value": value, "how": self.how, "reason": self.reason, "words": self.words}
        return rule | said | {"estimate": estimate}


def judge(rule: Rule, figures: Figures, reference: str = "the sweep") -> RuleResult:
    """Test `rule`: the exact value, `op`, the exact limit. The limit itself passes exactly when `op` has an `=`."""
    if figures.refused is not None:
        return RuleResult(rule, None, None, UNDEFINED, figures.refused, reference)
    found = _estimate(rule, figures)
    value, reason = _value(rule, figures) if found is None else _of_estimate(rule, found)
    if value is not None and rule.measure in figures.open_counts and rule.compare in ("value", "change", "rate"):
        return _with_open_counts(rule, value, figures, reference)
    if value is not None:
        return RuleResult(rule, OPERATORS[rule.op](value, exact(rule.limit)), value, figures.how, None, reference, found)
    even = _end_of_bound(rule, found)
    if even is not None and OPERATORS[rule.op](even, exact(rule.limit)):
        return RuleResult(rule, True, even, BOUND, None, reference, found)
    if rule.name in figures.stated:
        return RuleResult(rule, figures.stated[rule.name], None, STATED, None, reference, found)
    how = NOT_REPORTED if figures.how == REPORTED else UNDEFINED
    return RuleResult(rule, None, None, how, reason, reference, found)


def _with_open_counts(rule: Rule, value: Fraction, figures: Figures, reference: str) -> RuleResult:
    """A rule on a count that may be higher: decided only if every count that it may be says the same."""
    own, other = figures.open_counts[rule.measure]
    unit = Fraction(1, figures.subject["rollouts"]) if rule.compare == "rate" else Fraction(1)
    ends = (value - (other if rule.compare == "change" else 0), value + own * unit)
    found = {OPERATORS[rule.op](end, exact(rule.limit)) for end in ends}
    if len(found) == 1:
        return RuleResult(rule, found.pop(), value, figures.how, None, reference)
    said = f"{own} of the subject's answers and {other} of the reference's could not be labelled, and they decide it"
    return RuleResult(rule, None, value, figures.how, said, reference)


def out_of_reach(rule: Rule, figures: Figures) -> str | None:
    """Why no count of the subject can make `rule` hold, given the reference's; None if one can, or if it is not known.

    A change of a count is from -reference to rollouts - reference.
    """
    if rule.compare != "change" or rule.measure not in COUNTS:
        return None
    start, rollouts = figures.reference.get(rule.measure), figures.subject.get("rollouts", figures.reference.get("rollouts"))
    falls = rule.op in ("<", "<=")
    if start is None or (rollouts is None and not falls):
        return None
    end = -start if falls else rollouts - start
    if OPERATORS[rule.op](exact(end), exact(rule.limit)):
        return None
    words = ALL[rule.measure].words
    name = words if start != 1 else words.replace("rollouts", "rollout")
    of, side = ("", "lowest") if falls else (f" of {rollouts}", "highest")
    strict = {"<": "below ", ">": "above "}.get(rule.op, "")
    change, limit = f"{_signed(end)} at the {side}", f"{strict}{_signed(rule.limit)}"
    return f"the start has {start} {name}{of}, so the change is {change} and the limit is {limit}"


def number(value: Fraction) -> int | float:
    """A fraction as JSON can hold it."""
    return value.numerator if value.denominator == 1 else float(value)


def _estimate(rule: Rule, figures: Figures) -> Estimate | None:
    """The estimate that the rule's number is taken from; None if there is none, or if it is a plain number."""
    kind = rule.compare.partition("_")[0]
    if rule.measure == "correct_rate" and kind == "value":
        return figures.rates.get(rule.measure)
    if kind == "change" and rule.compare == "change" and rule.measure != "correct_rate":
        return None
    return {"ratio": figures.ratios, "change": figures.intervals, "rate": figures.rates}.get(kind, {}).get(rule.measure)


def _of_estimate(rule: Rule, found: Estimate) -> tuple[Fraction | None, str | None]:
    end = rule.compare.partition("_")[2]
    value = {"": found.value, "low": found.low, "high": found.high}[end]
    if value is not None:
        return exact(value), None
    reason = REASONS.get(found.reason or "", "the source gives no interval")
    if found.reason == "few_clusters":
        reason += f" ({found.clusters})"
    bound = found.bound
    if end and bound is not None:
        level = "" if found.level is None else f"{100 * found.level:g}% "
        reason += f"; the exact {level}bound is {bound[0]:.3g} to {bound[1]:.3g}"
    return None, reason


def _end_of_bound(rule: Rule, found: Estimate | None) -> Fraction | None:
    """The end that the rule asks for, of the exact bound that stands in where all clusters agree and there is no interval."""
    if found is None or found.bound is None or not rule.compare.endswith(("_low", "_high")):
        return None
    return exact(found.bound[rule.compare.endswith("_high")])


def _value(rule: Rule, figures: Figures) -> tuple[Fraction | None, str | None]:
    """(the number that the rule tests, None) or (None, why there is none), where no estimate has it."""
    measure = rule.measure
    own, other = figures.subject.get(measure), figures.reference.get(measure)
    if rule.compare == "value" and own is not None:
        return exact(own), None
    if rule.compare == "change":
        if own is not None and other is not None:
            return exact(own) - exact(other), None
        if figures.changes.get(measure) is not None:
            return exact(figures.changes[measure]), None
    if rule.compare == "rate" and own is not None and figures.subject.get("rollouts"):
        return Fraction(own, figures.subject["rollouts"]), None
    if measure in figures.absent:
        return None, figures.absent[measure]
    if rule.compare.startswith("ratio"):
        return None, f"`{measure}` has no ratio here"
    if rule.compare.endswith(("_low", "_high")):
        return None, f"`{measure}` has no interval here"
    return None, _missing(measure)


def _signed(count: int | float) -> str:
    return f"{int(count):+d}" if count else "0"


def _missing(measure: str) -> str:
    if measure in COUNTS:
        return f"there is no count of `{measure}`"
    return f"`{measure}` is undefined or was not measured"
