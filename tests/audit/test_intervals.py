"""Every estimate of the audit against the engine's, over the plan's ways of making intervals, and numbers by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ablation.audit.counts import Outcome, exact_means, mean, measures
from ablation.audit.intervals import COUNTS, Estimates, Settings, drawn_clusters, quantile
from ablation.measures.compare import changes, rates, ratios
from ablation.measures.measure import measure
from ablation.plan.model import Statistics
from ablation.rollouts.outcomes import Outcomes
from tests.measures.build import outcomes


def own(stage: Outcomes) -> list[Outcome]:
    """The same rollouts as the audit has them."""
    columns = {name: getattr(stage, name).tolist() for name in ("problem", "effort", "source", "index", "correct", "no_answer")}
    columns |= {
        name: getattr(stage, name).tolist() for name in ("truncated", "finished", "stopped_in_thinking", "periodic", "strong")
    }
    columns |= {name: getattr(stage, name).tolist() for name in ("thinking_length", "weighted_length", "logprob", "cjk_share")}
    columns |= {"tokens": stage.total_tokens.tolist(), "weighted_start": [0] * len(stage)}
    columns |= {"top20_entropy": stage.top_entropy.tolist(), "top20_mass": stage.top_mass.tolist()}
    return [Outcome(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def made(seed: int, problems: int = 8, skill: float = 0.6) -> Outcomes:
    rng, rows = np.random.default_rng(seed), []
    for name in range(problems):
        for effort in ("low", "medium"):
            easy = rng.beta(4 * skill, 4 * (1 - skill))
            for index in range(3):
                length = int(rng.integers(0, 200))
                rare = {
                    "truncated": bool(rng.random() < 0.1),
                    "periodic": bool(rng.random() < 0.05),
                    "logprob": -float(rng.random()),
                }
                rare |= {"cjk_share": float(rng.random()), "source": "sums" if name % 2 else "products", "no_answer": False}
                rows.append((f"p{name}", effort, index, rng.random() < easy, length, length + 5, rare))
    return outcomes(rows)


SETTINGS = [
    {"method": "percentile"},
    {"method": "expanded", "level": 0.8},
    {"method": "t"},
    {"method": "percentile", "min_clusters": 100},
    {"method": "percentile", "min_clusters": 100, "few_clusters": "t"},
    {"method": "expanded", "estimand": "mean_of_clusters"},
]


@pytest.mark.parametrize("cluster", ["cell", "problem"])
@pytest.mark.parametrize("changed", SETTINGS, ids=lambda one: "-".join(map(str, one.values())))
def test_every_estimate_is_the_engine_s(changed, cluster):
    plain = {
        "level": 0.9,
        "resamples": 400,
        "seed": 3,
        "min_clusters": 5,
        "few_clusters": "undecided",
        "estimand": "pooled",
    } | changed
    statistics, settings = Statistics(**plain), Settings(**plain)
    subject, reference = made(1), made(2, skill=0.5)
    estimate = Estimates(own(subject), own(reference), settings, cluster, cjk_ends=True)
    theirs = {("ratio", name): one for name, one in ratios(subject, reference, None, statistics, cluster, medians=True).items()}
    theirs |= {("change", name): one for name, one in changes(subject, reference, statistics, cluster).items()}
    theirs |= {("rate", name): one for name, one in rates(subject, statistics, cluster).items()}
    assert len(theirs) == 4 + 12 + 9
    for (kind, name), one in theirs.items():
        mine = estimate(kind, name)
        assert mine is not None and mine.reason == one.reason, (kind, name)
        for end in ("value", "low", "high"):
            expected = getattr(one, end)
            assert getattr(mine, end) == (None if expected is None else pytest.approx(expected, rel=1e-9)), (kind, name, end)
        assert mine.bound == (None if one.bound is None else pytest.approx(one.bound, rel=1e-9)), (kind, name)


def test_agreeing_clusters_have_the_exact_bound():
    rows = [(f"p{i}", "low", 0, True, 10, 15) for i in range(50)]
    estimate = Estimates(own(outcomes(rows)), own(outcomes(rows)), Settings(0.95, 100, 0, 10), "cell")
    low, high = estimate("rate", "truncated").bound
    assert (low, high) == (0.0, pytest.approx(0.0711, abs=1e-4))  # 0 of 50
    low, high = estimate("change", "correct").bound
    assert (low, high) == (pytest.approx(-3.556, abs=1e-3), pytest.approx(3.556, abs=1e-3))  # 50 * 0.0711
    assert estimate("rate", "truncated").reason == estimate("change", "correct").reason == "degenerate"


def test_measures_are_the_engine_s():
    for seed in range(3):
        stage = made(seed)
        theirs = measure(stage)
        mine = measures(own(stage))
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            if name not in ("by_effort", "by_source"):
                assert value == (value if value is None else pytest.approx(theirs[name], rel=1e-12))
        assert mine["by_source"]["sums"]["clean"] == theirs["by_source"]["sums"]["clean"]
        assert set(COUNTS) <= set(mine)


def test_means_are_rounded_once():
    assert exact_means(np.array([-0.65] * 7), [slice(0, 7), slice(2, 2)]) == [-0.65, None]
    assert exact_means(np.array([0.1, 0.2, 0.3]), [slice(0, 3)]) == [float(sum(map(Fraction, (0.1, 0.2, 0.3))) / 3)]
    assert exact_means(np.array([1e16, 1.0, -1e16]), [slice(0, 3)]) == [1 / 3]
    assert math.isnan(exact_means(np.array([1.0, math.nan]), [slice(0, 2)])[0])
    assert mean([0.1] * 10) == 0.1 and mean([]) is None and mean([1.0, math.inf]) is None


def test_draws_are_the_documented_ones():
    drawn = drawn_clusters(5, 3, 11)
    assert drawn.tolist() == np.random.default_rng(11).integers(0, 5, (3, 5)).tolist()
    assert quantile([1.0, 2.0, 4.0], 0.75) == 3.0
