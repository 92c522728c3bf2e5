"""One stage against its reference: every ratio that the plan's rules may name."""

from __future__ import annotations

from typing import Any

from ablation.measures.bootstrap import Estimate
from ablation.measures.lengths import clean_length_ratio, jointly_correct_length_ratio
from ablation.measures.tokens_per_correct import tokens_per_correct_ratio
from ablation.plan.model import Statistics
from ablation.rollouts.outcomes import Outcomes


def ratios(
    subject: Outcomes, reference: Outcomes, measured: tuple[dict[str, Any], dict[str, Any]], settings: Statistics
) -> dict[str, Estimate]:
    """Measure -> ratio subject / reference, with intervals over cells. `measured`: what `measure` gives for the two."""
    return {
        "tokens_per_correct": tokens_per_correct_ratio(subject, reference, settings),
        "clean_length": clean_length_ratio(subject, reference, settings),
        "jointly_correct_length": jointly_correct_length_ratio(subject, reference, settings),
        "cjk_share": _plain_ratio(measured[0]["cjk_share"], measured[1]["cjk_share"]),
    }


def _plain_ratio(subject: float | None, reference: float | None) -> Estimate:
    """A ratio of two medians; it has no interval."""
    if not reference or subject is None:
        return Estimate(None, reason="no_reference")
    return Estimate(subject / reference, reason="no_interval")
