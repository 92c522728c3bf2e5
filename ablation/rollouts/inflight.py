"""Finished rollouts whose batch is not: one log for each such batch, a line a rollout, until the batch's part is written.

The first line holds the stage's settings, every other one a rollout; each ends with the digest of what is before it. A kill
leaves at most one line without its end, the last one of a log: it is cut off, and that rollout is sampled again. Anything else
that is not as it was written is an error. The digest guards against accidents and slips of an editor, not against forgery.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ablation.errors import IntegrityError
from ablation.files import disk_errors, parse_json, sha256_bytes, sync_folder
from ablation.rollouts.folder import inflight_folder, stage_file
from ablation.rollouts.schema import Rollout, StageInfo
from ablation.rollouts.store import (
    info_of_record,
    info_record,
    part_info,
    part_rollouts,
    stage_info,
    stage_is_complete,
    stage_parts,
)

_DTYPES = {"token_ids": "<i4", "logprobs": "<f8", "top_entropy": "<f8", "top_mass": "<f8"}
"""Of base64, so that a float is bit for bit what was sampled, and a line of many tokens costs little."""
_DIGEST = b',"sha256":"'
_REMEDY = "Remove this file: what it holds is sampled again."


def append_rollouts(path: Path, info: StageInfo, rollouts: Sequence[Rollout]) -> None:
    """Add finished rollouts to the log at `path`, synced to the disk once for all of them. Raises `DiskError`."""
    with disk_errors(path):
        new = not path.exists()
        lines = [] if not new else [_line({"info": info_record(info)})]
        lines += [_line(_packed(rollout)) for rollout in rollouts]
        if new:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as log:
            _write_all(log, b"".join(lines))
            os.fsync(log.fileno())
        if new:
            sync_folder(path.parent)


def _write_all(log: Any, data: bytes) -> None:
    """A disk that fills up takes a part of what it is given before it refuses the rest."""
    rest = memoryview(data)
    while len(rest):
        rest = rest[log.write(rest) :]


def take_up(path: Path) -> tuple[StageInfo, list[Rollout]] | None:
    """Settings and rollouts of the log at `path`, after what a kill left of a last line is cut off.

    None, and no file any more, if nothing in it is whole.

    Raises `IntegrityError` if a line is not what was written.
    """
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if not whole:
        with disk_errors(path):
            path.unlink()
        return None
    if whole < len(data):
        with disk_errors(path), path.open("rb+") as log:
            log.truncate(whole)
            os.fsync(log.fileno())
    return read_log(path)


def read_log(path: Path) -> tuple[StageInfo, list[Rollout]]:
    """Settings and rollouts of a log whose last line is whole. Raises `IntegrityError` if one is not what was written."""
    lines = path.read_bytes().splitlines()
    try:
        records = [_record(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
        info = info_of_record(records[0]["info"], str(path))
        return info, [_unpacked(record) for record in records[1:]]
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        hint = f"It is no log of finished rollouts. {_REMEDY}"
        raise IntegrityError(f"{path}: cannot be read ({type(error).__name__}: {error})", hint=hint) from None


def rollouts_on_disk(folder: Path) -> int:
    """How many rollouts of the stage in `folder` are there, in parts or in flight. A runner may be at work on it."""
    if stage_is_complete(folder):
        return int(parse_json(stage_file(folder).read_bytes())["rollouts"])
    parts = {path.stem: path for path in stage_parts(folder)}
    count = sum(part_rollouts(path) for path in parts.values())
    for path in inflight_folder(folder).glob("part-*.jsonl"):
        if path.stem in parts:
            continue
        try:
            count += max(path.read_bytes().count(b"\n") - 1, 0)  # without the first line, and one that has no end
        except FileNotFoundError:  # it has become a part
            continue
    return count


def begun_info(folder: Path) -> StageInfo | None:
    """Settings of the stage in `folder`, as soon as one of its rollouts is on disk; None before. A runner may be at work on it.

    Raises `IntegrityError` if what is there cannot be read.
    """
    if stage_is_complete(folder):
        return stage_info(folder)
    for path in sorted(inflight_folder(folder).glob("part-*.jsonl")):
        try:
            line, end, _ = path.read_bytes().partition(b"\n")
        except FileNotFoundError:  # it has become a part
            continue
        if end:
            where = f"{path}:1"
            return info_of_record(_record(line, where).get("info") or {}, where)
    return next((part_info(path) for path in stage_parts(folder)), None)


def remove_log(path: Path) -> None:
    """The batch's part is on disk."""
    with disk_errors(path):
        path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """No batch of the stage in `folder` is in flight any more. Raises `IntegrityError` if something is in its place."""
    inflight = inflight_folder(folder)
    if not inflight.is_dir():
        return
    refuse_strays(inflight.iterdir(), ())
    with disk_errors(inflight):
        inflight.rmdir()
        sync_folder(folder)


def refuse_strays(found: Iterable[Path], known: Sequence[Path]) -> None:
    """Raise `IntegrityError` for a file in flight that is none of `known`."""
    stray = next(iter(sorted(set(found) - set(known))), None)
    if stray is not None:
        raise IntegrityError(f"{stray}: belongs to no batch of this stage", hint="Move it away and run the same command again.")


def _line(record: dict[str, Any]) -> bytes:
    body = json.dumps(record, separators=(",", ":")).encode()
    return body[:-1] + _DIGEST + sha256_bytes(body).encode() + b'"}\n'


def _record(line: bytes, where: str) -> dict[str, Any]:
    body, mark, digest = line.rpartition(_DIGEST)
    if not mark or digest != sha256_bytes(body + b"}").encode() + b'"}':
        raise IntegrityError(f"{where}: this line is not what was written (its SHA-256 says so)", hint=_REMEDY)
    return parse_json(body + b"}")


def _packed(rollout: Rollout) -> dict[str, Any]:
    arrays = {name: np.asarray(getattr(rollout, name), dtype=dtype) for name, dtype in _DTYPES.items()}
    return vars(rollout) | {name: base64.b64encode(array.tobytes()).decode() for name, array in arrays.items()}


def _unpacked(record: dict[str, Any]) -> Rollout:
    arrays = {name: np.frombuffer(base64.b64decode(record[name]), dtype=dtype).tolist() for name, dtype in _DTYPES.items()}
    return Rollout(**record | arrays)
