import json
import math
import resource
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ablation.errors import IntegrityError, UsageError
from ablation.files import DiskError, write_folder
from ablation.policy.base import SampleRequest, ScoreRow, TrainRow
from ablation.policy.local import LocalPolicy
from tests.small_models import END, PAD


def rollouts(policy, count=6):
    requests = [SampleRequest(tuple(range(2, 5 + i)), 50 + i) for i in range(count)]
    return requests, policy.sample(requests)


def train_rows(policy, count=6):
    requests, sampled = rollouts(policy, count)
    return [
        TrainRow(request.prompt_ids, one.token_ids, one.logprobs, np.full(len(one.token_ids), 1.0 if i % 2 else -0.5))
        for i, (request, one) in enumerate(zip(requests, sampled, strict=True))
    ]


def gradient(policy, rows):
    """The gradient of one update as one float64 vector, without the step."""
    taken = {}
    step, policy.optimizer.step = (
        policy.optimizer.step,
        lambda: taken.update({name: weight.grad.double().clone() for name, weight in policy.trainable.items()}),
    )
    policy.update(rows, 1e-3)
    policy.optimizer.step = step
    return torch.cat([taken[name].flatten() for name in sorted(taken)])


def test_sampler_and_trainer_agree(policy):
    requests, sampled = rollouts(policy)
    scored = policy.score([ScoreRow(request.prompt_ids, one.token_ids) for request, one in zip(requests, sampled, strict=True)])
    for one, logprobs in zip(sampled, scored, strict=True):
        assert logprobs == pytest.approx(one.logprobs, abs=1e-5)


def test_an_update_moves_the_policy_the_way_the_weights_say(policy):
    requests, sampled = rollouts(policy, 2)
    rows = [TrainRow(requests[0].prompt_ids, sampled[0].token_ids, sampled[0].logprobs, np.ones(len(sampled[0].token_ids)))]
    before = policy.score(rows)[0].sum()
    for _ in range(3):
        stats = policy.update(rows, 1e-2)
    assert stats.stepped and stats.tokens == len(sampled[0].token_ids)
    assert policy.score(rows)[0].sum() > before + 0.1


def test_loss_is_minus_the_sum_of_weights_when_nothing_has_moved(policy):
    rows = train_rows(policy)
    stats = policy.update(rows, 1e-3)
    assert stats.loss == pytest.approx(-sum(row.weights.sum() for row in rows), rel=1e-4)
    assert stats.mismatch["mean_absolute"] < 1e-5


def test_no_weight_no_step(policy):
    rows = [TrainRow(row.prompt_ids, row.token_ids, row.sampler_logprobs, row.weights * 0) for row in train_rows(policy)]
    before = policy.adapter_sha256()
    stats = policy.update(rows, 1e-3)
    assert not stats.stepped and stats.tokens == 0 and stats.loss == 0.0
    assert policy.adapter_sha256() == before


def test_a_logprob_that_is_not_finite_takes_no_step(policy):
    rows = train_rows(policy, 4)
    rows[2].sampler_logprobs[0] = -np.inf
    rows[0] = TrainRow(rows[0].prompt_ids, rows[0].token_ids, rows[0].sampler_logprobs, rows[0].weights * 0)
    before = policy.adapter_sha256()
    stats = policy.update(rows, 1e-3)
    assert not stats.stepped and np.isnan(stats.loss) and stats.nonfinite_rows == (2,)
    assert policy.adapter_sha256() == before


def test_a_step_to_weights_that_are_no_numbers_is_not_taken(policy, tmp_path):
    """The loss and the gradient are numbers; their squares are not, and a resumed run would refuse such moments."""
    before = policy.adapter_sha256()
    rows = [TrainRow(row.prompt_ids, row.token_ids, row.sampler_logprobs, row.weights * 1e22) for row in train_rows(policy)]
    stats = policy.update(rows, 1e-3)
    assert math.isfinite(stats.loss) and math.isfinite(stats.grad_norm) and stats.tokens > 0
    assert not stats.stepped and policy.adapter_sha256() == before
    policy.save(tmp_path)
    policy.load(tmp_path)  # nothing of it is in the moments


def test_optimizer_owns_exactly_the_trainable_weights(policy):
    owned = {id(weight) for group in policy.optimizer.param_groups for weight in group["params"]}
    assert owned == {id(weight) for weight in policy.model.parameters() if weight.requires_grad}
    assert all(weight.dtype == torch.float32 for weight in policy.trainable.values())


def test_save_and_load_continue_bit_for_bit(policy, tmp_path):
    rows = train_rows(policy)
    policy.update(rows, 1e-3)
    policy.save(tmp_path)
    policy.update(rows, 1e-3)
    straight = policy.adapter_sha256()
    policy.load(tmp_path)
    policy.update(rows, 1e-3)
    assert policy.adapter_sha256() == straight
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors"]
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == policy.plan.model.base.at  # no path of this machine


