"""Rollouts as pages, compared with golden texts; what a model wrote does nothing to a terminal."""

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ablation.plan.model import Loops
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.report.rollout_page import beside_page, rollout_page, same_words
from ablation.rollouts.one import Loop, One, Repeats

from .test_arm_tables import text_page

GOLDEN = Path(__file__).parent / "golden"
PROBLEM = Problem("p1", "sums", "What is 3 + 4?", "integer", "7")
HOSTILE = (
    "\x1b[2J\x1b]8;;http://evil\x07click\x1b]8;;\x07 \x9b31m \u202edesrever\u202c \u2066x\u2069 \r\b\x00 [bold]no markup[/bold]"
)


def one(thinking="3 + 4 is 7.", answer="7", **fields) -> One:
    count = fields.pop("thinking_tokens", 5)
    total = count + 3  # and a closing tag, the answer, an end token
    base = One(
        name="main/N/readout/p1@low#0",
        stage="main/N/readout",
        problem_id="p1",
        effort="low",
        index=0,
        seed=1234567,
        problem=PROBLEM,
        grade=Grade("correct", "7"),
        finish_reason="stop",
        opened=True,
        closed=True,
        thinking_text=thinking,
        answer_text=answer,
        redacted=False,
        thinking_tokens=count,
        answer_tokens=1,
        loop=None,
        repeated_share=0.125,
        strong=False,
        ids=np.arange(10, 10 + total, dtype=np.int32),
        logprobs=np.linspace(-0.001, -4, total),
        entropies=np.linspace(0, 1.5, total),
        start=0,
        pieces=None,
        repeats=None,
        loops=Loops(),
    )
    return replace(base, **fields)


def looping() -> One:
    thinking = "Let me see: " + "so 3 + 4 is 7, " * 200
    loop = Loop(4, 800, 8, (12, len(thinking)), "tokens")
    fields = {"closed": False, "grade": None, "finish_reason": "length", "answer_text": "", "answer_tokens": 0, "loop": loop}
    return one(
        thinking,
        thinking_tokens=804,
        strong=True,
        repeated_share=0.98,
        repeats=Repeats([(4, 804)], [(12, len(thinking))]),
        ids=np.arange(804, dtype=np.int32),
        logprobs=np.full(804, -0.25),
        entropies=np.zeros(804),
        **fields,
    )


def strong() -> One:
    """Six times a sentence with a number of its own; of the sentences all but the first occurred before."""
    sentence, text, places, spans = "wait, 3 + 4 is 7, check ", "", [], []
    for turn in range(6):
        if turn:
            places.append((10 * turn, 10 * turn + 9))
            spans.append((len(text), len(text) + len(sentence)))
        text += f"{sentence}{turn}. "
    return one(text, thinking_tokens=60, repeated_share=0.755, strong=True, repeats=Repeats(places, spans))


def test_a_strong_loop_is_marked_where_it_repeats():
    """A sentence has 24 characters, and a number with its dot and blank 3 more."""
    page = text_page(rollout_page(strong(), full=True), 400)
    text = page[page.index("Thinking") :].splitlines()[1].strip()
    sentence = "wait, 3 + 4 is 7, check "
    assert text == f"{sentence}0. " + " ".join(f"⟪{sentence}⟫{turn}." for turn in range(1, 6))
    said = " ".join(page.split())
    assert "strong: 75.5% of windows of 8 tokens occurred before, 60% or more are a loop, each such stretch in ⟪ ⟫" in said
    unseen = replace(strong(), repeats=Repeats([(10, 19)], None), loops=Loops(gram=4, repeated_share=0.625))
    said = " ".join(text_page(rollout_page(unseen), 400).split())
    assert (
        "of windows of 4 tokens occurred before, 62.5% or more are a loop, not to be seen in the text" in said and "⟪" not in said
    )
    numbers = {"ids": np.arange(63), "logprobs": np.zeros(63), "entropies": np.zeros(63)}
    rows = text_page(rollout_page(replace(strong(), **numbers), tokens=True), 100).splitlines()[-63:]
    assert [at for at, row in enumerate(rows) if "repeated" in row] == [at for at in range(10, 60) if at % 10 != 9]


