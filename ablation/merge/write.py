"""The merged weights on disk: the base's own files with some byte ranges computed anew.

Header, order, sharding and index stay as they are, so every tensor that no pair belongs to is copied byte for byte. A weight with
a pair is made in blocks of rows: its block in float32, plus scale * B A, rounded once to the weight's own type. Never more
than one block is in memory, however large a tensor or a shard is.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch

from ablation.errors import UsageError
from ablation.files import json_bytes, write_bytes
from ablation.merge.base_files import BYTES, INDEX, SINGLE, BaseFiles, Tensor, configs
from ablation.merge.pairs import Adapter, Pair
from ablation.plan.model_files import BASE_CONFIG

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
BLOCK = 1 << 22
"""Numbers of a weight that are merged together: 16 MB in float32."""
COPIED = 1 << 24
"""Bytes that are copied together."""
UNTIED_SHARD = "model-lm_head.safetensors"
_INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16}

Progress = Callable[[str], None]
"""Called with the name of each tensor that a pair was merged into."""


@dataclass
class Counted:
    """What rounding did to the weights of one kind of module."""

    pairs: int = 0
    weights: int = 0
    unchanged: int = 0
    """Weights whose merged number is, bit for bit, the base's."""
    squared_delta: float = 0.0
    squared_error: float = 0.0
    """Sum of squares of what one rounding left out of W + delta."""

    def as_json(self) -> dict[str, Any]:
        lost = (self.squared_error / self.squared_delta) ** 0.5 if self.squared_delta else None
        share = self.unchanged / self.weights if self.weights else None
        return {"pairs": self.pairs, "weights": self.weights, "unchanged_share": share, "rounding_over_delta": lost}


@dataclass
class Written:
    """What was merged."""

    kinds: dict[str, Counted] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    """Target of each pair, in the order of merging."""
    untied: bool = False

    def as_json(self) -> dict[str, Any]:
        whole = Counted()
        for one in self.kinds.values():
            whole.pairs, whole.weights = whole.pairs + one.pairs, whole.weights + one.weights
            whole.unchanged += one.unchanged
            whole.squared_delta += one.squared_delta
            whole.squared_error += one.squared_error
        kinds = {name: one.as_json() for name, one in sorted(self.kinds.items())}
        return {"untied": self.untied, "all": whole.as_json(), "kinds": kinds}


def write_merged(base: BaseFiles, adapter: Adapter, folder: Path, progress: Progress | None = None) -> Written:
    """Fill the empty `folder` with the merged model. Every pair is used exactly once, or this is a bug of ours.

    Raises `OSError` if the disk refuses, `UsageError` for a sum that is not finite.
    """
    written = Written(untied=adapter.untied is not None)
    tensors = base.tensors
    names = _shard_names(base, adapter)
    for shard in base.shards:
        with (base.folder / shard.name).open("rb") as source, (folder / names[shard.name]).open("wb") as target:
            target.write(shard.header)
            for tensor in shard.tensors:
                pair = adapter.pairs.get(tensor.name)
                if pair is None:
                    _copy(source, target, tensor)
                elif adapter.untied is not None and pair.kind == "lm_head" and tensors[adapter.untied].shard != shard.name:
                    with (base.folder / tensors[adapter.untied].shard).open("rb") as other:
                        _merge(other, target, tensors[adapter.untied], pair, adapter.scale, written)
                else:
                    own = tensor if adapter.untied is None or pair.kind != "lm_head" else tensors[adapter.untied]
                    _merge(source, target, own, pair, adapter.scale, written)
                if pair is not None and progress is not None:
                    progress(tensor.name)
    new = [pair for name, pair in adapter.pairs.items() if name not in tensors]
    for pair in new:
        assert adapter.untied is not None, pair.target
        _write_untied(base, adapter, pair, folder / names[UNTIED_SHARD], written)
    assert sorted(written.used) == sorted(adapter.pairs), "a pair was left over, or used twice"
    _write_index(base, adapter, names, folder, bool(new))
    for name in base.others:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(base.folder / name, folder / name)
    if adapter.untied is not None:
        (folder / BASE_CONFIG).write_bytes(_untied_config(base.config))
    return written


