"""What an update computes does not depend on how it is computed: micro-batches, order, packing, padding, recomputation."""

import shutil

import numpy as np
import pytest
import torch

from ablation.plan.arms import Adam
from ablation.policy.base import TrainRow
from ablation.policy.packing import micro_batches

from .test_local import gradient

LENGTHS = [4, 11, 2, 7, 9, 3, 12, 5, 6, 8, 10, 1]


@pytest.fixture(scope="module")
def rows():
    """12 rollouts on 3 prompts, with weights on a part of the tokens, some before and some after those without."""
    random = np.random.default_rng(0)
    prompts = [(2, 3, 4, 5), (2, 3, 9), (7,)]
    found = []
    for i, length in enumerate(LENGTHS):
        ids = random.integers(2, 6, length)
        weights = random.normal(size=length)
        weights[random.random(length) < 0.3] = 0.0
        weights[0] = 0.5
        found.append(TrainRow(prompts[i % 3], ids, (random.normal(size=length) * 0.1 - 2).astype(np.float32), weights))
    return found


def apart(found, expected):
    return float(torch.linalg.vector_norm(found - expected) / torch.linalg.vector_norm(expected))


@pytest.fixture
def expected(make_policy, rows):
    """The gradient from one row at a time, padded: nothing is beside anything."""
    policy = make_policy(micro_batch_tokens=1)
    policy.packs = False
    return gradient(policy, rows)


@pytest.mark.parametrize("budget", [1, 30, 60, 100000])
@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_micro_batches_order_packing_and_padding_move_no_gradient(make_policy, rows, expected, budget, packs, reverse):
    policy = make_policy(micro_batch_tokens=budget)
    policy.packs = packs
    found = gradient(policy, rows[::-1] if reverse else rows)
    assert found.dtype == torch.float64
    assert apart(found, expected) < 1e-12


def test_in_float32_the_sums_differ_by_rounding_alone(make_policy, rows, expected):
    assert apart(gradient(make_policy(torch.float32), rows), expected) < 1e-5


def adapter(policy):
    return torch.cat([weight.detach().flatten() for weight in policy.trainable.values()])


def test_one_update_on_1_2_and_7_micro_batches_gives_the_same_adapter(make_policy, rows):
    steps = {}
    for budget in (1000, 50, 18):
        policy = make_policy(micro_batch_tokens=budget)
        count = len(list(micro_batches(rows, budget, share=True)))
        before = adapter(policy).clone()
        assert policy.update(rows, 1e-2).stepped
        steps[count] = adapter(policy) - before
    assert sorted(steps) == [1, 2, 7]
    for count in (2, 7):
        assert apart(steps[count], steps[1]) < 1e-9


def test_recomputing_layers_changes_no_bit(make_policy, rows):
    kept = gradient(make_policy(torch.float32), rows)
    assert torch.equal(gradient(make_policy(torch.float32, gradient_checkpointing=True), rows), kept)


def test_bfloat16_autocast_is_near_and_leaves_adapter_and_moments_float32(make_policy, rows, expected):
    policy = make_policy(torch.float32, autocast="bfloat16")
    found = gradient(policy, rows)
    cosine = float(found @ expected / torch.linalg.vector_norm(found) / torch.linalg.vector_norm(expected))
    assert 0.99 < cosine < 1 - 1e-9  # bfloat16 has 8 bits: near, and not the same
    policy.update(rows, 1e-3)
    assert {weight.dtype for weight in policy.trainable.values()} == {torch.float32}
    assert {state["exp_avg"].dtype for state in policy.optimizer.state.values()} == {torch.float32}


def test_the_gradient_is_that_of_the_loss_as_it_is_written(make_policy, rows, expected):
    """d/dtheta of -sum w exp(logp - s), with the full logits of each row alone."""
    policy = make_policy()
    loss = 0.0
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids.tolist()]])
        logprobs = torch.log_softmax(policy.causal(input_ids=ids).logits[0], dim=-1)
        at = len(row.prompt_ids) - 1 + np.arange(len(row.token_ids))
        ratio = (logprobs[at, row.token_ids] - torch.from_numpy(row.sampler_logprobs).double()).exp()
        loss = loss - (torch.from_numpy(row.weights) * ratio).sum()
    loss.backward()
    written = torch.cat([policy.trainable[name].grad.flatten() for name in sorted(policy.trainable)])
    # transformers rotates queries and keys by float32 angles in both; what is left is the order of sums
    assert apart(expected, written) < 1e-9


def test_an_arms_own_optimizer_is_used_by_reset_and_load(make_policy, rows, tmp_path):
    policy = make_policy()
    own = Adam(name="adamw", beta1=0.5, max_grad_norm=1e-3)
    policy.reset(own)
    assert type(policy.optimizer) is torch.optim.AdamW and policy.optimizer.param_groups[0]["betas"] == (0.5, 0.95)
    policy.update(rows, 1e-3)
    policy.save(tmp_path)
    policy.update(rows, 1e-3)
    straight = policy.adapter_sha256()
    policy.load(tmp_path, own)
    policy.update(rows, 1e-3)
    assert policy.adapter_sha256() == straight
    policy.load(tmp_path)  # the plan's: another optimizer takes another step
    assert type(policy.optimizer) is torch.optim.Adam
    policy.update(rows, 1e-3)
    assert policy.adapter_sha256() != straight


def test_the_norm_that_is_told_is_from_before_clipping_and_a_clipped_step_is_smaller(make_policy, rows):
    moments = {}
    for limit in (None, 1e-3):
        policy = make_policy()
        policy.reset(Adam(max_grad_norm=limit))
        stats = policy.update(rows, 1e-3)
        total = torch.sqrt(sum((state["exp_avg"] ** 2).sum() for state in policy.optimizer.state.values()))
        moments[limit] = (stats.grad_norm, float(total))
    assert moments[None][0] == moments[1e-3][0] > 1e-3
    assert moments[1e-3][1] == pytest.approx(0.1 * 1e-3)  # (1 - beta1) * the clipped norm
    assert moments[None][1] == pytest.approx(0.1 * moments[None][0])


def test_moments_beside_the_start_adapter_are_where_every_reset_begins(make_policy, model_folders, rows, tmp_path):
    first = make_policy()
    first.update(rows, 1e-3)
    first.save(tmp_path)
    start = shutil.copytree(model_folders[1], tmp_path / "adapter")
    shutil.copy(tmp_path / "optimizer.safetensors", start)
    policy = make_policy(folders=(model_folders[0], start), optimizer={"state": "start"})
    for _ in range(2):
        policy.reset()
        for name, weight in policy.trainable.items():
            assert torch.equal(policy.optimizer.state[weight]["exp_avg"], first.optimizer.state[first.trainable[name]]["exp_avg"])
        policy.update(rows, 1e-3)
    policy.reset(Adam())
    assert not policy.optimizer.state


def test_entropy_is_of_the_weighted_tokens_under_the_trainer(make_policy, rows):
    policy = make_policy()
    stats = policy.update(rows, 1e-3)
    policy.reset()
    entropies = []
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids.tolist()]])
        with torch.no_grad():
            probabilities = torch.softmax(policy.causal(input_ids=ids).logits[0], dim=-1)
        for at in np.flatnonzero(row.weights):
            top = probabilities[len(row.prompt_ids) - 1 + at].sort(descending=True).values[:20]
            top = top / top.sum()
            entropies.append(float(-(top * top.log()).sum()))
    assert stats.tokens == len(entropies)
    assert stats.entropy == pytest.approx(np.mean(entropies), rel=1e-9)
