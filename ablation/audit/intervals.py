"""Estimates of a stage against its reference, computed again: the documented generator and seed, resample by resample, by
gathering the drawn clusters' own numbers (the engine multiplies a matrix of counts), and t intervals by leaving out each cluster
in turn.

A resample draws K clusters, `numpy.random.default_rng(seed).integers(0, K, K)`, one after the other from one generator; clusters
are in the order of their names. The ends of an interval are quantiles with linear interpolation: at (1 - level) / 2 for
`percentile`, at Phi(sqrt(K / (K - 1)) t) with t the quantile of K - 1 degrees of freedom for `expanded`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from ablation.audit.chance import none_of, normal_below, t_quantile, wilson
from ablation.audit.counts import MEANS, WITHOUT_THINKING, Outcome, hidden, mean

COUNTS = ("correct", "clean", "truncated", "looping", "truncated_or_looping", "no_answer", "periodic", "strong")
"""Counts of rollouts with a rate and a change that have intervals."""
EQUAL_DRAWS = 1e-12
"""Draws that differ by less than this share of themselves are one number."""
T_DUST = 1e-9
"""The same of a t interval's half width."""
Statistic = Callable[[np.ndarray], np.ndarray]
"""Sums [R, M] -> numbers [R]."""


@dataclass(frozen=True)
class Settings:
    """The plan's statistics."""

    level: float
    resamples: int
    seed: int
    min_clusters: int
    method: str = "percentile"
    few_clusters: str = "undecided"
    estimand: str = "pooled"

    def method_for(self, clusters: int) -> str | None:
        """How an interval over so many clusters is made; None if it is not."""
        if clusters >= self.min_clusters:
            return self.method if self.method != "t" or clusters > 1 else None
        return "t" if self.few_clusters == "t" and clusters > 1 else None


@dataclass(frozen=True)
class Ratio:
    """A number with its interval. `value` is None if it is undefined; `reason` says why there is no interval, or no value."""

    value: Fraction | float | None
    low: float | None = None
    high: float | None = None
    clusters: int = 0
    reason: str | None = None
    bound: tuple[float, float] | None = None
    """Where all clusters agree and there is no interval: the exact bound."""

    def as_json(self) -> dict[str, Any]:
        """What a verdict must say of it; no number of clusters where none were drawn."""
        value = None if self.value is None else float(self.value)
        found = {"value": value, "low": self.low, "high": self.high, "reason": self.reason}
        return found | ({} if self.low is None else {"clusters": self.clusters})


@dataclass(frozen=True)
class Estimates:
    """Every estimate of two stages with the same rollouts, each computed once. `cluster` (cell or problem): what is drawn."""

    subject: Sequence[Outcome]
    reference: Sequence[Outcome]
    settings: Settings
    cluster: str
    cjk_ends: bool = False
    """Whether the interval of the ratio of CJK shares is wanted."""
    known: dict[tuple[str, str], Ratio | None] = field(default_factory=dict)

    def __call__(self, kind: str, name: str) -> Ratio | None:
        """`kind`: `ratio`, `change` or `rate`; None where there is no such estimate."""
        if (kind, name) not in self.known:
            self.known[kind, name] = self._computed(kind, name)
        return self.known[kind, name]

    def _computed(self, kind: str, name: str) -> Ratio | None:
        both = (self.subject, self.reference)
        if name not in WITHOUT_THINKING and hidden(*(both[:1] if kind == "rate" else both)):
            return None
        if kind == "ratio":
            if name == "cjk_share":
                return cjk_ratio(*both, self.settings, self.cluster, ends=self.cjk_ends)
            made = {
                "tokens_per_correct": tokens_per_correct,
                "clean_length": clean_length,
                "jointly_correct_length": jointly_correct_length,
            }
            return made[name](*both, self.settings, self.cluster) if name in made else None
        if name not in (*COUNTS, "correct_rate", *MEANS):
            return None
        if kind == "rate":
            return rate(self.subject, name, self.settings, self.cluster) if name not in MEANS else None
        return change(*both, name, self.settings, self.cluster)


