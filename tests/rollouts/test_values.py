"""What each row says of how it was sampled: end token, sampling values, kind of logprob; and parts that do not say it."""

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablation.errors import IntegrityError
from ablation.rollouts.store import SCHEMA, finish_stage, read_part, read_stage, stage_of, write_part
from ablation.rollouts.values import NEUTRAL, values_in_effect, values_text

from .build import CAP, END, END2, info, rollout

LATER = ["stop_id", "sampling", "logprob_kind"]
TEXT = values_text(values_in_effect(1.0, 1.0, 0, CAP, (END, END2)))


def row(of, ids, **known):
    more = {name: known.pop(name) for name in list(known) if name in LATER}
    one = rollout(of, ids, **known)
    return replace(one, **{"sampling": TEXT, "stop_id": ids[-1] if ids[-1] in of.end_ids else None} | more)


def strip(path):
    """The part as an earlier version of this program wrote it."""
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(LATER), path)


def test_the_text_is_the_same_for_equal_values_and_names_all_that_no_plan_has():
    assert json.loads(TEXT) == NEUTRAL | {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_tokens": 64,
        "end_ids": [901, 902],
    }
    assert values_text(values_in_effect(1, 1, 0, CAP, (END, END2), **NEUTRAL)) == TEXT
    assert '"ignore_eos":true' in TEXT
    assert '"repetition_penalty":1.0' in TEXT


def test_rows_come_back_with_end_token_values_and_kind(tmp_path):
    of = info()
    rows = [row(of, [5, END2]), row(of, [7] * CAP, index=1), row(of, [END], index=2)]
    write_part(tmp_path / "part-000.parquet", of, rows)
    assert read_part(tmp_path / "part-000.parquet") == rows
    table = pq.read_table(tmp_path / "part-000.parquet")
    assert table.column("stop_id").to_pylist() == [END2, None, END]
    assert set(table.column("logprob_kind").to_pylist()) == {"raw"}
    assert set(table.column("sampling").to_pylist()) == {TEXT}
    assert [name for name in table.column_names if name in LATER] == [name for name in SCHEMA.names if name in LATER]
    stage = stage_of(of, rows)
    assert stage.stop_id.tolist() == [END2, -1, END]


def test_what_a_row_costs_for_it_is_a_few_bits(tmp_path):
    of = info()
    rows = [row(of, [5, 6, END], index=index) for index in range(1000)]
    write_part(tmp_path / "new.parquet", of, rows)
    file = pq.ParquetFile(tmp_path / "new.parquet").metadata.row_group(0)
    sizes = {file.column(i).path_in_schema: file.column(i).total_compressed_size for i in range(file.num_columns)}
    assert sum(sizes[name] for name in LATER) < 700


def test_a_stage_of_an_earlier_version_is_read_and_one_that_went_on_under_this_one(tmp_path):
    of = info()
    earlier = [row(of, [5, END]), row(of, [7] * CAP, index=1)]
    later = [row(of, [6, END], index=2)]
    for name, rows in {"part-000.parquet": earlier, "part-001.parquet": later}.items():
        write_part(tmp_path / name, of, rows)
    strip(tmp_path / "part-000.parquet")
    unknown = [replace(one, stop_id=None, sampling="") for one in earlier]
    assert read_part(tmp_path / "part-000.parquet") == unknown
    finish_stage(tmp_path, of, ["part-000.parquet"])
    (tmp_path / "part-001.parquet").rename(tmp_path / "aside")
    assert read_stage(tmp_path).rollouts() == unknown
    (tmp_path / "aside").rename(tmp_path / "part-001.parquet")
    finish_stage(tmp_path, of, ["part-000.parquet", "part-001.parquet"])
    stage = read_stage(tmp_path)
    assert stage.rollouts() == unknown + later
    assert stage.sampling.values == ["", TEXT]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"stop_id": END2}, r"rollout p1@low #0 has stop id 902, but ends with token 901 \(stop\)"),
        ({"stop_id": None}, r"has stop id none, but ends with token 901 \(stop\)"),
        ({"sampling": TEXT.replace('"temperature":1.0', '"temperature":0.7')}, "with temperature 0.7, the stage says 1.0"),
        ({"sampling": TEXT.replace("901,902", "901")}, r"with end_ids \[901\], the stage says \[901, 902\]"),
        ({"sampling": TEXT.replace('"max_tokens":64', '"max_tokens":65')}, "with max_tokens 65, the stage says 64"),
        ({"sampling": "by hand"}, "has sampling values that are no JSON object"),
    ],
)
def test_a_row_that_says_otherwise_than_its_tokens_or_its_stage_is_refused(changed, said):
    of = info()
    with pytest.raises(IntegrityError, match=said):
        stage_of(of, [row(of, [5, END], **changed)])


def test_a_cut_rollout_has_no_end_token():
    of = info()
    with pytest.raises(IntegrityError, match=r"has stop id 901, but ends with token 7 \(length\)"):
        stage_of(of, [row(of, [7] * CAP, stop_id=END)])


def test_rows_of_two_kinds_of_logprob_are_never_written_and_a_part_that_has_them_is_refused(tmp_path):
    of, path = info(), tmp_path / "part-000.parquet"
    rows = [row(of, [5, END]), row(of, [6, END], index=1, logprob_kind="processed, top_k 2")]
    with pytest.raises(ValueError, match="`logprob_kind` is not the stage's 'raw'"):
        write_part(path, of, rows)
    write_part(path, of, [rows[0], replace(rows[1], logprob_kind="raw")])
    table = pq.read_table(path)
    place = table.column_names.index("logprob_kind")
    column = pa.array(["raw", "processed, top_k 2"])
    pq.write_table(table.set_column(place, pa.field("logprob_kind", pa.string(), nullable=False), column), path)
    with pytest.raises(IntegrityError, match=r"column `logprob_kind` holds \['processed, top_k 2', 'raw'\], the stage is 'raw'"):
        read_part(path)


def test_rows_sampled_under_two_sets_of_values_are_refused_and_both_are_shown():
    of = info()
    other = TEXT.replace('"repetition_penalty":1.0', '"repetition_penalty":1.1')
    with pytest.raises(IntegrityError, match=r"#0 and p1@low #1 were sampled under different values: .*1\.0.*, .*1\.1"):
        stage_of(of, [row(of, [5, END]), row(of, [6, END], index=1, sampling=other)])
