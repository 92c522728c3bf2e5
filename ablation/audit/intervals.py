"""Ratios of a stage to its reference and their percentile bootstrap, computed again: the documented generator and seed, resample
by resample, by gathering the drawn clusters' own numbers (the engine multiplies a matrix of counts).

A resample r draws K clusters, `numpy.random.default_rng(seed).integers(0, K, K)`, one after the other from one generator;
clusters are in the order of their names. An interval's ends are the quantiles (1 - level) / 2 and (1 + level) / 2 with linear
interpolation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from ablation.audit.counts import Outcome

EQUAL_DRAWS = 1e-12
"""Draws that differ by less than this share of themselves are one number."""


@dataclass(frozen=True)
class Settings:
    """The plan's statistics."""

    level: float
    resamples: int
    seed: int
    min_clusters: int


@dataclass(frozen=True)
class Ratio:
    """`value` is None if it is undefined; `reason` says why there is no interval, or no value."""

    value: Fraction | float | None
    low: float | None = None
    high: float | None = None
    clusters: int = 0
    reason: str | None = None

    def as_json(self, level: float) -> dict[str, Any]:
        value = None if self.value is None else float(self.value)
        shown = level if self.low is not None else None
        return {
            "value": value,
            "low": self.low,
            "high": self.high,
            "level": shown,
            "clusters": self.clusters,
            "reason": self.reason,
        }


def ratios(subject: Sequence[Outcome], reference: Sequence[Outcome], settings: Settings, cluster: str) -> dict[str, Ratio]:
    """Every ratio of two stages with the same rollouts; `cluster` is what is resampled, `cell` or `problem`."""
    return {
        "tokens_per_correct": tokens_per_correct(subject, reference, settings, cluster),
        "clean_length": clean_length(subject, reference, settings),
        "jointly_correct_length": jointly_correct_length(subject, reference, settings, cluster),
    }


def cjk_ratio(subject: float | None, reference: float | None) -> Ratio:
    """A ratio of medians; it has no interval."""
    if not reference or subject is None:
        return Ratio(None, reason="no_reference")
    return Ratio(subject / reference, reason="no_interval")


def tokens_per_correct(subject: Sequence[Outcome], reference: Sequence[Outcome], settings: Settings, cluster: str) -> Ratio:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for side, stage in enumerate((subject, reference)):
        for one in stage:
            row = sums[getattr(one, cluster)]
            row[2 * side] += one.tokens
            row[2 * side + 1] += one.correct
    tokens, correct, tokens_before, correct_before = (sum(column) for column in zip(*sums.values(), strict=True))
    if not correct or not correct_before:
        return Ratio(None, clusters=len(sums), reason="zero_correct")
    value = Fraction(tokens, correct) / Fraction(tokens_before, correct_before)
    return _interval(value, sums, settings, lambda drawn: (drawn[:, 0] * drawn[:, 3]) / (drawn[:, 1] * drawn[:, 2]))


def clean_length(subject: Sequence[Outcome], reference: Sequence[Outcome], settings: Settings) -> Ratio:
    """Geometric mean over cells of (mean clean length / the reference's), where both have a clean rollout that thinks."""
    means = []
    for stage in (subject, reference):
        lengths: dict[str, list[int]] = defaultdict(list)
        for one in stage:
            if one.clean:
                lengths[one.cell].append(one.thinking_length)
        means.append({cell: sum(own) / len(own) for cell, own in lengths.items() if sum(own)})
    logs = {cell: [math.log(means[0][cell] / means[1][cell])] for cell in means[0].keys() & means[1].keys()}
    return _geometric(logs, settings)


def jointly_correct_length(subject: Sequence[Outcome], reference: Sequence[Outcome], settings: Settings, cluster: str) -> Ratio:
    """Geometric mean over the pairs (same cell and index) that both solved, thinking."""
    before = {(one.cell, one.index): one for one in reference}
    logs: dict[str, list[float]] = defaultdict(list)
    for one in subject:
        other = before[one.cell, one.index]
        if one.correct and other.correct and one.thinking_length and other.thinking_length:
            logs[getattr(one, cluster)].append(math.log(one.thinking_length / other.thinking_length))
    return _geometric(logs, settings)


def _geometric(logs: dict[str, list[float]], settings: Settings) -> Ratio:
    if not logs:
        return Ratio(None, reason="nothing_shared")
    sums = {name: [math.fsum(own), len(own)] for name, own in logs.items()}
    value = math.exp(math.fsum(x for own in logs.values() for x in own) / sum(map(len, logs.values())))
    return _interval(value, sums, settings, lambda drawn: np.exp(drawn[:, 0] / drawn[:, 1]))


def _interval(
    value: Fraction | float, sums: dict[str, list], settings: Settings, statistic: Callable[[np.ndarray], np.ndarray]
) -> Ratio:
    clusters = len(sums)
    if clusters < settings.min_clusters:
        return Ratio(value, clusters=clusters, reason="few_clusters")
    columns = np.array([sums[name] for name in sorted(sums)], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = statistic(columns[drawn_clusters(clusters, settings.resamples, settings.seed)].sum(axis=1))
    if not np.isfinite(draws).all():
        return Ratio(value, clusters=clusters, reason="undefined_in_resamples")
    ordered = sorted(draws.tolist())
    low, high = quantile(ordered, (1 - settings.level) / 2), quantile(ordered, 1 - (1 - settings.level) / 2)
    if high - low <= EQUAL_DRAWS * max(abs(low), abs(high)):
        return Ratio(value, clusters=clusters, reason="degenerate")
    return Ratio(value, low, high, clusters)


@lru_cache(maxsize=4)
def drawn_clusters(clusters: int, resamples: int, seed: int) -> np.ndarray:
    """int64 [R, K]: which clusters each resample draws."""
    generator = np.random.default_rng(seed)
    return np.stack([generator.integers(0, clusters, clusters) for _ in range(resamples)])


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the two order statistics around place share * (n - 1)."""
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
