from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.plan.arms import Arm, Clip, KLAnchor
from ablation.plan.weightings import WEIGHTINGS
from ablation.training.audit import audit_weights
from ablation.training.identities import WORDS, identities, nets_to_zero
from ablation.training.weights import Logprobs, RolloutBatch, token_weights

HALVES = {
    "absolute_weight": 4.0,
    "net_weight": 0.0,
    "net_share": 0.0,
    "negative_share": 0.5,
    "truncated_share": 0.25,
    "kl_share": 0.0,
}
PART = HALVES | {"rollouts": 2, "weighted_tokens": 8}
AUDIT = {
    "update": 1,
    "weights": PART
    | {"absolute_weight": 8.0, "rollouts": 4, "weighted_tokens": 16, "no_signal_cells": [], "clipped_tokens": 0}
    | {"by_source": {"math": PART, "code": PART}, "by_effort": {"low": PART, "xhigh": PART}},
    "metrics": {"negative_share": 0.5, "truncated_share": 0.25, "kl_share": 0.0},
}
N = Arm(weighting="rollout")


def found(arm, *, weightless=0, update=1, **changes):
    """Name -> whether it holds, for the audit with `changes` to its weights."""
    audit = copy.deepcopy(AUDIT) | {"update": update}
    audit["weights"] |= changes
    for name in audit["metrics"]:
        audit["metrics"][name] = audit["weights"][name]
    return {one.name: one.holds for one in identities(arm, audit, weightless=weightless)}


def test_what_must_hold_of_arm_n():
    assert found(N) == {"net_zero": True, "no_kl": True, "no_clip": True, "adds_up": True, "metrics": True}


def test_a_net_weight_of_one_part_in_a_million_is_not_zero():
    assert found(N, net_weight=8e-6)["net_zero"] is False
    assert found(N, net_weight=8e-10)["net_zero"] is True


def test_a_net_weight_of_no_weight_at_all_is_found():
    nothing = {"absolute_weight": 0.0, "by_source": {}, "by_effort": {}}
    assert found(N, **nothing)["net_zero"] is True
    assert found(N, **nothing, net_weight=1e-12)["net_zero"] is False


def test_a_source_whose_net_is_not_zero_is_found_though_the_whole_is():
    one, other = PART | {"net_weight": 0.1, "net_share": 0.025}, PART | {"net_weight": -0.1, "net_share": -0.025}
    assert found(N, by_source={"math": one, "code": other})["net_zero"] is False


def test_nothing_is_promised_of_the_net_where_a_rollout_has_no_weighted_token():
    assert "net_zero" not in found(N, weightless=1, net_weight=1.0, net_share=0.125)


@pytest.mark.parametrize(
    ("fields", "zero"),
    [
        ({}, True),
        ({"weighting": "grpo", "scale": "std", "baseline": "leave_one_out", "truncated": "apart"}, True),
        ({"weighting": "token"}, False),
        ({"baseline": "none"}, False),
        ({"advantages": "positive"}, False),
        ({"truncated": "mask"}, False),
        ({"finish_push": 0.1}, False),
        ({"clip": Clip()}, False),
        ({"kl": KLAnchor(beta=0.1)}, False),
        ({"truncated": "penalize", "truncation_penalty": 1.0, "no_signal": "drop"}, True),
    ],
)
def test_which_arms_net_to_zero(fields, zero):
    assert nets_to_zero(Arm(**{"weighting": "rollout"} | fields)) is zero


def test_kl():
    arm = Arm(weighting="rollout", kl=KLAnchor(beta=0.1, estimator="k3"))
    assert found(arm) == {"kl_starts_at_zero": True, "no_clip": True, "adds_up": True, "metrics": True}
    assert found(arm, kl_share=0.01)["kl_starts_at_zero"] is False
    assert "kl_starts_at_zero" not in found(arm, update=2, kl_share=0.01)
    assert found(N, update=2, kl_share=0.01)["no_kl"] is False


def test_truncated():
    for handling in ("apart", "mask"):
        arm = Arm(weighting="rollout", truncated=handling)
        assert found(arm, truncated_share=0.0)["truncated_out"] is True
        assert found(arm)["truncated_out"] is False
    assert "truncated_out" not in found(Arm(weighting="rollout", truncated="apart", finish_push=0.1))


