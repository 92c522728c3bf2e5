"""What is known of one stage of answers against another: everything that the rules name, and nothing that none of them does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ablation.measures.compare import RATIOS, changes, rates, ratios
from ablation.plan.judging import UnreadLimits
from ablation.plan.model import Statistics
from ablation.plan.rules import Rule
from ablation.rollouts.outcomes import Outcomes
from ablation.verdict.rules import Figures
from ablation.verdict.unread import too_many, unread_of

Measured = tuple[dict[str, Any], dict[str, Any]]
"""What `measure` gives for the subject and for the reference."""


def figures_of(
    rules: Iterable[Rule],
    models: tuple[Outcomes, Outcomes],
    measured: Measured,
    settings: Statistics,
    *,
    cluster: str = "cell",
    shown: Collection[str] | None = None,
    absent: Mapping[str, str] | None = None,
    unread: UnreadLimits | None = None,
) -> Figures:
    """The figures of `models` (subject, reference), whose rows must be partners.

    `shown`: ratios that a page shows whether or not a rule names them; None: all. `absent`: measure -> why it is not known.
    `unread`: the plan's limits; None: unread answers decide nothing.
    """
    rules, absent = list(rules), absent or {}
    named = {kind: {one.measure for one in rules if one.compare in compares} for kind, compares in _NAMED.items()}
    if "correct_rate" in {one.measure for one in rules if one.compare == "value"}:
        named["rates"].add("correct_rate")
    named["intervals"] |= {one.measure for one in rules if one.compare == "change" and one.measure == "correct_rate"}
    medians = any(one.measure == "cjk_share" and one.compare in ("ratio_low", "ratio_high") for one in rules)
    sides = unread_of(models[0]), unread_of(models[1])
    wanted = (RATIOS.keys() if shown is None else named["ratios"] | set(shown)) - absent.keys()
    return Figures(
        measured[0],
        measured[1],
        ratios=ratios(*models, measured, settings, cluster, wanted, medians),
        intervals=changes(*models, settings, cluster, named["intervals"] - absent.keys()),
        rates=rates(models[0], settings, cluster, {one for one in named["rates"] if measured[0].get(one, 0) is not None}),
        absent=absent,
        unread=sides,
        refused=None if unread is None else too_many(*sides, unread),
    )


_NAMED = {
    "ratios": ("ratio", "ratio_low", "ratio_high"),
    "intervals": ("change_low", "change_high"),
    "rates": ("rate", "rate_low", "rate_high"),
}
