"""A model folder like the recipe's, small enough for a test: 17 special tokens, the bytes, one merge; two layers."""

from __future__ import annotations

import json
from pathlib import Path

from ablation.recipes import smollm2_base as recipe


def write_tokenizer(folder: Path) -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    special = [f"<special-{index}>" for index in range(recipe.SPECIAL_TOKENS)]
    special[:3] = [recipe.PAD, recipe.START_OF_TURN, recipe.END]
    special[8], special[10] = recipe.RENAMED
    made = recipe.tokenizer([*special, *sorted(ByteLevel.alphabet()), "17", "lo"], ["1 7", "l o"])
    recipe.write_text(folder / "tokenizer.json", json.dumps(made))
    recipe.write_text(folder / "tokenizer_config.json", json.dumps(recipe.TOKENIZER_CONFIG))
    recipe.write_text(folder / "chat_template.jinja", recipe.CHAT_TEMPLATE.removesuffix("\n"))


def write_model(folder: Path) -> None:
    """Two layers of width 32 with seeded weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 1, "head_dim": 16, "vocab_size": 280}
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**{**recipe.CONFIG, **sizes})).to(torch.bfloat16).save_pretrained(folder)
    write_tokenizer(folder)