def _shard_names(base: BaseFiles, adapter: Adapter) -> dict[str, str]:
    """Shard of the base -> name of the merged one. `model.safetensors` would be read alone, without an index beside it."""
    names = {shard.name: shard.name for shard in base.shards} | {UNTIED_SHARD: UNTIED_SHARD}
    if base.index is None and any(name not in base.tensors for name in adapter.pairs):
        names = {SINGLE: "model-00001-of-00002.safetensors", UNTIED_SHARD: "model-00002-of-00002.safetensors"}
    return names


def _copy(source: BinaryIO, target: BinaryIO, tensor: Tensor) -> None:
    source.seek(tensor.begin)
    left = tensor.end - tensor.begin
    while left:
        data = source.read(min(left, COPIED))
        if not data:
            raise UsageError(f"{source.name}: ends before `{tensor.name}` does: it was changed while it was read")
        target.write(data)
        left -= len(data)


def _merge(source: BinaryIO, target: BinaryIO, tensor: Tensor, pair: Pair, scale: float, written: Written) -> None:
    """Write W + scale * B A in the type of `tensor`, which is W in `source`."""
    rows, columns = tensor.shape
    size, dtype = BYTES[tensor.dtype], TYPES[tensor.dtype]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    counted = written.kinds.setdefault(pair.kind, Counted())
    down, up = pair.down.to(wide), pair.up.to(wide)
    source.seek(tensor.begin)
    step = max(1, BLOCK // columns)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        data = bytearray(count * columns * size)
        if source.readinto(data) != len(data):
            raise UsageError(f"{source.name}: ends before `{tensor.name}` does: it was changed while it was read")
        old_OI = torch.frombuffer(data, dtype=dtype).view(count, columns)
        delta_OI = (up[first : first + count] @ down) * scale
        exact_OI = old_OI.to(wide) + delta_OI
        new_OI = exact_OI.to(dtype)
        if not torch.isfinite(new_OI).all():
            raise UsageError(f"{pair.module}: the merged weight is not finite in {tensor.dtype}")
        integers = _INTEGERS[size]
        counted.weights += new_OI.numel()
        counted.unchanged += int((new_OI.view(integers) == old_OI.view(integers)).sum())
        counted.squared_delta += float(delta_OI.double().square().sum())
        counted.squared_error += float((new_OI.to(wide) - exact_OI).double().square().sum())
        target.write(new_OI.contiguous().view(torch.uint8).numpy().data)
    counted.pairs += 1
    written.used.append(pair.target)


def _write_untied(base: BaseFiles, adapter: Adapter, pair: Pair, path: Path, written: Written) -> None:
    """A shard with the output layer alone, which had the embedding's matrix until now."""
    tensor = base.tensors[str(adapter.untied)]
    entry = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [0, tensor.end - tensor.begin]}
    text = json.dumps({"__metadata__": {"format": "pt"}, pair.target: entry}).encode()
    text += b" " * (-len(text) % 8)
    with (base.folder / tensor.shard).open("rb") as source, path.open("wb") as target:
        target.write(struct.pack("<Q", len(text)) + text)
        _merge(source, target, tensor, pair, adapter.scale, written)


def _write_index(base: BaseFiles, adapter: Adapter, names: dict[str, str], folder: Path, new: bool) -> None:
    """The base's index as it is, or one with the output layer that the base does not have."""
    if not new:
        if base.index is not None:
            shutil.copyfile(base.folder / INDEX, folder / INDEX)
        return
    tensors = base.tensors
    weights = {tensor.name: names[tensor.shard] for tensor in tensors.values()}
    added = {name: names[UNTIED_SHARD] for name in adapter.pairs if name not in tensors}
    more = sum(tensors[str(adapter.untied)].end - tensors[str(adapter.untied)].begin for _ in added)
    index = dict(base.index or {})
    size = sum(tensor.end - tensor.begin for tensor in tensors.values())
    metadata = index.get("metadata")
    index["metadata"] = (metadata if isinstance(metadata, dict) else {}) | {"total_size": size + more}
    index["weight_map"] = dict(sorted((weights | added).items()))
    write_bytes(folder / INDEX, json_bytes(index))


def _untied_config(config: dict[str, Any]) -> bytes:
    """The base's config with `tie_word_embeddings` false, wherever it can stand."""
    changed = json.loads(json.dumps(config))
    for one in configs(changed):
        one["tie_word_embeddings"] = False
    return (json.dumps(changed, indent=2, ensure_ascii=False) + "\n").encode()
