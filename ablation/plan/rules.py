"""Rules as data: a measure, a comparison, an operator and a limit."""

from __future__ import annotations

import operator
from typing import ClassVar, Literal

from pydantic import model_validator

from ablation.plan.section import Name, Section, Text, did_you_mean, refuse_any

Operator = Literal["<", "<=", ">", ">="]
Compare = Literal[
    *("value", "change", "ratio", "ratio_low", "ratio_high"),
    *("change_low", "change_high", "rate", "rate_low", "rate_high"),
]
OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

COUNT_MEASURES = ("correct", "clean", "truncated", "looping", "truncated_or_looping", "no_answer")
LOOP_COUNTS = ("periodic", "strong")
AGENT_COUNTS = ("valid_tool_call", "invalid_tool_call")
SAFETY_COUNTS = (
    *("full_compliance", "partial_compliance", "over_refusal", "injection_repeat"),
    *("missing_answer", "bad_plain", "visible_cjk", "unparsed"),
)
ALL_COUNTS = COUNT_MEASURES + LOOP_COUNTS + AGENT_COUNTS + SAFETY_COUNTS
VALUE_MEASURES = (
    "logprob",
    "top20_entropy",
    "top20_mass",
    "cjk_share",
    "tokens_per_correct",
    "clean_length",
    "agent_turn",
    "agent_tokens",
    "total_tokens",
    "correct_rate",
)
MEASURES = ALL_COUNTS + VALUE_MEASURES
GUARD_MEASURES = (*AGENT_COUNTS, *SAFETY_COUNTS, "agent_turn", "agent_tokens")
"""Measured on the sets of agent turns and safety prompts, so in a release's guards alone."""
RATIO_MEASURES = ("tokens_per_correct", "clean_length", "jointly_correct_length", "agent_turn", "agent_tokens", "cjk_share")
PAIRED_MEASURES = (*COUNT_MEASURES, *LOOP_COUNTS, "logprob", "top20_entropy", "top20_mass", "correct_rate")
"""Measures whose change has an interval: they are means or sums over rollouts that have a partner."""
MISMATCH_MEASURES = ("mismatch_mean", "mismatch_p99", "mismatch_outside", "mismatch_k3")
UPDATE_MEASURES = (
    *("logprob", "truncated_or_looping_share", "nonfinite", "negative_share", "truncated_share", "kl_share"),
    *MISMATCH_MEASURES,
    *("grad_norm", "entropy"),
)


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
        if not self.GUARDS:
            known = tuple(name for name in known if name not in GUARD_MEASURES)
        if self.measure not in known:
            what = f"has no {lacks}; measures with one" if self.measure in MEASURES else "is no measure; known"
            if self.measure in GUARD_MEASURES and not self.GUARDS:
                what = "is measured for a release's guards alone; known here"
            text = f"`{self.measure}` {what}: {', '.join(known)}{did_you_mean(self.measure, known)}"
            refuse_any([(("measure",), text)])
        whole = isinstance(self.limit, int) or self.limit.is_integer()
        if self.measure in ALL_COUNTS and self.compare in ("value", "change") and not whole:
            refuse_any([(("limit",), f"found {self.limit}; `{self.measure}` is a count, so its limit is a whole number")])
        return self


def _measures_with(compare: str) -> tuple[tuple[str, ...], str]:
    """(measures that can be compared so, what the others lack)."""
    if compare.startswith("ratio"):
        return RATIO_MEASURES, "ratio"
    if compare.startswith("rate"):
        return ALL_COUNTS, "rate"
    if compare in ("change_low", "change_high"):
        return PAIRED_MEASURES, "interval of its change"
    return MEASURES, "number"


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
        if self.measure not in UPDATE_MEASURES:
            known = ", ".join(UPDATE_MEASURES)
            text = f"`{self.measure}` is not measured at an update; known: {known}{did_you_mean(self.measure, UPDATE_MEASURES)}"
            refuse_any([(("measure",), text)])
        return self


def rule_list_problems(rules: list, rollouts: int | None, at: tuple[str, ...]) -> list[tuple[tuple[str | int, ...], str]]:
    """Names used twice, and limits that no count of `rollouts` can meet (or that every count meets)."""
    problems: list[tuple[tuple[str | int, ...], str]] = []
    first: dict[str, int] = {}
    for index, rule in enumerate(rules):
        if first.setdefault(rule.name, index) != index:
            problems.append(((*at, index, "name"), f"two rules are called `{rule.name}`"))
        if rollouts is None or rule.measure not in ALL_COUNTS or rule.compare not in ("value", "change"):
            continue
        low, high = (0, rollouts) if rule.compare == "value" else (-rollouts, rollouts)
        outcomes = {OPERATORS[rule.op](end, rule.limit) for end in (low, high)}
        if len(outcomes) == 1:
            always = "always" if outcomes == {True} else "never"
            text = f"found {rule.limit}; with {rollouts} rollouts the number is {low} to {high}, so the rule {always} holds"
            problems.append(((*at, index, "limit"), text))
    return problems
