"""A merged Qwen3 folder as one GGUF file with 8-bit weights, by the `gguf` package alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants

from tests.merge.small import weights

NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def to_gguf(folder: Path, path: Path, change=lambda name, array: array) -> Path:
    """`change` is given each matrix before it is quantised."""
    config = json.loads((folder / "config.json").read_text())
    writer = GGUFWriter(path, "qwen3")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    for name, tensor in weights(folder).items():
        array = change(name, tensor.float().numpy())
        target = _target(name)
        if array.ndim == 2 and array.shape[1] % 32 == 0:
            data = quants.quantize(np.ascontiguousarray(array), GGMLQuantizationType.Q8_0)
            writer.add_tensor(target, data, raw_dtype=GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(target, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _target(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in TOP:
        return f"{TOP[stem]}.weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.weight"
