"""Logs of finished rollouts: every bit comes back, costs are small, and the number of rollouts does not matter."""

import math
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.errors import IntegrityError
from ablation.files import sha256_bytes
from ablation.rollouts.inflight import append_rollouts, read_log, remove_folder, rollouts_on_disk, take_up
from ablation.rollouts.store import read_part, write_part

from .build import CAP, END, info, rollout

FLOATS = st.floats(width=64, allow_nan=True, allow_infinity=True)


def same(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or (one == other and math.copysign(1, one) == math.copysign(1, other))


@settings(max_examples=50, deadline=None)
@given(st.lists(FLOATS, min_size=1, max_size=20), st.text(max_size=50), st.integers(0, 2**63 - 1))
def test_every_bit_and_every_text_come_back(tmp_path_factory, floats, text, seed):
    path = tmp_path_factory.mktemp("log") / "inflight" / "part-000.jsonl"
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    of = info()
    one = rollout(of, [*range(10, 9 + len(floats)), END], logprobs=floats, thinking=text, answer=text[::-1], seed=seed)
    append_rollouts(path, of, [one])
    found, [again] = read_log(path)
    assert found == of
    assert all(map(same, again.logprobs, floats))
    assert replace(again, logprobs=[]) == replace(one, logprobs=[])


def test_a_part_of_rollouts_that_were_in_flight_has_the_bytes_of_one_of_rollouts_that_were_not(tmp_path):
    of, path = info(), tmp_path / "inflight" / "part-000.jsonl"
    rows = [
        replace(rollout(of, [5, 6, END], index=0, logprob=-0.1), stop_id=END),
        rollout(of, [7] * CAP, index=1, logprob=float("-inf")),
        replace(rollout(of, [8, END], index=2, answer="中文 \u2028 x"), stop_id=END),
    ]
    for one in reversed(rows):
        append_rollouts(path, of, [one])
    _, found = read_log(path)
    write_part(tmp_path / "one.parquet", of, rows)
    write_part(tmp_path / "other.parquet", of, sorted(found, key=lambda one: one.index))
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()
    assert read_part(tmp_path / "other.parquet") == rows


@pytest.mark.parametrize("line", [1, 2, 3])
def test_any_changed_byte_of_a_whole_line_is_found(tmp_path, line):
    of, path = info(), tmp_path / "inflight" / "part-000.jsonl"
    append_rollouts(path, of, [rollout(of, [5, END], index=index) for index in range(2)])
    lines = path.read_bytes().splitlines(keepends=True)
    whole = lines[line - 1]
    for place in range(0, len(whole) - 1, 37):
        lines[line - 1] = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        path.write_bytes(b"".join(lines))
        with pytest.raises(IntegrityError, match=rf"part-000.jsonl:{line}: this line is not what was written"):
            take_up(path)


def test_a_log_that_is_cut_anywhere_has_what_was_whole(tmp_path):
    of, path = info(), tmp_path / "inflight" / "part-000.jsonl"
    append_rollouts(path, of, [rollout(of, [5, END], index=index) for index in range(3)])
    data = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(data) if byte == ord("\n")]
    for cut in range(0, len(data) + 1, 53):
        path.write_bytes(data[:cut])
        found = take_up(path)
        whole = sum(end <= cut for end in ends)
        assert (found is None) == (whole == 0)
        if found is not None:
            assert [one.index for one in found[1]] == list(range(whole - 1))
            assert path.read_bytes() == data[: ends[whole - 1]]
            append_rollouts(path, of, [rollout(of, [5, END], index=9)])
            assert len(take_up(path)[1]) == whole
        path.unlink(missing_ok=True)


def test_a_folder_with_something_else_is_not_removed(tmp_path):
    remove_folder(tmp_path)
    (tmp_path / "inflight").mkdir()
    (tmp_path / "inflight" / "mine.txt").touch()
    with pytest.raises(IntegrityError, match="mine.txt: belongs to no batch"):
        remove_folder(tmp_path)
    (tmp_path / "inflight" / "mine.txt").unlink()
    remove_folder(tmp_path)
    assert not (tmp_path / "inflight").exists()


def test_a_rollout_of_thousands_of_tokens_costs_milliseconds(tmp_path):
    of = info(cap=8000)
    rows = [rollout(of, [7] * 8000, index=index) for index in range(20)]
    started = time.process_time()
    for one in rows:
        append_rollouts(tmp_path / "inflight" / "part-000.jsonl", of, [one])
    assert (time.process_time() - started) / 20 < 0.02
    assert rollouts_on_disk(tmp_path) == 20


@pytest.mark.parametrize("body", [b"[1", b'"x', b'{"info":[]', b'{"info":{}', b"{"])
def test_a_line_that_is_sealed_and_no_record_is_named(tmp_path, body):
    path = tmp_path / "part-000.jsonl"
    path.write_bytes(body + b',"sha256":"' + sha256_bytes(body + b"}").encode() + b'"}\n')
    with pytest.raises(IntegrityError, match="part-000.jsonl"):
        take_up(path)
