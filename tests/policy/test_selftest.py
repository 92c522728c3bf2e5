import pytest
import torch

from ablation.errors import IntegrityError
from ablation.policy import decoding
from ablation.policy.selftest import self_test


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("packs", [True, False])
def test_a_sound_model_passes_and_is_left_as_it_was(make_policy, dtype, packs):
    policy = make_policy(dtype)
    policy.packs = packs
    before = policy.adapter_sha256()
    policy.self_test()
    assert policy.adapter_sha256() == before and not policy.optimizer.state


def test_autocast_passes(make_policy):
    self_test(make_policy(torch.float32, autocast="bfloat16"))


def test_positions_that_count_the_padding_of_the_sampler_are_found(make_policy, monkeypatch):
    padded = decoding.pad_left

    def without_position_ids(*arguments):
        ids_BP, valid_BP, positions_BP = padded(*arguments)
        return ids_BP, valid_BP, torch.arange(ids_BP.shape[1]).expand_as(positions_BP).contiguous()

    monkeypatch.setattr(decoding, "pad_left", without_position_ids)
    self_test(make_policy(torch.float32))  # rotary positions are relative: a shift of a whole row changes nothing
    monkeypatch.setattr(decoding, "pad_left", lambda *arguments: (*padded(*arguments)[:2], padded(*arguments)[2] * 2))
    with pytest.raises(
        IntegrityError, match="self-test: the sampler, on prompts padded on the left, and the trainer have logprobs"
    ):
        self_test(make_policy(torch.float32))


def test_a_mask_that_shows_padding_is_found(make_policy, monkeypatch):
    def causal_alone(valid_BP):
        width = valid_BP.shape[1]
        return torch.ones(width, width, dtype=torch.bool).tril_().expand(len(valid_BP), 1, width, width)

    monkeypatch.setattr(decoding, "prefill_mask", causal_alone)
    with pytest.raises(IntegrityError, match="the sampler, on prompts padded on the left"):
        self_test(make_policy(torch.float32))


def test_attention_that_is_not_plain_and_causal_is_found_when_it_is_packed(make_policy):
    policy = make_policy(torch.float32)
    layer = policy.causal.model.layers[0].self_attn
    forward = layer.forward

    def windowed(hidden_states, **options):
        """A layer that looks two tokens back alone, as far as the model's own mask goes."""
        if "blocks" not in options:
            width = hidden_states.shape[1]
            near = torch.ones(width, width, dtype=torch.bool).tril_().triu_(-2)
            options["attention_mask"] = near.expand(len(hidden_states), 1, width, width)
        return forward(hidden_states=hidden_states, **options)

    layer.forward = windowed
    with pytest.raises(
        IntegrityError, match="self-test: a row alone, by the model's own forward pass, and the same row in a batch"
    ):
        self_test(policy)


def test_an_adapter_without_effect_is_found(make_policy):
    policy = make_policy(torch.float32)
    policy.set_weights = lambda weights: None  # a reload that keeps what was cached
    with pytest.raises(IntegrityError, match="another adapter gives the same logprobs"):
        self_test(policy)
