from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from ablation.errors import IncompleteError
from ablation.measures.compare import changes
from ablation.measures.measure import measure
from ablation.plan.measures import PAIRED
from ablation.plan.model import Statistics

from .build import many, outcomes

FEW = Statistics(min_clusters=2, method="t")


def of_cells(changes_of, rollouts=2, **columns):
    """Subject and reference with so many more correct answers in each cell."""
    rows = [(f"c{c}", "low", i, i < 1 + d, 5, 9) for c, d in enumerate(changes_of) for i in range(rollouts)]
    return outcomes(rows), outcomes([(name, effort, i, i < 1, *rest) for name, effort, i, _, *rest in rows])


def test_a_count_by_hand():
    """Changes by cell 1, 0, -1, 1 of two rollouts each: in all 1; the t interval is 4 times that of their mean."""
    subject, reference = of_cells([1, 0, -1, 1])
    found = changes(subject, reference, FEW, names=("correct",))["correct"]
    assert (found.value, found.clusters, found.method) == (Fraction(1), 4, "t")
    expected = ttest_rel([2, 1, 0, 2], [1, 1, 1, 1]).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((4 * expected.low, 4 * expected.high))


def test_a_bootstrap_by_enumeration():
    """Cells +1 and -1: a resample gives -2, 0 or 2 with 1/4, 1/2, 1/4, so a 90% interval is -2 to 2 and a 40% one is 0."""
    subject, reference = of_cells([1, -1])
    wide = changes(subject, reference, Statistics(min_clusters=2), names=("correct",))["correct"]
    assert (wide.value, wide.low, wide.high) == (0, -2, 2)
    narrow = changes(subject, reference, Statistics(min_clusters=2, level=0.4), names=("correct",))["correct"]
    assert narrow.reason == "degenerate"


def test_no_change_in_any_cell_is_no_certainty():
    """Case I01: truncation 0 of 50 in both arms: the change is within 0.071 of 0 at 95%."""
    one = many(3, cells=50, rollouts=1)
    found = changes(one, one, Statistics(level=0.95), names=("truncated", "correct_rate"))
    assert (found["truncated"].value, found["truncated"].reason) == (0, "degenerate")
    assert found["truncated"].bound == pytest.approx((-50 * 0.0711, 50 * 0.0711), abs=3e-3)
    assert found["correct_rate"].bound == pytest.approx((-0.0711, 0.0711), abs=1e-4)


def test_a_mean_is_over_rollouts_that_thought():
    rows = [("a", "low", 0, 1, 5, 9), ("a", "low", 1, 1, 0, 9), ("b", "low", 0, 1, 5, 9), ("b", "low", 1, 1, 5, 9)]
    subject = outcomes([(*row, {"logprob": p}) for row, p in zip(rows, (-0.4, np.nan, -0.2, -0.3), strict=True)])
    reference = outcomes([(*row, {"logprob": p}) for row, p in zip(rows, (-0.1, np.nan, -0.3, -0.2), strict=True)])
    found = changes(subject, reference, FEW, names=("logprob",))["logprob"]
    assert found.value == measure(subject)["logprob"] - measure(reference)["logprob"] == pytest.approx(-0.1)
    assert found.low < found.value < found.high
    broken = outcomes([(*row, {"logprob": -np.inf}) for row in rows])
    assert changes(broken, reference, FEW, names=("logprob",))["logprob"].reason == "not_finite"
    silent = outcomes([("a", "low", 0, 1, 0, 9, {"logprob": np.nan})])
    assert changes(silent, silent, FEW, names=("logprob",))["logprob"].reason == "nothing_measured"


def test_a_rollout_without_a_partner_is_named():
    subject, reference = of_cells([1, 0])
    with pytest.raises(IncompleteError, match=r"the subject lacks 1: c1@low #1"):
        changes(subject.take(np.arange(3)), reference, FEW)


@given(
    seed=st.integers(0, 10_000),
    method=st.sampled_from(["percentile", "expanded", "t"]),
    estimand=st.sampled_from(["pooled", "mean_of_clusters"]),
)
@settings(max_examples=25, deadline=None)
def test_properties(seed, method, estimand):
    """Any order of rows gives the same bits, the change the other way round is its negative, and counts are exact."""
    rules = Statistics(resamples=200, method=method, estimand=estimand)
    subject, reference = many(seed, cells=12, rollouts=3), many(seed + 1, cells=12, rollouts=3)
    rng = np.random.default_rng(seed)
    subject.logprob[:] = rng.normal(-0.5, 0.1, len(subject))
    found = changes(subject, reference, rules)
    assert set(found) == set(PAIRED)
    assert found == changes(subject.take(rng.permutation(len(subject))), reference.take(rng.permutation(len(subject))), rules)
    back = changes(reference, subject, rules)
    for name, one in found.items():
        assert float(back[name].value) == pytest.approx(-float(one.value))
        if one.reason is None:
            assert (back[name].low, back[name].high) == pytest.approx((-one.high, -one.low))
    assert found["correct"].value == measure(subject)["correct"] - measure(reference)["correct"]
    assert float(found["correct_rate"].value) == pytest.approx(float(found["correct"].value) / 36)
