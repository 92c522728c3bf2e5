from __future__ import annotations

import json

import numpy as np
import pytest

from ablation.errors import UsageError
from ablation.plan.load import parse_plan
from ablation.power.power import power
from ablation.power.settings import Settings, inputs
from ablation.power.summary import Share
from ablation.training.stops import fired_rule
from tests.plan.conftest import TEXT, write_plan

DAMAGE = '- {name: logprob_lost, measure: logprob, compare: change, op: "<=", limit: -0.15}'


def loaded_with(tmp_path, *changes):
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_plan(write_plan(tmp_path), text.encode())


def test_share_and_its_standard_error():
    """30 of 400: sqrt(0.075 * 0.925 / 399)."""
    share = Share.of(np.arange(400) < 30)
    assert (share.value, share.below) == (0.075, None)
    assert share.se == pytest.approx(np.sqrt(0.075 * 0.925 / 399))
    runs = Share.of(np.repeat([[True], [False]], 7, axis=1))  # seven runs that share everything are one study, not seven
    assert (runs.value, runs.se, runs.studies) == (0.5, pytest.approx(0.5), 2)


@pytest.mark.parametrize("values", [np.zeros(50, dtype=bool), np.ones(50, dtype=bool)])
def test_none_of_50_is_not_never(values):
    """Exact bound: 0.95 ^ ... : (1 - p)^50 = 0.05 at p = 0.0582 (Clopper and Pearson, one-sided)."""
    assert Share.of(values).below == pytest.approx(0.0582, abs=1e-4)


def test_the_whole_answer_is_plain_data(tessera):
    found = power(tessera, Settings(studies=200, effects=["C.clean=-25"], target="0.01-0.025"), fired_rule)
    data = json.loads(json.dumps(found.as_json(), allow_nan=False))
    labels = data["no_difference"]["labels"]
    assert labels["REPLICATED"]["share"] + labels["NOT_REPLICATED"]["share"] == pytest.approx(1)
    assert data["with_effects"]["labels"]["REPLICATED"]["share"] > labels["REPLICATED"]["share"] + 0.2
    assert [one["name"] for one in data["stop_rules"]] == ["logprob_fell", "mostly_unfinished", "not_finite"]
    assert {one["section"] for one in data["proposals"]} == {"damage", "held_out", "never_used", "release"}
    assert len(data["every_rule"]) == 30
    left_out = " ".join(data["model"]["left_out"])
    for words in ("fewer_tokens, notation_kept", "blinded read", "Guards on agent turns", "Training seeds", "Stop rules"):
        assert words in left_out


def test_a_damage_rule_that_is_not_simulated_is_said_and_never_fires(tmp_path):
    odd = '- {name: odd, measure: tokens_per_correct, compare: ratio, op: ">", limit: 0.001}'
    found = power(loaded_with(tmp_path, (DAMAGE, odd)), Settings(studies=200), fired_rule)
    assert any("as if they never fired: odd" in line for line in found.left_out)
    assert found.no_difference.rules[1].overall is None
    assert found.no_difference.any_damage.value < 0.2


def test_only_a_control_can_never_replicate(tmp_path):
    arms = ("  N: {weighting: rollout}\n  XK: {weighting: rollout, truncated: apart, kl: {beta: 0.05}}\n", "")
    found = power(loaded_with(tmp_path, arms), Settings(studies=200, effects=["C.clean=-60"]), fired_rule)
    assert found.with_effects.labels["REPLICATED"].value == 0
    reasons = {text: share.value for _, text, share in found.with_effects.reasons}
    assert reasons["no other arm is stable in main"] == 1
    assert found.with_effects.damaged[-1][2] is None


def test_no_damage_by_luck_with_the_same_luck(quickstart):
    """Correlation 1: a readout of an equal model is the sweep itself."""
    found = power(quickstart, Settings(studies=200, correlation=1.0), fired_rule)
    assert found.no_difference.any_damage.value == 0


def test_rates_of_held_out_problems(tessera):
    model = inputs(tessera, Settings(held_out=["correct=0.5", "truncated=0.3"], never_used=["looping=0"])).model
    held_out, never_used = (model.sections[name].expected() for name in ("held_out", "never_used"))
    assert model.sections["held_out"].total == model.sections["never_used"].total == 144
    assert [held_out[name] for name in ("correct", "truncated", "looping")] == pytest.approx([0.5, 0.3, 0.05])
    assert held_out["truncated_or_looping"] == pytest.approx(0.3 + 0.01)  # as in training, 80% of looping ones are truncated
    assert [never_used[name] for name in ("correct", "truncated", "looping")] == pytest.approx([0.6, 0.13, 0])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"studies": 99}, "--studies 99: must be 100 to 200,000"),
        ({"studies": 200_001}, "--studies 200001"),
        ({"seed": -1}, "--seed -1"),
        ({"correct": 1.1}, "--correct 1.1: must be a share from 0 to 1"),
        ({"truncated": float("nan")}, "--truncated nan"),
        ({"looping": -0.1}, "--looping -0.1"),
        ({"looping_truncated": 2.0}, "--looping-truncated 2"),
        ({"correlation": 1.5}, "--correlation 1.5"),
        ({"logprob_sd": -1.0}, "--logprob-sd -1: must be 0 nats or more"),
        ({"logprob_cell_sd": float("inf")}, "--logprob-cell-sd inf"),
        ({"concentration": 0.0}, "--concentration 0: must be 0.05 or more"),
        ({"correct": 0.9, "truncated": 0.3}, "are more than all rollouts"),
        ({"held_out": ["clean=0.5"]}, "--held-out clean=0.5: is not NAME=RATE with a name of correct, truncated, looping"),
        ({"held_out": ["correct=x"]}, "--held-out correct=x: found `x`, which is not a number"),
        ({"held_out": ["correct=2"]}, "--held-out correct=2: a rate is from 0 to 1"),
        ({"never_used": ["correct=0.2", "correct=0.3"]}, "--never-used correct=0.3: correct is given twice"),
        ({"effects": ["C.clean=-300"]}, "--effect C.clean=-300: does not fit"),
        ({"effects": ["N.looping=-40"]}, "--effect N.looping=-40: does not fit"),
        ({"effects": ["held_out.truncated=130"]}, "--effect held_out.truncated=130: does not fit"),
        ({"target": "1-2"}, "--target 1-2"),
        ({"seed_sd": ["correct=1"]}, "--seed-sd correct=1"),
    ],
)
def test_options_that_cannot_be(tessera, settings, text):
    with pytest.raises(UsageError) as caught:
        inputs(tessera, Settings(**settings))
    assert text in caught.value.message
    assert caught.value.exit_code == 2


def test_options_that_contradict_each_other(quickstart, tmp_path):
    with pytest.raises(UsageError, match="--logprob-sd: is assumed only without --pilot"):
        inputs(quickstart, Settings(pilot=tmp_path, logprob_sd=0.1))
    with pytest.raises(UsageError, match="--held-out correct=0.5: the plan has no verdict.held_out"):
        inputs(quickstart, Settings(held_out=["correct=0.5"]))