def test_a_periodic_loop_within_repeats_is_marked_once():
    """The stretch of the period in its own brackets, what else repeats around it in the others."""
    both = one("abcXYXYXYXYdefabc", loop=Loop(3, 8, 2, (3, 11), "tokens"), strong=True, repeats=Repeats([], [(2, 12), (14, 17)]))
    page = text_page(rollout_page(both), 300)
    assert "  ab⟪c⟫⟦XYXYXYXY⟧⟪d⟫ef⟪abc⟫" in page


def golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def widest(text: str) -> int:
    from rich.cells import cell_len

    return max(cell_len(line) for line in text.splitlines())


def test_with_novelty_no_page_speaks_of_windows():
    rule = "fewer than 15% of the last 200 words say anything new, whatever numbers they hold"
    for strongly, words in ((True, f"strong: {rule}"), (False, f"none (a strong loop: {rule})")):
        found = replace(strong(), strong=strongly, repeats=None, loops=Loops(novelty=0.15))
        said = " ".join(text_page(rollout_page(found), 400).split())
        assert words in said and "windows" not in said


@pytest.mark.parametrize("width", [60, 80])
def test_golden_pages(width):
    pages = [text_page(rollout_page(each, width=width), width) for each in (one(), looping(), strong())]
    pages.append(text_page(rollout_page(one(pieces=[*"3+4=7", "</think>", "7", "<end>"]), tokens=True, width=width), width))
    golden(f"rollout_{width}.txt", ("\n" + "=" * width + "\n").join(pages))
    assert all(widest(page) <= width for page in pages)


def test_golden_beside():
    other = one(
        "4 + 3 is 7, I think.", name="main/C/readout/p1@low#0", ids=np.array([10, 11, 99, 13, 14, 15, 16, 17], dtype=np.int32)
    )
    narrow, wide = (text_page(beside_page(one(), other, width=width), width) for width in (80, 120))
    golden("rollout_beside.txt", narrow + "\n" + "=" * 120 + "\n" + wide)
    assert widest(narrow) <= 80 and widest(wide) <= 120


def test_what_two_share():
    assert same_words(one(), one()) == "The same cell and index, one seed: the same to the last token."
    other = one(ids=np.array([10, 11], dtype=np.int32), seed=5)
    assert same_words(one(), other) == (
        "The same cell and index, different seeds: the first 2 sampled tokens are the same (of 8 and 2)."
    )


def test_full_shows_all_and_folded_says_how_much_is_left_out():
    text = "".join(f"line {number}\n" for number in range(500))
    whole, folded = (text_page(rollout_page(one(text), full=full)) for full in (True, False))
    assert all(f"  line {number}\n" in whole for number in range(500))
    (left,) = re.findall(r"\[\.\.\. ([\d,]+) characters, --full shows them \.\.\.\]", folded)
    assert int(left.replace(",", "")) == len(text) - 300 - 200
    assert "line 499" in folded and "line 250" not in folded


@pytest.mark.parametrize("options", [{}, {"full": True}, {"tokens": True}])
def test_nothing_that_a_model_wrote_is_obeyed(options):
    hostile = replace(
        one(HOSTILE, HOSTILE, pieces=[HOSTILE] * 8),
        problem=Problem(HOSTILE, "sums", HOSTILE, "integer", HOSTILE),
        grade=Grade("incorrect", HOSTILE, "wrong_answer"),
        name=f"main/N/readout/{HOSTILE}@low#0",
    )
    for content in (rollout_page(hostile, **options), beside_page(hostile, replace(hostile, seed=2), width=120)):
        page = text_page(content, 120)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", page)
        assert "[bold]no markup[/bold]" in page.replace("\n", "") or options


def test_a_long_thinking_is_laid_out_in_time():
    import time

    many = one("word " * 200_000, thinking_tokens=200_000)
    started = time.monotonic()
    text_page(rollout_page(many))
    assert time.monotonic() - started < 5
