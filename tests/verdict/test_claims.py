import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from ablation.plan.claims import Claim
from ablation.plan.model import Statistics
from ablation.verdict.claims import (
    NO_EVIDENCE_OF_EQUALITY,
    NOT_SHOWN,
    OF_CHECKPOINTS,
    OF_RECIPE,
    SHOWN,
    UNDECIDED,
    judge_claims,
)
from tests.measures.build import many


def plan(statistics=None, **claims):
    """What `judge_claims` reads of a plan."""
    whole = {
        name: Claim(**({"reference": "C", "measure": "correct", "side": "greater"} | fields)) for name, fields in claims.items()
    }
    verdict = SimpleNamespace(claims=whole, unread=None)
    return SimpleNamespace(verdict=verdict, main_family="main", statistics=statistics or Statistics(resamples=2000, seed=3))


def better(outcomes, share, seed):
    """The same rollouts, some wrong ones made right."""
    rng = np.random.default_rng(seed)
    return replace(outcomes, correct=outcomes.correct | (rng.random(len(outcomes)) < share))


START = many(1, cells=24, rollouts=6)
RUNS = {
    ("main", "start"): START,
    ("main", "C"): START,
    ("main", "N"): better(START, 0.5, 1),
    ("main", "X"): better(START, 0.004, 2),
    ("main", "P"): START,
}


def judged(statistics=None, runs=RUNS, **claims):
    found = judge_claims(plan(statistics, **claims), lambda family, arm: runs.get((family, arm)))
    json.dumps([one.as_json() for one in found], allow_nan=False)
    return found


def labels(one):
    return {test.subject: test.label for test in one.tests}


@pytest.mark.parametrize("method", ["cluster_bootstrap", "cluster_t", "sign"])
def test_a_large_difference_is_shown_and_none_is_not(method):
    (found,) = judged(gain={"subjects": ["N", "X", "P", "Q"], "method": method})
    assert labels(found) == {"N": SHOWN, "X": NOT_SHOWN, "P": NOT_SHOWN, "Q": UNDECIDED}
    assert found.speaks_of == OF_CHECKPOINTS
    by = {test.subject: test for test in found.tests}
    assert by["N"].effect.value == int((RUNS["main", "N"].correct ^ START.correct).sum())
    assert by["X"].reason.endswith(NO_EVIDENCE_OF_EQUALITY)
    assert by["Q"].reason == "There is no readout of main/Q."
    assert by["P"].p == 1.0


def test_p_values_are_scipys():
    sums = np.array([(RUNS["main", "X"].correct ^ START.correct)[START.cell == name].sum() for name in np.unique(START.cell)])
    (t, sign) = judged(
        t={"subjects": ["X"], "method": "cluster_t", "side": "two_sided"}, sign={"subjects": ["X"], "method": "sign"}
    )
    assert t.tests[0].p == pytest.approx(stats.ttest_1samp(sums, 0).pvalue)
    assert sign.tests[0].p == pytest.approx(
        stats.binomtest(int((sums > 0).sum()), int((sums > 0).sum()), alternative="greater").pvalue
    )


def test_holm_is_over_the_registered_subjects():
    """Two more arms that differ by nothing triple the p of the one that does; without a correction they do nothing."""
    alone, among, plain = judged(
        alone={"subjects": ["X"], "method": "cluster_t"},
        among={"subjects": ["X", "P", "Q"], "method": "cluster_t"},
        plain={"subjects": ["X", "P", "Q"], "method": "cluster_t", "correction": "none"},
    )
    assert among.tests[0].p == alone.tests[0].p == plain.tests[0].adjusted
    assert among.tests[0].adjusted == pytest.approx(3 * alone.tests[0].p)
    assert "after Holm for 3 subjects" in among.tests[0].reason and "Holm" not in alone.tests[0].reason


@pytest.mark.parametrize("method", ["cluster_bootstrap", "cluster_t", "sign"])
def test_the_side_decides_and_arms_mirror(method):
    up, down, both = judged(
        up={"subjects": ["N"], "method": method},
        down={"subjects": ["N"], "method": method, "side": "less"},
        both={"subjects": ["N"], "method": method, "side": "two_sided"},
    )
    assert [labels(one)["N"] for one in (up, down, both)] == [SHOWN, NOT_SHOWN, SHOWN]
    (back,) = judged(back={"subjects": ["C"], "reference": "N", "method": method, "side": "less"})
    assert back.tests[0].p == pytest.approx(up.tests[0].p)


