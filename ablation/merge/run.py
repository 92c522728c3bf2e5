"""A merge from beginning to end: proved inputs, merged weights under a temporary name, checks, and then the name."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.errors import GateError, UsageError
from ablation.files import MARKER, TEMPORARY_PREFIX, DiskError, folder_is_complete, parse_json, write_folder, write_json
from ablation.merge.base_files import BaseFiles, read_base
from ablation.merge.model import Loaded
from ablation.merge.numbers import REASONS, Numbers, flat
from ablation.merge.pairs import Adapter, read_adapter
from ablation.merge.source import Source
from ablation.merge.texts import Texts, choose_texts
from ablation.merge.write import write_merged
from ablation.plan.model import START
from ablation.policy.loading import load_tokenizer

RECORD, CARD = "merge.json", "README.md"
VERSION = 1
SPARE = 64 * 2**20
"""Bytes that have to be free beside the weights: tokenizer, index, record, card."""

Say = Callable[[str], None]
Card = Callable[[dict[str, Any]], str]
"""The text of the model card, from the record."""


@dataclass(frozen=True)
class Asked:
    """What a merge is told."""

    to: Path
    texts: int = 24
    seed: int = 20261101
    longest: int = 4096


class MergeRefused(GateError):
    """The merged model is not what the adapter is; no folder of it was left."""

    def __init__(self, code: str, message: str, record: dict[str, Any]) -> None:
        super().__init__(f"{code}: {message}", hint="No folder was written. The numbers say how far apart the models are.")
        self.code, self.record = code, record


def merge(source: Source, asked: Asked, say: Say, card: Card) -> dict[str, Any]:
    """Merge, check and write the folder `asked.to`. Returns the record that is in it, `written` false if it was there already.

    Raises:
        UsageError: the folder is another one, too little of the disk is free, or base and adapter do not fit.
        MergeRefused: a check failed.
        DiskError: the disk refused; no folder was left under the name.
    """
    base = read_base(source.base)
    adapter = read_adapter(source.adapter, base)
    there = _already_there(source, asked)
    if there is not None:
        return there | {"written": False}
    _need_space(base, asked.to)
    for left in remove_unfinished(asked.to.parent):
        say(f"removed {left}: a merge that was killed had left it")
    say(f"{source.name} of {source.family}: {len(adapter.pairs)} LoRA pairs, base {base.bytes / 1e9:.2f} GB")
    texts = choose_texts(source, load_tokenizer(source.base), asked.texts, asked.seed, asked.longest)
    say(f"scoring {len(texts.rows)} texts ({texts.tokens} tokens) of {texts.origin} with base and adapter")
    scored = _score_unmerged(source, texts)
    record: dict[str, Any] = {}

    def fill(folder: Path) -> None:
        with _held(folder):
            record.update(_filled(folder, source, base, adapter, texts, scored, say))
            (folder / CARD).write_text(card(record))
            write_json(folder / RECORD, record)

    write_folder(asked.to, fill)
    return record | {"written": True}


def _filled(
    folder: Path,
    source: Source,
    base: BaseFiles,
    adapter: Adapter,
    texts: Texts,
    scored: dict[str, Any],
    say: Say,
) -> dict[str, Any]:
    """Write the weights into `folder`, load them anew, and check them."""
    write_json(folder / RECORD, {"merge": VERSION, "state": "unfinished"})
    say(f"merging into {folder}")
    written = write_merged(base, adapter, folder)
    record = {
        "merge": VERSION,
        "state": "finished",
        **source.record(),
        "dtype": source.locked.plan.model.dtype,
        "stored_dtype": sorted({tensor.dtype for tensor in base.tensors.values()}),
        "lora": {"pairs": len(adapter.pairs), "used": len(written.used), "scale": adapter.scale, "kinds": adapter.kinds},
        "weights": written.as_json(),
        "bytes": sum(path.stat().st_size for path in folder.glob("*.safetensors")),
        "texts": texts.record(),
    }
    say("loading the merged folder and scoring the same texts")
    merged = Loaded(folder, source.locked.plan.model.dtype)
    try:
        if written.untied and merged.tied:
            raise MergeRefused("merge_still_tied", "the merged model ties its output layer to the input embedding", record)
        numbers = Numbers(merged=flat(merged.score(texts.rows)), **scored)
    finally:
        merged.close()
    record["check"] = numbers.record()
    if not record["check"]["passed"]:
        code = record["check"]["reason"]
        raise MergeRefused(code, REASONS[code], record)
    return record


def _score_unmerged(source: Source, texts: Texts) -> dict[str, Any]:
    """Logprobs under base, base plus adapter, and base plus starting adapter, all by peft on one base."""
    loaded = Loaded(source.base, source.locked.plan.model.dtype, source.adapter)
    try:
        found: dict[str, Any] = {"adapter": flat(loaded.score(texts.rows))}
        with loaded.without_adapter():
            found["base"] = flat(loaded.score(texts.rows))
        if source.arm != START:
            with loaded.with_other(source.start_adapter):
                found["start"] = flat(loaded.score(texts.rows))
    finally:
        loaded.close()
    if texts.told is not None:
        found["sampler"] = flat(texts.told)
    return found


def _already_there(source: Source, asked: Asked) -> dict[str, Any] | None:
    """The record of the same merge, if it is in the folder; anything else there is an error."""
    path = asked.to
    if not os.path.lexists(path):
        return None
    wrong = UsageError(f"{path}: is there already, and is not this merge", hint="Name another folder with --to, or remove it.")
    try:
        record = parse_json((path / RECORD).read_bytes())
        same = {name: record[name] for name in ("plan", "family", "arm", "updates", "base", "adapter")}
    except (OSError, ValueError, KeyError, TypeError):
        raise wrong from None
    own = source.record()
    if any(same[name] != own[name] for name in same):
        raise wrong
    if not folder_is_complete(path):
        raise UsageError(
            f"{path}: is this merge, and a file of it was changed or is missing ({MARKER} has the digests)",
            hint="Remove it to have it written again, or name another folder with --to.",
        )
    return record


def _need_space(base: BaseFiles, to: Path) -> None:
    """Raise `DiskError` if the weights cannot fit; how much an untied output layer adds is in the largest tensor."""
    parent = to.absolute().parent
    while not parent.is_dir():
        parent = parent.parent
    needed = base.bytes + SPARE
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise DiskError(
            f"{to}: the merged model needs {needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free",
            hint="Nothing was written: free some space, or name a folder on another disk with --to.",
        )


class _held:
    """The folder as this process's own: a lock of the kernel, which ends with the process, however that ends."""

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder, os.O_RDONLY)

    def __enter__(self) -> None:
        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            os.close(self._handle)
        # else held until the process ends: the folder is hashed, and renamed, after this


def remove_unfinished(parent: Path) -> list[Path]:
    """Remove what killed merges left in `parent`; those of a process that lives are let alone."""
    removed = []
    for folder in sorted(parent.glob(f"{TEMPORARY_PREFIX}*")):
        if not (folder / RECORD).is_file():
            continue
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        finally:
            os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(folder)
    return removed
