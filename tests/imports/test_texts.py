"""Two columns that say one thing: where they agree either is right, where they do not the row is refused with both values."""

from __future__ import annotations

import itertools

import pytest

from ablation.errors import UsageError
from ablation.imports.stage import import_stage, make_request
from ablation.rollouts.store import read_stage
from tests.imports.made import IDS, bring, given_rows, spoken, write_rows, write_tokenizer
from tests.verdict.study import CLOSE, END, OPEN

THINKING = [20, 21, 22, 23]


def rows_of(locked, *, thinks=True, **columns):
    """Every rollout says `the number is as`, then the digit 9, which is wrong; `columns` come from (ids, problem's digit)."""
    rows = []
    for row in given_rows(locked):
        ids = [*((OPEN, *THINKING, CLOSE) if thinks else THINKING), 19, END]
        own = {name: row[name] for name in ("problem", "effort", "index", "seed")}
        own |= {"prompt_token_ids": [7, 8], "token_ids": ids, "finish_reason": "stop"}
        rows.append(own | {name: of(ids, row["problem"][1:]) for name, of in columns.items()})
    return rows


def whole(ids, gold):
    return spoken(ids)


def reference(ids, gold):
    return gold


def said(text):
    return lambda ids, gold: text


@pytest.mark.parametrize("tokenizer", [False, True])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"completion": whole, "answer": reference}, "answer: is '0', but (completion|token_ids) says ' ?9"),
        ({"completion": whole, "answer_text": reference}, "answer_text: is '0', but (completion|token_ids) says ' ?9"),
        ({"response": whole, "thinking": said("so on"), "answer": said("9")}, "thinking: is 'so on', but .* says ' ?the number"),
        ({"completion": said("<think> the number is as </think> 9"), "output": said("the number")}, "output|completion"),
        ({"output": said("<think> so </think> 9"), "response": said("<think> so on </think> 9")}, r"output: is \.\.\.'think> so </think> 9', but response says "),
        ({"completion": said("just 9")}, "completion: 'just 9' has no thinking, but token_ids: .* closes its thinking|is 'just 9', but"),
        ({"completion": said("<think> the number is as")}, "completion: .* never closes its thinking, but token_ids: .* closes its"),
        ({"thinking": said(""), "answer": said("9")}, "thinking: is (empty|'')"),
        ({"thinking": said("the number is as"), "answer": said("")}, "answer: is (empty|'')"),
        ({"thinking": said("<think> the number is as"), "answer": said("9")}, "thinking: found .*, which holds `<think>`|thinking: is"),
        ({"finish_reason": said("stop"), "stop_reason": said("max_tokens"), "completion": whole}, "finish_reason: is 'stop', but stop_r"),
        ({"completion": whole, "completion_ids": said([20, 19, END])}, r"token_ids: is \[1, 20, .*, but completion_ids says \[20, 19"),
    ],
)  # fmt: skip
def test_columns_that_contradict_are_refused_whatever_the_order_of_keys(locked, tmp_path, columns, message, tokenizer):
    more = {"tokenizer": write_tokenizer(tmp_path / "tokenizer")} if tokenizer else {}
    told = set()
    for order in (sorted, lambda keys: sorted(keys, reverse=True)):
        rows = [{name: row[name] for name in order(row)} for row in rows_of(locked, **columns)]
        with pytest.raises(UsageError, match=message) as caught:
            bring(locked, rows, **more)
        assert caught.value.message.startswith(f"{locked.path.parents[1]}/r.jsonl:1: ")
        told.add(caught.value.message)
    assert len(told) == 1
    assert not (locked.path.parents[1] / "runs").exists()


def test_ids_without_tags_beside_a_text_with_thinking_are_refused(locked, tmp_path):
    """Both say the same words, so only the tags tell that the thinking would be lost."""
    text = said("<think> the number is as </think> 9")
    for more in ({}, {"tokenizer": write_tokenizer(tmp_path / "tokenizer")}):
        with pytest.raises(
            UsageError, match=r"completion: '<think> .*' closes its thinking, but token_ids: \[20, .* has no thinking"
        ):
            bring(locked, rows_of(locked, thinks=False, completion=text), **more)
    with pytest.raises(UsageError, match="thinking: is 'the number is as', but by its ids this rollout has no thinking"):
        bring(locked, rows_of(locked, thinks=False, thinking=said("the number is as"), answer=said("9")))


