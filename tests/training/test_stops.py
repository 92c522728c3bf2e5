import pytest

from ablation.plan.rules import StopRule
from ablation.training.stops import fired_rule

FELL = StopRule(name="logprob_fell", measure="logprob", compare="change", op="<=", limit=-0.30)
UNFINISHED = StopRule(name="mostly_unfinished", measure="truncated_or_looping_share", op=">=", limit=0.60)
NOT_FINITE = StopRule(name="not_finite", measure="nonfinite", op=">", limit=0)
RULES = [FELL, UNFINISHED, NOT_FINITE]


def metrics(logprob=-0.5, unfinished=0.1, nonfinite=0):
    return {"logprob": logprob, "truncated_or_looping_share": unfinished, "nonfinite": nonfinite}


def test_nothing_fires_on_a_quiet_run():
    assert fired_rule(RULES, [metrics(), metrics(logprob=-0.79)]) is None


def test_a_fall_of_exactly_the_limit_fires():  # -0.8 - -0.5 is -0.30000000000000004 in doubles, -0.1 - 0.2 too
    fired = fired_rule(RULES, [metrics(logprob=-0.5), metrics(logprob=-0.8)])
    assert fired["rule"] == "logprob_fell" and fired["update"] == 2 and fired["value"] == -0.3


def test_a_change_is_against_update_1_and_not_the_one_before():
    fired = fired_rule(RULES, [metrics(logprob=-0.5), metrics(logprob=-0.7), metrics(logprob=-0.85)])
    assert (fired["rule"], fired["update"], fired["value"]) == ("logprob_fell", 3, -0.35)


def test_just_inside_the_limit_does_not_fire():
    assert fired_rule(RULES, [metrics(logprob=-0.5), metrics(logprob=-0.7999999)]) is None


@pytest.mark.parametrize(("share", "fires"), [(0.5999, False), (0.6, True), (1.0, True)])
def test_share_of_unfinished_rollouts(share, fires):
    assert (fired_rule(RULES, [metrics(unfinished=share)]) is not None) == fires


def test_not_finite_is_a_rule_of_its_own():
    fired = fired_rule(RULES, [metrics(), metrics(logprob=None, nonfinite=1)])
    assert fired["rule"] == "not_finite" and "nonfinite" in fired["reason"]


def test_the_first_rule_in_plan_order_is_named():
    assert fired_rule(RULES, [metrics(), metrics(logprob=-2.0, unfinished=0.9)])["rule"] == "logprob_fell"
