"""An adapter as a table of float32 arrays: from a download or a folder, compared, digested and written, without torch."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ablation.errors import IntegrityError, UsageError
from ablation.files import parse_json, write_json, write_with
from ablation.plan.model import Plan
from ablation.plan.model_files import ADAPTER_CONFIG, ADAPTER_FILE

Weights = dict[str, np.ndarray]
"""Name as peft's file has it -> float32 array."""
LARGEST_DOWNLOAD = 2**34
"""Bytes of an unpacked file; none of an adapter is that large."""


def digest(weights: Mapping[str, np.ndarray]) -> str:
    """`adapter_sha256` of these weights: SHA-256 over name, a zero byte and the float32 bytes of each, in the order of the names
    that they have in a peft model."""
    found = hashlib.sha256()
    for name, array in sorted((name_in_model(name), array) for name, array in weights.items()):
        found.update(name.encode() + b"\0")
        found.update(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return found.hexdigest()


def name_in_model(name: str) -> str:
    """`...lora_A.weight` is `...lora_A.default.weight` in a model."""
    stem, dot, last = name.rpartition(".")
    return f"{stem}.default{dot}{last}" if last == "weight" else f"{name}.default"


def from_bytes(what: str, data: bytes) -> Weights:
    """The weights in a safetensors file. Raises `IntegrityError` unless all are floats that float32 holds without rounding."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        stored = load(data)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise IntegrityError(f"{what}: no usable adapter: {error}") from error
    for name, array in stored.items():
        if array.dtype not in (np.float32, np.float16) and array.dtype.name != "bfloat16":
            raise IntegrityError(f"{what}: weight `{name}` has the type {array.dtype}, which is no float that can be used")
    return {name: array.astype(np.float32) for name, array in sorted(stored.items())}


def from_folder(folder: Path) -> Weights:
    """The weights of an adapter in peft's format."""
    path = folder / ADAPTER_FILE
    try:
        data = path.read_bytes()
    except OSError as error:
        raise IntegrityError(f"{path}: no usable adapter: {error}") from error
    return from_bytes(str(path), data)


def from_archive(what: str, archive: bytes) -> tuple[Weights, dict[str, Any]]:
    """(weights, adapter config) in a downloaded tar file. Nothing of it is unpacked onto the disk."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                name = Path(member.name).name
                if member.isfile() and name in (ADAPTER_FILE, ADAPTER_CONFIG) and member.size <= LARGEST_DOWNLOAD:
                    stream = tar.extractfile(member)
                    assert stream is not None, member.name
                    found[name] = stream.read()
        config = parse_json(found[ADAPTER_CONFIG])
        data = found[ADAPTER_FILE]
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise IntegrityError(f"{what}: the download is no adapter: {error}") from error
    except KeyError as error:
        raise IntegrityError(f"{what}: the download has no {error.args[0]}") from error
    if not isinstance(config, dict):
        raise IntegrityError(f"{what}: the download's {ADAPTER_CONFIG} is no object")
    return from_bytes(what, data), config


def target_of(name: str) -> str:
    """The kind of module that a weight belongs to: `q_proj` of `...q_proj.lora_A.weight`."""
    parts = name.split(".")
    places = [place for place, part in enumerate(parts) if part in ("lora_A", "lora_B")]
    return parts[places[0] - 1] if places else name


def targets_of(weights: Mapping[str, np.ndarray]) -> set[str]:
    return {target_of(name) for name in weights}


def need_same(what: str, found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], whose: str) -> None:
    """Raise `UsageError` with the first difference, unless both are the same weights to the last bit."""
    extra, missing = targets_of(found) - targets_of(wanted), targets_of(wanted) - targets_of(found)
    if extra or missing:
        words = [f"has no {', '.join(sorted(missing))}"] if missing else []
        words += [f"trains {', '.join(sorted(extra))} as well"] if extra else []
        raise UsageError(
            f"{what}: the service's adapter {' and '.join(words)}; the plan's `model.lora.targets` are those of {whose}",
            hint="The service decides which modules it trains: plan those, or use another backend.",
        )
    for names, words in ((wanted.keys() - found.keys(), "is missing"), (found.keys() - wanted.keys(), f"is not in {whose}")):
        if names:
            raise UsageError(f"{what}: weight `{min(names)}` {words}")
    for name, own in wanted.items():
        other = found[name]
        if other.shape != own.shape:
            raise UsageError(f"{what}: weight `{name}` has the shape {other.shape}; in {whose} it is {own.shape}")
        if not np.array_equal(other, own):
            apart = float(np.abs(other.astype(np.float64) - own).max())
            raise UsageError(
                f"{what}: is not {whose}: weight `{name}` differs by up to {apart:.3g}",
                hint="The state must hold exactly the plan's start adapter, in float32.",
            )


def largest_change(after: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]) -> float:
    return max(float(np.abs(array.astype(np.float64) - before[name]).max()) for name, array in after.items())


def change(after: Mapping[str, np.ndarray], before: Mapping[str, np.ndarray]) -> np.ndarray:
    """after - before of all weights in the order of their names, as one float64 vector."""
    return np.concatenate([(after[name].astype(np.float64) - before[name]).ravel() for name in sorted(after)])


def all_finite(weights: Mapping[str, np.ndarray]) -> bool:
    return all(bool(np.isfinite(array).all()) for array in weights.values())


def write_adapter(folder: Path, weights: Weights, plan: Plan) -> None:
    """In peft's format, with the config of the plan's adapter: usable without this program and without the service."""
    from safetensors.numpy import save

    data = save(weights, metadata={"format": "pt"})
    write_with(folder / ADAPTER_FILE, lambda path: path.write_bytes(data))
    lora = plan.model.lora
    config = {
        "base_model_name_or_path": plan.model.base.at,
        "bias": "none",
        "inference_mode": True,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": lora.rank,
        "target_modules": sorted(lora.targets),
        "task_type": "CAUSAL_LM",
    }
    write_json(folder / ADAPTER_CONFIG, config)


def archive_of(weights: Weights, config: Mapping[str, Any]) -> bytes:
    """A tar.gz of an adapter, as a server of the protocol keeps it."""
    from safetensors.numpy import save

    files = {ADAPTER_FILE: save(weights), ADAPTER_CONFIG: json.dumps(dict(config)).encode()}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()
