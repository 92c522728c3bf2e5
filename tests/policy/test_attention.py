"""Attention along packed paths, against softmax(q k') v written out for each row."""

import math

import numpy as np
import pytest
import torch

from ablation.policy import attention, packing
from ablation.policy.attention import packed_attention, strictly_deterministic
from ablation.policy.base import ScoreRow
from ablation.policy.packing import pack

HEADS, KEY_HEADS, SIZE = 4, 2, 8


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    prompts = [tuple(random.integers(0, 50, length)) for length in (3, 7)]
    return [ScoreRow(prompts[i % 2], random.integers(0, 3, 1 + 3 * i)) for i in range(6)]


def written_out(query_HLD, key_GLD, value_GLD):
    """One row, head by head."""
    length = query_HLD.shape[1]
    outputs = []
    for head in range(HEADS):
        group = head // (HEADS // KEY_HEADS)
        scores = query_HLD[head] @ key_GLD[group].T / math.sqrt(SIZE)
        scores = scores + torch.full((length, length), -math.inf, dtype=scores.dtype).triu(1)
        outputs.append(torch.softmax(scores, -1) @ value_GLD[group])
    return torch.stack(outputs)


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("block_tokens", [1, 20, 4096])
def test_values_and_gradients(rows, explicit, block_tokens, monkeypatch):
    monkeypatch.setattr(packing, "BLOCK_TOKENS", {"cpu": block_tokens})
    monkeypatch.setattr(attention, "EXPLICIT_BACKWARD_BELOW", 10_000 if explicit else 0)
    packed = pack(rows, torch.device("cpu"))
    count = packed.ids.shape[1]
    torch.manual_seed(0)
    inputs = [
        torch.randn(1, heads, count, SIZE, dtype=torch.float64, requires_grad=True) for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    ]
    wanted = torch.randn(count, HEADS, SIZE, dtype=torch.float64)

    found, _ = packed_attention(None, *inputs, None, blocks=packed.blocks)
    found_gradients = torch.autograd.grad((found[0] * wanted).sum(), inputs)

    expected = torch.zeros(count, HEADS, SIZE, dtype=torch.float64)
    for block in packed.blocks:
        width = block.tokens_BL.shape[1]
        for place, token in zip(block.owned.tolist(), block.owned_tokens.tolist(), strict=True):
            row, at = divmod(place, width)
            path = block.tokens_BL[row, : at + 1]
            expected[token] = written_out(*(one[0][:, path] for one in inputs))[:, -1]
    expected_gradients = torch.autograd.grad((expected * wanted).sum(), inputs)
    torch.testing.assert_close(found[0], expected.detach(), rtol=1e-12, atol=1e-12)
    for one, other in zip(found_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_a_row_that_begins_like_a_longer_one_attends_no_second_time():
    rows = [ScoreRow((1, 2), np.array([3, 4, 5])), ScoreRow((1, 2), np.array([3])), ScoreRow((1, 2), np.array([3, 4, 5]))]
    packed = pack(rows, torch.device("cpu"))
    assert [block.tokens_BL.shape for block in packed.blocks] == [(1, 5)]


def test_what_may_be_random_elsewhere_is_not_in_the_backward_pass_and_the_setting_comes_back():
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        for on, warn in ((True, True), (True, False), (False, False)):
            torch.use_deterministic_algorithms(on, warn_only=warn)
            with strictly_deterministic():
                assert torch.are_deterministic_algorithms_enabled() is on
                assert not torch.is_deterministic_algorithms_warn_only_enabled()
            assert torch.is_deterministic_algorithms_warn_only_enabled() is warn
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
