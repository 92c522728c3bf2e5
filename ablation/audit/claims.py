"""Claims between arms by this audit's own tests: over cells (bootstrap, t, sign) or over training seeds (Welch), with Holm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import Any

import numpy as np

from ablation.audit.chance import t_above
from ablation.audit.counts import MEANS, WITHOUT_THINKING, Outcome, hidden, measures, too_unread
from ablation.audit.findings import Findings
from ablation.audit.intervals import EQUAL_DRAWS, T_DUST, Settings, both_sums, drawn_sums, left_out, mean_logs, rate
from ablation.audit.read_run import Run
from ablation.audit.sampled import START

RATIOS = ("tokens_per_correct", "clean_length")
"""Measures that are compared as a ratio, on the log scale."""


@dataclass(frozen=True)
class Contrast:
    """Sums by cell, the statistic of them, and which way cells go. `log`: without a difference the statistic is 1, not 0."""

    columns: np.ndarray
    statistic: Any
    log: bool
    ups: int
    downs: int


def own_claims(run: Run) -> dict[str, list[tuple[str, str, float | None]]]:
    """Claim -> (subject, label, adjusted p) of each subject."""
    found = {}
    claims = run.tree.plan["verdict"].get("claims") or {}
    for name in run.tree.order.get("verdict.claims", claims):
        claim = claims[name]
        families = claim.get("families") or [run.tree.main_family]
        test = _over_seeds if claim["method"] == "welch" else _over_cells
        plain = [
            None if _too_unread(run, claim, subject, families) else test(run, claim, subject, families)
            for subject in claim["subjects"]
        ]
        adjusted = holm(plain) if claim["correction"] == "holm" else plain
        labels = ["UNDECIDED" if p is None else "SHOWN" if p <= claim["alpha"] else "NOT_SHOWN" for p in adjusted]
        found[name] = list(zip(claim["subjects"], labels, adjusted, strict=True))
        run.found.count("claims, each with its p-value", len(plain))
    return found


def compare_claims(
    where: str, told: Sequence[Mapping[str, Any]], own: Mapping[str, Sequence], found: Findings, source: str
) -> None:
    if [one["name"] for one in told] != list(own):
        found.differ(where, f"has the claims {[one['name'] for one in told]}; the plan has {list(own)}")
        return
    for one in told:
        for theirs, (subject, label, p) in zip(one["subjects"], own[one["name"]], strict=True):
            name = f"{one['name']} of {subject}"
            found.same(where, f"{name}: label", theirs["label"], label, source=source)
            found.same(where, f"{name}: adjusted_p", theirs["adjusted_p"], p, source=source)


def _stage(run: Run, family: str, arm: str) -> list[Outcome] | None:
    one = run.stages.get(f"{family}/{START}/sweep" if arm == START else f"{family}/{arm}/readout")
    return one.outcomes if one is not None and one.whole else None


def _too_unread(run: Run, claim: Mapping[str, Any], subject: str, families: Sequence[str]) -> bool:
    pairs = [(_stage(run, family, subject), _stage(run, family, claim["reference"])) for family in families]
    return any(too_unread(own, other, run.tree.plan) for own, other in pairs if own is not None and other is not None)


def _over_cells(run: Run, claim: Mapping[str, Any], subject: str, families: Sequence[str]) -> float | None:
    own, other = (_stage(run, families[0], arm) for arm in (subject, claim["reference"]))
    if own is None or other is None:
        return None
    contrast, settings = contrast_of(own, other, claim["measure"], run.settings), run.settings
    if contrast is None:
        return None
    clusters = len(contrast.columns)
    if claim["method"] == "sign":
        return sides(
            binomial_below(contrast.downs, contrast.ups + contrast.downs),
            binomial_below(contrast.ups, contrast.ups + contrast.downs),
            claim,
        )
    boots = claim["method"] == "cluster_bootstrap"
    if (settings.method_for(clusters) if boots else "t") is None or clusters < 2:
        return None
    if boots and clusters >= settings.min_clusters:
        with np.errstate(divide="ignore", invalid="ignore"):
            draws = contrast.statistic(drawn_sums(contrast.columns, settings))
        return _bootstrap(draws.tolist(), 1.0 if contrast.log else 0.0, clusters, claim)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = left_out(contrast.columns, contrast.statistic, contrast.log)
    return None if found is None else t_test(*found, clusters - 1, claim)


def contrast_of(own: Sequence[Outcome], other: Sequence[Outcome], name: str, settings: Settings) -> Contrast | None:
    """None where the difference is undefined."""
    log = name in RATIOS
    if name not in WITHOUT_THINKING and hidden(own, other):
        return None
    if name == "clean_length":
        logs = mean_logs(own, other, "cell")
        signs = [numbers[0] for _, numbers in sorted(logs.items())]
        columns = [[number, 1.0] for number in signs]
        statistic: Any = lambda s: np.exp(s[:, 0] / s[:, 1])  # noqa: E731
        if not columns:
            return None
    elif name == "tokens_per_correct":
        sums = both_sums(own, other, "cell", lambda one: (one.tokens, one.correct))
        if not all(sum(row[place] for row in sums.values()) for place in (1, 2, 3)):
            return None
        columns = [sums[key] for key in sorted(sums)]
        signs = [row[0] * row[3] - row[2] * row[1] for row in columns]
        statistic = lambda s: (s[:, 0] * s[:, 3]) / (s[:, 1] * s[:, 2])  # noqa: E731
    elif name in MEANS:
        values = [getattr(one, name) for stage in (own, other) for one in stage if one.thinking_length]
        if (
            not values
            or not all(map(math.isfinite, values))
            or not all(any(one.thinking_length for one in stage) for stage in (own, other))
        ):
            return None
        sums = both_sums(
            own, other, "cell", lambda one: (getattr(one, name) if one.thinking_length else 0.0, one.thinking_length > 0)
        )
        columns = [sums[key] for key in sorted(sums)]
        signs = [row[0] / row[1] - row[2] / row[3] if row[1] and row[3] else 0.0 for row in columns]
        statistic = lambda s: s[:, 0] / s[:, 1] - s[:, 2] / s[:, 3]  # noqa: E731
    else:
        measure = "correct" if name == "correct_rate" else name
        sums = both_sums(own, other, "cell", lambda one: (int(getattr(one, measure)), 1))
        rows = [sums[key] for key in sorted(sums)]
        signs = [row[0] - row[2] for row in rows]
        by_cluster = name == "correct_rate" and settings.estimand == "mean_of_clusters"
        columns = [[(row[0] - row[2]) / row[1], 1] if by_cluster else [row[0] - row[2], row[1]] for row in rows]
        statistic = lambda s: s[:, 0] / s[:, 1]  # noqa: E731
    ups, downs = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    return Contrast(np.array(columns, dtype=np.float64), statistic, log, ups, downs)


def _bootstrap(draws: Sequence[float], null: float, clusters: int, claim: Mapping[str, Any]) -> float | None:
    """The share of the draws at or beyond no difference, the sample counted in, as the tail of the expanded interval it ends."""
    if not all(map(math.isfinite, draws)):
        return None
    low, high = min(draws), max(draws)
    if high - low <= EQUAL_DRAWS * max(abs(low), abs(high)) and not low <= null <= high:
        return None

    def level(beyond: int) -> float:
        share = (1 + beyond) / (len(draws) + 1)
        if share >= 1:
            return share
        t = math.sqrt((clusters - 1) / clusters) * NormalDist().inv_cdf(share)
        return t_above(-t, clusters - 1) if t <= 0 else 1 - t_above(t, clusters - 1)

    dust = EQUAL_DRAWS * max(abs(low), abs(high))
    return sides(level(sum(draw - null <= dust for draw in draws)), level(sum(draw - null >= -dust for draw in draws)), claim)


def t_test(centre: float, error: float, freedom: float, claim: Mapping[str, Any]) -> float | None:
    if error <= T_DUST * abs(centre):
        return 1.0 if centre == 0 else None
    t = centre / error
    above = t_above(abs(t), freedom)
    return sides(above if t >= 0 else 1 - above, above if t <= 0 else 1 - above, claim)


def sides(greater: float, less: float, claim: Mapping[str, Any]) -> float:
    """The p-value of the claim's side."""
    return {"greater": greater, "less": less, "two_sided": min(1.0, 2 * min(greater, less))}[claim["side"]]