def test_sign_and_clip():
    positive = Arm(weighting="token", advantages="positive", kl=KLAnchor(beta=1, damp_only=True))
    assert found(positive)["none_negative"] is False
    assert found(N, clipped_tokens=3)["no_clip"] is False
    assert "no_clip" not in found(Arm(weighting="token", clip=Clip()), clipped_tokens=3)


@pytest.mark.parametrize(
    "changes",
    [
        {"absolute_weight": 9.0},
        {"rollouts": 5},
        {"weighted_tokens": 17},
        {"negative_share": 0.4},
        {"net_share": 0.1},
        {"by_effort": {"low": PART}},
        {"by_source": {"math": PART, "code": PART | {"negative_share": 0.6}}},
    ],
)
def test_a_number_that_was_changed_alone_does_not_add_up(changes):
    assert found(N, **changes)["adds_up"] is False


def test_the_shares_that_stop_rules_saw_must_be_these():
    audit = copy.deepcopy(AUDIT)
    audit["metrics"]["truncated_share"] = 0.2
    assert [one.name for one in identities(N, audit, weightless=0) if not one.holds] == ["metrics"]


def test_weights_that_are_not_finite_promise_nothing():
    audit = copy.deepcopy(AUDIT)
    audit["weights"]["absolute_weight"] = None
    assert identities(N, audit, weightless=0) == []


def test_every_identity_has_words():
    arms = [N, Arm(weighting="rollout", kl=KLAnchor(beta=1)), Arm(weighting="rollout", truncated="mask", advantages="positive")]
    names = {one.name for arm in arms for one in identities(arm, AUDIT, weightless=0)}
    assert names == set(WORDS)


parts = st.fixed_dictionaries(
    {
        "weighting": st.sampled_from(list(WEIGHTINGS)),
        "baseline": st.sampled_from(["mean", "leave_one_out"]),
        "scale": st.sampled_from(["none", "std"]),
        "no_signal": st.sampled_from(["keep", "drop"]),
        "truncated": st.sampled_from(["keep", "apart", "mask"]),
        "advantages": st.sampled_from(["all", "positive"]),
        "clip": st.sampled_from([None, Clip()]),
        "kl": st.sampled_from([None, KLAnchor(beta=0.1), KLAnchor(beta=0.1, estimator="k3", unit="advantage")]),
    }
)
rollout = st.tuples(st.sampled_from(["p", "q", "r"]), st.floats(0, 1.3), st.booleans(), st.integers(1, 60), st.floats(-0.3, 0.3))


@given(parts, st.lists(rollout, min_size=1, max_size=9), st.integers(1, 2))
def test_every_arm_keeps_its_promises_on_any_rollouts(fields, rollouts, update):
    """Weights by the code that trains, audited by the code that audits: no identity fails."""
    arm = Arm(**fields)
    cells, rewards, truncated, lengths, moved = zip(*rollouts, strict=True)
    start = [np.full(length, -1.0) for length in lengths]
    trainer = [one + (change if update > 1 else 0.0) for one, change in zip(start, moved, strict=True)]
    batch = RolloutBatch(
        cells=cells,
        rewards_R=np.array(rewards),
        truncated_R=np.array(truncated),
        lengths_R=np.array(lengths),
        weighted_start_R=np.zeros(len(cells), dtype=int),
        weighted_length_R=np.array(lengths),
        sampler_logprobs=start,
        entropy=[np.linspace(0, 1, length) for length in lengths],
    )
    weights = token_weights(arm, batch, 50.0, 60, Logprobs(trainer=trainer, start=start))
    audit = {"update": update, "weights": audit_weights(weights, batch.truncated_R, cells, ["low"] * len(cells))}
    audit["metrics"] = {name: audit["weights"][name] for name in ("negative_share", "truncated_share", "kl_share")}
    assert [one for one in identities(arm, audit, weightless=0) if not one.holds] == []
    assert math.isfinite(audit["weights"]["absolute_weight"])
