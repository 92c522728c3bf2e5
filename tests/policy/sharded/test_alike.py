"""One, two and four processes do what one process without FSDP does: the same adapter, numbers and tokens."""

import math

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from ablation.policy.local import LocalPolicy
from tests.small_models import VOCABULARY

from .conftest import seen_by
from .scenario import CASES, COUNTS, RATE, STEPS, Case, arguments, cases_of, make_rows

pytestmark = pytest.mark.slow
BOTH = [(count, name) for count in COUNTS for name in cases_of(count)]
WHOLE = [(count, name) for count, name in BOTH if CASES[name].whole]
every = pytest.mark.parametrize(("count", "case"), BOTH)
whole = pytest.mark.parametrize(("count", "case"), WHOLE)


def relative(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The norm of all differences together over that of `other`."""
    assert one.keys() == other.keys()
    difference = math.sqrt(sum(float(((one[name] - other[name]).double() ** 2).sum()) for name in other))
    return difference / math.sqrt(sum(float((value.double() ** 2).sum()) for value in other.values()))


@every
def test_the_adapter_is_the_same(lives, case, count):
    found, wanted = (load_file(lives / str(n) / case / "saved" / "adapter_model.safetensors") for n in (count, 0))
    start = load_file(lives / CASES[case].model / "adapter" / "adapter_model.safetensors")
    assert relative(wanted, start) > 0.05, "training moved it"
    assert relative(found, wanted) <= CASES[case].adapter
    assert all(value.dtype == torch.float32 and value.is_contiguous() for value in found.values())


@every
def test_the_moments_are_the_same(lives, case, count):
    found, wanted = (load_file(lives / str(n) / case / "saved" / "optimizer.safetensors") for n in (count, 0))
    assert {name: value.shape for name, value in found.items()} == {name: value.shape for name, value in wanted.items()}
    steps = {float(value) for name, value in found.items() if name.startswith("step/")}
    assert steps == {STEPS + 1.0 + (CASES[case].optimizer.get("state") == "start")}
    # Of squares, and of a mean in which much cancels: the relative bound of the gradient is that of its norm.
    assert relative(found, wanted) <= max(1e-4, CASES[case].relative)


@every
def test_the_config_is_the_same_to_the_byte(lives, case, count):
    found, wanted = ((lives / str(n) / case / "saved" / "adapter_config.json").read_bytes() for n in (count, 0))
    assert found == wanted
    assert {path.name for path in (lives / str(count) / case / "saved").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "optimizer.safetensors",
    }


@every
def test_what_an_update_tells_is_the_same(lives, case, count):
    bound = CASES[case].relative
    for found, wanted in zip(seen_by(lives, count, case)["stats"], seen_by(lives, 0, case)["stats"], strict=True):
        assert (found.tokens, found.stepped, found.nonfinite_rows) == (wanted.tokens, True, ())
        assert found.grad_norm == pytest.approx(wanted.grad_norm, rel=bound)
        assert found.entropy == pytest.approx(wanted.entropy, rel=bound)
        assert found.mismatch == pytest.approx(wanted.mismatch, rel=bound, abs=bound)
        scale = np.abs(wanted.grad_norm)  # the loss is a sum of both signs
        assert found.loss == pytest.approx(wanted.loss, abs=bound * scale)


@every
def test_scores_are_the_same(lives, case, count):
    for found, wanted in zip(seen_by(lives, count, case)["scores"], seen_by(lives, 0, case)["scores"], strict=True):
        assert [len(one) for one in found] == [len(one) for one in wanted]
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == np.float64 and one == pytest.approx(other, abs=CASES[case].logprob)


@whole
def test_what_is_sampled_is_the_same_to_the_bit(lives, case, count):
    for (ids, logprobs), (other_ids, other_logprobs) in zip(
        seen_by(lives, count, case)["sampled"], seen_by(lives, 0, case)["sampled"], strict=True
    ):
        assert np.array_equal(ids, other_ids) and np.array_equal(logprobs, other_logprobs)


@every
def test_base_and_start_have_the_digests_of_a_single_process(lives, case, count):
    found, wanted = seen_by(lives, count, case), seen_by(lives, 0, case)
    assert (found["base"], found["start"], found["reset"]) == (wanted["base"], wanted["start"], wanted["start"])


@whole
def test_what_cannot_be_stepped_on_is_not(lives, case, count):
    seen = seen_by(lives, count, case)
    assert not seen["weightless"].stepped and seen["weightless"].tokens == 0
    assert not seen["not finite"].stepped and math.isnan(seen["not finite"].loss)
    assert seen["not finite"].nonfinite_rows == (7,)
    assert not seen["too large"].stepped
    assert seen["stayed"], "weights as before, to the bit"


@whole
def test_what_a_preflight_asks_for_is_the_same(lives, case, count):
    found, wanted = (seen_by(lives, n, case)["probes"] for n in (count, 0))
    assert (found["zeros"], found["made up"], found["kept"]) == (wanted["zeros"], wanted["made up"], True)
    for one, other in zip(found["of the base"], wanted["of the base"], strict=True):
        assert one == pytest.approx(other, abs=CASES[case].logprob)
    assert found["logits"].shape == (2, VOCABULARY)
    assert found["logits"] == pytest.approx(wanted["logits"], abs=1e-4)


@every
def test_a_checkpoint_goes_on_bit_for_bit(lives, case, count):
    seen = seen_by(lives, count, case)
    assert seen["loaded"] == seen["saved"] == seen["adapter alone"]
    assert seen["resumed bit for bit"]


@every
def test_a_single_process_goes_on_from_the_checkpoint(lives, case, count):
    policy = LocalPolicy(*arguments(CASES[case], lives))
    policy.load(lives / str(count) / case / "saved")
    assert policy.adapter_sha256() == seen_by(lives, count, case)["saved"]
    assert policy.update(make_rows(9), RATE).stepped


@pytest.mark.parametrize("count", COUNTS)
def test_the_gradient_is_the_sum_over_all_rows_by_autograd_alone(lives, count):
    """One row at a time, in float64, through the model's own forward pass: no packing, no processes, no average."""
    plan, base, adapter, *_ = arguments(Case(), lives)
    model = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64), str(adapter), is_trainable=True
    ).eval()
    for row in make_rows(0):
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
        logprobs = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1].log_softmax(-1)
        ratio = (logprobs.gather(1, ids[0, len(row.prompt_ids) :, None])[:, 0] - torch.from_numpy(row.sampler_logprobs)).exp()
        (-(torch.from_numpy(row.weights) * ratio).sum()).backward()
    by_hand = {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}
    stored = load_file(lives / str(count) / "float64" / "optimizer.safetensors")
    share = 1 - plan.training.optimizer.beta1  # of the gradient in the first moment, after one step
    found = {name: stored[f"exp_avg/{name}"] / share for name in by_hand}
    assert relative(found, by_hand) < 1e-5  # transformers rounds its norms to float32; an average would be off by 1 - 1 / count