def binomial_below(successes: int, trials: int) -> float:
    """P(at most so many of `trials` fair coins)."""
    return sum(math.comb(trials, k) for k in range(successes + 1)) / 2**trials


def _over_seeds(run: Run, claim: Mapping[str, Any], subject: str, families: Sequence[str]) -> float | None:
    """Welch's test on one number a training run."""
    groups: list[list[float]] = []
    for arm in (subject, claim["reference"]):
        numbers = [_number(_stage(run, family, arm), claim["measure"], run.settings) for family in families]
        if any(number is None for number in numbers):
            return None
        groups.append([number for number in numbers if number is not None])
    parts = [variance(group) / len(group) for group in groups]
    if not sum(parts):
        return None
    freedom = sum(parts) ** 2 / sum(part**2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True))
    return t_test(fmean(groups[0]) - fmean(groups[1]), math.sqrt(sum(parts)), freedom, claim)


def _number(stage: list[Outcome] | None, name: str, settings: Settings) -> float | None:
    """One run's own number, as a logarithm where it is compared as a ratio."""
    if stage is None:
        return None
    if name == "correct_rate":
        value = rate(stage, name, settings, "cell").value
        return None if value is None else float(value)
    number = measures(stage)[name]
    if name not in RATIOS or number is None:
        return number
    return math.log(number) if number > 0 else None


def holm(plain: Sequence[float | None]) -> list[float | None]:
    """The largest of (m - j + 1) p(j) over the p-values up to each one's own, at most 1; a missing one counts among the m."""
    m, adjusted = len(plain), list(plain)
    ranked = sorted((p, place) for place, p in enumerate(plain) if p is not None)
    for rank, (_, place) in enumerate(ranked):
        adjusted[place] = min(1.0, max((m - j) * ranked[j][0] for j in range(rank + 1)))
    return adjusted