@pytest.mark.parametrize(
    "columns",
    [
        {"completion": whole},
        {"completion": whole, "answer": said("9"), "thinking": said("the number\n is as ")},
        {"output": whole, "response": whole},
        {"completion": said("the number is as 9")},  # decoded without special tokens: the ids have the tags
        {"completion": said(None), "output": whole},
        {},
    ],
)
def test_what_agrees_is_read_by_the_ids(locked, tmp_path, columns):
    done = bring(locked, rows_of(locked, **columns), tokenizer=write_tokenizer(tmp_path / "tokenizer"))
    stage = read_stage(done.folder)
    assert (stage.thinking_text[0].strip(), stage.answer_text[0].strip()) == ("the number is as", "9")
    assert done.info.engine["texts"] == "held" and done.unused == []


def test_without_a_tokenizer_the_texts_are_the_importers_and_a_note_says_so(locked):
    done = bring(locked, rows_of(locked, output=whole, response=whole))
    assert read_stage(done.folder).answer_text[0].strip() == "9"
    assert done.info.engine["texts"] == "given"
    assert "texts as the importer says, not held against the ids" in done.notes[0]


def test_texts_alone_are_held_against_one_another(locked, tmp_path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    rows = [{name: value for name, value in row.items() if name != "token_ids"} for row in rows_of(locked, completion=whole)]
    for more, message in (
        ({"answer": "0"}, "answer: is '0', but completion says '9"),
        ({"thinking": "so"}, "thinking: is 'so', but completion says 'the number"),
        ({"completion": "9", "thinking": "the number"}, "thinking: is 'the number', but completion says ''"),
        ({"completion": None, "answer": "<think> so </think> 9"}, "answer: found .* which holds `<think>`"),
        ({"completion": [{"role": "assistant", "content": "9", "reasoning_content": "so"}]}, "the message holds `reasoning_content`"),
        ({"completion": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "so"}]}]}, "the message holds `thinking`"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            bring(locked, [row | more for row in rows], tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"prompt_sha256": "0" * 64}, "prompt_sha256: is '0000.*, but prompt_token_ids says '"),
        ({"prompt_length": 3}, "prompt_length: is 3, but prompt_token_ids says 2"),
        (
            {"prompt_opens_thinking": True},
            "ends inside the thinking is true by prompt_opens_thinking and false by prompt_token_ids",
        ),
        ({"prompt": "what?<think>"}, "ends inside the thinking is false by prompt_token_ids and true by prompt"),
        ({"prompt": "1?"}, "problem: is 'p0', but prompt says 'p1'"),
        ({"prompt": "1?", "input": "0?"}, "prompt: is '1[?]', but input says '0[?]'"),
        ({"prompt": [{"role": "user", "content": "1?"}], "input": "0?"}, "prompt: is .*, but input says '0[?]'"),
    ],
)
def test_what_is_said_of_the_prompt_must_agree(locked, more, message):
    rows = rows_of(locked, completion=whole)
    with pytest.raises(UsageError, match=message):
        bring(locked, [row | more for row in rows])


def test_a_prompt_whose_ids_are_another_problems_is_refused(locked, tmp_path):
    from tokenizers import Tokenizer

    folder = write_tokenizer(tmp_path / "tokenizer")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens(["0?", "5?"])
    tokenizer.save(str(folder / "tokenizer.json"))
    rows = rows_of(locked)
    rows[0]["prompt_token_ids"] = [tokenizer.token_to_id("5?")]
    with pytest.raises(UsageError, match="r.jsonl:1: problem: is 'p0', but prompt_token_ids says 'p5'"):
        bring(locked, rows, tokenizer=folder)
    rows[0]["prompt_token_ids"] = [tokenizer.token_to_id("0?")]
    bring(locked, rows, tokenizer=folder)


def test_the_order_of_keys_changes_nothing(locked, tmp_path):
    stages = []
    columns = dict(response=whole, output=whole, stop_reason=said("eos"), reward=said(1.0))
    for number, order in enumerate(itertools.islice(itertools.permutations(("token_ids", *columns)), 0, 120, 30)):
        rows = [{name: row[name] for name in (*order, *sorted(row.keys() - set(order)))} for row in rows_of(locked, **columns)]
        path = write_rows(tmp_path / f"{number}.jsonl", rows)
        request = make_request(locked, "sweep", None, None, None, files=[path], ids=IDS)
        done = import_stage(locked, tmp_path / "runs" / str(number), request)
        stages.append((read_stage(done.folder).answer_text, read_stage(done.folder).token_ids.tolist(), done.unused))
    assert all(one == stages[0] for one in stages) and stages[0][2] == ["reward"]


def test_a_column_that_a_parquet_file_has_twice_is_refused(locked, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(rows_of(locked, completion=whole))
    pq.write_table(table.append_column("completion", table["completion"]), tmp_path / "twice.parquet")
    request = make_request(locked, "sweep", None, None, None, files=[tmp_path / "twice.parquet"], ids=IDS)
    with pytest.raises(UsageError, match="twice.parquet: the column `completion` is there twice"):
        import_stage(locked, tmp_path / "runs" / "small", request)
