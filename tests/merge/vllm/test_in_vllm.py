"""The merged folder in vLLM's real engine, and a format that only vLLM loads here; skipped where vLLM is not installed."""

from importlib.util import find_spec

import pytest

from ablation.merge.check import check_model, find_model
from ablation.merge.run import Settings, merge
from ablation.merge.source import find_source
from ablation.merge.texts import training_problems
from ablation.plan.lock import verify_lock
from tests.merge.to_int8 import to_int8

pytestmark = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: `make test-vllm` runs these tests")


@pytest.fixture(scope="module")
def in_vllm(finished, tmp_path_factory):
    """(source, record, folder) of a merge that was scored and sampled by vLLM, too."""
    source = find_source(verify_lock(finished / "plans" / "mini.yaml"), finished / "runs" / "mini", "C@2")
    folder = tmp_path_factory.mktemp("vllm") / "C@2"
    record = merge(source, Settings(folder, texts=8, engine="vllm"), lambda _: None, lambda _: "card\n")
    return source, record, folder


def test_the_base_across_engines_is_the_noise_that_the_merge_stays_in(in_vllm):
    engines, check = in_vllm[1]["engines"], in_vllm[1]["check"]
    assert engines["vllm"] and engines["base_vs_base"]["tokens"] == in_vllm[1]["texts"]["tokens"]
    noise, effect = engines["base_vs_base"]["mean_absolute"], check["adapter_vs_base"]["mean_absolute"]
    assert 0 < noise < 1e-4 < effect
    assert engines["merged_vs_adapter"]["mean_absolute"] < 1e-4
    assert engines["merged_vs_base"]["mean_absolute"] == pytest.approx(effect, rel=1e-2)
    assert engines["breakage"]["passed"]


def test_eight_bit_integers_that_transformers_may_not_load(in_vllm, tmp_path):
    source, _, folder = in_vllm
    made = find_model(to_int8(folder, tmp_path / "int8"))
    assert made.format == "compressed-tensors"
    found = check_model(
        source.locked,
        source.base,
        training_problems(source),
        made,
        beside=folder,
        engine="vllm",
        seed=1,
        longest=4096,
        say=lambda _: None,
    )
    assert found["engine"].startswith("vllm ") and found["breakage"]["passed"]
