import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from ablation.errors import UsageError
from ablation.merge import write
from ablation.merge.base_files import INDEX, SINGLE, read_base
from ablation.merge.pairs import read_adapter
from ablation.merge.write import write_merged
from tests.merge.small import VOCABULARY, adapter, edit_json, llama, qwen, save, weights

IDS = torch.arange(2, 42).reshape(2, 20)


def merged(base_folder: Path, adapter_folder: Path, to: Path):
    base = read_base(base_folder)
    to.mkdir()
    return write_merged(base, read_adapter(adapter_folder, base), to)


def bf16(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def to_bf16(value: np.float32) -> int:
    """Bits of the nearest bfloat16, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def hand_made(folder: Path, dtype: torch.dtype, alpha: int) -> tuple[Path, Path]:
    """A config of one layer whose q_proj is small enough to do by hand; W = [[1, 0.5], [-2, 0.25]]."""
    model = llama(hidden=32)
    save(model, folder / "base")
    tensors = weights(folder / "base")
    q = torch.zeros(32, 32)
    q[:2, :2] = torch.tensor([[1.0, 0.5], [-2.0, 0.25]])
    tensors["model.layers.0.self_attn.q_proj.weight"] = q
    save_file({name: one.to(dtype).contiguous() for name, one in tensors.items()}, folder / "base" / SINGLE)
    down, up = torch.zeros(1, 32), torch.zeros(32, 1)
    down[0, :2], up[:2, 0] = torch.tensor([0.5, 0.001]), torch.tensor([0.25, 4.0])
    (folder / "adapter").mkdir()
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    save_file({f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}, folder / "adapter" / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": alpha, "target_modules": ["q_proj"]}
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    return folder / "base", folder / "adapter"


def test_a_pair_by_hand(tmp_path):
    # B A = [[0.25], [4]] [[0.5, 0.001]] = [[0.125, 0.00025], [2, 0.004]], twice (alpha 2, rank 1)
    found = merged(*hand_made(tmp_path, torch.float32, 2), tmp_path / "merged")
    q = weights(tmp_path / "merged")["model.layers.0.self_attn.q_proj.weight"]
    assert q[:2, :2].tolist() == [[1.25, np.float32(0.5) + np.float32(0.0005)], [2.0, np.float32(0.25) + np.float32(0.008)]]
    assert not q[2:].any() and not q[:, 2:].any()
    assert found.used == ["model.layers.0.self_attn.q_proj.weight"]
    # 1024 weights, and exactly the four of the product change
    assert found.as_json()["all"]["unchanged_share"] == 1020 / 1024


def test_the_sum_is_rounded_once_to_bfloat16(tmp_path):
    base, lora = hand_made(tmp_path, torch.bfloat16, 1)
    found = merged(base, lora, tmp_path / "merged")
    q = weights(tmp_path / "merged")["model.layers.0.self_attn.q_proj.weight"]
    assert q.dtype == torch.bfloat16
    exact = [[1 + 0.125, 0.5 + 0.00025], [-2 + 2.0, 0.25 + 0.004]]
    assert q[:2, :2].float().tolist() == [[bf16(to_bf16(np.float32(one))) for one in row] for row in exact]
    # above 0.5 the next bfloat16 is 0.5 + 2**-8: an addition of 0.00025 leaves no trace
    assert q[0, 1] == 0.5
    assert found.kinds["q_proj"].unchanged == 1024 - 3


@pytest.mark.parametrize("make", [llama, qwen])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block", [write.BLOCK, 100])
def test_every_weight_is_what_numpy_says(tmp_path, monkeypatch, make, dtype, block):
    monkeypatch.setattr(write, "BLOCK", block)  # a few rows at a time, and a last block that is smaller
    base = save(make(dtype=dtype), tmp_path / "base")
    lora = adapter(make(dtype=dtype), tmp_path / "adapter", rank=4, alpha=8)
    found = merged(base, lora, tmp_path / "merged")
    before, after, halves = weights(base), weights(tmp_path / "merged"), weights(lora)
    assert before.keys() == after.keys()
    changed = set()
    for name, old in before.items():
        key = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{key}.lora_A.weight" not in halves:
            assert torch.equal(old, after[name]), name
            continue
        changed.add(name)
        a, b = (halves[f"{key}.lora_{one}.weight"].numpy().astype(np.float64) for one in "AB")
        exact = old.float().numpy().astype(np.float64) + 2.0 * b @ a
        # half a step of the type, and float32's own error of the sum
        step = np.abs(exact) * (2.0**-8 if dtype == torch.bfloat16 else 2.0**-24)
        assert np.all(np.abs(after[name].float().numpy() - exact) <= step + 1e-6), name
        assert after[name].dtype == dtype
    assert len(changed) == len(found.used) == 2 * 7 + 1
    assert found.as_json()["all"]["pairs"] == 15
    assert found.kinds["q_proj"].pairs == 2 and found.kinds["lm_head"].pairs == 1


def pefts_own(base: Path, lora: Path, dtype: torch.dtype, **options) -> dict[str, torch.Tensor]:
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=dtype), str(lora), **options)
    return model.merge_and_unload().state_dict()


def test_pefts_own_merge_is_the_second_opinion_in_float32(tmp_path):
    base, lora = save(llama(), tmp_path / "base"), adapter(llama(), tmp_path / "adapter")
    merged(base, lora, tmp_path / "merged")
    theirs = pefts_own(base, lora, torch.float32)
    for name, one in weights(tmp_path / "merged").items():
        torch.testing.assert_close(one, theirs[name], rtol=1e-6, atol=1e-7)


def test_pefts_own_merge_of_a_bfloat16_base_and_where_its_rounding_differs(tmp_path):
    base = save(llama(dtype=torch.bfloat16), tmp_path / "base")
    lora = adapter(llama(), tmp_path / "adapter")
    merged(base, lora, tmp_path / "merged")
    ours, halves = weights(tmp_path / "merged"), weights(lora)
    # with the adapter in float32 peft adds in float32 and rounds once, too: the same bits
    theirs = pefts_own(base, lora, torch.bfloat16)
    assert all(torch.equal(one, theirs[name]) for name, one in ours.items())
    # with the adapter in the base's type it rounds A, B, the product and the sum: other numbers, and further from the exact ones
    rounded = pefts_own(base, lora, torch.bfloat16, autocast_adapter_dtype=False)
    exact = {}
    for name, old in weights(base).items():
        key = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{key}.lora_A.weight" in halves:
            a, b = (halves[f"{key}.lora_{one}.weight"].double() for one in "AB")
            exact[name] = old.double() + b @ a
    assert sum(int((ours[name] != rounded[name]).sum()) for name in exact) > 100
    ours_error, theirs_error = (
        sum(float((found[name].double() - one).square().sum()) for name, one in exact.items()) for found in (ours, rounded)
    )
    assert ours_error < theirs_error


@pytest.mark.parametrize("make", [llama, qwen])
def test_the_merged_folder_computes_what_base_and_adapter_do(tmp_path, make):
    base, lora = save(make(), tmp_path / "base"), adapter(make(), tmp_path / "adapter")
    merged(base, lora, tmp_path / "merged")
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(lora)).eval()
    with torch.no_grad():
        wanted = adapted(input_ids=IDS).logits
        found = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()(input_ids=IDS).logits
        with adapted.disable_adapter():
            without = adapted(input_ids=IDS).logits
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert (wanted - without).abs().max() > 0.1


def test_shards_order_and_index_of_the_base_are_kept(tmp_path):
    base = save(llama(), tmp_path / "base", shard="20KB")
    lora = adapter(llama(), tmp_path / "adapter")
    merged(base, lora, tmp_path / "merged")
    names = sorted(path.name for path in base.glob("*.safetensors"))
    assert len(names) > 3
    assert names == sorted(path.name for path in (tmp_path / "merged").glob("*.safetensors"))
    assert (base / INDEX).read_bytes() == (tmp_path / "merged" / INDEX).read_bytes()
    for name in names:
        own, other = (base / name).read_bytes(), (tmp_path / "merged" / name).read_bytes()
        length = 8 + struct.unpack("<Q", own[:8])[0]
        assert own[:length] == other[:length] and len(own) == len(other)
        with safe_open(tmp_path / "merged" / name, "pt") as opened:
            assert opened.metadata() == {"format": "pt"}


def test_config_tokenizer_template_and_sampling_defaults_are_the_bases_own_bytes(tmp_path):
    base = save(llama(), tmp_path / "base")
    (base / "chat_templates").mkdir()
    (base / "chat_templates" / "tools.jinja").write_text("{{ tools }}")
    (base / ".gitattributes").write_text("x")
    (base / "README.md").write_text("# the base's card")
    (base / "pytorch_model.bin").write_bytes(b"another copy of the weights")
    (base / "complete.json").write_text("{}")
    merged(base, adapter(llama(), tmp_path / "adapter"), tmp_path / "merged")
    kept = ("config.json", "generation_config.json", "chat_template.jinja", "LICENSE", "chat_templates/tools.jinja")
    for name in kept:
        assert (tmp_path / "merged" / name).read_bytes() == (base / name).read_bytes(), name
    for name in (".gitattributes", "README.md", "pytorch_model.bin", "complete.json"):
        assert not (tmp_path / "merged" / name).exists(), name


def test_a_base_without_sampling_defaults_gets_none(tmp_path):
    base = save(llama(), tmp_path / "base")
    (base / "generation_config.json").unlink()
    merged(base, adapter(llama(), tmp_path / "adapter"), tmp_path / "merged")
    assert not (tmp_path / "merged" / "generation_config.json").exists()


@pytest.mark.parametrize("shard", [None, "20KB"])
def test_a_tied_output_layer_gets_a_matrix_of_its_own(tmp_path, shard):
    base = save(llama(tied=True), tmp_path / "base", shard=shard)
    lora = adapter(llama(tied=True), tmp_path / "adapter", targets=["q_proj", "lm_head"], sigma=0.3)
    assert "lm_head.weight" not in weights(base)
    found = merged(base, lora, tmp_path / "merged")
    assert found.untied and found.kinds["lm_head"].pairs == 1
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    before, after = weights(base), weights(tmp_path / "merged")
    assert torch.equal(before["model.embed_tokens.weight"], after["model.embed_tokens.weight"])
    assert not torch.allclose(after["lm_head.weight"], after["model.embed_tokens.weight"])
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(lora)).eval()
    model, loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", output_loading_info=True)
    assert not loaded["missing_keys"] and not loaded["unexpected_keys"]
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(input_ids=IDS).logits, adapted(input_ids=IDS).logits, rtol=1e-4, atol=1e-4)
    index = json.loads((tmp_path / "merged" / INDEX).read_text())
    assert set(index["weight_map"]) == set(after)
    assert index["metadata"]["total_size"] == sum(one.numel() * 4 for one in after.values())


def test_a_tied_output_layer_that_is_stored_twice_is_made_of_the_embedding(tmp_path):
    base = save(llama(tied=True), tmp_path / "base")
    tensors = weights(base)
    save_file(tensors | {"lm_head.weight": torch.full((VOCABULARY, 32), 9.0)}, base / SINGLE, metadata={"format": "pt"})
    lora = adapter(llama(tied=True), tmp_path / "adapter", targets=["lm_head"])
    merged(base, lora, tmp_path / "merged")
    halves = weights(lora)
    product = halves["base_model.model.lm_head.lora_B.weight"] @ halves["base_model.model.lm_head.lora_A.weight"]
    found = weights(tmp_path / "merged")["lm_head.weight"]
    torch.testing.assert_close(found, tensors["model.embed_tokens.weight"] + product)


def test_a_tied_base_without_a_pair_on_its_output_layer_stays_tied(tmp_path):
    base = save(llama(tied=True), tmp_path / "base")
    lora = adapter(llama(tied=True), tmp_path / "adapter", targets=["q_proj"])
    assert not merged(base, lora, tmp_path / "merged").untied
    assert (tmp_path / "merged" / "config.json").read_bytes() == (base / "config.json").read_bytes()
    assert "lm_head.weight" not in weights(tmp_path / "merged")


def test_a_sum_that_the_type_cannot_hold_is_refused(tmp_path):
    base = save(llama(dtype=torch.float16), tmp_path / "base")
    lora = adapter(llama(), tmp_path / "adapter", sigma=300.0)
    with pytest.raises(UsageError, match="the merged weight is not finite in F16"):
        merged(base, lora, tmp_path / "merged")


def test_a_quantised_base_is_refused(tmp_path):
    base = save(llama(), tmp_path / "base")
    edit_json(base / "config.json", quantization_config={"quant_method": "fp8"})
    with pytest.raises(UsageError, match="this base is quantised"):
        read_base(base)


MEMORY = """
import resource, sys
from pathlib import Path
from ablation.merge.base_files import read_base
from ablation.merge.pairs import read_adapter
from ablation.merge.write import write_merged
base = read_base(Path(sys.argv[1]))
lora = read_adapter(Path(sys.argv[2]), base)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_merged(base, lora, Path(sys.argv[3]))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_memory_does_not_grow_with_the_size_of_a_tensor(tmp_path):
    """An output layer of 268 MB (537 MB in float32) is merged in a fraction of that."""
    base = save(llama(), tmp_path / "base")
    rows, columns = 2**20, 128
    tensors = {"lm_head.weight": torch.ones(rows, columns, dtype=torch.bfloat16)}
    save_file(tensors, base / SINGLE, metadata={"format": "pt"})
    lora = tmp_path / "adapter"
    lora.mkdir()
    halves = {"lora_A": torch.ones(1, columns), "lora_B": torch.ones(rows, 1)}
    save_file(
        {f"base_model.model.lm_head.{name}.weight": one for name, one in halves.items()}, lora / "adapter_model.safetensors"
    )
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["lm_head"]}
    (lora / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "merged").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(base), str(lora), str(tmp_path / "merged")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 160e6
    assert (weights(tmp_path / "merged")["lm_head.weight"] == 2).all()