def tokens_per_correct(subject: Sequence[Outcome], reference: Sequence[Outcome], settings: Settings, cluster: str) -> Ratio:
    sums = both_sums(subject, reference, cluster, lambda one: (one.tokens, one.correct))
    tokens, correct, tokens_before, correct_before = (sum(column) for column in zip(*sums.values(), strict=True))
    if not (correct and correct_before and tokens_before):
        return Ratio(None, clusters=len(sums), reason="zero_correct")
    value = Fraction(tokens, correct) / Fraction(tokens_before, correct_before)
    return interval(value, sums, settings, lambda drawn: (drawn[:, 0] * drawn[:, 3]) / (drawn[:, 1] * drawn[:, 2]))


def clean_length(subject: Sequence[Outcome], reference: Sequence[Outcome], settings: Settings, cluster: str) -> Ratio:
    """Geometric mean over cells of (mean clean length / the reference's), where both have a clean rollout that thinks."""
    return geometric(mean_logs(subject, reference, cluster), settings)


def mean_logs(subject: Sequence[Outcome], reference: Sequence[Outcome], cluster: str) -> dict[str, list[float]]:
    """Cluster -> log of the ratio of mean clean lengths in each of its cells that has one."""
    means = []
    for stage in (subject, reference):
        lengths: dict[tuple[str, str], list[int]] = defaultdict(list)
        for one in stage:
            if one.clean:
                lengths[one.cell, getattr(one, cluster)].append(one.thinking_length)
        means.append({cell: sum(own) / len(own) for cell, own in lengths.items() if sum(own)})
    logs: dict[str, list[float]] = defaultdict(list)
    for cell in sorted(means[0].keys() & means[1].keys()):
        logs[cell[1]].append(math.log(means[0][cell] / means[1][cell]))
    return logs


def jointly_correct_length(subject: Sequence[Outcome], reference: Sequence[Outcome], settings: Settings, cluster: str) -> Ratio:
    """Geometric mean over the pairs (same cell and index) that both solved, thinking."""
    before = {(one.cell, one.index): one for one in reference}
    logs: dict[str, list[float]] = defaultdict(list)
    for one in subject:
        other = before[one.cell, one.index]
        if one.correct and other.correct and one.thinking_length and other.thinking_length:
            logs[getattr(one, cluster)].append(math.log(one.thinking_length / other.thinking_length))
    return geometric(logs, settings)


def cjk_ratio(subject: Sequence[Outcome], reference: Sequence[Outcome], settings: Settings, cluster: str, *, ends: bool) -> Ratio:
    """Ratio of the medians over clean rollouts. `ends`: with its interval, which takes seconds, so only where a rule asks."""
    own, before = ([one for one in stage if one.clean] for stage in (subject, reference))
    if not own or not before:
        return Ratio(None, reason="no_reference" if not before else "nothing_measured")
    medians = [float(np.median([one.cjk_share for one in stage])) for stage in (own, before)]
    if not medians[1]:
        return Ratio(None, reason="no_reference")
    value = medians[0] / medians[1]
    names = sorted({getattr(one, cluster) for stage in (subject, reference) for one in stage})
    if not ends:
        return Ratio(value, reason="no_interval")
    if len(names) < settings.min_clusters:
        return Ratio(value, reason="few_clusters")
    shares = [
        [np.array([one.cjk_share for one in stage if getattr(one, cluster) == name]) for name in names] for stage in (own, before)
    ]
    draws = []
    for drawn in drawn_clusters(len(names), settings.resamples, settings.seed):
        pooled = [np.concatenate([stage[place] for place in drawn]) for stage in shares]
        if not len(pooled[0]) or not len(pooled[1]) or not np.median(pooled[1]):
            return Ratio(value, reason="undefined_in_resamples")
        draws.append(float(np.median(pooled[0]) / np.median(pooled[1])))
    method = "expanded" if settings.method == "t" else settings.method
    low, high = ends_of(draws, tail(settings.level, len(names), method))
    if high - low <= EQUAL_DRAWS * abs(high):
        return Ratio(value, reason="degenerate")
    return Ratio(value, low, high, len(names))


