"""What an update comes to, and what stop rules see of it."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from ablation.errors import IntegrityError
from ablation.plan.measures import OF_UPDATES
from ablation.plan.rules import StopRule
from ablation.policy.base import TrainRow, UpdateStats
from ablation.problems.problem import load_problems
from ablation.rollouts.outcomes import outcomes
from ablation.rollouts.store import read_stage
from ablation.study.updates import (
    MISMATCH,
    OUTCOMES,
    _step_report,
    passed_tokens,
    score_rows,
    trained_tokens,
    update_metrics,
    update_outcome,
)
from ablation.training.stops import fired_rule
from tests.verdict.study import lock_small, start_run, write_stage

SEEN = {"mean_absolute": 0.02, "p99_absolute": 0.4, "share_ratio_outside_10_percent": 0.03, "k3": 0.001}


def stats(**changes) -> UpdateStats:
    return UpdateStats(
        **{"loss": 1.5, "grad_norm": 2.5, "tokens": 7, "stepped": True, "mismatch": SEEN, "entropy": 0.7} | changes
    )


@pytest.fixture
def stage(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "run", locked)
    read = read_stage(write_stage(run, locked, "main", "N", {"clean": 12, "cut": 6}))
    return outcomes(read, load_problems(run.problems), locked.plan.loops), read


@pytest.mark.parametrize(
    ("changes", "no_signal", "outcome"),
    [
        ({}, False, "stepped"),
        ({}, True, "stepped"),  # a finishing push or a KL anchor weighs groups without a signal
        ({"stepped": False, "tokens": 0, "loss": 0.0, "grad_norm": 0.0}, True, "no_signal"),
        ({"stepped": False, "tokens": 0, "loss": 0.0, "grad_norm": 0.0}, False, "empty_step"),
        ({"stepped": False, "loss": math.nan}, False, "nonfinite"),
        ({"stepped": False, "grad_norm": math.inf}, True, "nonfinite"),
    ],
)
def test_every_update_has_one_name(changes, no_signal, outcome):
    assert update_outcome(stats(**changes), no_signal) == outcome
    assert outcome in OUTCOMES


def test_metrics_are_those_that_stop_rules_may_name(stage):
    metrics = update_metrics(*stage, stats())
    from_weights = {"negative_share", "truncated_share", "kl_share"}
    assert set(metrics) | from_weights == set(OF_UPDATES)
    assert {name: metrics[name] for name in MISMATCH} == {
        "mismatch_mean": 0.02,
        "mismatch_p99": 0.4,
        "mismatch_outside": 0.03,
        "mismatch_k3": 0.001,
    }
    assert (metrics["grad_norm"], metrics["entropy"]) == (2.5, 0.7)
    assert metrics["truncated_or_looping_share"] == 6 / 24 and metrics["nonfinite"] == 0


def test_what_an_update_does_not_have_is_null_and_fires_no_rule(stage):
    empty = dict.fromkeys(SEEN, 0.0)
    metrics = update_metrics(*stage, stats(tokens=0, stepped=False, loss=0.0, grad_norm=0.0, mismatch=empty, entropy=None))
    assert [metrics[name] for name in (*MISMATCH, "grad_norm", "entropy")] == [None] * 6
    rules = [StopRule(name=name, measure=name, op="<=", limit=1) for name in (*MISMATCH, "grad_norm", "entropy")]
    assert fired_rule(rules, [metrics]) is None
    broken = update_metrics(*stage, stats(stepped=False, loss=math.nan, grad_norm=math.inf, entropy=math.nan))
    assert (broken["nonfinite"], broken["grad_norm"], broken["entropy"]) == (2, None, None)
    json.dumps(broken, allow_nan=False)
    refused = update_metrics(*stage, stats(stepped=False))  # all is finite but what the step would have led to
    assert refused["nonfinite"] == 1


def test_a_limit_on_the_mismatch_stops_a_run(stage):
    rule = StopRule(name="apart", measure="mismatch_p99", op=">", limit=0.3)
    fired = fired_rule([rule], [update_metrics(*stage, stats())])
    assert (fired["rule"], fired["value"]) == ("apart", 0.4)
    assert fired_rule([rule], [update_metrics(*stage, stats(mismatch=SEEN | {"p99_absolute": 0.3}))]) is None


def test_sampled_logprobs_that_are_not_finite_are_counted(stage):
    own, read = stage
    logprobs = read.logprobs.copy()
    logprobs[:3] = [np.nan, -np.inf, np.inf]
    assert update_metrics(own, replace(read, logprobs=logprobs), stats())["nonfinite"] == 3


def test_rollouts_with_logprobs_that_are_not_finite_are_named(stage):
    _, read = stage
    report = _step_report(stats(stepped=False, nonfinite_rows=(0, 3)), "nonfinite", read, 6)
    assert report["nonfinite_rollouts"] == [read.name(0), read.name(3)]
    assert "nonfinite_rollouts" not in _step_report(stats(), "stepped", read, 6)


def test_rollouts_with_another_kind_of_logprob_than_the_trainers_are_not_trained_on(stage):
    other = replace(stage[1], info=replace(stage[1].info, logprob_kind="processed, top_k 2"))
    with pytest.raises(IntegrityError, match="main/N/readout: its logprobs are processed, top_k 2, the trainer's are raw"):
        score_rows(other, prompts=None)


def test_what_an_update_goes_through_by_hand():
    """A prompt of 3 and rollouts of 5: weights up to the fourth token, none, and on the last one: 3 + 4 and 3 + 5. All three
    rows together are 3 x 8."""
    own = [[0, 1, 0, -1, 0], [0] * 5, [0, 0, 0, 0, 2.0]]
    rows = [TrainRow((7, 8, 9), np.arange(5), np.zeros(5), np.array(weights, dtype=float)) for weights in own]
    assert trained_tokens(rows) == 15 and trained_tokens([]) == 0
    assert passed_tokens(rows) == 24
