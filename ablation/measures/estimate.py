"""The result of every estimator: a number, its interval if it has one, and what was done where it has none."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

REASONS = {
    "zero_correct": "a model has no correct answer, so the ratio is undefined",
    "no_reference": "the reference has nothing to divide by, so the ratio is undefined",
    "nothing_shared": "there is no cell or pair that both models solved",
    "nothing_measured": "there is no rollout to take the measure from",
    "redacted": "the thinking of some rollouts is not known",
    "not_finite": "a value is not finite, so there is no mean",
    "few_clusters": "too few clusters for an interval",
    "degenerate": "all resamples give the same number, so the interval would be a false certainty",
    "undefined_in_resamples": "the ratio is undefined in some resamples",
    "no_interval": "none was computed or reported",
}
"""Why an estimate or its interval is missing."""

METHODS = {
    "percentile": "percentile bootstrap over clusters",
    "expanded": "expanded percentile bootstrap over clusters",
    "t": "t interval over clusters (jackknife)",
    "welch": "Welch t interval over training seeds",
    "wilson": "Wilson score interval with the effective number of rollouts",
}
"""How an interval was made."""


@dataclass(frozen=True)
class Estimate:
    """A number, and its interval if there is one.

    `value` is None exactly when the number is undefined; `low` and `high` are None exactly when `reason` is set.
    """

    value: Fraction | float | None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    clusters: int = 0
    reason: str | None = None
    """A key of `REASONS`."""
    method: str | None = None
    """A key of `METHODS`; None without an interval."""
    estimand: str | None = None
    """What is estimated where a plan can choose: `pooled` or `mean_of_clusters`."""
    bound: tuple[float, float] | None = None
    """Only where the clusters all agree (`degenerate`, or too few of them): where the number lies at the plan's level, by the
    exact binomial bound on the share of clusters that would not. See `exact_bounds.agreeing_clusters`."""
    missing: int = 0
    """Rollouts that the other model (or the other cells) has and that are not there, so that no row is dropped in silence."""

    def as_json(self) -> dict[str, Any]:
        value = None if self.value is None else float(self.value)
        named = {"value": value, "low": self.low, "high": self.high, "level": self.level}
        named |= {"clusters": self.clusters, "reason": self.reason, "method": self.method, "estimand": self.estimand}
        bound = None if self.bound is None else {"low": self.bound[0], "high": self.bound[1]}
        return named | {"bound": bound, "missing": self.missing}
