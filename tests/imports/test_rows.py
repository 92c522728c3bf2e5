"""Every row that is wrong is named by file and line, and nothing is written."""

from __future__ import annotations

import json

import pytest

from ablation.errors import UsageError
from ablation.imports.stage import import_stage, make_request
from ablation.rollouts.store import read_stage
from tests.imports.made import IDS, bring, given_rows, write_rows, write_tokenizer
from tests.verdict.study import CAP


def row_with(**values):
    return lambda row: row | values


def row_without(*names):
    return lambda row: {name: value for name, value in row.items() if name not in names}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (row_without("problem"), "problem: is missing, and there is no prompt to know it by"),
        (row_with(problem="p77"), "there is no `p77` in the plan's problems"),
        (row_without("effort"), "effort: is missing"),
        (row_with(effort="high"), "effort: found `high`; the plan's are low, medium"),
        (row_without("index"), "index: is missing"),
        (row_with(index=2), r"p0@low #2 is one too many: the plan has 2 rollouts a cell, #0 to #1"),
        (row_with(index="0"), "index: found '0'; it must be a whole number from 0 on"),
        (row_with(index=True), "index: found True; it must be a whole number"),
        (row_with(efort="low"), "there is no column `efort`; did you mean `effort`"),
        (row_with(seed=-3), "seed: found -3; it must be a whole number from 0 on"),
        (row_with(token_ids=[]), "token_ids: is empty"),
        (row_with(token_ids=[1.5]), r"token_ids: found \[1.5\]; it must be a list of token ids"),
        (row_with(token_ids=[20, 3, 20, 3]), "token_ids: goes on after the end token 3 at place 1"),
        (row_with(token_ids=[20, 2, 10]), r"token_ids: 3 tokens of 64 that do not end with an end token \(3\)"),
        (row_with(token_ids=[20] * 65), "token_ids: has 65 tokens; the plan's cap is 64"),
        (row_with(finish_reason="length"), "finish_reason: found `length`, but by its ids this rollout's is `stop`"),
        (row_with(finish_reason="content_filter"), "finish_reason: found `content_filter`; it must be stop or length"),
        (row_with(logprobs=[-0.5]), "logprobs: has 1 numbers for 15 tokens"),
        (row_with(logprobs=[0.5] * 15), "logprobs: found .*; it must be a list of numbers, raw logprobs in nats, none above 0"),
        (row_with(logprobs=[float("nan")] * 15), "logprobs: found .* none above 0"),
        (row_with(logprobs=[-1e31] * 15), "logprobs: found .* none above 0 or below -1e30"),
        (row_with(top_entropy=[3.1] * 15, top_mass=[0.9] * 15), r"top_entropy: found 3\.1; that of 20 tokens is at most ln\(20\) = 2\.996"),
        (row_with(top_mass=[1.5] * 15), "top_mass: found .*; it must be a list of numbers, from 0 to 1"),
        (row_without("seed"), "seed: is missing; 23 of 24 rows have it"),
        (row_with(seed=12), r"seed: 12 is not the plan's, which is \d{15,}; 1 of 24 rows differ"),
        (row_without("logprobs"), "logprobs: is missing; 23 of 24 rows have it"),
        (row_with(temperature=0.7), "temperature: was sampled with 0.7; the plan says 1.0"),
        (row_with(max_tokens=128), "max_tokens: was sampled with 128; the plan says 64"),
        (row_with(token_ids=[20] * CAP, finish_reason="length", logprobs=[-1] * 64, top_entropy=[0.1] * 64, top_mass=[1] * 64),
         "answer: is '0', but by its ids this rollout never closed its thinking, so it has no answer"),
        (row_without("answer"), "answer: is missing, and there is no tokenizer to decode the ids with"),
        (row_without("thinking"), "thinking: is missing, and there is no tokenizer to decode the ids with"),
        (row_with(prompt_token_ids=[7, 2]), "closes a thinking .`</think>`. that neither it nor its prompt opened"),
        (row_with(answer="\ud800"), "answer: found .*; it holds half of a character"),
        (row_with(logprobs=[-(10**400)] * 15), "logprobs: found .* none above 0"),
        (row_with(top_entropy=[10**400] * 15), "top_entropy: found .* from 0 on"),
        (row_with(temperature=10**400), "temperature: found 1000.*; it must be a number"),
        (row_with(repetition_penalty=1.1), "repetition_penalty: found 1.1; only rollouts of the plan count, in which it is 1.0"),
        (row_with(min_p=0.05), "min_p: found 0.05; only rollouts of the plan count, in which it is 0.0"),
        (row_with(logprob_kind="processed"), "logprob_kind: found 'processed'; only `raw` logprobs count, of the full vocabulary"),
        (row_with(prompt=[1]), r"prompt: found \[1\]; each message must be an object"),
        (row_with(prompt=[{"role": "user", "content": 5}]), "prompt: found .*; each message must be an object whose `content` is"),
        (row_with(prompt=[{"role": "user", "content": [{"text": 5}]}]), "prompt: found .*; each message must be an object"),
        (row_with(prompt=[{"role": "user", "content": "\ud800"}]), "prompt: found .*; a message holds half of a character"),
        (row_with(prompt=[{"role": "user", "score": float("nan")}]), "prompt: found .*; a message holds nan, a number that"),
        (row_with(completion=[{"role": "assistant", "content": 5}]), "completion: found .*; each message must be an object"),
    ],
)  # fmt: skip
def test_the_first_wrong_row_is_named(locked, change, message):
    rows = given_rows(locked)
    with pytest.raises(UsageError, match=message) as caught:
        bring(locked, [change(rows[0]), *rows[1:]])
    assert caught.value.message.startswith(f"{locked.path.parents[1]}/r.jsonl:1: ")
    assert not (locked.path.parents[1] / "runs").exists()