def test_a_ratio_is_tested_against_one():
    slow = replace(START, total_tokens=START.total_tokens * 2 + np.arange(len(START)) % 3)
    runs = RUNS | {("main", "N"): slow}
    for method in ("cluster_bootstrap", "cluster_t", "sign"):
        less, more = judged(
            runs=runs,
            less={"subjects": ["N"], "measure": "tokens_per_correct", "side": "less", "method": method},
            more={"subjects": ["N"], "measure": "tokens_per_correct", "side": "greater", "method": method},
        )
        assert (labels(less)["N"], labels(more)["N"]) == (NOT_SHOWN, SHOWN)
        assert float(more.tests[0].effect.value) == pytest.approx(2, rel=0.05)
        assert more.as_json()["compares"] == "ratio"
    (shorter,) = judged(
        clean={"subjects": ["N"], "measure": "clean_length", "side": "less"},
        runs=RUNS | {("main", "N"): replace(START, thinking_length=START.thinking_length // 2 + 1)},
    )
    assert labels(shorter) == {"N": SHOWN}


def test_what_is_undefined_is_undecided():
    wrong = replace(START, correct=np.zeros(len(START), dtype=bool))
    (found,) = judged(runs=RUNS | {("main", "N"): wrong}, cost={"subjects": ["N"], "measure": "tokens_per_correct"})
    assert (labels(found), found.tests[0].reason[:30]) == ({"N": UNDECIDED}, "A model has no correct answer,")


def test_cells_that_all_differ_alike_are_no_test():
    one = START.take(START.index < 2)
    alike = replace(one, correct=one.index == 0), replace(one, correct=one.index < 2)
    for method, label in (("cluster_bootstrap", UNDECIDED), ("cluster_t", UNDECIDED), ("sign", SHOWN)):
        (found,) = judged(runs={("main", "C"): alike[0], ("main", "N"): alike[1]}, one={"subjects": ["N"], "method": method})
        assert labels(found) == {"N": label}


def test_few_cells():
    """Case I03: undecided, or t, as the plan says."""
    runs = {key: one.take(np.isin(one.problem, ["p00", "p01", "p02", "p03"])) for key, one in RUNS.items()}
    claim = {"subjects": ["N"], "alpha": 0.2}
    (undecided,) = judged(runs=runs, few=claim)
    assert labels(undecided) == {"N": UNDECIDED}
    assert undecided.tests[0].reason == "There are 4 cells, and the plan has no interval with fewer than 10."
    (by_t,), (named,) = (
        judged(Statistics(few_clusters="t"), runs, few=claim),
        judged(runs=runs, few=claim | {"method": "cluster_t"}),
    )
    assert by_t.tests[0].p == named.tests[0].p is not None
    alone = {key: one.take(one.problem == "p00") for key, one in RUNS.items()}
    (single,) = judged(runs=alone, few=claim | {"method": "cluster_t"})
    assert single.tests[0].reason == "One cell says nothing of how cells differ."


def seeds(values):
    """Readouts with so many correct answers, by (arm, family)."""
    return {
        (f"f{place}", arm): replace(START, correct=np.arange(len(START)) < count)
        for arm, counts in values.items()
        for place, count in enumerate(counts)
    }


def test_welch_compares_training_seeds():
    values = {"C": [60, 70, 64], "N": [90, 97, 101], "X": [50, 90, 70]}
    claim = {"subjects": ["N", "X"], "method": "welch", "families": ["f0", "f1", "f2"]}
    (found,) = judged(runs=seeds(values), recipe=claim)
    expected = stats.ttest_ind(values["N"], values["C"], equal_var=False, alternative="greater")
    assert found.tests[0].p == pytest.approx(expected.pvalue)
    assert labels(found) == {"N": SHOWN, "X": NOT_SHOWN}
    assert found.speaks_of == OF_RECIPE
    interval = stats.ttest_ind(values["N"], values["C"], equal_var=False).confidence_interval(0.9)
    effect = found.tests[0].effect
    assert (effect.low, effect.high, effect.clusters, effect.method) == pytest.approx((interval.low, interval.high, 3, "welch"))


def test_welch_on_a_ratio_is_on_the_log_scale():
    values = {"C": [60, 70, 64], "N": [90, 97, 101]}
    claim = {
        "subjects": ["N"],
        "method": "welch",
        "families": ["f0", "f1", "f2"],
        "side": "less",
        "measure": "tokens_per_correct",
    }
    (found,) = judged(runs=seeds(values), recipe=claim)
    logs = [-np.log(values[arm]) for arm in ("N", "C")]
    assert found.tests[0].p == pytest.approx(stats.ttest_ind(*logs, equal_var=False, alternative="less").pvalue)
    assert found.tests[0].effect.value == pytest.approx(np.exp(logs[0].mean() - logs[1].mean()))


def test_welch_without_spread_or_with_a_family_missing():
    claim = {"subjects": ["N"], "method": "welch", "families": ["f0", "f1"]}
    (flat,) = judged(runs=seeds({"C": [60, 60], "N": [90, 90]}), recipe=claim)
    assert (labels(flat), flat.tests[0].effect.value) == ({"N": UNDECIDED}, 30)
    (gone,) = judged(runs=seeds({"C": [60, 62], "N": [90]}), recipe=claim)
    assert gone.tests[0].reason == "There is no readout of f1/N."


def test_order_of_rows_does_not_matter():
    rng = np.random.default_rng(0)
    shuffled = {key: one.take(rng.permutation(len(one))) for key, one in RUNS.items()}
    claims = {name: {"subjects": ["N", "X"], "measure": name} for name in ("correct", "logprob", "correct_rate", "clean_length")}
    assert [one.as_json() for one in judged(**claims)] == [one.as_json() for one in judged(runs=shuffled, **claims)]


def test_how_often_a_claim_about_nothing_is_shown():
    """400 pairs of arms that do not differ: with Holm over both, any is shown in 5% at most, give or take 3 standard errors (3.3)."""
    wrong = 0
    settings = Statistics(resamples=300, method="expanded")
    for seed in range(400):
        rng = np.random.default_rng(seed)
        skill = np.repeat(rng.beta(1.2, 0.9, 24), 6)
        runs = {("main", arm): replace(START, correct=rng.random(len(START)) < skill) for arm in "CNX"}
        (found,) = judged(settings, runs, none={"subjects": ["N", "X"], "side": "two_sided"})
        wrong += SHOWN in labels(found).values()
    assert 4 <= wrong <= 33
