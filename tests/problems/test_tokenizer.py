"""Tokenizers that are made to hurt, and the one of the shipped model."""

import json
import time
from pathlib import Path

import pytest

import ablation
from ablation.problems import tokenizer as module
from ablation.problems.tokenizer import FolderTokenizer
from ablation.problems.workers import Limits, close_workers

pytest.importorskip("tokenizers")
SHIPPED = next((Path(ablation.__file__).parent / "assets").rglob("tokenizer.json")).parent


@pytest.fixture(autouse=True, scope="module")
def _no_worker_is_left():
    yield
    close_workers()


def made(folder, **parts):
    content = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}} | parts
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return FolderTokenizer.of(folder)


def test_the_shipped_one():
    found = FolderTokenizer.of(SHIPPED)
    ids = found.encode("12+3=")
    assert "".join(found.pieces(ids)) == "12+3="


def test_none_is_none(tmp_path):
    assert FolderTokenizer.of(tmp_path) is None
    assert made(tmp_path, model={"type": "BPE"}).encode("a") is None
    assert made(tmp_path).pieces([0, 99999]) in (None, ["a", ""])


SLOW = {"type": "Split", "pattern": {"Regex": "(a|aa)+$(?<!x)"}, "behavior": "Isolated", "invert": False}
LONG = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}] * 3}


def test_rules_without_end_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LIMITS", Limits(seconds=2, memory=2 << 30))
    began = time.monotonic()
    assert made(tmp_path, pre_tokenizer=SLOW).encode("a" * 60 + "b") is None
    assert made(tmp_path, decoder=LONG).pieces([0, 0, 0]) is None  # a thousand million characters a token
    assert time.monotonic() - began < 60
