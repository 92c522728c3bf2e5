"""The check with three numbers: how far the merged model is from base plus adapter, and both of them from the base alone.

A plain tolerance says nothing: the whole effect of an adapter may be smaller than it. So the merged model has to be much nearer
to the adapter than the adapter is to the base; else the rounding of the weights has taken what was trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SHARE = 0.25
"""merged-adapter must be under this share of adapter-base."""
LOST, NO_EFFECT, NOT_FINITE = "merge_lost_effect", "adapter_without_effect", "not_finite"
REASONS = {
    LOST: "the rounding of the merged weights has taken the adapter's effect",
    NO_EFFECT: "the adapter changes no logprob of these texts, so nothing shows that the merge kept it",
    NOT_FINITE: "a logprob is not finite",
}


@dataclass(frozen=True)
class Numbers:
    """Raw logprobs (nats) of the same K tokens, text after text."""

    base: np.ndarray
    adapter: np.ndarray
    merged: np.ndarray
    start: np.ndarray | None = None
    """Base plus starting adapter; None where the merged adapter is that."""
    sampler: np.ndarray | None = None
    """What was stored when the adapter sampled these tokens."""

    def record(self) -> dict[str, Any]:
        """Each difference, the two ratios and what follows."""
        merged, effect = difference(self.merged, self.adapter), difference(self.adapter, self.base)
        found: dict[str, Any] = {
            "merged_vs_adapter": merged,
            "adapter_vs_base": effect,
            "merged_vs_base": difference(self.merged, self.base),
            "ratio": _ratio(merged, effect),
            "share": SHARE,
        }
        found["reason"] = self._reason(found["ratio"])
        found["passed"] = found["reason"] is None
        if self.start is not None:
            trained = difference(self.adapter, self.start)
            ratio = _ratio(merged, trained)
            found["adapter_vs_start"] = trained
            found["training"] = {"ratio": ratio, "kept": ratio is not None and ratio < SHARE}
        if self.sampler is not None:
            found["adapter_vs_sampler"] = difference(self.adapter, self.sampler)
        return found

    def _reason(self, ratio: float | None) -> str | None:
        if not all(np.isfinite(one).all() for one in (self.base, self.adapter, self.merged)):
            return NOT_FINITE
        if ratio is None:
            return NO_EFFECT
        return None if ratio < SHARE else LOST


def difference(one: np.ndarray, other: np.ndarray) -> dict[str, float | int | None]:
    """Mean and 99th percentile of the absolute difference (nats) over the tokens where both are finite."""
    both = np.isfinite(one) & np.isfinite(other)
    apart = np.abs(one[both] - other[both])
    if not len(apart):
        return {"mean_absolute": None, "p99_absolute": None, "tokens": 0}
    return {
        "mean_absolute": float(apart.mean()),
        "p99_absolute": float(np.quantile(apart, 0.99)),
        "tokens": len(apart),
    }


def flat(scored: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(one, dtype=np.float64) for one in scored])


def _ratio(merged: dict[str, Any], effect: dict[str, Any]) -> float | None:
    above, below = merged["mean_absolute"], effect["mean_absolute"]
    return above / below if above is not None and below else None
