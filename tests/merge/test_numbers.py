import numpy as np
import pytest
import torch

from ablation.merge.base_files import read_base
from ablation.merge.model import Loaded
from ablation.merge.numbers import LOST, NO_EFFECT, NOT_FINITE, Numbers, difference, flat
from ablation.merge.pairs import read_adapter
from ablation.merge.write import write_merged
from ablation.policy.base import ScoreRow
from tests.merge.small import adapter, llama, save


def test_three_numbers_by_hand():
    base, adapted, merged = np.array([-1.0, -2.0]), np.array([-1.5, -2.0]), np.array([-1.5, -2.1])
    found = Numbers(base, adapted, merged, start=np.array([-1.5, -1.8]), sampler=np.array([-1.5, -2.0])).record()
    assert found["merged_vs_adapter"]["mean_absolute"] == pytest.approx(0.05)
    assert found["adapter_vs_base"]["mean_absolute"] == pytest.approx(0.25)
    assert found["merged_vs_base"]["mean_absolute"] == pytest.approx(0.3)
    assert found["ratio"] == pytest.approx(0.2) and found["passed"] and found["reason"] is None
    assert found["adapter_vs_start"]["mean_absolute"] == pytest.approx(0.1)
    assert found["training"] == {"ratio": pytest.approx(0.5), "kept": False}
    assert found["adapter_vs_sampler"]["mean_absolute"] == 0


@pytest.mark.parametrize(("apart", "passed"), [(0.249, True), (0.25, False), (0.3, False)])
def test_the_limit_is_under_a_quarter(apart, passed):
    base = np.zeros(4)
    found = Numbers(base, base - 1.0, base - 1.0 - apart).record()
    assert found["passed"] is passed
    assert found["reason"] == (None if passed else LOST)


def test_an_adapter_without_effect_shows_nothing():
    one = np.array([-1.0, -2.0])
    found = Numbers(one, one, one).record()
    assert found["ratio"] is None and found["reason"] == NO_EFFECT and not found["passed"]


@pytest.mark.parametrize("broken", [np.nan, -np.inf])
def test_a_logprob_that_is_not_finite_is_no_pass(broken):
    base = np.zeros(3)
    found = Numbers(base, base - 1, np.array([-1.0, broken, -1.0])).record()
    assert found["reason"] == NOT_FINITE
    assert found["merged_vs_adapter"] == {"mean_absolute": 0.0, "p99_absolute": 0.0, "tokens": 2}
    assert difference(np.array([np.nan]), np.zeros(1))["mean_absolute"] is None


def rows(count: int = 6, length: int = 40) -> list[ScoreRow]:
    random = np.random.default_rng(5)
    return [ScoreRow((2, 3, 4 + number), random.integers(2, 48, length)) for number in range(count)]


def three_numbers(folder, sigma: float) -> dict:
    """G02's case: a bfloat16 model, rank 4, alpha 4, A and B normal with `sigma`."""
    base = save(llama(dtype=torch.bfloat16, spread=0.02), folder / "base")
    lora = adapter(llama(spread=0.02), folder / "adapter", sigma=sigma)
    files = read_base(base)
    (folder / "merged").mkdir()
    written = write_merged(files, read_adapter(lora, files), folder / "merged")
    adapted = Loaded(base, "bfloat16", lora)
    with_adapter = flat(adapted.score(rows()))
    with adapted.without_adapter():
        alone = flat(adapted.score(rows()))
    merged = flat(Loaded(folder / "merged", "bfloat16").score(rows()))
    return Numbers(alone, with_adapter, merged).record() | {"unchanged": written.as_json()["all"]["unchanged_share"]}


def unchanged_by_chance(sigma: float) -> float:
    """Share of bfloat16 weights (normal, 0.02) that stay when a product of two normal rank-4 halves is added.

    A weight of size 2**e has steps of 2**(e - 7) and stays if less than half a step is added.
    """
    random = np.random.default_rng(0)
    weights = 0.02 * random.standard_normal(200_000)
    products = (sigma * random.standard_normal((4, 200_000)) * sigma * random.standard_normal((4, 200_000))).sum(axis=0)
    half_step = 2.0 ** (np.floor(np.log2(np.abs(weights))) - 8)
    return float((np.abs(products) < half_step).mean())


@pytest.mark.parametrize(("sigma", "passed"), [(0.003, False), (0.01, False), (0.03, True)])
def test_small_updates_vanish_in_bfloat16(tmp_path, sigma, passed):
    found = three_numbers(tmp_path, sigma)
    assert found["merged_vs_adapter"]["mean_absolute"] < 0.01  # a plain tolerance would pass all three
    assert found["adapter_vs_base"]["mean_absolute"] < 0.01
    assert found["passed"] is passed
    assert found["reason"] == (None if passed else LOST)
    assert found["unchanged"] == pytest.approx(unchanged_by_chance(sigma), abs=0.02)


def test_the_logprobs_are_those_that_transformers_gives(tmp_path):
    base = save(llama(), tmp_path / "base")
    model = llama()
    texts = rows(3, 11)
    for row, found in zip(texts, Loaded(base, "float32").score(texts), strict=True):
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids.tolist()]])
        with torch.no_grad():
            logprobs = model(input_ids=ids).logits.log_softmax(-1)[0, 2:-1]
        wanted = logprobs.gather(1, torch.tensor(row.token_ids)[:, None])[:, 0]
        np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5)


def test_another_adapter_on_the_same_base_and_back(tmp_path):
    base = save(llama(), tmp_path / "base")
    one, other = (adapter(llama(), tmp_path / f"adapter-{seed}", seed=seed) for seed in (1, 2))
    loaded = Loaded(base, "float32", one)
    first = flat(loaded.score(rows()))
    with loaded.with_other(other):
        second = flat(loaded.score(rows()))
    np.testing.assert_array_equal(flat(loaded.score(rows())), first)
    np.testing.assert_allclose(second, flat(Loaded(base, "float32", other).score(rows())), atol=1e-6)
    with loaded.without_adapter():
        np.testing.assert_allclose(flat(loaded.score(rows())), flat(Loaded(base, "float32").score(rows())), atol=1e-6)
    assert np.abs(first - second).mean() > 0.01
