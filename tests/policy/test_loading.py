import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from ablation.errors import UsageError
from ablation.policy.loading import load_adapted, load_tokenizer


@pytest.fixture
def folders(model_folders, tmp_path):
    """Copies of base and adapter that a test may damage."""
    return [shutil.copytree(folder, tmp_path / folder.name) for folder in model_folders]


def change(path, edit):
    """Let `edit` change the tensors in `path`."""
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


BASE, ADAPTER = "model.safetensors", "adapter_model.safetensors"
DOWN = "base_model.model.lm_head.lora_A.weight"
DAMAGE = {
    "base weight missing": (0, BASE, lambda p: change(p, lambda t: t.pop("model.norm.weight")), "1 weights are not in the model's files, for instance model.norm.weight"),
    "base cut": (0, BASE, cut, "model.base: .*: no usable model: "),
    "base gone": (0, BASE, lambda p: p.unlink(), "model.base: .*: no usable model: "),
    "config gone": (0, "config.json", lambda p: p.unlink(), "model.base: .*config.json: No such file or directory"),
    "config of another shape": (0, "config.json", lambda p: p.write_text(p.read_text().replace('"hidden_size": 32', '"hidden_size": 64')), "model.base: .*: no usable model: "),
    "an adapter in the base": (0, "adapter_config.json", lambda p: p.write_text("{}"), "model.base: .*adapter_config.json: there is an adapter in the base's folder"),
    "tied lm_head": (0, "config.json", lambda p: p.write_text(p.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true')), "model.lora.targets: `lm_head` shares its matrix with the input embeddings"),
    "adapter weight missing": (1, ADAPTER, lambda p: change(p, lambda t: t.pop(DOWN)), rf"weight `{DOWN}` is missing"),
    "adapter weight too many": (1, ADAPTER, lambda p: change(p, lambda t: t.update({"x.lora_A.weight": torch.zeros(1)})), "weight `x.lora_A.weight` has no place in this model"),
    "adapter cut": (1, ADAPTER, cut, "model.start_adapter: .*: no usable adapter: "),
    "adapter gone": (1, ADAPTER, lambda p: p.unlink(), "model.start_adapter: .*: no usable adapter: No such file"),
    "adapter of another size": (1, ADAPTER, lambda p: change(p, lambda t: t.update({DOWN: t[DOWN][:, :5].clone()})), "model.start_adapter: .*: no usable adapter: "),
    "adapter not finite": (1, ADAPTER, lambda p: change(p, lambda t: t[DOWN].mul_(float("nan"))), rf"weight `{DOWN}` holds numbers that are not finite"),
    "adapter config no object": (1, "adapter_config.json", lambda p: p.write_text("[]"), "is not a JSON object"),
    "no LoRA": (1, "adapter_config.json", lambda p: p.write_text(json.dumps(json.loads(p.read_text()) | {"peft_type": "IA3"})), 'has peft_type "IA3"; a plan describes plain LoRA'),
    "another scale": (1, "adapter_config.json", lambda p: p.write_text(json.dumps(json.loads(p.read_text()) | {"use_rslora": True})), "has use_rslora true"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_model_is_one_clear_error_and_never_random_weights(folders, small_plan, damage):
    which, name, do, message = DAMAGE[damage]
    do(folders[which] / name)
    with pytest.raises(UsageError) as caught:
        load_adapted(small_plan, *folders)
    assert re.search(message, caught.value.message), caught.value.message
    assert ("\n" not in caught.value.message and caught.value.hint is not None) or "not finite" in message


def test_a_whole_model_is_read_as_it_is(folders, small_plan):
    model = load_adapted(small_plan, *folders)
    stored = load_file(folders[1] / ADAPTER)
    assert torch.equal(model.state_dict()["base_model.model.lm_head.lora_A.default.weight"], stored[DOWN])
    assert torch.equal(model.get_base_model().model.norm.weight, load_file(folders[0] / BASE)["model.norm.weight"])


def test_a_folder_without_a_tokenizer(folders):
    with pytest.raises(UsageError, match=r"model\.base: .*: no usable tokenizer: "):
        load_tokenizer(folders[0])