def test_duplicates_and_gaps_are_named(locked):
    rows = given_rows(locked)
    with pytest.raises(UsageError, match=r"r.jsonl:25: p0@low #0 is there already, at .*r.jsonl:1$"):
        bring(locked, [*rows, rows[0]])
    with pytest.raises(
        UsageError, match=r"r.jsonl: has 23 of the 24 rollouts of main/start/sweep; lacks, for instance, p0@low #1"
    ):
        bring(locked, [rows[0], *rows[2:]])
    with pytest.raises(UsageError, match=r"r.jsonl:2: seed: \d+ is that of .*r.jsonl:1, too"):
        bring(locked, [rows[0], rows[1] | {"seed": rows[0]["seed"]}, *rows[2:]])


def test_files_that_cannot_be_read_are_named(locked, tmp_path):
    for name, content, message in (
        ("a.jsonl", b'{"problem": "p0"\n', r"a.jsonl:1: not JSON"),
        ("b.jsonl", b'\n\n["p0"]\n', r"b.jsonl:3: is not an object"),
        ("c.jsonl", b"", "c.jsonl: there is no rollout in this file"),
        ("d.jsonl", b'{"problem": "\xff"}\n', r"d.jsonl:1: not UTF-8"),
        ("dd.jsonl", '{"problem": "p0"}\n'.encode("utf-16"), r"dd.jsonl:1: not UTF-8"),
        ("ddd.jsonl", b'{"problem": "p0", "problem": "p1"}\n', r"ddd.jsonl:1: problem: the field is there twice"),
        ("deep.jsonl", b"[" * 100_000, r"deep.jsonl:1: nested too deeply"),
        ("e.parquet", b"PAR1", "e.parquet: not a Parquet file"),
        ("f.csv", b"problem\n", "the ending `.csv` is not known"),
        ("g.eval", b"zip", "g.eval: is not a finished Inspect log"),
    ):
        (tmp_path / name).write_bytes(content)
        request = make_request(locked, "sweep", None, None, None, files=[tmp_path / name], ids=IDS)
        with pytest.raises(UsageError, match=message):
            import_stage(locked, tmp_path / "runs" / "small", request)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "is not a tokenizer"),
        ("[" * 100_000, "is not a tokenizer"),
        ('{"model": null}', "is not a tokenizer"),
        ('{"model": {"vocab": {"<think>": "x", "</think>": 2, "<|end|>": 3}}}', "the id of `<think>` is 'x', which is none"),
        ('{"model": {"vocab": {"<think>": 1e400, "</think>": 2, "<|end|>": 3}}}', "the id of `<think>` is inf, which is none"),
        ('{"model": {"vocab": {"<think>": 1, "</think>": -2, "<|end|>": 3}}}', "the id of `</think>` is -2, which is none"),
        ('{"model": {"vocab": {"<think>": 1, "</think>": 2, "<|end|>": 3}}}', "tokenizer.json: is not a tokenizer: "),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(locked, tmp_path, content, message):
    (tmp_path / "tokenizer.json").write_text(content)
    rows = [row_without("token_ids", "logprobs", "top_entropy", "top_mass")(row) for row in given_rows(locked)]
    with pytest.raises(UsageError, match=message):
        bring(locked, rows, tokenizer=tmp_path, ids=None)
    with pytest.raises(UsageError, match="must be the ids of"):
        bring(locked, given_rows(locked), ids=f"1,2,{1 << 31}")


