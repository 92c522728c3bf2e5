"""Stages on disk: Parquet parts, and a `stage.json` that is written last and names each part with its digest.

Equal rollouts give equal bytes (with one version of pyarrow): fixed row groups and encodings, no times, no host.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ablation import files
from ablation.errors import IncompleteError, IntegrityError
from ablation.problems.grade import usable_processors
from ablation.rollouts.columns import Coded, Texts
from ablation.rollouts.folder import inflight_folder, stage_file
from ablation.rollouts.schema import SCHEMA_VERSION, Rollout, StageInfo
from ablation.rollouts.stage import Stage, check_stage

_INFO_KEY = b"ablation.stage"
_ROW_GROUP = 1024
_FEW = 10_000
"""Rollouts of a stage that is read before threads have begun to help."""
_MOST_32 = 2**31 - 1
"""Bytes that offsets of 32 bits reach."""
Entry = tuple[str, int, str]
"""Name, rollouts and digest of a part."""

_STRINGS = (
    *("family", "arm", "stage", "problem", "effort", "source", "prompt_sha256", "finish_reason"),
    *("thinking_text", "answer_text", "sampling", "logprob_kind"),
)
_CODED = ("problem", "effort", "source", "prompt_sha256", "finish_reason", "answer_text", "sampling")
_LATER = ("sampling", "logprob_kind", "stop_id")
"""Columns that parts of earlier versions of this program do not have."""
_INTEGERS = ("update", "index", "seed", "prompt_length")
_PER_TOKEN = ("token_ids", "logprobs", "top_entropy", "top_mass")
_IDS = "token_ids.list.element"
"""How Parquet names the values of that column; a rollout has at least one, so they are the tokens."""
_SHARED = ("family", "arm", "stage", "update", "logprob_kind")
# Sampler values are kept as float64, so that what is read back is bit for bit what was sampled, whatever the engine's type.
_FLOATS = ("logprobs", "top_entropy", "top_mass")

SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=name == "thinking_text") for name in _STRINGS]
    + [pa.field(name, pa.int64(), nullable=False) for name in _INTEGERS]
    + [pa.field("prompt_opens_thinking", pa.bool_(), nullable=False), pa.field("stop_id", pa.int32())]
    + [pa.field("token_ids", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False)]
    + [pa.field(name, pa.list_(pa.field("element", pa.float64(), nullable=False)), nullable=False) for name in _FLOATS]
)


def write_part(path: Path, info: StageInfo, rollouts: Sequence[Rollout], *, tell: Callable[[str], None] | None = None) -> None:
    """Write `rollouts` to `path`, complete or not at all. `tell` is given the part's SHA-256 before it appears at `path`.

    Raises `IntegrityError` if a rollout contradicts itself or `info` (see `check_stage`), `DiskError` if the disk refuses.
    """
    table = _table(info, rollouts)
    check_stage(_stage(info, table, str(path)), str(path))

    def write(temporary: Path) -> None:
        pq.write_table(
            table,
            temporary,
            row_group_size=_ROW_GROUP,
            version="2.6",
            compression="zstd",
            compression_level=3,
            use_dictionary=[*_SHARED, "problem", "effort", "source", "prompt_sha256", "finish_reason", "stop_id", "sampling"],
            use_byte_stream_split=[f"{name}.list.element" for name in _FLOATS],
            write_statistics=False,
        )
        if tell is not None:
            tell(files.sha256_file(temporary))

    files.write_with(path, write)


def stage_record(folder: Path, info: StageInfo, parts: Sequence[str]) -> bytes:
    """What `finish_stage` will write: the stage's settings, and each part's rows and digest."""
    entries = []
    for name in parts:
        path = folder / name
        if part_info(path) != info:
            raise IntegrityError(f"{path}: was sampled under other settings than this stage's")
        entries.append({"name": name, "rows": pq.read_metadata(path).num_rows, "sha256": files.sha256_file(path)})
    content = {"info": info_record(info), "parts": entries, "rollouts": sum(entry["rows"] for entry in entries)}
    return files.json_bytes(content)


def finish_stage(folder: Path, info: StageInfo, parts: Sequence[str]) -> None:
    """Mark the stage in `folder` as complete: `parts` (names, in order) are all of it."""
    files.write_bytes(stage_file(folder), stage_record(folder, info, parts))


def stage_info(folder: Path) -> StageInfo:
    """The settings of the complete stage in `folder`. Raises `IntegrityError` if its `stage.json` cannot be read."""
    marker = stage_file(folder)
    try:
        return info_of_record(files.parse_json(marker.read_bytes())["info"], str(marker))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _not_a_stage_file(marker, error) from None


def stage_is_complete(folder: Path) -> bool:
    """True if the stage was marked as complete; `read_stage` proves that its parts are still what they were."""
    return stage_file(folder).is_file()


def stage_is_begun(folder: Path) -> bool:
    """True if there is any rollout of the stage, or all."""
    return stage_is_complete(folder) or bool(stage_parts(folder)) or any(inflight_folder(folder).glob("part-*.jsonl"))


def stage_parts(folder: Path) -> list[Path]:
    """The parts that are in `folder` now, in order: what a stopped run has already sampled."""
    return sorted(folder.glob("part-*.parquet"))


def part_rollouts(path: Path) -> int:
    """How many rollouts the part has, by its metadata alone."""
    try:
        return pq.read_metadata(path).num_rows
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def stage_tokens(folder: Path) -> tuple[int, int]:
    """(tokens of the prompts, sampled tokens) of all rollouts of the complete stage in `folder`, each prompt counted for each of
    its rollouts. The rows are not checked. Raises `IntegrityError` for a part that cannot be read."""
    prompts = sampled = 0
    for path in stage_parts(folder):
        try:
            part = pq.ParquetFile(path)
            prompts += int(sum(part.read(columns=["prompt_length"], use_threads=False).column(0).to_pylist()))
            groups = [part.metadata.row_group(number) for number in range(part.metadata.num_row_groups)]
            columns = (group.column(place) for group in groups for place in range(group.num_columns))
            sampled += sum(one.num_values for one in columns if one.path_in_schema == _IDS)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from None
    return prompts, sampled


def part_info(path: Path) -> StageInfo:
    """The stage's settings, from the metadata of one part."""
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None
    return _metadata_info(metadata, path)


