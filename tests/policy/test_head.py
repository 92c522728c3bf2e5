import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ablation.policy import head as head_module
from ablation.policy.base import ScoreRow
from ablation.policy.head import chunks, entropy_of, largest
from ablation.policy.packing import pack

VOCABULARY, SIZE, TOP = 40, 8, 20
ROWS = [ScoreRow((1, 2), np.array([3, 4, 5, 4])), ScoreRow((1, 2), np.array([3, 9])), ScoreRow((7,), np.array([1]))]


@pytest.fixture(params=[1, 3 * VOCABULARY, 2**24])
def chunk_size(request, monkeypatch):
    monkeypatch.setattr(head_module, "LOGITS_AT_ONCE", {"cpu": request.param})
    monkeypatch.setattr(head_module, "ROWS_AT_ONCE", 2 * VOCABULARY)


def parts():
    torch.manual_seed(0)
    packed = pack(ROWS, torch.device("cpu"))
    hidden_UD = torch.randn(len(packed.scored_U), SIZE, dtype=torch.float64)
    return packed, hidden_UD, torch.nn.Linear(SIZE, VOCABULARY, dtype=torch.float64)


def plain(head, hidden_UD, packed):
    logprobs_UV = torch.log_softmax(head(hidden_UD), dim=-1)
    return logprobs_UV, logprobs_UV[packed.predictor_K, packed.targets_K]


def test_logprobs_entropy_and_gradients_are_those_of_the_full_logits(chunk_size):
    packed, hidden_UD, head = parts()
    coefficient_K = torch.arange(1.0, packed.count + 1, dtype=torch.float64)
    expected_UD = hidden_UD.clone().requires_grad_()
    logprobs_UV, expected_K = plain(head, expected_UD, packed)
    (coefficient_K * expected_K).sum().backward()
    expected_weight = head.weight.grad.clone()
    head.zero_grad()

    leaf_UD = hidden_UD.clone().requires_grad_()
    found_K, entropy_K = torch.empty(packed.count, dtype=torch.float64), torch.empty(packed.count, dtype=torch.float64)
    for chunk in chunks(head, leaf_UD, packed, VOCABULARY, top=TOP, gradient=True):
        found_K[chunk.order], entropy_K[chunk.order] = chunk.logprobs, chunk.top_entropy
        chunk.backward(coefficient_K[chunk.order])
    torch.testing.assert_close(found_K, expected_K.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(leaf_UD.grad, expected_UD.grad, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(head.weight.grad, expected_weight, rtol=1e-11, atol=1e-12)
    top = logprobs_UV.detach().exp().sort(descending=True).values[:, :TOP]
    normal = top / top.sum(-1, keepdim=True)
    torch.testing.assert_close(entropy_K, -(normal * normal.log()).sum(-1)[packed.predictor_K], rtol=1e-11, atol=1e-12)


def test_scoring_makes_no_graph():
    packed, hidden_UD, head = parts()
    (chunk,) = chunks(head, hidden_UD, packed, VOCABULARY)
    assert not chunk.logprobs.requires_grad and chunk.top_entropy is None


@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from([20, 21, 40, 500, 4099]), st.sampled_from([1, 5, 20]))
def test_largest_is_topk(seed, rows, vocabulary, count):
    values = torch.from_numpy(np.random.default_rng(seed).integers(-20, 20, (rows, vocabulary)).astype(np.float32))
    assert largest(values, count).tolist() == torch.topk(values, count).values.tolist()


def test_entropy_by_hand():
    even = torch.log(torch.tensor([[0.25, 0.25, 0.0625]]))[:, :2]  # a half each among themselves
    assert entropy_of(even).item() == pytest.approx(np.log(2))
    assert entropy_of(torch.tensor([[-1e-9, -100.0]])).item() == pytest.approx(0, abs=1e-9)
