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
    report["kl_tokens"] = int(weights.anchored_R.sum())
    return report


def check_audit(audit: Any) -> None:
    """Raise `ValueError` unless `audit`, read from an `audit.json`, has the shape of one: what is taken from it can then be
    calculated with and printed. An earlier version of this program left some fields out.
    """
    _need(isinstance(audit, dict) and isinstance(audit.get("weights"), dict), "no object with weights")
    _need(_is_whole(audit.get("update")), "update")
    for name in ("metrics", "step"):
        _need(isinstance(audit.get(name, {}), dict), name)
    _need(all(_is_number(value) for value in audit.get("metrics", {}).values()), "metrics")
    _need(isinstance(audit.get("step", {}).get("outcome", ""), str), "step.outcome")
    weights = audit["weights"]
    parts = [weights]
    for name in ("by_source", "by_effort"):
        _need(isinstance(weights.get(name), dict), name)
        parts += weights[name].values()
    for part in parts:
        _need(isinstance(part, dict), "a part of the weights")
        _need(all(_is_whole(part.get(name)) for name in ("rollouts", "weighted_tokens")), "counts")
        _need(all(name in part and _is_number(part[name]) for name in SUMS), "sums and shares")
    cells = weights.get("no_signal_cells")
    _need(isinstance(cells, list) and all(isinstance(cell, str) for cell in cells), "no_signal_cells")
    _need(all(_is_whole(weights.get(name, 0)) for name in ("clipped_tokens", "kl_tokens")), "clipped_tokens and kl_tokens")


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"is not an audit of weights: {what}")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shares(weights: Weights, truncated_R: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    parts = [weights.tokens[row] for row in rows]
    counted = {"rollouts": len(rows), "weighted_tokens": int(weights.weighted_R[rows].sum())}
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
