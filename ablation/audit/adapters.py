"""Which adapter was sampled from: the chain from checkpoint to stage, with digests computed from the files alone.

`adapter_sha256` is the SHA-256 over name, a zero byte and the float32 bytes of every weight, in the order of the names that the
weights have in a peft model, where each has `.default` before its last part. A safetensors file begins with the length of its
JSON header (8 bytes, little-endian), which has the place of each tensor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablation.audit.findings import Findings
from ablation.audit.locked import file_sha256

FILE = "adapter_model.safetensors"
OTHER_ADAPTERS = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save", "lora_bias", "layer_replication")
OTHER_ADAPTERS = (*OTHER_ADAPTERS, "layers_to_transform", "exclude_modules", "fan_in_fan_out", "target_parameters")
"""Fields of peft's configuration that make the same weights another model."""


def adapter_digest(path: Path) -> str:
    """The digest that a stage sampled with these weights carries. Raises `ValueError` for weights that are not float32."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    names = {_in_a_model(name): entry for name, entry in header.items() if name != "__metadata__"}
    digest = hashlib.sha256()
    for name in sorted(names):
        entry = names[name]
        if entry["dtype"] != "F32":
            raise ValueError(f"tensor {name} is {entry['dtype']}")
        begin, end = entry["data_offsets"]
        digest.update(name.encode() + b"\0" + data[8 + length + begin : 8 + length + end])
    return digest.hexdigest()


def _in_a_model(name: str) -> str:
    stem, dot, last = name.rpartition(".")
    return f"{stem}.default{dot}{last}" if last == "weight" else f"{name}.default"


def check_files(folder: Path, found: Findings) -> None:
    """Every file of a checkpoint against the size and digest in its marker."""
    marker = folder / "complete.json"
    listed: dict[str, Any] = json.loads(marker.read_bytes())["files"]
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and path != marker}
    for name in sorted(there ^ listed.keys()):
        found.differ(
            folder / name,
            "is in the checkpoint and not in its complete.json" if name in there else "is in complete.json and not there",
        )
    for name in sorted(there & listed.keys()):
        path = folder / name
        if path.stat().st_size != listed[name]["bytes"] or file_sha256(path) != listed[name]["sha256"]:
            found.differ(path, "was changed after the checkpoint was saved")
        found.count("files of checkpoints")


def check_config(folder: Path, lora: Mapping[str, Any], found: Findings) -> None:
    """The adapter is a plain LoRA of the plan's rank, alpha and targets."""
    path = folder / "adapter_config.json"
    if not path.is_file():
        return
    told = json.loads(path.read_bytes())
    found.same(path, "r", told.get("r"), lora["rank"], source="the plan says")
    found.same(path, "lora_alpha", told.get("lora_alpha"), lora["alpha"], source="the plan says")
    found.same(path, "target_modules", sorted(told.get("target_modules") or ()), sorted(lora["targets"]), source="the plan says")
    found.same(path, "bias", told.get("bias", "none"), "none", source="a plain LoRA has")
    for name in OTHER_ADAPTERS:
        if told.get(name):
            found.differ(path, f"{name} is {told[name]!r}, which a plain LoRA does not have")
    found.count("configurations of adapters")


def check_adapter(folder: Path, sampled: dict[str, str], found: Findings) -> None:
    """`sampled`: stage -> `adapter_sha256` of those that must have been sampled with this checkpoint."""
    if not (folder / FILE).is_file():
        return
    own = adapter_digest(folder / FILE)
    for name, digest in sampled.items():
        if digest != own:
            found.differ(name, f"was sampled with another adapter than the one in {folder}")
        found.count("stages against the adapter that they were sampled with")