def _metadata_info(metadata: dict[bytes, bytes], path: Path) -> StageInfo:
    if _INFO_KEY not in metadata:
        raise IntegrityError(f"{path}: is not a part of a stage (no `{_INFO_KEY.decode()}` metadata)")
    try:
        return info_of_record(files.parse_json(metadata[_INFO_KEY]), str(path))
    except (ValueError, AttributeError):
        raise IntegrityError(f"{path}: its `{_INFO_KEY.decode()}` metadata is not JSON of a stage") from None


def read_part(path: Path) -> list[Rollout]:
    """The rollouts of one part, checked."""
    info = part_info(path)
    stage = _stage(info, _read_table(path), str(path))
    check_stage(stage, str(path))
    return stage.rollouts()


def stage_of(info: StageInfo, rollouts: Sequence[Rollout]) -> Stage:
    """The same columns that writing `rollouts` and reading them back would give, checked."""
    stage = _stage(info, _table(info, rollouts), "rollouts")
    check_stage(stage, f"{info.family}/{info.arm}/{info.stage}")
    return stage


def read_stage(folder: Path, *, verify: bool = True) -> Stage:
    """The rollouts of a complete stage, in stored order.

    `verify` compares the digest of every part with `stage.json`; the rows are checked in any case.
    Raises `IncompleteError` if the stage was never finished, `IntegrityError` if it is not what was written.
    """
    marker = stage_file(folder)
    if not marker.is_file():
        raise IncompleteError(f"{folder}: this stage is not complete (no {marker.name})")
    try:
        content = files.parse_json(marker.read_bytes())
        info = info_of_record(content["info"], str(marker))
        entries = [_entry(entry) for entry in content["parts"]]
        total = int(content["rollouts"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _not_a_stage_file(marker, error) from None
    if not entries:
        raise IntegrityError(f"{marker}: names no part")
    listed = {name for name, _, _ in entries}
    stray = [path.name for path in stage_parts(folder) if path.name not in listed]
    if stray:
        raise IntegrityError(f"{folder / stray[0]}: is not named in {marker.name}; it was added after the stage was finished")

    def table_of(entry: Entry) -> pa.Table:
        name, rows, digest = entry
        path = folder / name
        if not path.is_file():
            raise IntegrityError(f"{path}: is named in {marker.name} but is not there")
        if verify and files.sha256_file(path) != digest:
            raise IntegrityError(f"{path}: was changed after it was sampled (its SHA-256 is not the one in {marker.name})")
        table = _read_table(path)
        if table.num_rows != rows:
            raise IntegrityError(f"{path}: has {table.num_rows} rollouts, {marker.name} says {rows}")
        if _metadata_info(table.schema.metadata or {}, path) != info:
            raise IntegrityError(f"{path}: was sampled under other settings than {marker.name} says")
        return table

    tables = _in_threads(table_of, entries) if total > _FEW else [table_of(entry) for entry in entries]
    stage = _stage(info, pa.concat_tables(tables, promote_options="default"), str(folder))
    if len(stage) != total:
        raise IntegrityError(f"{folder}: has {len(stage)} rollouts, {marker.name} says {total}")
    check_stage(stage, str(folder))
    return stage


def _entry(part: dict) -> Entry:
    """What `stage.json` says of a part, which lies beside it. Raises `TypeError` or `ValueError` where it says something else."""
    if Path(part["name"]).name != part["name"]:
        raise ValueError(f"`{part['name']}` is no file of its folder")
    return part["name"], part["rows"], part["sha256"]


def _in_threads(function: Callable[[Entry], pa.Table], entries: Sequence[Entry]) -> list[pa.Table]:
    """Digests and Parquet need no interpreter. These threads end here; Arrow's own may outlive the program, and abort it."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(len(entries), usable_processors())) as pool:
        return list(pool.map(function, entries))


def _table(info: StageInfo, rollouts: Sequence[Rollout]) -> pa.Table:
    if not rollouts:
        raise ValueError("a part without rollouts")
    for rollout in rollouts:
        for name in _SHARED:
            if getattr(rollout, name) != getattr(info, name):
                raise ValueError(f"rollout {rollout.key}: `{name}` is not the stage's {getattr(info, name)!r}")
    metadata = {_INFO_KEY: json.dumps(info_record(info), sort_keys=True, separators=(",", ":")).encode()}
    columns = [pa.array([getattr(rollout, field.name) for rollout in rollouts], type=field.type) for field in SCHEMA]
    return pa.Table.from_arrays(columns, schema=SCHEMA.with_metadata(metadata))


def _read_table(path: Path) -> pa.Table:
    try:
        first = pq.ParquetFile(path)
        later = _check_columns(first.schema_arrow, path)
        known = [name for name in (*_SHARED, *_CODED) if name not in later]
        table = pq.ParquetFile(path, metadata=first.metadata, read_dictionary=known).read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None
    if not table.num_rows:
        raise IntegrityError(f"{path}: holds no rollouts; a part has at least one")
    return _with_later(table, path) if later else table.select(SCHEMA.names)


def _check_columns(schema: pa.Schema, path: Path) -> tuple[str, ...]:
    """The columns that the part does not have because an earlier version wrote it.

    Raises `IntegrityError` if another is not there, is there twice, or is of another type (nested, say, or an extension).
    """
    names = schema.names
    missing = [name for name in SCHEMA.names if name not in names]
    if missing and missing != list(_LATER):
        raise IntegrityError(f"{path}: has no column `{missing[0]}`")
    for field in SCHEMA:
        if names.count(field.name) > 1:
            raise IntegrityError(f"{path}: has {names.count(field.name)} columns `{field.name}`")
        if field.name in names and schema.field(field.name).type != field.type:
            raise IntegrityError(f"{path}: column `{field.name}` is {schema.field(field.name).type}; see runs/README.md")
    return tuple(missing)


def _with_later(table: pa.Table, path: Path) -> pa.Table:
    """A part of an earlier version, with the columns that it does not have: nothing is known but the kind of logprob."""
    count = table.num_rows
    table = table.append_column(SCHEMA.field("stop_id"), pa.nulls(count, pa.int32()))
    for name, value in (("sampling", ""), ("logprob_kind", _metadata_info(table.schema.metadata or {}, path).logprob_kind)):
        column = _alike(value, count)
        table = table.append_column(pa.field(name, column.type, nullable=False), column)
    return table.select(SCHEMA.names)


def _alike(value: str, count: int) -> pa.DictionaryArray:
    """`count` times `value`, from buffers: `pa.array` imports pandas, which takes longer than all that a verdict computes."""
    text = value.encode()
    indices = [None, pa.py_buffer(np.zeros(count, dtype=np.int32))]
    ends = [None, pa.py_buffer(np.array([0, len(text)], dtype=np.int32)), pa.py_buffer(text)]
    return pa.DictionaryArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), count, indices), pa.Array.from_buffers(pa.string(), 1, ends)
    )


def _stage(info: StageInfo, table: pa.Table, where: str) -> Stage:
    for name in _SHARED:
        values = set(_coded(table, name, where).values if name != "update" else _numbers(table, name, where).tolist())
        if values != {getattr(info, name)}:
            raise IntegrityError(f"{where}: column `{name}` holds {sorted(values)}, the stage is {getattr(info, name)!r}")
    flat, offsets = {}, None
    for name in _PER_TOKEN:
        column = _one_chunk(table, name, where)
        ends = _numpy(column.offsets).astype(np.int64)
        own = ends - ends[0]
        if offsets is not None and not np.array_equal(own, offsets):
            row = int(np.argmax(np.diff(own) != np.diff(offsets)))
            names = [table.column(key)[row].as_py() for key in ("problem", "effort", "index")]
            ids, values = np.diff(offsets)[row], np.diff(own)[row]
            raise IntegrityError(f"{where}: rollout {names[0]}@{names[1]} #{names[2]} has {ids} token ids but {values} `{name}`")
        offsets = own if offsets is None else offsets
        flat[name] = _numpy(column.values.slice(ends[0], ends[-1] - ends[0]))
    assert offsets is not None
    texts = _one_chunk(table, "thinking_text", where)
    return Stage(
        info=info,
        **{name: _coded(table, name, where) for name in _CODED},
        **{name: _numbers(table, name, where) for name in ("index", "seed", "prompt_length")},
        prompt_opens_thinking=_flags(_one_chunk(table, "prompt_opens_thinking", where)),
        stop_id=_stop_ids(table, where),
        thinking_text=Texts(_valid(texts.fill_null("") if texts.null_count else texts, "thinking_text", where)),
        redacted=_absent(texts),
        offsets=offsets,
        **flat,
    )


def _one_chunk(table: pa.Table, name: str, where: str) -> pa.Array:
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    if column.null_count and not SCHEMA.field(name).nullable:
        raise IntegrityError(f"{where}: column `{name}` has {column.null_count} nulls; see runs/README.md")
    if column.nbytes > _MOST_32:  # offsets of 32 bits may not reach its end
        if pa.types.is_string(column.type):
            column = column.cast(pa.large_string())
        elif pa.types.is_list(column.type):
            column = column.cast(pa.large_list(column.type.value_field))
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _coded(table: pa.Table, name: str, where: str) -> Coded[str]:
    """A column of texts, its values sorted."""
    column = _one_chunk(table, name, where)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = _valid(column.dictionary, name, where).to_pylist()
    return Coded.sorted(_numpy(column.indices), values)


def _valid(texts: pa.StringArray, name: str, where: str) -> pa.StringArray:
    try:
        texts.validate(full=True)
    except pa.ArrowException:
        raise IntegrityError(f"{where}: column `{name}` holds a text that is not UTF-8") from None
    return texts


def _numbers(table: pa.Table, name: str, where: str) -> np.ndarray:
    return _numpy(_one_chunk(table, name, where))


def _stop_ids(table: pa.Table, where: str) -> np.ndarray:
    """int64 [N], -1 where there is none."""
    array = _one_chunk(table, "stop_id", where)
    return np.where(_absent(array), -1, _numpy(array).astype(np.int64))


def _absent(array: pa.Array) -> np.ndarray:
    """bool [N]: where there is no value."""
    valid = array.buffers()[0]
    return np.zeros(len(array), dtype=bool) if valid is None else ~_bits(valid, array)


def _flags(array: pa.BooleanArray) -> np.ndarray:
    return _bits(array.buffers()[1] or b"", array)


def _bits(buffer: Any, array: pa.Array) -> np.ndarray:
    bits = np.frombuffer(buffer, dtype=np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)].astype(bool)


def _numpy(array: pa.Array) -> np.ndarray:
    """The values of an array of numbers without nulls. (pyarrow's own conversion imports pandas, which takes half a second.)"""
    dtype = {pa.int32(): np.int32, pa.int64(): np.int64, pa.float64(): np.float64}[array.type]
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(buffer, dtype=dtype)[array.offset : array.offset + len(array)]


def info_record(info: StageInfo) -> dict:
    """The stage's settings as JSON has them."""
    return asdict(info) | {"end_ids": list(info.end_ids)}


def info_of_record(content: dict, where: str) -> StageInfo:
    """The settings in `content`, of which `where` speaks in errors. Raises `IntegrityError` if they are none."""
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        raise IntegrityError(f"{where}: has rollout schema version {version}, this program reads version {SCHEMA_VERSION}")
    try:
        info = StageInfo(**content | {"end_ids": tuple(content["end_ids"])})
    except (TypeError, KeyError) as error:
        raise IntegrityError(f"{where}: the stage's settings are not readable ({error})") from None
    for one in fields(info):
        value = getattr(info, one.name)
        if type(value) is not _KINDS[one.type]:
            raise IntegrityError(f"{where}: the stage's settings are not readable (`{one.name}` is of the wrong type)")
    return info


_KINDS = {"str": str, "int": int, "dict": dict, "tuple[int, ...]": tuple}
"""How `StageInfo` names a type -> the type."""


def _not_a_stage_file(marker: Path, error: Exception) -> IntegrityError:
    return IntegrityError(f"{marker}: is not a readable stage file ({type(error).__name__}: {error})")


def _unreadable(path: Path, error: Exception) -> IntegrityError:
    return IntegrityError(f"{path}: is not a readable Parquet file ({str(error).splitlines()[0]})")
