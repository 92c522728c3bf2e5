"""A merged folder as 8-bit integers in the compressed-tensors format: one scale for each row of a matrix, activations by token."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.merge.small import weights

CONFIG = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True},
        }
    },
}


def to_int8(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.safetensors", "complete.json"))
    made = {}
    for name, tensor in weights(folder).items():
        if "_proj." not in name:
            made[name] = tensor.bfloat16()
            continue
        scale = tensor.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / 127
        made[name] = (tensor.float() / scale).round().clamp(-127, 127).to(torch.int8)
        made[f"{name}_scale"] = scale.bfloat16()
    save_file(made, to / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16", "quantization_config": CONFIG}))
    return to
