import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.errors import IncompleteError, IntegrityError
from ablation.files import DiskError
from ablation.rollouts import store
from ablation.rollouts.columns import Texts
from ablation.rollouts.schema import Rollout
from ablation.rollouts.store import (
    finish_stage,
    part_info,
    read_part,
    read_stage,
    stage_is_complete,
    stage_of,
    stage_parts,
    stage_tokens,
    write_part,
)

from .build import CAP, CLOSE, END, END2, info, rollout


def write(folder, rollouts, of=None, parts=1):
    of = of or info()
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"part-{i:03d}.parquet" for i in range(parts)]
    for i, name in enumerate(names):
        write_part(folder / name, of, rollouts[i::parts])
    finish_stage(folder, of, names)
    return names


@pytest.fixture
def two():
    of = info()
    return [
        rollout(of, [11, 12, CLOSE, 7, END], answer="7", thinking="a b", logprobs=[-0.1, -1.5, -0.25, -2.0, -1e-17]),
        rollout(of, [11] * CAP, index=1, thinking="a" * CAP),
    ]


def test_what_is_read_back_is_bit_for_bit_what_was_sampled(tmp_path, two):
    write(tmp_path, two)
    stage = read_stage(tmp_path)
    assert stage.rollouts() == two
    assert stage.info == info()
    assert stage.lengths.tolist() == [5, CAP]
    assert stage.logprobs[:5].tolist() == [-0.1, -1.5, -0.25, -2.0, -1e-17]
    assert stage.truncated.tolist() == [False, True]


