"""What must hold of an arm's audits because of the parts that the arm is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ablation.plan.arms import Arm
from ablation.plan.weightings import WEIGHTINGS

ROUNDING = 1e-9
"""Of the absolute weight: what is left of a sum that is zero by construction, over millions of float64 weights."""
ENGINE = 1e-6
"""Share of the absolute weight: two scorings of the same tokens under the same weights, on any device."""
WORDS = {
    "net_zero": "net weight zero by construction, in all and in each source and effort",
    "no_kl": "no KL term",
    "kl_starts_at_zero": "KL term zero at update 1, where the adapter is the start",
    "truncated_out": "no weight on truncated rollouts",
    "none_negative": "no negative weight",
    "no_clip": "no token clipped",
    "adds_up": "sources and efforts add up to the whole, and shares are those of the sums",
    "metrics": "the stop rules saw the same shares",
}
"""Name of an identity -> what it says."""


@dataclass(frozen=True)
class Identity:
    """One thing that must hold of one update."""

    name: str
    found: float
    """How far it is off, in the unit of `limit`; 0 is perfect."""
    limit: float

    @property
    def holds(self) -> bool:
        return self.found <= self.limit

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds, "words": WORDS[self.name]}


def nets_to_zero(arm: Arm) -> bool:
    """Whether the weights of every group of the arm add up to zero, whatever was sampled (as long as each rollout in the loss has
    a weighted token): advantages do, every rollout's total is its advantage, and nothing is added or taken away.

    `mask` takes away: a masked rollout is in the baseline, but not in the loss.
    """
    assert arm.weighting is not None, "an external arm has no weights"
    spread = WEIGHTINGS[arm.weighting].per_rollout and arm.baseline != "none" and arm.advantages == "all"
    return spread and arm.truncated != "mask" and not arm.finish_push and arm.clip is None and arm.kl is None


def identities(arm: Arm, audit: dict[str, Any], *, weightless: int) -> list[Identity]:
    """What must hold of `audit` (an `audit.json`). `weightless` counts the rollouts of the update without a weighted token.

    Nothing is said of weights that are not finite. Raises KeyError or TypeError if `audit` is no audit.
    """
    weights, update = audit["weights"], audit["update"]
    if weights["absolute_weight"] is None:
        return []
    return list(_identities(arm, weights, audit["metrics"], update, weightless))


def _identities(arm: Arm, weights: dict, metrics: dict, update: int, weightless: int) -> Iterator[Identity]:
    parts = [weights, *weights["by_source"].values(), *weights["by_effort"].values()]
    if nets_to_zero(arm) and not weightless:
        yield Identity("net_zero", max(_of(part["net_weight"], part["absolute_weight"]) for part in parts), ROUNDING)
    if arm.kl is None:
        yield Identity("no_kl", weights["kl_share"] or 0.0, 0.0)
    elif update == 1:
        yield Identity("kl_starts_at_zero", weights["kl_share"] or 0.0, ENGINE)
    if arm.truncated in ("apart", "mask") and not arm.finish_push:
        yield Identity("truncated_out", weights["truncated_share"] or 0.0, 0.0)
    if arm.advantages == "positive" and (arm.kl is None or arm.kl.damp_only):
        yield Identity("none_negative", weights["negative_share"] or 0.0, 0.0)
    if arm.clip is None:
        yield Identity("no_clip", float(weights.get("clipped_tokens", 0)), 0.0)  # an earlier version had none to count
    yield Identity("adds_up", _gap(weights), ROUNDING)
    shares = ("negative_share", "truncated_share", "kl_share")
    yield Identity("metrics", max(abs((metrics[name] or 0.0) - (weights[name] or 0.0)) for name in shares), 0.0)


def _gap(weights: dict[str, Any]) -> float:
    """The largest difference between the whole and its parts, and between a share and its sums, of the absolute weight."""
    whole, gaps = weights["absolute_weight"], [0.0]
    for name in ("by_source", "by_effort"):
        parts = list(weights[name].values())
        gaps += [_of(math.fsum(part[key] for part in parts) - weights[key], whole) for key in ("absolute_weight", "net_weight")]
        gaps += [float(sum(part[key] for part in parts) != weights[key]) for key in ("rollouts", "weighted_tokens")]
    for part in (weights, *weights["by_source"].values(), *weights["by_effort"].values()):
        if part["absolute_weight"]:
            gaps.append(abs(part["net_share"] - part["net_weight"] / part["absolute_weight"]))
            gaps.append(
                abs(part["net_share"] + 2 * part["negative_share"] - 1)
            )  # positive less negative, of positive and negative
    return max(gaps)


def _of(part: float, whole: float) -> float:
    """|part| / whole; 1 for something of nothing."""
    return abs(part) / whole if whole else float(part != 0)