def test_columns_that_are_not_used_are_told(locked):
    rows = [row | {"reward": 1.0, "advantage": 0.5} for row in given_rows(locked)]
    assert bring(locked, rows).unused == ["advantage", "reward"]


def test_texts_come_from_the_tokenizer_where_there_is_one(locked, tmp_path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    rows = [row_without("thinking", "answer")(row) for row in given_rows(locked)]
    for row in rows:  # words that the tokenizer has
        row["token_ids"] = [20 + one % 11 if one >= 20 else one for one in row["token_ids"]]
    stage = read_stage(bring(locked, rows, tokenizer=tokenizer).folder)
    assert stage.answer_text[0] == "0" and stage.thinking_text[0].startswith("just says number")
    assert [one for one in stage.answer_text if one] == ["0", "0", "1", "1", "2", "2", "3", "3", "4", "4", "5", "5", *["9"] * 10]


def texts(locked, change=lambda row, number: row):
    """Rows of texts: `thinking words </think> N`, the last one cut."""
    rows = []
    for number, (problem, effort, index) in enumerate((p, e, i) for p, e in locked.plan.cells for i in range(2)):
        row = {"problem": problem, "effort": effort, "index": index, "finish_reason": "stop", "prompt_opens_thinking": True}
        row |= {"completion": f"the number is {problem[1:]} </think> {problem[1:]} <|end|>"}
        rows.append(change(row, number))
    rows[-1] |= {"completion": "and so on " * 21, "finish_reason": "length"}
    return rows


def test_texts_are_encoded_again_and_marked(locked, tmp_path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    done = bring(locked, texts(locked), tokenizer=tokenizer)
    stage = read_stage(done.folder)
    assert stage.token_ids[: stage.offsets[1]].tolist() == [20, 21, 22, 10, 2, 10, 3]
    assert (stage.thinking_text[0], stage.answer_text[0], stage.finish_reason[0]) == ("the number is 0", "0", "stop")
    assert (stage.lengths[-1], stage.finish_reason[-1], stage.answer_text[-1]) == (63, "length", "")
    assert done.info.engine["token_ids"] == "retokenized" and len(done.info.engine["tokenizer_sha256"]) == 64
    assert "texts encoded again, so token counts are close, not exact" in done.notes[0]


def test_thinking_and_answer_apart_are_put_between_the_tags(locked, tmp_path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer")

    def apart(row, number):
        row = row_without("completion", "prompt_opens_thinking")(row)
        return row | ({"thinking": "the number", "answer": "0"} if number else {"answer": "0"})

    rows = texts(locked, apart)
    rows[-1] = row_without("completion", "answer")(rows[-1]) | {"thinking": "and so on " * 21}
    for row in rows[:1]:
        row |= {"prompt_opens_thinking": False}  # no thinking at all, and said to be so
    stage = read_stage(bring(locked, rows, tokenizer=tokenizer).folder)
    ids = [stage.token_ids[stage.offsets[row] : stage.offsets[row + 1]].tolist() for row in (0, 1)]
    assert ids == [[10, 3], [1, 20, 21, 2, 10, 3]]
    assert stage.lengths[-1] == 64 and stage.token_ids[stage.offsets[-2]] == 1


def test_channels_are_thinking_and_answer(locked, tmp_path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer")

    def channels(row, number):
        said = "<|channel|>analysis<|message|>the number<|end|><|start|>assistant<|channel|>final<|message|>"
        return row | {"prompt_opens_thinking": False, "completion": f"{said}{row['problem'][1:]}<|return|>"}

    rows = texts(locked, channels)
    rows[1] |= {"completion": "<|channel|>final<|message|>0"}
    rows[-1] |= {"completion": f"<|channel|>analysis<|message|>{'and so on ' * 21}", "finish_reason": "length"}
    with pytest.raises(UsageError, match=r"r.jsonl:1: answer: is '7', but completion says '0'"):
        bring(locked, [row | {"answer": "7"} for row in rows], tokenizer=tokenizer)
    done = bring(locked, rows, tokenizer=tokenizer)
    stage = read_stage(done.folder)
    ids = [stage.token_ids[stage.offsets[row] : stage.offsets[row + 1]].tolist() for row in (0, 1)]
    assert ids == [[1, 20, 21, 2, 10, 3], [10, 3]]
    assert (stage.answer_text[0], stage.answer_text[1], stage.thinking_text[0]) == ("0", "0", "the number")
    assert (stage.lengths[-1], stage.finish_reason[-1], stage.answer_text[-1]) == (64, "length", "")
    assert not any("no row closes" in note for note in done.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (row_with(completion="the 17 </think> 0"), "has no token for '17'"),
        (row_with(completion="the <|end|> 0"), "the text goes on after the end token 3"),
        (row_with(completion="the " * 72), "this text is 73 tokens long and ended with `stop`; the plan's cap is 64"),
        (row_with(completion="the " * 30, finish_reason="length"), "this text is 30 tokens long and ended with `length`"),
        (row_with(finish_reason="length"), "found `length`, but the text ends with an end token"),
        (row_without("finish_reason"), "finish_reason: is missing; 23 of 24 rows have it"),
        (row_without("completion"), "completion: is missing"),
        (
            row_without("prompt_opens_thinking"),
            "prompt_opens_thinking: is missing: nothing says whether the prompt ends with `<think>`",
        ),
        (row_with(prompt_opens_thinking=False), "closes a thinking"),
    ],
)
def test_texts_that_do_not_fit_are_named(locked, tmp_path, change, message):
    rows = texts(locked)
    with pytest.raises(UsageError, match=message) as caught:
        bring(locked, [change(rows[0]), *rows[1:]], tokenizer=write_tokenizer(tmp_path / "tokenizer"))
    assert "r.jsonl:1: " in caught.value.message


def test_texts_without_a_tokenizer_are_refused(locked):
    with pytest.raises(UsageError, match="token_ids: is missing, and there is no tokenizer") as caught:
        bring(locked, texts(locked))
    assert "--tokenizer FOLDER" in caught.value.hint


def test_finish_by_count_is_asked_for_and_marked(locked, tmp_path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    rows = [row_without("finish_reason")(row) for row in texts(locked)]
    rows[-1]["completion"] += "and"  # 64 tokens, the cap
    rows[0]["completion"] = "the number is 0 </think> 0"  # ended, and its end token is not in the text
    with pytest.raises(UsageError, match="finish_reason: is missing: nothing says whether this rollout ended") as caught:
        bring(locked, rows, tokenizer=tokenizer)
    assert "--finish-by-count" in caught.value.hint
    done = bring(locked, rows, tokenizer=tokenizer, by_count=True)
    stage = read_stage(done.folder)
    assert (stage.finish_reason[0], stage.finish_reason[-1], done.info.engine["finish"]) == ("stop", "length", "by_count")


def test_a_dump_of_verl_is_known_by_its_prompts(locked, tmp_path):
    """`rollout_data_dir`: input, output, gts, score, step; several rollouts of a prompt follow one another."""
    rows = [
        {
            "input": f"user\n{problem[1:]}?\nassistant\n<think>",
            "output": f"the number </think> {problem[1:]}",
            "gts": problem[1:],
            "score": 1.0,
            "step": 5,
        }
        for problem in ("p0", "p1", "p2", "p3", "p4", "p5")
        for _ in range(2)
    ]
    folder, tokenizer = tmp_path, write_tokenizer(tmp_path / "tokenizer")
    paths = [write_rows(folder / f"{effort}.jsonl", [row | {"effort": effort} for row in rows]) for effort in ("low", "medium")]
    request = make_request(locked, "sweep", None, None, None, files=paths, tokenizer=tokenizer, by_count=True)
    done = import_stage(locked, folder / "runs" / "small", request)
    stage = read_stage(done.folder)
    assert stage.answer_text == [problem[1:] for problem, _ in locked.plan.cells for _ in range(2)]
    assert stage.prompt_opens_thinking.all() and done.unused == ["gts", "score", "step"]
    assert done.info.engine["prompts"] == "text" and done.info.engine["source"] == ["low.jsonl", "medium.jsonl"]


def test_a_dump_of_trl_has_messages(locked, tmp_path):
    """`completions_00005.parquet`: step, prompt, completion, one column a reward, advantage."""
    rows = [
        {
            "step": 5,
            "prompt": [{"role": "user", "content": f"{problem[1:]}?"}],
            "completion": [{"role": "assistant", "content": f"<think> the number </think> {problem[1:]}"}],
            "exact_reward": 1.0,
            "advantage": 0.0,
        }
        for problem, effort in locked.plan.cells
        if effort == "low"
        for _ in range(2)
    ]
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    paths = [write_rows(tmp_path / f"completions-{effort}.parquet", rows) for effort in ("low", "medium")]
    said = dict(tokenizer=tokenizer, by_count=True, opens=False)
    with pytest.raises(UsageError, match="completions-low.parquet:1: effort: is missing"):
        import_stage(locked, tmp_path / "runs" / "small", make_request(locked, "sweep", None, None, None, files=paths, **said))
    with pytest.raises(UsageError, match="completions-medium.parquet:1: p0@low #2 is one too many"):
        import_stage(
            locked,
            tmp_path / "runs" / "small",
            make_request(locked, "sweep", None, None, None, files=paths, effort="low", **said),
        )
    paths[1] = write_rows(paths[1], [row | {"effort": "medium"} for row in rows])
    request = make_request(locked, "sweep", None, None, None, files=paths, effort="low", **said)
    done = import_stage(locked, tmp_path / "runs" / "small", request)
    stage = read_stage(done.folder)
    assert stage.token_ids[: stage.offsets[1]].tolist() == [1, 20, 21, 2, 10, 3]
    assert done.unused == ["advantage", "exact_reward", "step"]


def test_a_prompt_that_holds_no_problem_or_several_is_named(locked, tmp_path):
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    for prompt, message in (("what?", "holds no text of the plan's problems"), ("1? 2?", "holds the texts of p1, p2")):
        row = {"input": prompt, "output": "the", "effort": "low"}
        with pytest.raises(UsageError, match=message):
            bring(locked, [row], tokenizer=tokenizer, by_count=True)


def test_rows_of_the_wanted_list_can_be_filled_in(locked):
    from ablation.imports.stage import wanted_lines

    listed = [json.loads(line) for line in wanted_lines(locked, make_request(locked, "sweep", None, None, None, files=[]))]
    assert [(row["problem"], row["effort"], row["index"], row["seed"]) for row in listed] == [
        (row["problem"], row["effort"], row["index"], row["seed"]) for row in given_rows(locked)
    ]
    assert listed[0]["prompt"] == "0?"


def test_rows_say_where_they_stopped_and_not_what_is_not_known_of_their_sampling(locked):
    rows = given_rows(locked)
    rows[0] |= {"repetition_penalty": 1.0, "min_p": 0, "logprob_kind": "raw"}
    bring(locked, rows)
    run = locked.path.parents[1] / "runs" / "small"
    stage = read_stage(next(run.glob("*/*/*/stage.json")).parent)
    assert {one.stop_id for one in stage.rollouts() if one.finish_reason == "stop"} == {3}
    assert {one.stop_id for one in stage.rollouts() if one.finish_reason == "length"} <= {None}
    assert stage.sampling.values == [""]


def test_rows_that_are_wrong_are_named_together_and_at_most_twenty(locked):
    rows = given_rows(locked)
    some = [row | {"effort": "high"} if place in (2, 5) else row for place, row in enumerate(rows)]
    with pytest.raises(UsageError) as refused:
        bring(locked, some)
    assert [line.split(":", 1)[1] for line in refused.value.message.splitlines()] == [
        "3: effort: found `high`; the plan's are low, medium",
        "6: effort: found `high`; the plan's are low, medium",
    ]
    with pytest.raises(UsageError) as refused:
        bring(locked, [row | {"seed": -1} for row in rows])
    lines = refused.value.message.splitlines()
    assert len(lines) == 21 and lines[-1] == "and more: the first 20 are named"
    with pytest.raises(UsageError) as refused:
        bring(locked, [row | {"finish_reason": "length"} if place < 2 else row for place, row in enumerate(rows)])
    assert len(refused.value.message.splitlines()) == 2


def test_a_file_in_which_no_row_closes_its_thinking_is_told_of(locked):
    """Decoded without special tokens: thinking and answer are one text."""
    flat = [row | {"completion": row["completion"].replace(" </think>", "")} for row in texts(locked)]
    done = bring(locked, flat, tokenizer=write_tokenizer(locked.path.parents[1] / "tokenizer"))
    [warning] = [note for note in done.notes if "no row closes its thinking (`</think>`)" in note]
    assert warning.startswith("warning: ")
