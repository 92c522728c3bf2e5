"""The light layers against peft's and transformers' own, on the same weights."""

import copy

import pytest
import torch
from peft import PeftModel

from ablation.policy.layers import lighten, recompute_layers

from .test_scoring import small_gpt2, small_qwen3

IDS = torch.arange(2, 22).view(2, 10)


@pytest.fixture
def heavy(model_folders):
    """The model as peft and transformers make it."""
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model_folders[0], dtype=torch.float32)
    return PeftModel.from_pretrained(base, str(model_folders[1]), is_trainable=True).eval()


def gradients(model, autocast=False):
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        logits = model(input_ids=IDS).logits
    logits.float().logsumexp(-1).sum().backward()
    return logits.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def relative(found, expected):
    found, expected = found.detach().double(), expected.detach().double()
    return float(torch.linalg.vector_norm(found - expected) / torch.linalg.vector_norm(expected))


def light(model, dtype):
    own = copy.deepcopy(model).to(dtype)
    lighten(own)
    return own


def test_values_and_gradients_are_those_of_peft_and_transformers(heavy):
    expected, expected_gradients = gradients(heavy)
    found, found_gradients = gradients(light(heavy, torch.float32))
    assert relative(found, expected) < 1e-6
    assert found_gradients.keys() == expected_gradients.keys()
    for name, gradient in expected_gradients.items():
        assert relative(found_gradients[name], gradient) < 2e-6, name


def test_float64_stays_float64(heavy):
    """transformers' norm rounds to float32 inside; in float64 this one must not: 1e-15 apart from a written out one."""
    model = light(heavy, torch.float64)
    norm = model.get_base_model().model.norm
    x = torch.randn(3, 32, dtype=torch.float64, requires_grad=True)
    expected = x / (x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon).sqrt() * norm.weight
    assert relative(norm(x), expected.detach()) < 1e-14
    coefficients = torch.randn_like(x)
    (wanted,) = torch.autograd.grad((expected * coefficients).sum(), x)
    (found,) = torch.autograd.grad((norm(x) * coefficients).sum(), x)
    assert relative(found, wanted) < 1e-13
    assert all(gradient.dtype == torch.float64 for gradient in gradients(model)[1].values())


@pytest.mark.parametrize("autocast", [False, True])
def test_bfloat16_base_is_as_near_to_float32_as_peft_is(heavy, autocast):
    exact, exact_gradients = gradients(heavy)
    base = copy.deepcopy(heavy)
    for name, weight in base.named_parameters():
        if "lora" not in name:
            weight.data = weight.data.bfloat16()
    expected, expected_gradients = gradients(base, autocast)
    lighten(base)
    found, found_gradients = gradients(base, autocast)
    assert found.dtype == expected.dtype == torch.bfloat16
    assert relative(found, exact) < 1.3 * relative(expected, exact)
    whole = [
        torch.cat([one[name].flatten() for name in sorted(one)]) for one in (found_gradients, expected_gradients, exact_gradients)
    ]
    assert relative(whole[0], whole[2]) < 1.3 * relative(whole[1], whole[2])
    assert all(gradient.dtype == torch.float32 for gradient in found_gradients.values())


def test_norms_of_heads_are_known_and_another_model_is_left_alone():
    qwen, gpt = small_qwen3(), small_gpt2()
    expected = [model(input_ids=IDS).logits.detach() for model in (qwen, gpt)]
    for model in (qwen, gpt):
        lighten(model)
    assert "forward" in vars(qwen.model.layers[0].self_attn.q_norm)
    assert not any("forward" in vars(module) for module in gpt.modules())
    for model, logits in zip((qwen, gpt), expected, strict=True):
        torch.testing.assert_close(model(input_ids=IDS).logits, logits, rtol=1e-5, atol=1e-5)


def test_recomputed_layers_give_the_same_gradients_to_the_last_bit(heavy):
    model = light(heavy, torch.float32)
    expected, expected_gradients = gradients(model)
    recompute_layers(model)
    assert not model.training
    calls = []
    model.get_base_model().model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    found, found_gradients = gradients(model)
    assert torch.equal(found, expected)
    assert all(torch.equal(found_gradients[name], gradient) for name, gradient in expected_gradients.items())
    assert len(calls) == 2  # once forward, once more for the backward pass
    with torch.no_grad():
        model(input_ids=IDS)
    assert len(calls) == 3
