"""Rules as data: a measure, a comparison, an operator and a limit."""

from __future__ import annotations

import operator
from typing import ClassVar, Literal

from pydantic import model_validator

from ablation.plan import measures
from ablation.plan.section import Name, Section, Text, did_you_mean, refuse_any

Operator = Literal["<", "<=", ">", ">="]
Compare = Literal[
    *("value", "change", "ratio", "ratio_low", "ratio_high"),
    *("change_low", "change_high", "rate", "rate_low", "rate_high"),
]
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Rule(Section):
    """`measure` under `compare` against the reference, tested with `op limit`.

    compare: `value` = the subject's own number; `change` = subject minus reference (counts, nats); `rate` = the subject's
    count / its rollouts; `ratio` = subject / reference; `*_low`, `*_high` = that end of the interval.
    The limit itself passes exactly when `op` is `<=` or `>=`. Numbers are compared as exact fractions.
    """

    GUARDS: ClassVar[bool] = False
    """Whether it may be about agent turns and safety prompts."""

    name: Name
    """Named in verdicts and in the journal."""
    measure: Text
    """What is measured over a sweep or readout; see Measures."""
    compare: Compare
    """The subject's own number, its change or ratio against the reference, its share of rollouts, or an end of an interval."""
    op: Operator
    """How the number must stand to the limit for the rule to hold; `<=` and `>=` include the limit."""
    limit: float | int
    """In the measure's unit; a whole number for counts. Compared exactly, as a fraction."""

    @model_validator(mode="after")
    def _known(self) -> Rule:
        known, lacks = _measures_with(self.compare)
        foreign = () if self.GUARDS else (*measures.AGENT, *measures.SAFETY_COUNTS)
        if self.measure not in known or self.measure in foreign:
            known = tuple(name for name in known if name not in foreign)
            what = f"has no {lacks}; measures with one" if self.measure in measures.OF_STAGES else "is no measure; known"
            if self.measure in foreign:
                what = "is measured for a release's guards alone; known here"
            text = f"`{self.measure}` {what}: {', '.join(known)}{did_you_mean(self.measure, known)}"
            refuse_any([(("measure",), text)])
        whole = isinstance(self.limit, int) or self.limit.is_integer()
        if self.measure in measures.COUNTS and self.compare in ("value", "change") and not whole:
            refuse_any([(("limit",), f"found {self.limit}; `{self.measure}` is a count, so its limit is a whole number")])
        return self


def _measures_with(compare: str) -> tuple[tuple[str, ...], str]:
    """(measures that can be compared so, what the others lack)."""
    if compare.startswith("ratio"):
        return measures.RATIOS, "ratio"
    if compare.startswith("rate"):
        return measures.COUNTS, "rate"
    if compare in ("change_low", "change_high"):
        return measures.PAIRED, "interval of its change"
    return measures.OF_STAGES, "number"


class StopRule(Section):
    """Ends a run when `measure` of an update meets `op limit`; `change` is against update 1 of the same run."""

    name: Name
    """Named in verdicts and in the journal."""
    measure: Text
    """What is measured at an update; see Measures of an update."""
    compare: Literal["value", "change"] = "value"
    """The update's own number, or its change against update 1 of the same run."""
    op: Operator
    """How the number must stand to the limit for the run to end."""
    limit: float | int
    """In the measure's unit."""

    @model_validator(mode="after")
    def _known(self) -> StopRule:
        known = measures.OF_UPDATES
        if self.measure not in known:
            text = f"`{self.measure}` is not measured at an update; known: {', '.join(known)}{did_you_mean(self.measure, known)}"
            refuse_any([(("measure",), text)])
        return self


def rule_list_problems(rules: list, rollouts: int | None, at: tuple[str, ...]) -> list[tuple[tuple[str | int, ...], str]]:
    """Names used twice, and limits that no count of `rollouts` can meet (or that every count meets)."""
    problems: list[tuple[tuple[str | int, ...], str]] = []
    first: dict[str, int] = {}
    for index, rule in enumerate(rules):
        if first.setdefault(rule.name, index) != index:
            problems.append(((*at, index, "name"), f"two rules are called `{rule.name}`"))
        if rollouts is None or rule.measure not in measures.COUNTS or rule.compare not in ("value", "change"):
            continue
        low, high = (0, rollouts) if rule.compare == "value" else (-rollouts, rollouts)
        outcomes = {OPERATORS[rule.op](end, rule.limit) for end in (low, high)}
        if len(outcomes) == 1:
            always = "always" if outcomes == {True} else "never"
            text = f"found {rule.limit}; with {rollouts} rollouts the number is {low} to {high}, so the rule {always} holds"
            problems.append(((*at, index, "limit"), text))
    return problems
