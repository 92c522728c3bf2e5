"""Small real models of random weights: real transformers and peft code, made in a second."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, PreTrainedModel

VOCABULARY, END, PAD = 40, 1, 0
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": END,
    "pad_token_id": PAD,
    "initializer_range": 0.3,  # logits far from uniform, so that a wrong position or mask shows
}


def small(config: type[PretrainedConfig], *, seed: int = 0, dtype: torch.dtype = torch.float32, **fields: Any) -> PreTrainedModel:
    """A model of `config`'s kind, of SHAPE but for `fields`; its weights are drawn in float32 whatever `dtype` is."""
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config(**(SHAPE | fields))).eval().to(dtype)


def small_llama() -> PreTrainedModel:
    return small(LlamaConfig)
