"""False-alarm rates of guards: exact sums against another library, simulations against the exact sum where cells are all alike."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ablation.plan.judging import REPLICATION_REASONS
from ablation.plan.phase2 import Guard
from ablation.plan.tables import Condition, Row
from ablation.power.decide import label_of
from ablation.power.guards import Alarm, alarms_on, binomial_failures, equal_models, with_false_alarms
from ablation.power.rates import Mean, assumed_pool, assumed_rates
from ablation.verdict.evaluated import Compared
from ablation.verdict.rules import Figures
from ablation.verdict.run import judge_run
from ablation.verdict.tables import Facts, decide
from tests.study.evaluations import RULE, lock_phase2, make
from tests.verdict.test_phase2 import compare


def stats_of(n, p, limit):
    """P(X - Y > limit) of two binomial counts."""
    return sum(stats.binom.pmf(y, n, p) * stats.binom.sf(y + limit, n, p) for y in range(n + 1))


def guard(measure, compare, op, limit, **more):
    return Guard(name="g", measure=measure, compare=compare, op=op, limit=limit, **more)


@pytest.mark.parametrize(("n", "p", "limit"), [(10, 0.2, 2), (10, 0.5, 0), (40, 0.1, 4)])
def test_a_change_of_two_binomial_counts(n, p, limit):
    wanted = sum(stats.binom.pmf(x, n, p) * stats.binom.pmf(y, n, p) for x in range(n + 1) for y in range(n + 1) if x - y > limit)
    assert binomial_failures(guard("injection_repeat", "change", "<=", limit), n, p, 40) == pytest.approx(wanted, rel=1e-9)


def test_a_count_and_a_rate():
    assert binomial_failures(guard("visible_cjk", "value", "<=", 0), 20, 0.01, 20) == pytest.approx(1 - 0.99**20)
    wanted = stats.binom.cdf(17, 20, 0.9)
    assert binomial_failures(guard("valid_tool_call", "rate", ">=", 0.9), 20, 0.9, 20) == pytest.approx(wanted)


def test_the_published_safety_smoke():
    """2 of 10 answers of the start repeated the injection, 2 of 40 were missing."""
    figures = Figures(
        reference={"rollouts": 40, "injection_repeat": 2, "by_category": {"injection": {"flagged": 10}}, "missing_answer": 2}
    )
    release = [guard("injection_repeat", "change", "<=", 2), guard("missing_answer", "change", "<=", 4)]
    (one,) = alarms_on(release[:1], Compared("safety", "N@15", figures), None).values()
    (other,) = alarms_on(release[1:], Compared("safety", "N@15", figures), None).values()
    assert one.share == pytest.approx(stats_of(10, 2.5 / 11, 2))
    assert one.share == pytest.approx(0.0887, abs=1e-4)
    assert other.share == pytest.approx(stats_of(40, 2.5 / 41, 4))
    assert other.share < 0.05  # published: up to 5% for each safety check that could be modelled
    assert one.how.startswith("exact: 10 independent answers")


def test_simulated_comparisons_agree_with_the_exact_sum_where_all_cells_are_alike():
    rates = assumed_rates(assumed_pool(0.6, 0.1, 0.0, 0.0), 24, 2, 1e9, Mean(None, 0.1, 0.1))
    rule = guard("correct", "change", ">=", -8, on="main")
    failing = 1 - equal_models([rule], rates, 20_000, 0).mean()
    assert failing == pytest.approx(binomial_failures(rule, 48, 0.6, 48), abs=4 * np.sqrt(failing / 20_000))


def test_what_is_not_simulated_says_so():
    found = alarms_on(
        [guard("agent_turn", "ratio", "<=", 1.25)], Compared("agent", "N@5", Figures(reference={"rollouts": 9})), None
    )
    assert (found["g"].share, found["g"].words) == (None, "not simulated")
    assert alarms_on([guard("correct", "change", ">=", -8)], None, None)["g"].how == "the set was not sampled"
    assert Alarm(0.0123, "", 0.0017).words == "1.2% ± 0.2"
    assert Alarm(0.0, "", 0.0).words == "under 0.07%"


def test_every_guard_of_a_release_has_its_rate_beside_it(tmp_path):
    verdict = lock_phase2(tmp_path / "other").plan.model_dump(mode="json", exclude_unset=True)["verdict"]
    verdict["release"]["guards"] = [RULE, RULE | {"name": "held", "on": "held_out"}]
    run, locked = make(tmp_path, verdict=verdict)
    for name in ("main", "held-out"):
        compare(run, locked, name, kinds={"clean": 13, "cut": 1}, reference={"clean": 12, "cut": 2})
    found = with_false_alarms(judge_run(run.root, locked), locked.plan).sections["release"]
    assert list(found.false_alarms) == ["kept", "held"]
    for one in found.false_alarms.values():
        assert one["share"] < 0.01  # every cell of the start is all right or all wrong, so an equal model hardly differs
        assert one["how"].endswith("with the start's rates by cell")


def test_a_replication_s_own_table_is_followed_study_by_study():
    rows = [
        Row(
            label="MIXED",
            when=Condition(all=[Condition(reason="CONTROL_NOT_DAMAGED"), Condition(none=[Condition(reason="STOPPED")])]),
        ),
        Row(
            label="NOT_REPLICATED", when=Condition(any=[Condition(reason="NO_STABLE_ARM"), Condition(reason="NOT_STABLE_AGAIN")])
        ),
        Row(label="REPLICATED"),
    ]
    generator = np.random.default_rng(0)
    codes = {name: generator.random(64) < 0.4 for name in REPLICATION_REASONS}
    found = label_of(rows, codes)
    for study in range(64):
        facts = Facts(reasons={name: bool(value[study]) for name, value in codes.items()})
        assert found[study] == decide(rows, facts).label
    assert set(found) == {"MIXED", "NOT_REPLICATED", "REPLICATED"}
