"""The rollouts of one stage, read from its Parquet parts with pyarrow alone, and what must hold of them whatever the plan is.

Shapes: N rollouts, T = all sampled tokens; rollout i owns `ends[i]:ends[i + 1]` of the flat arrays.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ablation.audit.findings import Findings
from ablation.audit.locked import file_sha256
from ablation.audit.schedule import Key

TEXTS = ("problem", "effort", "source", "prompt_sha256", "finish_reason", "thinking_text", "answer_text")
NUMBERS = ("index", "seed", "prompt_length")
TOKENS = {"token_ids": pa.int32(), "logprobs": pa.float64(), "top_entropy": pa.float64(), "top_mass": pa.float64()}
SHARED = ("family", "arm", "stage", "update")
INFO = ("schema_version", "plan_digest", *SHARED, "adapter_sha256", "think_open_id", "think_close_id", "end_ids", "max_tokens")
INFO = (*INFO, "sampling", "engine", "logprob_kind")
"""Fields of `info`."""
LATER = ("stop_id", "sampling", "logprob_kind")
"""Columns that rows of an earlier version do not have: null there."""
DUST = 1e-4
"""What a probability may exceed 1 by, and a logprob 0: bfloat16 logits are rounded."""
RETOKENIZED = 0.1
"""How far from the cap a text may be that was encoded again when it was imported, as a share of the cap."""


@dataclass(frozen=True)
class Rows:
    """The rollouts of one stage in stored order."""

    name: str
    """Folder below the run folder."""
    info: dict[str, Any]
    columns: dict[str, list]
    """Of `TEXTS`, `NUMBERS`, `prompt_opens_thinking` and `LATER`: one list of N values each."""
    ends: list[int]
    tokens: dict[str, np.ndarray]
    """Of `TOKENS`: flat arrays [T]."""
    parts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Name -> its rollouts and tokens."""

    def __len__(self) -> int:
        return len(self.columns["problem"])

    @property
    def keys(self) -> list[Key]:
        return list(zip(self.columns["problem"], self.columns["effort"], self.columns["index"], strict=True))

    @property
    def imported(self) -> dict[str, Any] | None:
        """What is known of imported rows; None for a stage that was sampled here."""
        engine = self.info["engine"]
        return engine if engine.get("name") == "imported" else None

    @property
    def redacted(self) -> list[bool]:
        """Whose thinking is not known: it has no text."""
        return [text is None for text in self.columns["thinking_text"]]

    def who(self, row: int) -> str:
        return f"{self.columns['problem'][row]}@{self.columns['effort'][row]} #{self.columns['index'][row]}"


def read_rows(root: Path, folder: Path, found: Findings) -> Rows | None:
    """The stage in `folder`, its parts checked against `stage.json`; None if there is nothing that can be read."""
    name = folder.relative_to(root).as_posix()
    content = json.loads((folder / "stage.json").read_bytes())
    info, listed = content["info"], [part["name"] for part in content["parts"]]
    for stray in sorted(set(path.name for path in folder.glob("part-*.parquet")) - set(listed)):
        found.differ(folder / stray, "is not named in stage.json: it was added after the stage was finished")
    if any(Path(part).name != part for part in listed):
        found.differ(folder / "stage.json", "names a part that is no file of its folder")
        return None
    gone = [name for name in INFO if name not in info]
    if gone:
        found.differ(folder / "stage.json", f"its info has no {', '.join(gone)}")
        return None
    if len(set(listed)) != len(listed) or not listed:
        found.differ(folder / "stage.json", "names no part, or one part twice")
    tables, parts = [], {}
    for part in content["parts"]:
        path = folder / part["name"]
        if not path.is_file():
            found.differ(path, "is named in stage.json but is not there")
            continue
        found.count("Parquet parts")
        if file_sha256(path) != part["sha256"]:
            found.differ(path, "was changed after it was sampled: its SHA-256 is not the one in stage.json")
        with found.guard(path):
            table = pq.ParquetFile(path, pre_buffer=False).read(use_threads=False)
            own = json.loads((table.schema.metadata or {}).get(b"ablation.stage", b"null"))
            if own != info:
                found.differ(path, "its metadata name other settings than stage.json")
            found.same(path, "rows", part["rows"], table.num_rows, source="the part has")
            for column in SHARED:
                values = set(table.column(column).to_pylist())
                if values != {info[column]}:
                    found.differ(path, f"column `{column}` holds {sorted(map(str, values))}, the stage is {info[column]!r}")
            tables.append(table)
            lengths = table.column("token_ids").combine_chunks().value_lengths().to_pylist()
            parts[part["name"]] = (table.num_rows, sum(lengths))
    if not tables:
        return None
    rows = replace(_rows(name, info, pa.concat_tables(tables, promote_options="default")), parts=parts)
    found.same(folder / "stage.json", "rollouts", content["rollouts"], len(rows), source="the parts have")
    found.count("stages")
    found.count("rollouts", len(rows))
    found.count("sampled tokens", rows.ends[-1])
    return rows


