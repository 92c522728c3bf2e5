"""One rollout out of a stage written by hand."""

import json

import numpy as np
import pytest

from ablation.plan.lock import verify_lock
from ablation.problems.pieces import token_pieces
from ablation.rollouts.address import Address
from ablation.rollouts.one import as_json, find_tokenizer, read_one
from ablation.rollouts.store import finish_stage, write_part

from .build import CLOSE, END, OPEN, info, rollout
from .test_address import RECORD
from .test_repeated import STRONG

PLAN = verify_lock(RECORD / "plan.yaml").plan
UNIT = [11, 12, 13, 14, 15, 16]
LETTERS = dict(zip(UNIT, "abcdef", strict=True)) | {OPEN: "<o>", CLOSE: "<c>", END: "<e>", 20: "x", 21: "7", 22: " é"}
PROBLEM = {"id": "p1", "source": "sums", "prompt": "3 + 4 =", "grader": "integer", "gold": "7"}


def decode(ids) -> str:
    return "".join(LETTERS[id_] for id_ in ids)


class OfLetters:
    """A tokenizer that decodes with `decode`."""

    def __init__(self, decode):
        self.decode = decode

    def pieces(self, ids):
        return token_pieces(self.decode, ids)


@pytest.fixture
def root(tmp_path):
    """A run with one stage: a rollout that loops and is never closed, and one that ends with the right answer."""
    stage = info(arm="N", stage="readout", update=5)
    looping = [20, 22] + UNIT * 10 + UNIT[:2]
    rows = [
        rollout(stage, looping, index=0, thinking=decode(looping), logprobs=np.linspace(-1, -0.1, 64).tolist()),
        rollout(stage, [20, 22, CLOSE, 21, END], index=1, thinking="x é", answer="7"),
        rollout(stage, [21, END], index=2, opens=False, answer="7", thinking=""),
    ]
    folder = tmp_path / "main/N/readout"
    folder.mkdir(parents=True)
    write_part(folder / "part-000.parquet", stage, rows)
    finish_stage(folder, stage, ["part-000.parquet"])
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    return tmp_path


def one(root, index, decoder=None, **options):
    tokenizer = decoder and OfLetters(decoder)
    return read_one(root, PLAN, Address("main/N/readout", f"p1@low#{index}"), tokenizer, **options)


def test_a_loop_is_where_its_tokens_are(root):
    found = one(root, 0, decode)
    assert (found.loop.start, found.loop.length, found.loop.period) == (2, 62, 6)
    assert found.loop.by == "tokens"
    begin, end = found.loop.characters
    assert found.thinking_text[:begin] == "x é" and found.thinking_text[begin:end] == "abcdef" * 10 + "ab"
    assert found.looping and found.truncated and not found.closed
    assert (found.thinking_tokens, found.answer_tokens) == (64, 0)
    assert found.grade is None
    assert found.logprob == pytest.approx(-0.55)


@pytest.mark.parametrize("decoder", [None, lambda ids: "?" * len(ids)])
def test_without_the_right_tokenizer_it_is_found_by_characters(root, decoder):
    found = one(root, 0, decoder)
    assert (found.loop.start, found.loop.length, found.loop.period) == (2, 62, 6)  # of the tokens, all the same
    assert found.loop.by == "characters"
    begin, end = found.loop.characters
    assert found.thinking_text[begin:end] == "abcdef" * 10 + "ab"


def test_parts_and_grade(root):
    found = one(root, 1, decode, pieces=True)
    assert (found.start, found.thinking_tokens, found.answer_tokens) == (0, 2, 1)
    assert (found.grade.status, found.grade.extracted) == ("correct", "7")
    assert found.loop is None and not found.truncated
    assert found.pieces == ["x", " é", "<c>", "7", "<e>"]
    unopened = one(root, 2)
    assert not unopened.opened and unopened.answer_tokens == 1 and unopened.logprob is None


def test_a_strong_loop_is_where_its_windows_occurred_before(tmp_path):
    """Eight times 30 letters and a digit of its own: each block but the first, and the limit that it is over."""
    letters = {100 + at: "abcdefghijklmnopqrstuvwxyzABCD"[at] for at in range(30)} | {500 + at: str(at) for at in range(8)}

    def of_letters(ids) -> str:
        return "".join(letters[id_] for id_ in ids)

    stage = info(arm="N", stage="readout", update=5, cap=len(STRONG))
    write_part(tmp_path / "main/N/readout/part-000.parquet", stage, [rollout(stage, STRONG, thinking=of_letters(STRONG))])
    finish_stage(tmp_path / "main/N/readout", stage, ["part-000.parquet"])
    (tmp_path / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    found = one(tmp_path, 0, of_letters)
    assert found.loop is None and found.strong and found.looping
    wanted = [(31 * turn, 31 * turn + 30) for turn in range(1, 8)]
    assert found.repeats.tokens == found.repeats.characters == wanted
    content = as_json(found, tokens=False)
    assert content["repeats"] == {"gram": 8, "limit": 0.6, "tokens": wanted, "characters": wanted}
    assert one(tmp_path, 0).repeats.characters is None  # without a tokenizer


def test_as_data(root):
    content = json.loads(json.dumps(as_json(one(root, 0, decode, pieces=True), tokens=True), allow_nan=False))
    assert content["rollout"] == "main/N/readout/p1@low#0"
    assert content["loop"]["repeats"] == pytest.approx(62 / 6)
    assert content["gold"] == "7" and content["grade"] is None
    assert content["tokens"][2] == {"id": 11, "text": "a", "logprob": pytest.approx(-1 + 2 * 0.9 / 63), "entropy": 0.25}
    assert "tokens" not in as_json(one(root, 0), tokens=False)


def test_another_tokenizers_texts_are_not_shown(root):
    found = one(root, 0, lambda ids: "4" * len(ids), pieces=True)
    assert found.pieces is None and found.loop.by == "characters"


def test_the_tokenizer_of_the_shipped_model_is_found():
    from ablation.plan.load import load_plan

    path = RECORD.parents[2] / "plans" / "quickstart.yaml"
    assert find_tokenizer(load_plan(path).plan, path).pieces([14, 10, 22]) == ["4", "0", "*"]