def test_equal_rollouts_give_equal_bytes_and_parts_do_not_change_the_rows(tmp_path, two):
    write(tmp_path / "a", two)
    write(tmp_path / "b", two)
    write(tmp_path / "c", two, parts=2)
    for name in ("part-000.parquet", "stage.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert read_stage(tmp_path / "c").rollouts() == two
    assert stage_of(info(), two).rollouts() == two


def test_a_part_is_plain_parquet_that_other_tools_read(tmp_path, two):
    write(tmp_path, two)
    table = pq.read_table(tmp_path / "part-000.parquet")
    assert table.column("token_ids").to_pylist()[0] == [11, 12, CLOSE, 7, END]
    assert json.loads(table.schema.metadata[b"ablation.stage"])["think_close_id"] == CLOSE
    assert part_info(tmp_path / "part-000.parquet") == info()


def test_a_stage_is_complete_only_when_marked(tmp_path, two):
    write_part(tmp_path / "part-000.parquet", info(), two)
    assert not stage_is_complete(tmp_path)
    assert [path.name for path in stage_parts(tmp_path)] == ["part-000.parquet"]
    assert read_part(tmp_path / "part-000.parquet") == two
    with pytest.raises(IncompleteError, match="not complete"):
        read_stage(tmp_path)
    finish_stage(tmp_path, info(), ["part-000.parquet"])
    assert stage_is_complete(tmp_path)


def test_a_changed_part_is_refused(tmp_path, two):
    write(tmp_path, two)
    write_part(tmp_path / "part-000.parquet", info(), [two[0], rollout(info(), [12] * CAP, index=1)])
    with pytest.raises(IntegrityError, match="was changed after it was sampled"):
        read_stage(tmp_path)


@pytest.mark.slow
def test_a_column_of_more_bytes_than_32_bits_count(monkeypatch):
    text = pa.array(["é" * 2**19] * 32, pa.string())  # 32 MiB
    texts = Texts(store._one_chunk(pa.table({"thinking_text": pa.chunked_array([text] * 65)}), "thinking_text", "here"))
    assert len(texts) == 65 * 32 and int(texts.sizes.sum()) == 65 * 2**25 > 2**31
    assert texts[-1] == "é" * 2**19
    assert texts.joined(np.array([65 * 32 - 1]))[1].tolist() == [2**19]

    monkeypatch.setattr(store, "_MOST_32", 0)  # token ids of as many bytes would take the memory of the machine
    ids = pa.chunked_array([pa.array([[1, 2], [3]], store.SCHEMA.field("token_ids").type)] * 2)
    column = store._one_chunk(pa.table({"token_ids": ids}), "token_ids", "here")
    assert (column.offsets.to_pylist(), column.values.to_pylist()) == ([0, 2, 3, 5, 6], [1, 2, 3, 1, 2, 3])


def test_a_part_without_rows_is_named(tmp_path, two):
    [name] = write(tmp_path, two)
    pq.write_table(pq.read_table(tmp_path / name).slice(0, 0), tmp_path / name)
    finish_stage(tmp_path, info(), [name])
    with pytest.raises(IntegrityError, match=r"part-000.parquet: holds no rollouts; a part has at least one"):
        read_stage(tmp_path)


def test_an_added_a_missing_and_a_broken_part_are_refused(tmp_path, two):
    write(tmp_path, two)
    write_part(tmp_path / "part-001.parquet", info(), [rollout(info(), [END], index=2)])
    with pytest.raises(IntegrityError, match=r"part-001\.parquet: is not named"):
        read_stage(tmp_path)
    (tmp_path / "part-001.parquet").unlink()
    data = (tmp_path / "part-000.parquet").read_bytes()
    (tmp_path / "part-000.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(IntegrityError, match="was changed"):
        read_stage(tmp_path)
    with pytest.raises(IntegrityError, match="not a readable Parquet file"):
        read_stage(tmp_path, verify=False)
    (tmp_path / "part-000.parquet").unlink()
    with pytest.raises(IntegrityError, match="is not there"):
        read_stage(tmp_path)


def test_parts_of_other_settings_do_not_mix(tmp_path, two):
    write_part(tmp_path / "part-000.parquet", info(), two)
    with pytest.raises(IntegrityError, match="other settings"):
        finish_stage(tmp_path, info(digest="e" * 64), ["part-000.parquet"])


def test_a_row_of_another_stage_is_a_bug(tmp_path):
    with pytest.raises(ValueError, match="`arm` is not the stage's"):
        write_part(tmp_path / "part-000.parquet", info(arm="N"), [rollout(info(), [END])])


def test_another_schema_version_is_refused(tmp_path, two):
    write(tmp_path, two)
    marker = tmp_path / "stage.json"
    marker.write_text(marker.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(IntegrityError, match="schema version 2, this program reads version 1"):
        read_stage(tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([dict(ids=[11, END]), dict(ids=[12, END])], "p1@low #0 is there more than once"),
        ([dict(ids=[11, END], seed=5), dict(ids=[12, END], seed=5, index=1)], "have the same seed"),
        ([dict(ids=[END, 11, END])], "goes on after an end token"),
        ([dict(ids=[11, 12], reason="length")], "neither stop nor length"),
        ([dict(ids=[11, 12, END], reason="length")], "is an end token: stop"),
        ([dict(ids=[11] * CAP, reason="stop")], "is not an end token: length"),
        ([dict(ids=[11] * (CAP + 1))], "more than the cap"),
        ([dict(ids=[], reason="stop")], "has no tokens"),
        ([dict(ids=[11, END], logprobs=[-0.5])], r"has 2 token ids but 1 `logprobs`"),
    ],
)
def test_rows_that_contradict_themselves_are_refused(tmp_path, rows, message):
    with pytest.raises(IntegrityError, match=message):
        write_part(tmp_path / "part-000.parquet", info(), [rollout(info(), **row) for row in rows])
    assert list(tmp_path.iterdir()) == []


def test_end_tokens_and_the_cap_decide_truncation():
    """Case C05: end ids {901, 902}, cap 3."""
    of = info(cap=3)
    rows = [[11, 12, END2], [11, END2], [11, 12, 13], [END]]
    stage = stage_of(of, [rollout(of, ids, index=i) for i, ids in enumerate(rows)])
    assert stage.truncated.tolist() == [False, False, True, False]


def test_a_full_disk_is_one_error_and_leaves_nothing(tmp_path, two, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match="No space left"):
        write_part(tmp_path / "part-000.parquet", info(), two)
    assert list(tmp_path.iterdir()) == []


def test_a_part_from_elsewhere_is_named(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "part-000.parquet")
    with pytest.raises(IntegrityError, match="is not a part of a stage"):
        part_info(tmp_path / "part-000.parquet")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(3, 2**31 - 1).filter(lambda t: t not in (END, END2)), max_size=8),
            st.text(),
            st.floats(max_value=0, width=64),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_text_and_any_float_survive(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("stage")
    of = info()
    rollouts = [
        rollout(of, [*ids, END], index=i, thinking=text.encode("utf-8", "replace").decode(), logprob=value)
        for i, (ids, text, value) in enumerate(rows)
    ]
    write(folder, rollouts)
    back: list[Rollout] = read_stage(folder).rollouts()
    assert [r.token_ids for r in back] == [r.token_ids for r in rollouts]
    assert [r.thinking_text for r in back] == [r.thinking_text for r in rollouts]
    assert np.array_equal([r.logprobs[0] for r in back], [r.logprobs[0] for r in rollouts], equal_nan=True)


@pytest.mark.parametrize("name", ["smollm2", "smollm2-vllm"])
def test_tokens_of_a_stage_without_reading_its_rows(name):
    """As the rows have them, column by column."""
    folder = Path(__file__).parents[2] / "runs" / "records" / name / "main" / "start" / "sweep"
    stage = read_stage(folder)
    assert stage_tokens(folder) == (int(stage.prompt_length.sum()), len(stage.token_ids))
    assert stage_tokens(folder)[1] == {"smollm2": 7482, "smollm2-vllm": 7771}[name]  # the journal's own numbers


def test_tokens_of_a_part_that_is_none(tmp_path):
    (tmp_path / "part-000.parquet").write_bytes(b"PAR1")
    with pytest.raises(IntegrityError, match="part-000.parquet"):
        stage_tokens(tmp_path)


def other(name, change, type=None):
    """A part one of whose columns is another: `change` is given its values."""

    def changed(table):
        column = pa.array([change(one) for one in table.column(name).to_pylist()], type)
        return table.set_column(table.column_names.index(name), name, column)

    return changed


def twice(name):
    return lambda table: table.append_column(name, table.column(name))


ODD_COLUMNS = {
    "bytes": (other("problem", str.encode), "column `problem` is binary"),
    "an object": (other("problem", lambda text: {"a": text}), "column `problem` is struct<a: string>"),
    "a list": (other("effort", lambda text: [text]), "column `effort` is list<"),
    "whole numbers without a sign": (other("index", abs, pa.uint64()), "column `index` is uint64"),
    "a dictionary": (
        other("thinking_text", str, pa.dictionary(pa.int32(), pa.string())),
        "column `thinking_text` is dictionary<",
    ),
    "an extension type": (other("seed", lambda seed: b"x" * 16, pa.uuid()), "column `seed` is extension<arrow.uuid>"),
    "lists of lists": (other("token_ids", lambda ids: [ids]), "column `token_ids` is list<"),
    "a time": (other("update", lambda update: update, pa.timestamp("s")), "column `update` is timestamp"),
    "flags": (other("prompt_opens_thinking", int), "column `prompt_opens_thinking` is int64"),
    "texts": (other("stop_id", str), "column `stop_id` is string"),
    "one text twice": (twice("problem"), "has 2 columns `problem`"),
    "ids twice": (twice("token_ids"), "has 2 columns `token_ids`"),
}


@pytest.mark.parametrize("kind", ODD_COLUMNS)
def test_a_column_of_another_type_is_named_with_its_part(tmp_path, two, kind):
    change, message = ODD_COLUMNS[kind]
    part = tmp_path / "part-001.parquet"
    write(tmp_path, [*two, rollout(info(), [11] * CAP, index=2)], parts=2)
    pq.write_table(change(pq.read_table(part)), part)
    with pytest.raises(IntegrityError, match=re.escape(f"{part}: {message}")):
        read_stage(tmp_path, verify=False)


@pytest.mark.parametrize(
    ("at", "value"),
    [("name", "/proc/kmsg"), ("name", "../a/part-000.parquet"), ("name", 5), ("rollouts", "x"), ("rollouts", [2])],
)
def test_a_part_is_a_file_of_its_folder_and_rollouts_are_counted(tmp_path, two, at, value):
    write(tmp_path / "a", two)
    marker = tmp_path / "a" / "stage.json"
    content = json.loads(marker.read_bytes())
    (content if at in content else content["parts"][0])[at] = value
    marker.write_text(json.dumps(content))
    with pytest.raises(IntegrityError, match=re.escape(f"{marker}: is not a readable stage file")):
        read_stage(tmp_path / "a")