def test_a_resume_without_optimizer_state_is_another_run(policy, tmp_path):
    rows = train_rows(policy)
    policy.update(rows, 1e-3)
    policy.save(tmp_path)
    policy.update(rows, 1e-3)
    straight = policy.adapter_sha256()
    policy.load(tmp_path)
    policy.optimizer.state.clear()
    policy.update(rows, 1e-3)
    assert policy.adapter_sha256() != straight


def test_reset_is_the_start_and_a_fresh_optimizer(policy):
    start = policy.adapter_sha256()
    policy.update(train_rows(policy), 1e-2)
    assert policy.adapter_sha256() != start
    policy.reset()
    assert policy.adapter_sha256() == start
    assert not policy.optimizer.state


def test_reset_refuses_a_base_that_moved(policy):
    base = next(weight for name, weight in policy.model.named_parameters() if name not in policy.trainable)
    with torch.no_grad():
        base.add_(1e-3)
    with pytest.raises(IntegrityError, match="base model"):
        policy.reset()


def test_scoring_under_the_start_leaves_the_adapter_alone(policy):
    rows = train_rows(policy)
    before = policy.score(rows)
    policy.update(rows, 1e-2)
    moved = policy.adapter_sha256()
    for one, other in zip(policy.score(rows, start=True), before, strict=True):
        assert one.tolist() == other.tolist()
    assert policy.adapter_sha256() == moved


def test_an_adapter_with_a_missing_weight_is_refused(policy, tmp_path):
    from safetensors.torch import save_file

    policy.save(tmp_path)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    del saved[sorted(saved)[0]]
    save_file(saved, tmp_path / "adapter_model.safetensors")
    with pytest.raises(IntegrityError, match="is missing"):
        policy.load(tmp_path)


ADAPTER_DAMAGE = {
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:100]), "no usable adapter"),
    "gone": (lambda path: path.unlink(), "no usable adapter"),
    "another shape": (lambda path: edit(path, lambda weight: weight[:1].clone()), r"has the shape \(1, "),
    "no floats": (lambda path: edit(path, lambda weight: weight.int()), r"has the type torch.int32, which is no float"),
    "not finite": (lambda path: edit(path, lambda weight: weight * math.nan), "holds numbers that are not finite"),
    "too wide": (lambda path: edit(path, lambda weight: weight.double() + 1e300), "holds numbers that are not finite"),
}


def edit(path, change):
    saved = load_file(path)
    name = min(saved)
    save_file(saved | {name: change(saved[name])}, path)


@pytest.mark.parametrize("damage", ADAPTER_DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_policy_is_as_it_was(policy, tmp_path, damage):
    policy.save(tmp_path)
    change, message = ADAPTER_DAMAGE[damage]
    change(tmp_path / "adapter_model.safetensors")
    before = policy.adapter_sha256()
    with pytest.raises(IntegrityError, match=message):
        policy.load(tmp_path)
    assert policy.adapter_sha256() == before


def test_an_adapter_of_another_shape_is_refused(model_folders, small_plan, tmp_path):
    base, adapter = model_folders
    shutil.copytree(adapter, tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config | {"r": 8}))
    with pytest.raises(UsageError, match=r"model.lora.rank: the plan says 4, the start adapter has 8"):
        LocalPolicy(small_plan, base, tmp_path / "adapter", end_ids=(END,), pad_id=PAD)


def test_a_disk_that_refuses_while_saving_is_an_oserror(policy, tmp_path, monkeypatch):
    from safetensors import SafetensorError

    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("ablation.policy.optimizer.save_file", full)
    with pytest.raises(DiskError, match="could not be written: .*No space left on device"):
        write_folder(tmp_path / "checkpoint", policy.save)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_names_its_base_as_the_plan_does(policy, small_plan, tmp_path):
    policy.save(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == small_plan.model.base.at == "package:tiny-reasoner/base"


def test_stepping_aside_and_coming_back_between_updates_moves_no_bit(make_policy):
    """On a CPU nothing has to move; on a GPU the same test moves everything twice (`make gpu-check` is for that)."""
    plain, moved = make_policy(torch.float32), make_policy(torch.float32)
    rows = train_rows(plain, 4)
    for policy in (plain, moved):
        policy.update(rows, 1e-3)
    base = moved.base_sha256
    moved.step_aside()
    assert moved.device == torch.device("cpu")
    assert moved.adapter_sha256() == plain.adapter_sha256()
    aside = [one.copy() for one in moved.score(rows)]  # a canary is scored there
    moved.come_back()
    assert moved.device == moved.home
    for mine, theirs in zip(aside, plain.score(rows), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-4)
    for policy in (plain, moved):
        policy.update(rows, 1e-3)
    assert moved.adapter_sha256() == plain.adapter_sha256()
    for policy in (plain, moved):
        policy.reset()
    assert moved.adapter_sha256() == plain.adapter_sha256()
    assert moved.base_sha256 == base


def test_an_adapter_for_which_there_is_no_room_is_named(policy, tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limit[1]))  # the kernel refuses to make any file longer
    try:
        with pytest.raises(DiskError, match=f"{tmp_path}: could not be written: .*File too large"):
            policy.save_adapter(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