def change(subject: Sequence[Outcome], reference: Sequence[Outcome], name: str, settings: Settings, cluster: str) -> Ratio:
    """Subject minus reference with its interval, over clusters of pairs."""
    if name in MEANS:
        return _change_of_means(subject, reference, name, settings, cluster)
    measure = "correct" if name == "correct_rate" else name
    sums = both_sums(subject, reference, cluster, lambda one: (int(getattr(one, measure)), 1))
    own, rollouts = {key: row[0] - row[2] for key, row in sums.items()}, len(subject)
    sizes = {key: row[1] for key, row in sums.items()}
    if name == "correct_rate" and settings.estimand == "mean_of_clusters":
        value = sum((Fraction(own[key], sizes[key]) for key in own), Fraction(0)) / len(own)
        columns = {key: [own[key] / sizes[key], 1] for key in own}
        found = interval(value, columns, settings, lambda drawn: drawn[:, 0] / drawn[:, 1], log=False)
    else:
        unit = 1 if name == "correct_rate" else rollouts
        value = Fraction(sum(own.values()) * unit, rollouts)
        columns = {key: [own[key], sizes[key]] for key in own}
        found = interval(value, columns, settings, lambda drawn: unit * drawn[:, 0] / drawn[:, 1], log=False)
    if found.reason is None or len(set(own.values())) > 1 or len(set(sizes.values())) > 1:
        return found
    unit, each = 1 if name == "correct_rate" else rollouts, next(iter(own.values())) / next(iter(sizes.values()))
    other = none_of(len(own), settings.level)
    return replace(found, bound=(unit * (each + other * (-1 - each)), unit * (each + other * (1 - each))))


def _change_of_means(
    subject: Sequence[Outcome], reference: Sequence[Outcome], name: str, settings: Settings, cluster: str
) -> Ratio:
    thought = [[one for one in stage if one.thinking_length] for stage in (subject, reference)]
    own = [mean(getattr(one, name) for one in stage) for stage in thought]
    if own[0] is None or own[1] is None:
        return Ratio(None, reason="nothing_measured" if not all(thought) else "not_finite")
    sums = both_sums(
        subject, reference, cluster, lambda one: (getattr(one, name) if one.thinking_length else 0.0, one.thinking_length > 0)
    )
    value = own[0] - own[1]
    return interval(value, sums, settings, lambda drawn: drawn[:, 0] / drawn[:, 1] - drawn[:, 2] / drawn[:, 3], log=False)


def rate(subject: Sequence[Outcome], name: str, settings: Settings, cluster: str) -> Ratio:
    """Share of rollouts, with Wilson's interval for the number of rollouts that the spread between clusters leaves."""
    measure = "correct" if name == "correct_rate" else name
    groups: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in subject:
        groups[getattr(one, cluster)][0] += bool(getattr(one, measure))
        groups[getattr(one, cluster)][1] += 1
    rows, clusters = [groups[key] for key in sorted(groups)], len(groups)
    pooled = settings.estimand == "pooled"
    rollouts = sum(size for _, size in rows)
    value = Fraction(sum(count for count, _ in rows), rollouts)
    if not pooled:
        value = sum((Fraction(count, size) for count, size in rows), Fraction(0)) / clusters
    p, agree = float(value), value in (0, 1)
    if settings.method_for(clusters) is None or agree:
        bound = None
        if agree and len({size for _, size in rows}) == 1:
            other = none_of(clusters, settings.level)
            bound = (p - other * p, p + other * (1 - p))
        reason = "few_clusters" if settings.method_for(clusters) is None else "degenerate"
        return Ratio(value, clusters=clusters, reason=reason, bound=bound)
    apart = [(count - p * size) / rollouts if pooled else (count / size - p) / clusters for count, size in rows]
    variance = clusters / (clusters - 1) * math.fsum(x * x for x in apart)
    trials = min(rollouts, p * (1 - p) / variance) if variance > 0 else rollouts
    low, high = wilson(p, trials, t_quantile((1 + settings.level) / 2, clusters - 1))
    return Ratio(value, low, high, clusters)


def both_sums(
    subject: Sequence[Outcome], reference: Sequence[Outcome], cluster: str, numbers: Callable[[Outcome], Sequence[float]]
) -> dict[str, list]:
    """Cluster -> sums of the subject's numbers, then of the reference's."""
    width = len(numbers(subject[0]))
    sums: dict[str, list] = defaultdict(lambda: [0] * (2 * width))
    for side, stage in enumerate((subject, reference)):
        for one in stage:
            row = sums[getattr(one, cluster)]
            for place, number in enumerate(numbers(one), start=side * width):
                row[place] += number
    return sums


