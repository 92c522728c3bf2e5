import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from ablation.policy import scoring
from ablation.policy.base import ScoreRow
from ablation.policy.scoring import micro_batches, mismatch, token_logprobs

from .conftest import small_llama


def small_gpt2():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3)
    return GPT2LMHeadModel(config).eval()


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
]


@pytest.mark.parametrize("make", [small_llama, small_gpt2])  # rotary and absolute positions
def test_logprobs_are_those_of_the_row_alone(make):
    model = make()
    with torch.inference_mode():
        found = token_logprobs(model.base_model, model.get_output_embeddings(), ROWS, 40, torch.device("cpu")).numpy()
    expected = np.concatenate([alone(model, row.prompt_ids, row.token_ids) for row in ROWS])
    assert found == pytest.approx(expected, abs=1e-5)


def test_chunks_of_the_vocabulary_change_neither_values_nor_gradient(monkeypatch):
    model = small_llama()
    head, weight = model.get_output_embeddings(), model.base_model.layers[0].mlp.up_proj.weight

    def gradient():
        model.zero_grad()
        logprobs = token_logprobs(model.base_model, head, ROWS, 40, torch.device("cpu"))
        logprobs.sum().backward()
        return logprobs.detach().clone(), weight.grad.clone(), head.weight.grad.clone()

    whole = gradient()
    monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", 80)  # two tokens at a time
    for one, other in zip(gradient(), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_micro_batches_hold_every_row_once_and_keep_the_budget():
    rows = [ScoreRow((1,) * 3, np.zeros(length, dtype=int)) for length in (7, 40, 1, 7, 12)]
    batches = list(micro_batches(rows, tokens=30))
    assert sorted(index for batch in batches for index in batch) == [0, 1, 2, 3, 4]
    assert batches[0] == [1]  # longer than the budget: alone
    for batch in batches[1:]:
        assert max(len(rows[i].token_ids) + 3 for i in batch) * len(batch) <= 30


def test_mismatch_by_hand():
    found = mismatch(np.log(np.array([0.5, 0.54, 0.8])), np.log(np.array([0.5, 0.5, 0.5])))
    assert found["mean_absolute"] == pytest.approx((np.log(1.08) + np.log(1.6)) / 3)
    assert found["share_ratio_outside_10_percent"] == pytest.approx(1 / 3)
    assert found["k3"] == pytest.approx(((1.08 - np.log(1.08) - 1) + (1.6 - np.log(1.6) - 1)) / 3)
