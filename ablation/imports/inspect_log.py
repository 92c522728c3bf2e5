"""Rollouts of an Inspect log (`.eval`): a zip with `header.json` and one JSON file a sample and epoch.

A sample's id is its problem, its epoch less one the index, its metadata's `effort` or the run's `reasoning_effort` the effort.
Reasoning and text of the assistant's message are thinking and answer; reasoning that the log does not show is unknown thinking.
Sampling settings of the run become columns, so that they are compared with the plan's. Newer versions compress with zstd, which
this Python's zipfile cannot read; Arrow can.
"""

from __future__ import annotations

import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.imports.columns import SETTINGS

MOST_BYTES = 256 << 20
"""Of one entry of a log; what unpacks to more is no sample."""
_ZSTD = 93
_ATTACHMENT = "attachment://"
_USED = ("id", "epoch", "input", "messages", "output", "error", "attachments")
# What zipfile, the decompressors and json raise of a file that is cut, changed, encrypted, or of another kind.
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError)
_BROKEN += (KeyError, IndexError, ValueError, TypeError, AttributeError, OverflowError, struct.error)


def inspect_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """(`FILE:SAMPLE`, columns) of each sample. Raises `UsageError` for what is no log, or a sample that failed."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as log:
            header = _read(log, log.getinfo("header.json"))
            settings = _settings(header)
            samples = [entry for entry in log.infolist() if entry.filename.startswith("samples/")]
            for entry in samples:
                where = f"{path}:{entry.filename.removeprefix('samples/')}"
                content = _read(log, entry)
                try:
                    row = _sample(content, where)
                except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
                    raise UsageError(f"{where}: is not a sample of an Inspect log ({type(error).__name__}: {error})") from error
                if row.get("effort", settings.get("effort")) != settings.get("effort", row.get("effort")):
                    said = f"effort: is {row['effort']} in its metadata, but the run's reasoning_effort is {settings['effort']}"
                    raise UsageError(f"{where}: {said}", hint="Which one was it sampled with?")
                yield where, settings | row
    except OSError as error:
        raise UsageError(f"{path}: could not be read: {error.strerror or error}", hint="Check the path.") from error
    except _BROKEN as error:
        raise UsageError(
            f"{path}: is not a finished Inspect log ({type(error).__name__}: {error})",
            hint="`inspect log convert` writes it again.",
        ) from error


def _settings(header: dict[str, Any]) -> dict[str, Any]:
    """Effort and sampling values that hold for every sample."""
    config = dict(header["eval"].get("model_generate_config") or {})
    config |= {name: value for name, value in (header.get("plan") or {}).get("config", {}).items() if value is not None}
    found = {name: config[name] for name in SETTINGS if config.get(name) is not None}
    return found | ({"effort": config["reasoning_effort"]} if config.get("reasoning_effort") else {})


def _sample(sample: dict[str, Any], where: str) -> dict[str, Any]:
    if sample.get("error"):
        said = str(sample["error"].get("message"))[:100]
        raise UsageError(f"{where}: this sample ended with an error: {said}", hint="Run it again: `inspect eval-retry LOG`.")
    if sample.get("limit"):
        raise UsageError(
            f"{where}: this sample was ended by the log's {sample['limit'].get('type')} limit", hint="Raise it, and run it again."
        )
    attachments = sample.get("attachments") or {}
    choices = sample["output"]["choices"]
    if len(choices) != 1:
        raise UsageError(f"{where}: has {len(choices)} choices; one rollout a sample and epoch is read")
    stop, message = choices[0]["stop_reason"], choices[0]["message"]
    turns = sum(one.get("role") == "assistant" for one in sample.get("messages") or [])
    given = sum(one.get("role") == "assistant" for one in sample["input"]) if isinstance(sample.get("input"), list) else 0
    if message.get("tool_calls") or turns - given > 1:
        raise UsageError(
            f"{where}: has tool calls or several turns; a rollout is one answer to one prompt",
            hint="Leave the sample out, or judge the run's figures with `ablation verdict --measures FILE`.",
        )
    thinking, answer = _parts(message["content"], attachments)
    last = (sample.get("messages") or [{}])[-1]
    if last.get("role") == "assistant" and _parts(last["content"], attachments) != (thinking, answer):
        raise UsageError(f"{where}: its output is not its last message", hint="One of them was changed: which one was sampled?")
    row: dict[str, Any] = {"problem": str(sample["id"]), "index": sample["epoch"] - 1, "finish_reason": stop}
    row |= {f"sample.{name}": None for name in sample if name not in _USED}  # named as columns that are not used
    said = sample.get("input") or []
    said = [{"role": "user", "content": said}] if isinstance(said, str) else said
    prompt = [{"role": one["role"], "content": _parts(one["content"], attachments)[1]} for one in said]
    row |= {"prompt": prompt} if prompt else {}
    effort = (sample.get("metadata") or {}).get("effort")
    row |= {"effort": effort} if effort else {}
    if thinking == "":
        return row | {"completion": answer}
    row |= {"thinking_redacted": True} if thinking is None else {"thinking": thinking}
    # Cut before any answer: the thinking was never closed.
    return row | ({} if stop == "max_tokens" and not answer else {"answer": answer})


def _parts(content: str | list[dict[str, Any]], attachments: dict[str, str]) -> tuple[str | None, str]:
    """(reasoning, text) of a message; None: it is not known. What a log keeps once for all its places is put back."""

    def whole(text: str) -> str:
        return attachments.get(text.removeprefix(_ATTACHMENT), text) if text.startswith(_ATTACHMENT) else text

    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    thought = [part for part in parts if part["type"] == "reasoning"]
    reasoning = None if any(map(_is_hidden, thought)) else "".join(whole(part["reasoning"]) for part in thought)
    return reasoning, "".join(whole(part["text"]) for part in parts if part["type"] == "text")


def _is_hidden(part: dict[str, Any]) -> bool:
    """Whether ciphertext, a summary, or a signature alone stands in the place of what the model thought."""
    instead = part.get("summary") or part.get("signature")
    return bool(part.get("redacted") or (instead and part["reasoning"] in ("", part.get("summary"))))


def _read(log: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Any:
    if entry.compress_type == _ZSTD:
        return json.loads(_unpacked(log, entry))
    with log.open(entry) as file:
        data = file.read(MOST_BYTES + 1)  # the size that the entry names may be another one
    _check_size(entry, len(data))
    return json.loads(data)


def _unpacked(log: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    import pyarrow as pa

    _check_size(entry, entry.file_size)
    assert log.fp is not None
    log.fp.seek(entry.header_offset + 26)  # of the local header: the lengths of name and extra field, which stand before the data
    name, extra = (int.from_bytes(log.fp.read(2), "little") for _ in range(2))
    log.fp.seek(entry.header_offset + 30 + name + extra)
    try:
        data = pa.decompress(log.fp.read(entry.compress_size), entry.file_size, codec="zstd", asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{entry.filename}: {error}") from None
    if zlib.crc32(data) != entry.CRC:
        raise ValueError(f"{entry.filename}: its checksum is another one")
    return data


def _check_size(entry: zipfile.ZipInfo, size: int) -> None:
    if size > MOST_BYTES:
        raise ValueError(f"{entry.filename}: unpacks to more than {MOST_BYTES >> 20} MiB")