def geometric(logs: Mapping[str, Sequence[float]], settings: Settings) -> Ratio:
    """exp of the mean logarithm."""
    if not logs:
        return Ratio(None, reason="nothing_shared")
    sums = {name: [math.fsum(own), len(own)] for name, own in logs.items()}
    value = math.exp(math.fsum(x for own in logs.values() for x in own) / sum(map(len, logs.values())))
    return interval(value, sums, settings, lambda drawn: np.exp(drawn[:, 0] / drawn[:, 1]))


def interval(
    value: Fraction | float, sums: Mapping[str, Sequence], settings: Settings, statistic: Statistic, *, log: bool = True
) -> Ratio:
    """`value` with the plan's interval. `log`: it is a ratio, so a t interval is made of its logarithm."""
    clusters = len(sums)
    method = settings.method_for(clusters)
    if method is None:
        return Ratio(value, clusters=clusters, reason="few_clusters")
    columns = np.array([sums[name] for name in sorted(sums)], dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        if method == "t":
            found = _t_ends(columns, settings.level, statistic, log)
        else:
            draws = statistic(drawn_sums(columns, settings))
            share = tail(settings.level, clusters, method)
            found = ends_of(draws.tolist(), share) if np.isfinite(draws).all() else None
    if found is None:
        return Ratio(value, clusters=clusters, reason="undefined_in_resamples")
    low, high = found
    if high - low <= EQUAL_DRAWS * max(abs(low), abs(high)):
        return Ratio(value, clusters=clusters, reason="degenerate")
    return Ratio(value, low, high, clusters)


def _t_ends(columns: np.ndarray, level: float, statistic: Statistic, log: bool) -> tuple[float, float] | None:
    """t interval over the clusters; None where it is undefined."""
    found = left_out(columns, statistic, log)
    if found is None:
        return None
    centre, error = found
    half = t_quantile((1 + level) / 2, len(columns) - 1) * error
    half = 0.0 if half <= T_DUST * abs(centre) else half
    return (math.exp(centre - half), math.exp(centre + half)) if log else (centre - half, centre + half)


def left_out(columns: np.ndarray, statistic: Statistic, log: bool) -> tuple[float, float] | None:
    """(the statistic, or its logarithm; its standard error): how much it depends on each cluster, by leaving it out."""
    clusters = len(columns)
    numbers = [float(statistic(np.delete(columns, place, axis=0).sum(axis=0)[None])[0]) for place in range(clusters)]
    centre = float(statistic(columns.sum(axis=0)[None])[0])
    if log and all(number > 0 for number in (centre, *numbers)):
        centre, numbers = math.log(centre), [math.log(number) for number in numbers]
    elif log:
        return None
    if not all(map(math.isfinite, (centre, *numbers))):
        return None
    average = math.fsum(numbers) / clusters
    return centre, math.sqrt((clusters - 1) / clusters * math.fsum((number - average) ** 2 for number in numbers))


def drawn_sums(columns: np.ndarray, settings: Settings) -> np.ndarray:
    """Float64 [R, M]: sums of the drawn clusters' numbers [K, M]."""
    drawn = drawn_clusters(len(columns), settings.resamples, settings.seed)
    return np.stack([np.take(column, drawn).sum(axis=1) for column in columns.T], axis=1)


@lru_cache(maxsize=4)
def drawn_clusters(clusters: int, resamples: int, seed: int) -> np.ndarray:
    """int64 [R, K]: which clusters each resample draws."""
    generator = np.random.default_rng(seed)
    return np.stack([generator.integers(0, clusters, clusters) for _ in range(resamples)])


def tail(level: float, clusters: int, method: str) -> float:
    """Share of the draws below the lower end."""
    share = (1 - level) / 2
    if method != "expanded" or clusters < 2:
        return share
    return normal_below(math.sqrt(clusters / (clusters - 1)) * t_quantile(share, clusters - 1))


def ends_of(draws: Sequence[float], share: float) -> tuple[float, float]:
    ordered = sorted(draws)
    return quantile(ordered, share), quantile(ordered, 1 - share)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the two order statistics around place share * (n - 1)."""
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