def _rows(name: str, info: dict[str, Any], table: pa.Table) -> Rows:
    columns = {column: table.column(column).to_pylist() for column in (*TEXTS, *NUMBERS, "prompt_opens_thinking")}
    for column, values in columns.items():
        kind = str if column in TEXTS else int if column in NUMBERS else bool
        if not all(type(value) is kind or (value is None and column == "thinking_text") for value in values):
            raise ValueError(f"column `{column}` holds something that is no {kind.__name__}")
    columns |= {
        column: table.column(column).to_pylist() if column in table.column_names else [None] * table.num_rows for column in LATER
    }
    flat, ends = {}, None
    for column, kind in TOKENS.items():
        lists = table.column(column).combine_chunks()
        lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
        if lists.null_count or lists.type.value_type != kind:
            raise ValueError(f"column `{column}` is {lists.type} with {lists.null_count} nulls")
        lengths = lists.value_lengths().to_pylist()
        own = [0, *np.cumsum(lengths).tolist()]
        if ends is not None and own != ends:
            row = next(row for row, (one, other) in enumerate(zip(own[1:], ends[1:], strict=True)) if one != other)
            raise ValueError(f"rollout {row + 1} has another number of `{column}` than of token ids")
        ends = own
        values = lists.flatten()
        if values.null_count:
            raise ValueError(f"column `{column}` has nulls")
        flat[column] = np.from_dlpack(values) if len(values) else np.zeros(0)
    assert ends is not None
    return Rows(name, info, columns, ends, flat)


def check_rows(rows: Rows, found: Findings) -> None:
    """What every stage must be in itself: rollouts that end as they say, no two alike, numbers in their range."""
    for key, times in Counter(rows.keys).items():
        if times > 1:
            found.differ(rows.name, f"rollout {key[0]}@{key[1]} #{key[2]} is there {times} times")
    if rows.imported is None or rows.imported.get("seeds") != "absent":
        for seed, times in Counter(rows.columns["seed"]).items():
            if times > 1:
                found.differ(rows.name, f"seed {seed} was used for {times} rollouts")
        found.count("seeds that occur once in their stage", len(rows))
    end_ids, cap = set(rows.info["end_ids"]), rows.info["max_tokens"]
    redacted, said_so = rows.redacted, (rows.imported or {}).get("redacted", 0)
    if sum(redacted) != said_so:
        found.differ(rows.name, f"{sum(redacted)} rollouts have no thinking_text, its settings say {said_so}")
    slack = RETOKENIZED * cap if rows.imported and rows.imported.get("token_ids") == "retokenized" else 0
    is_end = np.isin(rows.tokens["token_ids"], list(end_ids))
    places = np.flatnonzero(is_end).tolist()
    last = {end - 1 for end in rows.ends[1:]}
    owner = np.searchsorted(np.array(rows.ends[1:]), places, side="right").tolist()
    for row in sorted({row for row, place in zip(owner, places, strict=True) if place not in last}):
        found.differ(rows.name, f"rollout {rows.who(row)} goes on after an end token")
    for row, (start, stop) in enumerate(zip(rows.ends, rows.ends[1:], strict=False)):
        length, said = stop - start, rows.columns["finish_reason"][row]
        ended = length > 0 and bool(is_end[stop - 1])
        reached = redacted[row] or cap - slack <= length <= cap + slack
        if length == 0 or length > cap + slack or said != ("stop" if ended else "length") or (not ended and not reached):
            text = f"has finish reason `{said}`, {length} tokens of {cap} and {'an' if ended else 'no'} end token at its end"
            found.differ(rows.name, f"rollout {rows.who(row)} {text}")
    found.count("finish reasons against the last token and the cap", len(rows))
    _check_said(rows, found)
    _check_numbers(rows, found)


def _check_said(rows: Rows, found: Findings) -> None:
    """The engine's word for the end token, and the kind of the logprobs, row by row; rows of an earlier version say neither."""
    said = zip(*(rows.columns[column] for column in LATER), strict=True)
    known = 0
    for row, (stop_id, sampling, kind) in enumerate(said):
        if kind is not None and kind != rows.info["logprob_kind"]:
            found.differ(rows.name, f"rollout {rows.who(row)} has {kind} logprobs, the stage {rows.info['logprob_kind']}")
        if not sampling and stop_id is None:
            continue
        known += 1
        last = int(rows.tokens["token_ids"][rows.ends[row + 1] - 1])
        if stop_id != (last if last in rows.info["end_ids"] else None):
            found.differ(rows.name, f"rollout {rows.who(row)} has stop id {stop_id}, but its last token is {last}")
    found.count("stop ids against the last token", known)


def _check_numbers(rows: Rows, found: Findings) -> None:
    """NaN is what was not given or not finite; the measures must say so. Nothing else can be out of its range."""
    top = rows.info["sampling"].get("top_logprobs", 100) if isinstance(rows.info["sampling"], dict) else 100
    allowed = {
        "token_ids": (0, 2**31),
        "logprobs": (-np.inf, DUST),
        "top_entropy": (-DUST, np.log(top) + DUST),
        "top_mass": (-DUST, 1 + DUST),
    }
    for column, (low, high) in allowed.items():
        values = rows.tokens[column]
        wrong = np.flatnonzero((values < low) | (values > high))
        if len(wrong):
            row = int(np.searchsorted(np.array(rows.ends[1:]), wrong[0], side="right"))
            found.differ(
                rows.name,
                f"rollout {rows.who(row)} has {column} {values[wrong[0]]:g}, which cannot be ({len(wrong)} such tokens)",
            )
    found.count("logprobs, entropies and masses in their range", 3 * rows.ends[-1])
