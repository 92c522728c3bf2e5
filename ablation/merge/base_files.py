"""The files of a base model: where each of its tensors lies, byte for byte, and which other files go along with a merge."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ablation.errors import UsageError
from ablation.files import MARKER, parse_json
from ablation.plan.model_files import BASE_CONFIG

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
LONGEST_HEADER = 10**8
"""Bytes, as in the safetensors format."""
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Types of weights that something can be added to."""
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".onnx_data", ".index.json")
LEFT_OUT = ("README.md", MARKER, "merge.json")
"""What is written anew, or speaks of the base alone."""


@dataclass(frozen=True)
class Tensor:
    """One tensor: `shape` numbers of `dtype` in the bytes `begin:end` of a shard."""

    name: str
    shard: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Shard:
    """A safetensors file: its header as it is on disk (length included), and its tensors in the order of their bytes."""

    name: str
    header: bytes
    tensors: tuple[Tensor, ...]
    size: int


@dataclass(frozen=True)
class BaseFiles:
    """A model folder with its weights in safetensors."""

    folder: Path
    config: dict[str, Any]
    shards: tuple[Shard, ...]
    index: dict[str, Any] | None
    others: tuple[str, ...]
    """Files that are no weights, by their path in the folder: config, tokenizer, chat template, generation_config, licence."""
    tied: bool
    """Whether the output layer is the input embedding's matrix."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {tensor.name: tensor for shard in self.shards for tensor in shard.tensors}

    @property
    def bytes(self) -> int:
        return sum(shard.size for shard in self.shards)


def configs(config: dict[str, Any]) -> list[dict[str, Any]]:
    """A model's config, and that of its language model where it has one of its own."""
    nested = config.get("text_config")
    return [config, nested] if isinstance(nested, dict) else [config]


def read_base(folder: Path) -> BaseFiles:
    """What is in the model folder, from headers alone: no weight is read.

    Raises `UsageError` for a folder without config or safetensors, a shard that is missing, cut or not in order, a weight that
    is in two shards, and a base that is quantised.
    """
    config = _json_object(folder / BASE_CONFIG)
    if any("quantization_config" in one for one in configs(config)):
        raise UsageError(
            f"{folder / BASE_CONFIG}: this base is quantised, and nothing can be added to its weights by one rounding",
            hint="Merge into the weights that it was quantised from.",
        )
    index = None
    if (folder / INDEX).is_file():
        index = _json_object(folder / INDEX)
        weights = index.get("weight_map")
        if not isinstance(weights, dict) or not weights or not all(isinstance(one, str) for one in weights.values()):
            raise UsageError(f"{folder / INDEX}: has no `weight_map` from names of weights to files")
        names = sorted(set(weights.values()))
    elif (folder / SINGLE).is_file():
        names = [SINGLE]
    else:
        raise UsageError(
            f"{folder}: has neither {INDEX} nor {SINGLE}", hint="A merge needs the base's weights as safetensors: convert them."
        )
    shards = tuple(read_shard(folder, name) for name in names)
    seen: dict[str, str] = {}
    for shard in shards:
        for tensor in shard.tensors:
            if seen.setdefault(tensor.name, shard.name) != shard.name:
                raise UsageError(f"{folder}: weight `{tensor.name}` is in {seen[tensor.name]} and in {shard.name}")
    if index is not None:
        wrong = sorted(name for name, shard in index["weight_map"].items() if seen.get(name) != shard)
        if wrong:
            raise UsageError(f"{folder / INDEX}: weight `{wrong[0]}` is not in {index['weight_map'][wrong[0]]}")
    return BaseFiles(folder, config, shards, index, _others(folder, {INDEX, *names}), _tied(folder))


def read_shard(folder: Path, name: str) -> Shard:
    """The header of one safetensors file, checked against the file's size."""
    path = folder / name
    if PurePosixPath(name).name != name or not name.endswith(".safetensors"):
        raise UsageError(f"{folder / INDEX}: `{name}` is not the name of a safetensors file in this folder")
    try:
        with path.open("rb") as handle:
            size = handle.seek(0, 2)
            handle.seek(0)
            (length,) = struct.unpack("<Q", handle.read(8).ljust(8, b"\xff"))
            if length > min(LONGEST_HEADER, size - 8):
                raise ValueError("it has no header, or is cut")
            text = handle.read(length)
        content = parse_json(text)
        tensors = tuple(sorted(_tensors(content, name, 8 + length), key=lambda one: (one.begin, one.end)))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: is not a whole safetensors file: {error}") from None
    place = 8 + length
    for tensor in tensors:
        if tensor.begin != place:
            raise UsageError(f"{path}: is not a whole safetensors file: `{tensor.name}` does not begin where the one before ends")
        place = tensor.end
    if place != size:
        raise UsageError(f"{path}: is not a whole safetensors file: {size} bytes, and its header speaks of {place}")
    return Shard(name, struct.pack("<Q", length) + text, tensors, size)


def _tensors(content: Any, shard: str, start: int) -> list[Tensor]:
    found = []
    for name, entry in content.items():
        if name == "__metadata__":
            continue
        (begin, end), shape, dtype = entry["data_offsets"], tuple(entry["shape"]), entry["dtype"]
        if not all(type(one) is int and one >= 0 for one in (*shape, begin, end)) or end < begin:
            raise ValueError(f"`{name}` has no place in the file")
        count = 1
        for one in shape:
            count *= one
        if dtype in BYTES and end - begin != count * BYTES[dtype]:
            raise ValueError(f"`{name}` has {end - begin} bytes, its shape needs {count * BYTES[dtype]}")
        found.append(Tensor(name, shard, dtype, shape, start + begin, start + end))
    return found


def _tied(folder: Path) -> bool:
    """What the model's own class says: a config may leave the field out, and some models are tied by default."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UsageError(f"{folder / BASE_CONFIG}: no usable config: {reason}") from error
    return any(bool(getattr(one, "tie_word_embeddings", False)) for one in (config, config.get_text_config()))


def _json_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: is not a JSON object")
    return content


def _others(folder: Path, known: set[str]) -> tuple[str, ...]:
    """Every further file that is no weight; hidden ones are a client's or git's own."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or path.is_dir() or name.as_posix() in known or name.as_posix() in LEFT_OUT or path.name.endswith(WEIGHTS):
            continue
        if not path.is_file():
            raise UsageError(f"{path}: is no file (a broken link, a pipe or a device)")
        found.append(name.as_posix())
    return tuple(found)
