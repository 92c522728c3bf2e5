"""Every pair has its one weight in the base, or there is an error that names it."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from ablation.errors import UsageError
from ablation.merge.base_files import INDEX, SINGLE, read_base
from ablation.merge.pairs import read_adapter
from ablation.merge.write import write_merged
from tests.merge.small import adapter, edit_json, llama, rewrite, save, weights

NAME = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.fixture
def folders(tmp_path):
    return save(llama(), tmp_path / "base"), adapter(llama(), tmp_path / "adapter", targets=["q_proj", "v_proj"])


def read(folders):
    base = read_base(folders[0])
    return read_adapter(folders[1], base)


def change(folders, do) -> None:
    rewrite(folders[1] / "adapter_model.safetensors", do)


def test_kinds_and_scale(folders):
    edit_json(folders[1] / "adapter_config.json", lora_alpha=6)
    found = read(folders)
    assert found.kinds == {"q_proj": 2, "v_proj": 2} and found.scale == 1.5 and found.untied is None


@pytest.mark.parametrize(
    ("do", "says"),
    [
        (lambda one: one.pop(f"{NAME}.lora_B.weight"), "has half a pair: lora_A alone"),
        (lambda one: one.pop(f"{NAME}.lora_A.weight"), "has half a pair: lora_B alone"),
        (lambda one: one.update({"base_model.model.x.lora_A.bias": torch.zeros(2, 2)}), "is no half of a LoRA pair"),
        (lambda one: one.update({f"{NAME}.lora_magnitude_vector": torch.zeros(2)}), "is no half of a LoRA pair"),
        (lambda one: one[f"{NAME}.lora_A.weight"].__setitem__((0, 0), float("nan")), "holds numbers that are not finite"),
        (lambda one: one.update({f"{NAME}.lora_B.weight": torch.zeros(31, 4)}), r"makes \(31, 32\), the weight is \(32, 32\)"),
        (lambda one: one.update({f"{NAME}.lora_B.weight": torch.zeros(32, 3)}), "has rank 4 and 3, its config says 4"),
        (lambda one: one.clear(), "holds no LoRA pair"),
    ],
)
def test_what_is_no_whole_pair(folders, do, says):
    change(folders, do)
    with pytest.raises(UsageError, match=says):
        read(folders)


def test_a_pair_without_a_weight_is_not_left_over(folders):
    def elsewhere(one):
        for half in ("lora_A", "lora_B"):
            one[f"base_model.model.model.layers.7.self_attn.q_proj.{half}.weight"] = one[f"{NAME}.{half}.weight"].clone()

    change(folders, elsewhere)
    with pytest.raises(UsageError, match=r"the pair of `model.layers.7.self_attn.q_proj` has no weight in"):
        read(folders)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"use_dora": True}, "has use_dora true: only plain LoRA"),
        ({"use_rslora": True}, "has use_rslora true"),
        ({"rank_pattern": {"q_proj": 2}}, "has rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "has alpha_pattern"),
        ({"fan_in_fan_out": True}, "has fan_in_fan_out true"),
        ({"modules_to_save": ["lm_head"]}, "has modules_to_save"),
        ({"bias": "all"}, 'has bias "all"'),
        ({"peft_type": "IA3"}, 'has peft_type "IA3"'),
        ({"r": 0}, "has r 0"),
    ],
)
def test_anything_but_plain_lora_is_refused(folders, values, says):
    edit_json(folders[1] / "adapter_config.json", **values)
    with pytest.raises(UsageError, match=says):
        read(folders)


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_a_language_model_inside_of_a_larger_one(folders, tmp_path, prefix):
    """Its weights have longer names in the files than where it is loaded alone, and other parts have some of them, too."""
    tensors = weights(folders[0])
    longer = {name.replace("model.", prefix, 1): one for name, one in tensors.items()}
    longer |= {"mtp.layers.0.self_attn.q_proj.weight": torch.ones(32, 32), "model.visual.patch.weight": torch.ones(3, 3)}
    save_file(longer, folders[0] / SINGLE, metadata={"format": "pt"})
    base = read_base(folders[0])
    (tmp_path / "merged").mkdir()
    found = write_merged(base, read_adapter(folders[1], base), tmp_path / "merged")
    assert sorted(found.used) == sorted(
        f"{prefix}layers.{layer}.self_attn.{kind}.weight" for layer in (0, 1) for kind in ("q_proj", "v_proj")
    )
    assert (weights(tmp_path / "merged")["mtp.layers.0.self_attn.q_proj.weight"] == 1).all()


def test_two_pairs_for_one_weight(folders):
    def twice(one):
        for half in ("lora_A", "lora_B"):
            one[f"base_model.model.layers.0.self_attn.q_proj.{half}.weight"] = one[f"{NAME}.{half}.weight"].clone()

    tensors = {name.removeprefix("model."): one for name, one in weights(folders[0]).items()}
    save_file(tensors, folders[0] / SINGLE, metadata={"format": "pt"})
    change(folders, twice)
    with pytest.raises(UsageError, match="are for one weight, `layers.0.self_attn.q_proj.weight`"):
        read(folders)


def test_a_base_of_integers_is_refused(folders):
    tensors = weights(folders[0])
    tensors["model.layers.0.self_attn.q_proj.weight"] = torch.zeros(32, 32, dtype=torch.int8)
    save_file(tensors, folders[0] / SINGLE, metadata={"format": "pt"})
    with pytest.raises(UsageError, match="is I8: nothing can be added to it by one rounding"):
        read(folders)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: data[:-1], "is not a whole safetensors file: .* bytes, and its header speaks of"),
        (lambda data: data + b"\0", "is not a whole safetensors file"),
        (lambda data: data[:4], "is not a whole safetensors file"),
        (lambda data: b"\xff" * 8 + data[8:], "is not a whole safetensors file"),
        (lambda data: data[:9] + b"\x01" + data[10:], "is not a whole safetensors file"),
    ],
)
def test_a_shard_that_is_cut_or_damaged(folders, damage, says):
    path = folders[0] / SINGLE
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UsageError, match=says):
        read_base(folders[0])


def test_an_index_that_does_not_fit_its_shards(tmp_path):
    base = save(llama(), tmp_path / "base", shard="20KB")
    index = json.loads((base / INDEX).read_text())
    name, shard = next(iter(index["weight_map"].items()))
    for wrong, says in (
        ({name: "../../etc/passwd"}, "is not the name of a safetensors file in this folder"),
        ({name: next(one for one in index["weight_map"].values() if one != shard)}, "is not in model-"),
        ({"more.weight": shard}, "weight `more.weight` is not in"),
        ({name: "model-09999.safetensors"}, "cannot be read: No such file"),
    ):
        (base / INDEX).write_text(json.dumps(index | {"weight_map": index["weight_map"] | wrong}))
        with pytest.raises(UsageError, match=says):
            read_base(base)
    (base / INDEX).write_text("{}")
    with pytest.raises(UsageError, match="has no `weight_map`"):
        read_base(base)


def test_a_weight_in_two_shards(tmp_path):
    base = save(llama(), tmp_path / "base", shard="20KB")
    one, other = sorted(base.glob("*.safetensors"))[:2]
    save_file(load_file(other) | load_file(one), other, metadata={"format": "pt"})
    with pytest.raises(UsageError, match="is in model-00001.* and in model-00002"):
        read_base(base)


def test_a_base_without_safetensors(tmp_path):
    base = save(llama(), tmp_path / "base")
    (base / SINGLE).rename(base / "pytorch_model.bin")
    with pytest.raises(UsageError, match="has neither model.safetensors.index.json nor model.safetensors"):
        read_base(base)
