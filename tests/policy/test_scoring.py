import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config

from ablation.policy.attention import PACKED, can_pack
from ablation.policy.base import ScoreRow
from ablation.policy.packing import pack, pad
from ablation.policy.scoring import hidden_states, mismatch, token_logprobs
from tests.small_models import small, small_llama


def small_gpt2():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3)
    return GPT2LMHeadModel(config).eval()


def small_qwen3():
    return small(Qwen3Config, head_dim=16)


def alone(model, prompt, tokens):
    """Logprobs by the plain textbook way: one row, no padding, full logits."""
    ids = torch.tensor([[*prompt, *tokens]])
    with torch.inference_mode():
        logits = model(input_ids=ids).logits[0].double()
    logprobs = torch.log_softmax(logits, dim=-1)
    return np.array([logprobs[len(prompt) + i - 1, token].item() for i, token in enumerate(tokens)])


ROWS = [
    ScoreRow((5, 6, 7, 8), np.array([9, 10, 11, 12, 1])),
    ScoreRow((5,), np.array([0, 0, 0, 30])),  # the padding id as a sampled token
    ScoreRow((3, 4, 5, 6, 7, 8, 9, 10), np.array([2])),
    ScoreRow((5, 6, 7, 8), np.array([9, 10, 3])),  # a prompt and two tokens in common with the first
    ScoreRow((5, 6, 7, 8), np.array([9, 10, 11, 12, 1])),  # the first again
]


@pytest.mark.parametrize(  # rotary positions, norms of heads, absolute positions
    ("make", "arrange"),
    [(small_llama, pack), (small_llama, pad), (small_qwen3, pack), (small_qwen3, pad), (small_gpt2, pad)],
)
def test_logprobs_are_those_of_the_row_alone(make, arrange):
    model = make().double()
    expected = np.concatenate([alone(model, row.prompt_ids, row.token_ids) for row in ROWS])
    if arrange is pack:
        model.set_attn_implementation(PACKED)
    packed = arrange(ROWS, torch.device("cpu"))
    found = token_logprobs(hidden_states(model.base_model, packed), model.get_output_embeddings(), packed, 40).numpy()
    assert found.dtype == np.float64
    # transformers computes norms and rotations in float32, whatever the model's dtype
    assert found == pytest.approx(expected, abs=1e-6)


def test_what_may_be_packed():
    assert can_pack(small_llama()) and can_pack(small_qwen3()) and not can_pack(small_gpt2())
    windowed = small_qwen3()
    windowed.config.layer_types = ["full_attention", "sliding_attention"]
    assert not can_pack(windowed)


def test_mismatch_by_hand():
    found = mismatch(np.log(np.array([0.5, 0.54, 0.8])), np.log(np.array([0.5, 0.5, 0.5])))
    assert found["mean_absolute"] == pytest.approx((np.log(1.08) + np.log(1.6)) / 3)
    assert found["share_ratio_outside_10_percent"] == pytest.approx(1 / 3)
    assert found["k3"] == pytest.approx(((1.08 - np.log(1.08) - 1) + (1.6 - np.log(1.6) - 1)) / 3)
