"""A rule in plain words, with its numbers."""

from __future__ import annotations

from ablation.plan import measures
from ablation.plan.rules import Rule, StopRule

_TEST = {"<": "below", "<=": "at most", ">": "above", ">=": "at least"}
_ENDS = {
    "ratio": "ratio to {}",
    "ratio_low": "lower end of the ratio's interval to {}",
    "ratio_high": "upper end of the ratio's interval to {}",
    "change_low": "lower end of the interval of the change against {}",
    "change_high": "upper end of the interval of the change against {}",
    "rate": "share of rollouts",
    "rate_low": "lower end of the interval of the share of rollouts",
    "rate_high": "upper end of the interval of the share of rollouts",
}


def rule_in_words(rule: Rule | StopRule, reference: str | None = None) -> str:
    """The sentence that makes `rule` true, for instance `lost 21 or more clean rollouts against the sweep`.

    `reference` is what a change or ratio is taken against; by default the sweep, for a stop rule update 1.
    """
    if reference is None:
        reference = "update 1" if isinstance(rule, StopRule) else "the sweep"
    measure, limit = measures.ALL[rule.measure], number(rule.limit)
    name, unit = measure.words, measure.unit
    if rule.compare == "value":
        return f"{name} {_TEST[rule.op]} {limit}{unit}"
    if rule.compare != "change":
        return (
            f"{name}: {_ENDS[rule.compare].format(reference)} {_TEST[rule.op]} {limit}{unit if 'change' in rule.compare else ''}"
        )
    size = number(abs(rule.limit))
    down, up = rule.op in ("<", "<=") and rule.limit < 0, rule.op in (">", ">=") and rule.limit > 0
    if down or up:
        amount = f"{size} or more" if "=" in rule.op else f"more than {size}"
        if measure.count:
            return f"{'lost' if down else 'gained'} {amount} {name} against {reference}"
        return f"{name} {'fell' if down else 'rose'} by {amount}{unit} against {reference}"
    if rule.limit == 0:
        return f"{name} {_TEST[rule.op]} {reference}'s"
    sign = "minus" if rule.limit < 0 else "plus"
    return f"{name} {_TEST[rule.op]} {reference}'s {sign} {size}{unit}"


def number(value: float | int) -> str:
    """A limit with all of its digits, and none more: `20`, `0.15`, `1.25`, `1e+300`."""
    return str(int(value)) if abs(value) < 1e16 and float(value).is_integer() else repr(value)
