"""The audit of the weights: read from the very array that trains, at every update.

Shares are of the absolute weight. In the study the token-weighted control had 56-77% negative and a negative net weight
at every update; the per-rollout arm nets to zero by construction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ablation.training.weights import Weights

SUMS = ("absolute_weight", "net_weight", "net_share", "negative_share", "truncated_share", "kl_share")


def audit_weights(weights: Weights, truncated_R: np.ndarray, sources: Sequence[str], efforts: Sequence[str]) -> dict[str, Any]:
    """Signs, shares and net of the weights, in all and per source and effort. A share of nothing is null,
    and so is every sum with a weight that is not finite.
    """
    report = _shares(weights, truncated_R, np.arange(len(truncated_R)))
    for name, labels in (("by_source", sources), ("by_effort", efforts)):
        report[name] = {
            label: _shares(weights, truncated_R, np.array([row for row, own in enumerate(labels) if own == label]))
            for label in sorted(set(labels))
        }
    report["no_signal_cells"] = sorted(weights.no_signal)
    report["clipped_tokens"] = int(weights.clipped_R.sum())
    return report


def _shares(weights: Weights, truncated_R: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    parts = [weights.tokens[row] for row in rows]
    counted = {"rollouts": len(rows), "weighted_tokens": int(sum(np.count_nonzero(part) for part in parts))}
    if not all(np.isfinite(part).all() for part in parts):  # sums and shares of such weights are no numbers either
        return counted | dict.fromkeys(SUMS)
    positive = math.fsum(float(part[part > 0].sum()) for part in parts)
    negative = 0.0 - math.fsum(float(part[part < 0].sum()) for part in parts)  # 0.0, never -0.0
    absolute = positive + negative
    truncated = math.fsum(float(np.abs(weights.tokens[row]).sum()) for row in rows if truncated_R[row])
    kl = math.fsum(float(np.abs(weights.kl[row]).sum()) for row in rows)
    net = math.fsum(float(part.sum()) for part in parts)

    def share(part: float) -> float | None:
        return part / absolute if absolute else None

    values = (absolute, net, share(net), share(negative), share(truncated), share(kl))
    return counted | dict(zip(SUMS, values, strict=True))
