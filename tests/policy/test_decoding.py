import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from ablation.policy.base import SampleRequest
from ablation.policy.decoding import Decoding, choose_tokens, prefill_mask, uniforms
from tests.small_models import END


def decoding(**changes):
    values = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 8, "top_logprobs": 20, "end_ids": (1,), "pad_id": 0}
    return Decoding(**(values | changes))


def requests(count, offset=0):
    lengths = np.random.default_rng(0).integers(2, 9, count)
    return [SampleRequest(tuple(range(2, 2 + int(length))), 100 + offset + i) for i, length in enumerate(lengths)]


def test_same_seed_same_tokens_in_any_batch_and_order(policy):
    whole = policy.sample(requests(40))
    turned = policy.sample(requests(40)[::-1])[::-1]
    alone = [policy.sample([request])[0] for request in requests(40)]
    for one, other, single in zip(whole, turned, alone, strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist() == single.token_ids.tolist()
        assert one.logprobs == pytest.approx(single.logprobs, abs=1e-5)


def test_other_seeds_give_other_tokens(policy):
    one, other = policy.sample(requests(20)), policy.sample(requests(20, offset=1000))
    assert sum(a.token_ids.tolist() != b.token_ids.tolist() for a, b in zip(one, other, strict=True)) >= 18


def test_finish_reason_follows_the_end_token_and_the_cap(policy):
    for sampled in policy.sample(requests(40)):
        ended = sampled.token_ids[-1] == END
        assert sampled.finish_reason == ("stop" if ended else "length")
        assert END not in sampled.token_ids[:-1]
        assert len(sampled.token_ids) == 24 or ended


def test_stored_logprobs_and_entropy_are_the_models_own(policy):
    request = requests(1)[0]
    sampled = policy.sample([request])[0]
    ids = torch.tensor([[*request.prompt_ids, *sampled.token_ids.tolist()]])
    with torch.inference_mode():
        logprobs = torch.log_softmax(policy.causal(input_ids=ids).logits[0].double(), dim=-1).numpy()
    for step, token in enumerate(sampled.token_ids):
        row = logprobs[len(request.prompt_ids) + step - 1]
        assert sampled.logprobs[step] == pytest.approx(row[token], abs=1e-5)
        top = np.sort(np.exp(row))[::-1][:20]
        assert sampled.top_mass[step] == pytest.approx(top.sum(), abs=1e-5)
        normal = top / top.sum()
        assert sampled.top_entropy[step] == pytest.approx(-(normal * np.log(normal)).sum(), abs=1e-4)


def test_choice_follows_the_distribution():
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    raw = torch.log(torch.tensor(probabilities, dtype=torch.float32)).expand(4000, -1)
    picked = choose_tokens(raw, torch.from_numpy(uniforms(7, 4000)), decoding()).numpy()
    assert chisquare(np.bincount(picked, minlength=4), probabilities * 4000).pvalue > 0.01


@pytest.mark.parametrize(
    ("changes", "allowed", "expected"),
    [
        ({"top_k": 2}, [0, 1], [0.625, 0.375]),
        ({"top_p": 0.75}, [0, 1], [0.625, 0.375]),  # the smallest set that holds 0.75
        ({"temperature": 0.5}, [0, 1, 2, 3], np.array([0.25, 0.09, 0.0225, 0.0025]) / 0.365),
    ],
)
def test_temperature_top_k_and_top_p(changes, allowed, expected):
    raw = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).expand(4000, -1)
    picked = choose_tokens(raw, torch.from_numpy(uniforms(3, 4000)), decoding(**changes)).numpy()
    counts = np.bincount(picked, minlength=4)
    assert sorted(set(picked)) == allowed
    assert chisquare(counts[allowed], np.array(expected) * 4000).pvalue > 0.01


def test_a_token_of_no_probability_is_never_chosen():
    raw = torch.log(torch.tensor([[0.0, 1.0, 0.0]]))
    for value in (0.0, 0.5, 1.0 - 2**-53):
        assert choose_tokens(raw, torch.tensor([value], dtype=torch.float64), decoding()).item() == 1


def test_streams_of_neighbouring_seeds_share_nothing():
    streams = [tuple(uniforms(seed, 8)) for seed in (100, 101, 102, 2**63 - 1)]
    assert len({value for stream in streams for value in stream}) == 32


def test_padding_attends_to_itself_and_nothing_attends_to_padding():
    mask = prefill_mask(torch.tensor([[False, True, True]]))[0, 0]
    assert mask.tolist() == [[True, False, False], [False, True, False], [False, True, True]]


@pytest.mark.parametrize("temperature", [1e-300, 1e-38, 1e-6])
def test_a_temperature_near_0_takes_the_most_likely_token(temperature):
    raw_BV = torch.log_softmax(torch.tensor([[0.0, 3.0, 1.0, 2.9], [5.0, 0.0, 0.0, 0.0]]), dim=-1)
    picked = choose_tokens(raw_BV, torch.tensor([0.999, 0.0], dtype=torch.float64), decoding(temperature=temperature))
    assert picked.tolist() == [1, 0]


def test_a_huge_temperature_is_uniform():
    raw_BV = torch.log_softmax(torch.tensor([[0.0, 50.0, 1.0, 2.0]] * 4), dim=-1)
    uniforms_B = torch.tensor([0.1, 0.3, 0.6, 0.9], dtype=torch.float64)
    assert choose_tokens(raw_BV, uniforms_B, decoding(temperature=1e300)).tolist() == [0, 1, 2, 3]
