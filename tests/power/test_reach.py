"""Rules that decide something and rules that never can, tried on the plan's own judges."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablation.plan.load import load_plan, parse_plan
from ablation.power.reach import reach
from ablation.training.stops import fired_rule
from tests.plan.conftest import TEXT, write_plan

DAMAGE = '{name: logprob_lost, measure: logprob, compare: change, op: "<=", limit: -0.15}'
STOP = '{name: logprob_fell, measure: logprob, compare: change, op: "<=", limit: -0.3}'


@pytest.fixture
def of(tmp_path):
    """What becomes of the small plan with another damage or stop rule."""
    path = write_plan(tmp_path)

    def tried(old: str, new: str, text: str = TEXT):
        assert old in text
        plan = parse_plan(path, text.replace(old, new).encode()).plan
        name = new.split(",")[0].removeprefix("{name: ")
        (one,) = [one for one in reach(plan, fired_rule) if one.name == name]
        return one

    return tried


OWN = "extension: {{updates: 8, checks: [8], damage: [{}]}}\n"


def test_rules_of_an_extensions_checks_are_tried_too(of):
    rule = "{name: more_cut, measure: truncated, compare: change, op: '>=', limit: 20}"
    found = of(rule, rule, TEXT + OWN.format(rule))
    assert (found.group, found.holds_at, found.fails_at, found.problem) == ("extension", 20, 19, None)
    idle = "{name: idle, measure: tokens_per_correct, compare: value, op: '<', limit: 1}"
    assert "the rule never holds" in of(idle, idle, TEXT + OWN.format(idle)).problem


@pytest.mark.parametrize(
    ("rule", "holds_at", "fails_at"),
    [
        ('{name: apart, measure: mismatch_p99, op: ">", limit: 0.2}', 0.22, 0.2),
        ('{name: off, measure: mismatch_outside, op: ">=", limit: 0.1}', 0.1, 0.09),
        ('{name: steep, measure: grad_norm, op: ">", limit: 100}', 110, 100),
        ('{name: sure, measure: entropy, op: "<", limit: 0.1}', 0.09, 0.1),
    ],
)
def test_measures_of_sampler_and_trainer_can_stop_a_run(of, rule, holds_at, fails_at):
    found = of(STOP, rule)
    assert (found.holds_at, found.fails_at) == (pytest.approx(holds_at), pytest.approx(fails_at))


def test_a_share_of_tokens_is_at_most_one(of):
    found = of(STOP, '{name: off, measure: mismatch_outside, op: ">", limit: 1}')
    assert found.problem == "found 1; the number is 0 to 1, so the rule never holds and decides nothing"


def test_every_rule_of_the_plans_here_can_hold_and_not_hold(quickstart, tessera):
    for loaded, count in ((quickstart, 7), (tessera, 30)):
        found = reach(loaded.plan, fired_rule)
        assert len(found) == count
        assert [one.problem for one in found] == [None] * count
    by_name = {(one.group, one.name): (one.holds_at, one.fails_at) for one in found}
    assert by_name["damage", "clean_lost"] == (-21, -20)
    assert by_name["damage", "unfinished_gained"] == (20, 19)
    assert by_name["held_out", "correct_kept"] == (-8, -9)
    assert by_name["never_used", "correct_enough"] == (103, 102)
    assert by_name["stop_rules", "not_finite"] == (1, 0)
    holds, fails = by_name["held_out", "fewer_tokens"]
    assert holds < 1 <= fails
    holds, fails = by_name["release", "agent_turn"]
    assert holds <= 1.25 < fails


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ('measure: logprob, compare: value, op: "<=", limit: 0}', "found 0; the number is 0 or less, so the rule always holds"),
        ('measure: logprob, compare: value, op: ">", limit: 0}', "so the rule never holds and decides nothing"),
        ('measure: top20_mass, compare: change, op: "<=", limit: -1.5}', "the number is -1 to 1, so the rule never holds"),
        ('measure: cjk_share, compare: value, op: ">=", limit: 0}', "the number is 0 to 1, so the rule always holds"),
        ('measure: cjk_share, compare: ratio, op: "<", limit: 0}', "the number is 0 or more, so the rule never holds"),
        ('measure: tokens_per_correct, compare: ratio_high, op: "<=", limit: 0}', "above 0, so the rule never holds"),
        ('measure: tokens_per_correct, compare: value, op: "<", limit: 1}', "the number is 1 to 69600, so the rule never holds"),
        ('measure: total_tokens, compare: value, op: ">", limit: 69600}', "the number is 348 to 69600, so the rule never holds"),
        ('measure: clean_length, compare: value, op: ">", limit: 200}', "the number is 0 to 200, so the rule never holds"),
        ('measure: top20_entropy, compare: value, op: ">", limit: 3}', "so the rule never holds"),
        ('measure: truncated, compare: rate, op: ">", limit: 1}', "the number is 0 to 1, so the rule never holds"),
        ('measure: truncated, compare: rate_high, op: ">=", limit: 0}', "the number is 0 to 1, so the rule always holds"),
        ('measure: clean, compare: change_low, op: ">", limit: 348}', "the number is -348 to 348, so the rule never holds"),
        ('measure: correct_rate, compare: change, op: "<", limit: -1}', "the number is -1 to 1, so the rule never holds"),
    ],
)
def test_damage_rules_that_decide_nothing(of, rule, problem):
    found = of(DAMAGE, "{name: odd, " + rule)
    assert problem in found.problem
    assert found.place[:3] == ("verdict", "damage", 1)


@pytest.mark.parametrize(
    "rule",
    [
        'measure: logprob, compare: value, op: "<", limit: 0}',
        'measure: logprob, compare: value, op: ">=", limit: 0}',
        'measure: top20_mass, compare: change, op: "<=", limit: -1}',
        'measure: top20_entropy, compare: change, op: ">=", limit: 2.9}',
        'measure: cjk_share, compare: ratio, op: "<=", limit: 0}',
        'measure: tokens_per_correct, compare: ratio_high, op: ">", limit: 1.5}',
        'measure: clean_length, compare: ratio_low, op: ">", limit: 1}',
        'measure: jointly_correct_length, compare: ratio, op: ">", limit: 1}',
        'measure: total_tokens, compare: change, op: ">=", limit: 0.5}',
        'measure: truncated, compare: value, op: ">=", limit: 348}',
        'measure: no_answer, compare: change, op: "<", limit: -347}',
        'measure: looping, compare: rate, op: ">=", limit: 1}',
        'measure: looping, compare: rate_low, op: ">", limit: 0}',
        'measure: periodic, compare: change_low, op: ">=", limit: 348}',
        'measure: logprob, compare: change_high, op: "<", limit: -0.1}',
        'measure: correct_rate, compare: value, op: "<=", limit: 0.5}',
        'measure: cjk_share, compare: ratio_low, op: "<", limit: 0.5}',
    ],
)
def test_damage_rules_at_the_edge_that_still_decide(of, rule):
    found = of(DAMAGE, "{name: odd, " + rule)
    assert found.problem is None
    assert found.holds_at is not None
    assert found.fails_at is not None


@pytest.mark.parametrize(
    ("guard", "span"),
    [
        ('measure: looping, compare: change, op: ">=", limit: 300}', "-236 to 236"),
        ('measure: looping, compare: value, op: "<=", limit: 236}', "0 to 236"),
        ('measure: correct, compare: value, op: ">", limit: 144, on: held_out}', "0 to 144"),
        ('measure: correct, compare: change, op: ">=", limit: -144, on: never_used}', "-144 to 144"),
    ],
)
def test_guards_that_no_count_of_their_set_decides(guard, span):
    path = Path(__file__).parents[2] / "plans" / "tessera.yaml"
    text = path.read_text().replace("    guards:\n", f"    guards:\n      - {{name: odd, {guard}\n", 1)
    (found,) = [one for one in reach(parse_plan(path, text.encode()).plan, fired_rule) if one.name == "odd"]
    assert f"the number is {span}, so the rule" in found.problem


def test_shares_are_tried_where_they_can_be(of):
    """Case I05: of 348 rollouts, 233 are below 0.67 and 234 above it."""
    found = of(DAMAGE, '{name: odd, measure: correct_rate, compare: value, op: "<=", limit: 0.67}')
    assert (found.holds_at, found.fails_at) == (233 / 348, 234 / 348)
    found = of(DAMAGE, '{name: odd, measure: truncated, compare: rate, op: ">=", limit: 0.5}')
    assert (found.holds_at, found.fails_at) == (0.5, 173 / 348)


def test_an_interval_needs_enough_cells(of):
    rule = '{name: odd, measure: tokens_per_correct, compare: ratio_low, op: ">", limit: 1}'
    assert of(DAMAGE, rule).problem is None
    few = of(DAMAGE, rule, TEXT + "statistics: {min_clusters: 59}\n")
    assert "too few clusters for an interval" in few.problem


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ('measure: truncated_or_looping_share, op: ">", limit: 1}', "the number is 0 to 1, so the rule never holds"),
        ('measure: nonfinite, op: ">=", limit: 0}', "the number is 0 or more, so the rule always holds"),
        ('measure: logprob, op: ">", limit: 0}', "the number is 0 or less, so the rule never holds"),
        (
            'measure: logprob, compare: change, op: ">=", limit: 0}',
            "at update 1 the change is 0, so the rule ends every run there",
        ),
        ('measure: negative_share, compare: change, op: "<", limit: -1}', "the number is -1 to 1, so the rule never holds"),
    ],
)
def test_stop_rules_that_decide_nothing(of, rule, problem):
    assert problem in of(STOP, "{name: odd, " + rule).problem


def test_kl_share_needs_an_arm_with_a_kl_term(of):
    rule = '{name: odd, measure: kl_share, op: ">", limit: 0.1}'
    assert of(STOP, rule).problem is None
    without = TEXT.replace(", kl: {beta: 0.05}", "")
    assert of(STOP, rule, without).problem.endswith("the number is 0 to 0, so the rule never holds and decides nothing")


def test_one_update_has_no_change(of):
    one = TEXT.replace("updates: 5", "updates: 1")
    problem = of(STOP, STOP, one).problem
    assert "the number is 0 to 0, so the rule never holds" in problem
    assert problem.endswith("(with one update there is nothing to set against update 1: leave the rule out, or plan two updates)")
    assert of(STOP, STOP, one + "extension: {updates: 2, checks: [2]}\n").problem is None  # update 2 has one


def test_smollm2_plan_if_it_is_there(quickstart):
    path = quickstart.path.with_name("smollm2.yaml")
    if not path.exists():
        pytest.skip("no smollm2 plan")
    assert [one for one in reach(load_plan(path).plan, fired_rule) if one.problem] == []
