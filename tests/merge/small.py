"""Small real models with adapters, made in a second."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, Qwen3Config

from tests.small_models import TARGETS, small

VOCABULARY = 48


def llama(*, tied: bool = False, dtype: torch.dtype = torch.float32, seed: int = 0, hidden: int = 32, spread: float = 0.3):
    fields = {"hidden_size": hidden, "intermediate_size": 2 * hidden, "tie_word_embeddings": tied, "initializer_range": spread}
    return small(LlamaConfig, seed=seed, dtype=dtype, vocab_size=VOCABULARY, **fields)


def qwen(*, dtype: torch.dtype = torch.float32):
    return small(Qwen3Config, seed=3, dtype=dtype, vocab_size=VOCABULARY, head_dim=8)


def save(model, folder: Path, *, shard: str | None = None) -> Path:
    """The base on disk, with the small files that a merge copies."""
    model.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    (folder / "generation_config.json").write_text('{"top_k": 7, "repetition_penalty": 1.1}\n')
    (folder / "chat_template.jinja").write_text("{{ messages }}\n")
    (folder / "LICENSE").write_text("the base's\n")
    return folder


def adapter(model, folder: Path, *, rank: int = 4, alpha: int = 4, sigma: float = 0.1, targets=TARGETS, seed: int = 1) -> Path:
    """A peft adapter whose halves are both normal with `sigma`."""
    adapted = get_peft_model(model, LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets)))
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.data = torch.randn(weight.shape) * sigma  # float32, whatever the base is
    adapted.save_pretrained(str(folder), save_embedding_layers=False)
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Every weight in a model folder, through the index where there is one."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


def rewrite(path: Path, change) -> None:
    """Change the tensors in one safetensors file."""
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def edit_json(path: Path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
