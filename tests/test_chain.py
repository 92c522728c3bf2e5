import hashlib
import io
import json

import pytest

from ablation.chain import GENESIS, Head, append_line, chained_line, read_chain
from ablation.errors import IntegrityError, UsageError
from ablation.files import DiskError


def read(path):
    return read_chain(path, counter="seq", first=0, what="journal")


@pytest.fixture
def path(tmp_path):
    path, prev = tmp_path / "lines.jsonl", GENESIS
    with path.open("ab", buffering=0) as handle:
        for seq in range(3):
            line = chained_line({"seq": seq, "text": "½ 思"}, prev)
            append_line(path, handle, line)
            prev = hashlib.sha256(line).hexdigest()
    return path


def test_a_line_is_json_whose_last_field_seals_the_rest(path):
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1]):
        seal = json.loads(line)["sha256"]
        body = line[: -len(f', "sha256": "{seal}"}}')] + b"}"
        assert hashlib.sha256(body).hexdigest() == seal
        assert json.loads(line)["prev"] == (hashlib.sha256(lines[number - 1]).hexdigest() if number else "0" * 64)
    assert read(path).head == Head(3, hashlib.sha256(lines[2]).hexdigest())


def test_the_last_line_is_guarded_too(path):
    data = path.read_bytes()
    last = data.rindex(b'"text"')
    path.write_bytes(data[:last] + b'"tent"' + data[last + 6 :])
    with pytest.raises(IntegrityError, match=r"lines.jsonl:3: is not a line of a journal as it was written"):
        read(path)


def test_what_follows_the_last_whole_line_is_told_and_is_no_record(path):
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"x")
    chain = read(path)
    assert (len(chain.records), chain.torn[-2:]) == (2, b"}x")


def test_a_cut_tail_is_found_by_whoever_kept_the_head(path):
    kept = read(path).head
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    read(path)  # alone it cannot know
    with pytest.raises(IntegrityError, match="has 2 lines, but the note was written when it had 3: its tail was cut off"):
        read(path).check_head(kept, "the note")
    read(path).check_head(Head(0, GENESIS), "the note")


def test_a_chain_written_again_is_found_by_the_head(path):
    kept = read(path).head
    path.unlink()
    prev = GENESIS
    with path.open("ab", buffering=0) as handle:
        for seq in range(5):
            line = chained_line({"seq": seq, "text": "another"}, prev)
            append_line(path, handle, line)
            prev = hashlib.sha256(line).hexdigest()
    with pytest.raises(IntegrityError, match="line 3 is not the one that the note names"):
        read(path).check_head(kept, "the note")


def test_a_line_of_another_chain_with_the_same_number_is_found(path):
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = chained_line({"seq": 1, "text": "another"}, "ab" * 32) + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(IntegrityError, match=r"lines.jsonl:2: the chain is broken here"):
        read(path)


def test_half_a_line_does_not_stay_on_a_full_disk(path):
    class Full(io.FileIO):
        def write(self, data):
            return super().write(data[:10])

    before = path.read_bytes()
    with Full(path, "a") as handle, pytest.raises(DiskError, match="No space left on device"):
        append_line(path, handle, chained_line({"seq": 3}, read(path).head.sha256))
    assert path.read_bytes() == before


def test_a_head_is_text_and_back():
    head = Head(12, "ab" * 32)
    assert Head.parse(f"{head}\n") == head
    for text in ("12", "12:xyz", f"-1:{'ab' * 32}", ""):
        with pytest.raises(UsageError, match="is not the head of a journal"):
            Head.parse(text)
