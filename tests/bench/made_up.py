"""A policy on a random model of any size, made in a moment: memory and speed do not ask what a model knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import yaml
from peft import LoraConfig, get_peft_model
from transformers import Qwen3Config, Qwen3ForCausalLM

from ablation.plan.model import Plan
from ablation.policy.base import TrainRow
from ablation.policy.local import LocalPolicy

QUICKSTART = Path(__file__).parents[2] / "plans" / "quickstart.yaml"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
RANK = 8


def made_up_policy(
    folder: Path, *, layers: int, hidden: int, vocabulary: int, context: int, dtype: str = "float32", heads: int = 4, **training
) -> LocalPolicy:
    """A Qwen3-shaped model with a LoRA adapter that has an effect, written into `folder` and loaded as a run loads one."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=hidden // heads,
        max_position_embeddings=context,
        tie_word_embeddings=False,
    )
    model = Qwen3ForCausalLM(config).to(getattr(torch, dtype))
    model.save_pretrained(folder / "base")
    adapted = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=RANK, target_modules=TARGETS))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.01)
    adapted.save_pretrained(str(folder / "adapter"), save_embedding_layers=False)
    del model, adapted
    tree = yaml.safe_load(QUICKSTART.read_text())
    tree["model"] |= {"dtype": dtype, "layers": layers, "hidden_size": hidden, "vocabulary": vocabulary}
    tree["model"]["lora"] = {"rank": RANK, "alpha": RANK, "targets": TARGETS}
    tree["training"] |= training
    return LocalPolicy(Plan.model_validate(tree), folder / "base", folder / "adapter", end_ids=(1,), pad_id=0)


def made_up_rows(rollouts: int, length: int, vocabulary: int, prompt: int = 32) -> list[TrainRow]:
    """Random rollouts of `length` tokens, prompt included, with nothing in common."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(rollouts):
        ids = random.integers(0, vocabulary, length)
        weights = random.normal(size=length - prompt)
        logprobs = np.full(length - prompt, -np.log(vocabulary), dtype=np.float32)
        rows.append(TrainRow(tuple(ids[:prompt].tolist()), ids[prompt:], logprobs, weights))
    return rows
