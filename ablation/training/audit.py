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


def audit_weights(weights: Weights, truncated_R: np.ndarray, sources: Sequence[str], efforts: Sequence[str]) -> dict[str, Any]:
    """Signs, shares and net of the weights, in all and per source and effort. A share of nothing is null."""
    report = _shares(weights, truncated_R, np.arange(len(truncated_R)))
    for name, labels in (("by_source", sources), ("by_effort", efforts)):
        report[name] = {
            label: _shares(weights, truncated_R, np.array([row for row, own in enumerate(labels) if own == label]))
            for label in sorted(set(labels))
        }
    report["no_signal_cells"] = sorted(weights.no_signal)
    return report


def _shares(weights: Weights, truncated_R: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    parts = [weights.tokens[row] for row in rows]
    positive = math.fsum(float(part[part > 0].sum()) for part in parts)
    negative = -math.fsum(float(part[part < 0].sum()) for part in parts)
    absolute = positive + negative
    truncated = math.fsum(float(np.abs(weights.tokens[row]).sum()) for row in rows if truncated_R[row])
    kl = math.fsum(float(np.abs(weights.kl[row]).sum()) for row in rows)
    net = math.fsum(float(part.sum()) for part in parts)

    def share(part: float) -> float | None:
        return part / absolute if absolute else None

    return {
        "rollouts": len(rows),
        "weighted_tokens": int(sum(np.count_nonzero(part) for part in parts)),
        "absolute_weight": absolute,
        "net_weight": net,
        "net_share": share(net),
        "negative_share": share(negative),
        "truncated_share": share(truncated),
        "kl_share": share(kl),
    }
