"""Logs that Inspect itself wrote, with its mock model: see `inspect/make_logs.py`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.imports.columns import read_row
from ablation.imports.inspect_log import inspect_rows
from ablation.imports.stage import import_stage, make_request
from ablation.rollouts.store import read_stage
from tests.imports.made import write_tokenizer
from tests.verdict.study import lock_small

LOGS = Path(__file__).parent / "inspect"


def test_samples_become_columns():
    rows = dict(inspect_rows(LOGS / "low.eval"))
    assert len(rows) == 12
    settings = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 64, "effort": "low"}
    row, unused = read_row("p0", rows[f"{LOGS}/low.eval:p0_epoch_2.json"])
    assert row.values == settings | {
        "problem": "p0", "index": 1, "finish_reason": "stop", "thinking": "the number is 0 as it says", "answer": "0",
        "prompt": [{"role": "user", "content": "0?"}],
    }  # fmt: skip
    assert {"sample.target", "sample.scores", "sample.events"} <= unused
    assert rows[f"{LOGS}/low.eval:p4_epoch_1.json"]["completion"] == "<think>just 4 words</think>4"
    cut = rows[f"{LOGS}/low.eval:p5_epoch_1.json"]
    assert cut["finish_reason"] == "max_tokens" and cut["thinking"] == "and so on " * 21 and "answer" not in cut


def test_two_logs_make_a_sweep(tmp_path):
    locked = lock_small(tmp_path / "plans")
    files = [LOGS / "low.eval", LOGS / "medium.eval"]
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    request = make_request(locked, "sweep", None, None, None, files=files, tokenizer=tokenizer, opens=False)
    done = import_stage(locked, tmp_path / "runs" / "small", request)
    stage = read_stage(done.folder)
    assert stage.answer_text == ["0", "0", "1", "1", "2", "2", "3", "3", "4", "4", "", ""] * 2
    assert stage.finish_reason == ([*["stop"] * 10, "length", "length"]) * 2
    assert stage.token_ids[: stage.offsets[1]].tolist() == [1, 20, 21, 22, 10, 23, 24, 25, 2, 10, 3]
    assert stage.token_ids[stage.offsets[8] : stage.offsets[9]].tolist() == [1, 29, 14, 30, 2, 14, 3]
    known = {name: done.info.engine[name] for name in ("token_ids", "logprobs", "seeds", "prompts", "finish")}
    assert known == {"token_ids": "retokenized", "logprobs": False, "seeds": "absent", "prompts": "text", "finish": "given"}


def test_another_cap_than_the_plans_is_refused(tmp_path):
    locked = lock_small(tmp_path / "plans", sampling={"max_tokens": 128})
    said = dict(files=[LOGS / "low.eval", LOGS / "medium.eval"], tokenizer=write_tokenizer(tmp_path / "tokenizer"), opens=False)
    with pytest.raises(UsageError, match=r"low.eval:p0_epoch_1.json: max_tokens: was sampled with 64; the plan says 128"):
        import_stage(locked, tmp_path / "runs" / "small", make_request(locked, "sweep", None, None, None, **said))


def changed_log(tmp_path, change) -> Path:
    """`low.eval` with one sample changed, in a zip of the older kind (deflated)."""
    path = tmp_path / "changed.eval"
    from ablation.imports.inspect_log import _read

    with (
        (LOGS / "low.eval").open("rb") as file,
        zipfile.ZipFile(file) as log,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out,
    ):
        for entry in log.infolist():
            content = _read(log, entry)
            if entry.filename == "samples/p0_epoch_1.json":
                change(content)
            out.writestr(entry.filename, json.dumps(content))
    return path


def test_a_sample_that_failed_is_named(tmp_path):
    path = changed_log(tmp_path, lambda sample: sample.update(error={"message": "Timeout"}))
    with pytest.raises(UsageError, match="changed.eval:p0_epoch_1.json: this sample ended with an error: Timeout"):
        list(inspect_rows(path))


def test_a_sample_that_a_limit_ended_is_named(tmp_path):
    path = changed_log(tmp_path, lambda sample: sample.update(limit={"type": "time", "limit": 60.0}))
    with pytest.raises(UsageError, match="changed.eval:p0_epoch_1.json: this sample was ended by the log's time limit"):
        list(inspect_rows(path))


def call_a_tool(sample):
    sample["output"]["choices"][0]["message"]["tool_calls"] = [{"id": "1", "function": "add", "arguments": {"a": 1}}]


def take_two_turns(sample):
    sample["messages"].insert(-1, {"role": "assistant", "content": "Let me add."})
    sample["messages"].insert(-1, {"role": "user", "content": "Go on."})


@pytest.mark.parametrize("change", [call_a_tool, take_two_turns])
def test_turns_that_would_be_lost_are_refused(tmp_path, change):
    with pytest.raises(UsageError, match="changed.eval:p0_epoch_1.json: has tool calls or several turns"):
        list(inspect_rows(changed_log(tmp_path, change)))


def test_turns_of_the_prompt_are_no_turns_of_the_answer(tmp_path):
    shots = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]

    def add_shots(sample):
        said = sample["input"]
        sample["input"] = shots + ([{"role": "user", "content": said}] if isinstance(said, str) else said)
        sample["messages"] = shots + sample["messages"]

    assert len(list(inspect_rows(changed_log(tmp_path, add_shots)))) == len(list(inspect_rows(LOGS / "low.eval")))


def reasoning(**content):
    def change(sample):
        for message in (sample["output"]["choices"][0]["message"], sample["messages"][-1]):
            message["content"][0] |= content

    return change


CIPHER = "gAAAAABo" * 90


@pytest.mark.parametrize(
    ("part", "column"),
    [
        ({"reasoning": CIPHER, "summary": "It adds.", "redacted": True}, {"thinking_redacted": True}),
        ({"reasoning": "", "redacted": True}, {"thinking_redacted": True}),
        ({"reasoning": "It adds.", "summary": "It adds."}, {"thinking_redacted": True}),
        ({"reasoning": "", "summary": "It adds."}, {"thinking_redacted": True}),
        ({"reasoning": "", "signature": "rs_1"}, {"thinking_redacted": True}),
        ({"reasoning": "the number", "summary": "It adds.", "signature": "rs_1"}, {"thinking": "the number"}),
    ],
)
def test_neither_ciphertext_nor_summary_is_thinking(tmp_path, part, column):
    row = dict(inspect_rows(changed_log(tmp_path, reasoning(**part))))[f"{tmp_path}/changed.eval:p0_epoch_1.json"]
    assert {name: value for name, value in row.items() if name.startswith("thinking")} == column
    assert row["answer"] == "0" and "completion" not in row


def test_an_empty_reasoning_is_no_thinking_and_nothing_unknown(tmp_path):
    row = dict(inspect_rows(changed_log(tmp_path, reasoning(reasoning=""))))[f"{tmp_path}/changed.eval:p0_epoch_1.json"]
    assert row["completion"] == "0" and not {"thinking", "thinking_redacted"} & row.keys()


def test_attachments_are_put_back(tmp_path):
    def attach(sample):
        for message in (sample["output"]["choices"][0]["message"], sample["messages"][-1]):
            message["content"][0]["reasoning"] = "attachment://abc"
        sample["attachments"] = {"abc": "the number"}

    rows = dict(inspect_rows(changed_log(tmp_path, attach)))
    assert rows[f"{tmp_path}/changed.eval:p0_epoch_1.json"]["thinking"] == "the number"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda sample: sample["messages"][-1].update(content="7"), "p0_epoch_1.json: its output is not its last message"),
        (lambda sample: sample.update(input="3?"), "p0_epoch_1.json: problem: is 'p0', but prompt says 'p3'"),
        (
            lambda sample: sample.update(metadata={"effort": "medium"}),
            "effort: is medium in its metadata, but the run's .* is low",
        ),
    ],
)
def test_what_a_log_says_twice_must_be_the_same(tmp_path, change, said):
    locked = lock_small(tmp_path / "plans")
    files = [changed_log(tmp_path, change), LOGS / "medium.eval"]
    request = make_request(
        locked, "sweep", None, None, None, files=files, tokenizer=write_tokenizer(tmp_path / "tokenizer"), opens=False
    )
    with pytest.raises(UsageError, match=said):
        import_stage(locked, tmp_path / "runs" / "small", request)


def test_a_damaged_log_is_refused(tmp_path):
    data = bytearray((LOGS / "low.eval").read_bytes())
    with zipfile.ZipFile(LOGS / "low.eval") as log:
        data[log.getinfo("samples/p0_epoch_1.json").header_offset + 200] ^= 0xFF
    path = tmp_path / "damaged.eval"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="damaged.eval: is not a finished Inspect log .ValueError: samples/p0_epoch_1.json: "):
        list(inspect_rows(path))


@pytest.mark.parametrize(
    "content", [[], {"id": "p0"}, {"output": {"choices": [{"stop_reason": "stop", "message": {"content": 5}}]}}]
)
def test_a_sample_of_another_shape_is_named(tmp_path, content):
    def change(sample):
        kept = dict(sample) if isinstance(content, dict) and "output" in content else {}
        sample.clear()
        sample.update(kept | content if isinstance(content, dict) else {})

    with pytest.raises(UsageError, match="changed.eval:p0_epoch_1.json: is not a sample of an Inspect log"):
        list(inspect_rows(changed_log(tmp_path, change)))


def patched(data: bytes, place: int, value: int) -> bytes:
    """`data` with the 16 bits at `place` of every entry's record in the central directory set to `value`, in local headers, too."""
    data = bytearray(data)
    for mark, shift in ((b"PK\1\2", 0), (b"PK\3\4", -2)):
        at = data.find(mark)
        while at >= 0:
            data[at + place + shift : at + place + shift + 2] = value.to_bytes(2, "little")
            at = data.find(mark, at + 4)
    return bytes(data)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [(8, 1, "encrypted"), (8, 1 << 5, "patched"), (6, 99, "version"), (10, 9, "not supported"), (10, 99, "not supported")],
)
def test_what_zipfile_cannot_read_is_refused(tmp_path, place, value, said):
    path = changed_log(tmp_path, lambda sample: None)
    path.write_bytes(patched(path.read_bytes(), place, value))
    with pytest.raises(UsageError, match=f"changed.eval: is not a finished Inspect log .*{said}"):
        list(inspect_rows(path))


def test_what_unpacks_to_more_than_a_sample_can_be_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("ablation.imports.inspect_log.MOST_BYTES", 1 << 20)
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("header.json", json.dumps({"eval": {}}))
        out.writestr("samples/p0_epoch_1.json", b" " * (1 << 24))
    data = path.read_bytes()
    at = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    lying = data[: at + 24] + (5).to_bytes(4, "little") + data[at + 28 :]  # the size that it names, of its own choice
    for content, said in ((data, "unpacks to more than 1 MiB"), (lying, "")):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=f"bomb.eval: is not a finished Inspect log .*{said}"):
            list(inspect_rows(path))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("header.json", "[" * 100_000)
    with pytest.raises(UsageError, match="bomb.eval: is not a finished Inspect log"):
        list(inspect_rows(path))
