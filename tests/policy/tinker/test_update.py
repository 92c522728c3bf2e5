"""The same update at a real server and on the local policy: the central promise, that an arm is one array of weights."""

from __future__ import annotations

import numpy as np
import pytest

from ablation.plan.arms import Adam
from ablation.policy.base import SampleRequest, ScoreRow, TrainRow
from ablation.policy.tinker.weights import change, from_folder

pytestmark = pytest.mark.slow

GRADIENT = Adam(beta1=0.0, beta2=0.0, eps=1e6)
"""A step of it is -(learning rate / eps) * gradient."""
STEP = 1e-5
PROMPTS = ((7, 8, 9, 10, 11), (12, 13, 14), (9, 9, 15, 16, 7, 8))


def rows_of(policy) -> list[TrainRow]:
    """Rollouts of unlike lengths with weights of both signs, some of them 0, one row without any; off-policy by up to 0.3 nats."""
    requests = [SampleRequest(PROMPTS[seed % 3], 1000 + seed) for seed in range(7)]
    random = np.random.default_rng(5)
    rows = []
    for request, one in zip(requests, policy.sample(requests), strict=True):
        count = len(one.token_ids)
        weights = random.normal(size=count) * (random.random(count) < 0.7)
        weights[-1] = 0.0
        rows.append(TrainRow(request.prompt_ids, one.token_ids, one.logprobs + random.uniform(-0.3, 0.3, count), weights))
    rows.append(TrainRow(rows[0].prompt_ids, rows[0].token_ids, rows[0].sampler_logprobs, np.zeros(len(rows[0].token_ids))))
    return rows


def saved(policy, folder):
    folder.mkdir()
    policy.save(folder)
    return from_folder(folder)


def moved(policy, rows, adam, learning_rate, folder):
    """(the update's numbers, change of the adapter by it) from the start."""
    policy.reset(adam)
    before = saved(policy, folder / "before")
    stats = policy.update(rows, learning_rate)
    return stats, change(saved(policy, folder / "after"), before)


@pytest.fixture(scope="module")
def rows(proven):
    proven.reset()
    return rows_of(proven)


def test_the_same_rows_give_the_same_gradient_there_and_here(proven, local, rows, tmp_path):
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    there, served = moved(proven, rows, GRADIENT, STEP * 1e6, tmp_path / "there")
    here, own = moved(local, rows, GRADIENT, STEP * 1e6, tmp_path / "here")
    cosine = float(served @ own / np.linalg.norm(served) / np.linalg.norm(own))
    print(f"cosine {cosine:.9f}, sizes {np.linalg.norm(served) / np.linalg.norm(own):.6f}")
    assert cosine >= 0.999
    # and the same size: a service's mean is made the study's sum
    assert np.linalg.norm(served) == pytest.approx(np.linalg.norm(own), rel=2e-3)
    assert there.loss == pytest.approx(here.loss, rel=1e-4)
    assert there.grad_norm == pytest.approx(here.grad_norm, rel=1e-3)
    assert there.tokens == here.tokens == sum(int(np.count_nonzero(row.weights)) for row in rows)
    assert there.mismatch["mean_absolute"] == pytest.approx(here.mismatch["mean_absolute"], rel=1e-3)
    assert there.stepped and here.stepped
    assert there.entropy is None


def test_two_steps_of_the_plans_adam_end_at_the_same_adapter(proven, local, rows, tmp_path):
    rate = 1e-3
    for policy in (proven, local):
        policy.reset()
        policy.update(rows, rate)
        policy.update(rows, rate)
    apart = np.abs(change(saved(proven, tmp_path / "there"), saved(local, tmp_path / "here")))
    # Adam divides by the size of a gradient: where there is next to none, rounding decides the direction of a whole step
    assert np.quantile(apart, 0.999) < 0.02 * rate
    assert apart.max() <= 4 * rate


def test_an_update_after_a_stop_is_the_one_without_a_stop(proven, rows, tmp_path):
    proven.reset()
    proven.update(rows, 1e-3)
    (tmp_path / "checkpoint").mkdir()
    proven.save(tmp_path / "checkpoint")
    after_one = proven.adapter_sha256()
    proven.update(rows, 1e-3)
    without = saved(proven, tmp_path / "without")
    proven.load(tmp_path / "checkpoint")
    assert proven.adapter_sha256() == after_one
    proven.update(rows, 1e-3)
    with_stop = saved(proven, tmp_path / "with")
    assert np.abs(change(with_stop, without)).max() == 0.0


def test_no_weight_is_no_step_and_nothing_is_asked(proven, rows):
    proven.reset()
    used = proven.used
    stats = proven.update([TrainRow(row.prompt_ids, row.token_ids, row.sampler_logprobs, 0 * row.weights) for row in rows], 1e-3)
    assert not stats.stepped
    assert stats.tokens == 0
    assert proven.used == used


def test_a_logprob_that_is_not_finite_is_no_step(proven, rows):
    proven.reset()
    broken = rows[0].sampler_logprobs.copy()
    broken[np.flatnonzero(rows[0].weights)[0]] = -np.inf
    bad = TrainRow(rows[0].prompt_ids, rows[0].token_ids, broken, rows[0].weights)
    before = proven.adapter_sha256()
    stats = proven.update([rows[1], bad], 1e-3)
    assert not stats.stepped
    assert stats.nonfinite_rows == (1,)
    assert proven.adapter_sha256() == before
    assert proven.update(rows, 1e-3).stepped


def test_logprobs_of_given_tokens_are_the_local_ones_now_and_of_the_start(proven, local, rows):
    given = [ScoreRow(row.prompt_ids, row.token_ids) for row in rows] + [ScoreRow((7, 8), np.zeros(0, dtype=np.int32))]
    local.reset()
    proven.reset()
    start = local.score(given)
    for own, served in zip(start, proven.score(given), strict=True):
        assert np.allclose(own, served, atol=2e-5)
    proven.update(rows, 5e-3)
    now = proven.score(given)
    assert max(float(np.abs(one - other).max()) for one, other in zip(now[:-1], start[:-1], strict=True)) > 0.05
    for own, served in zip(start, proven.score(given, start=True), strict=True):
        assert np.allclose(own, served, atol=2e-5)


def test_tokens_are_counted_by_the_kinds_that_are_billed(proven, rows):
    proven.reset()
    used = proven.used
    proven.score([ScoreRow(rows[0].prompt_ids, rows[0].token_ids)])
    proven.update([rows[1]], 1e-3)
    prompt, ends = len(rows[1].prompt_ids), int(np.flatnonzero(rows[1].weights)[-1]) + 1
    assert proven.used.prefill - used.prefill == len(rows[0].prompt_ids) + len(rows[0].token_ids)
    assert proven.used.train - used.train == prompt + ends
    (one,) = proven.sample([SampleRequest((7, 8, 9), 3)])
    assert proven.used.sample - used.sample == len(one.token_ids)
