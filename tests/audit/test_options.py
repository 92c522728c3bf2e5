"""The audit's reading of options, on answers of known kind, and word for word beside the grader's."""

import random
import re
import time

import pytest

from ablation.audit.options import listed, option
from ablation.problems.graders.choice import listed_options, read_letter
from tests.problems.choice_answers import PROMPT, answers

WORDS = r"A B C (A) (B) ( c ) a b A. B) C: D, or and not isn't is wrong correct because answer Answer: option mitosis meiosis - ? / & . , ; : !"
LAYOUT = r"\boxed{ } { \text{ \textbf{ \ \quad ~ $ ** _ it I maybe if so but the rejected 's ’ ' = \\ \( \) as ruled since é \u212a x1 n't"
PIECES = [*re.split(" ", WORDS), *re.split(" ", LAYOUT)]
PIECES += [
    "The answer is",
    "Final answer:",
    "is the best answer",
    "none of the above",
    "must be",
    "\n",
    "\u00a0",
    "Hmm",
    "No.",
    "That is wrong.",
    "I take it back",
    ", wait",
    "(not B)",
    "<answer>",
    "</answer>",
    "答案",
    "是",
    "Ａ",
    "：",
    "\\boxed{A} or \\boxed{",
    "\\text{ and }",
    "A cell",
    "A fits",
]


def test_each_answer_of_known_kind():
    assert [(one, option(one.answer, PROMPT)) for one in answers() if option(one.answer, PROMPT) != one.letter] == []


def test_any_words_as_the_grader_reads_them():
    rng = random.Random(5)
    for _ in range(20_000):
        text = rng.choice([" ", " ", ""]).join(rng.choices(PIECES, k=rng.randint(1, 12)))
        prompt = rng.choice(["", PROMPT, text])
        assert option(text, prompt) == read_letter(text, prompt), (text, prompt)
        assert listed(text) == listed_options(text), text


@pytest.mark.parametrize("piece", ["{", "answer: ", "A ", "not a A b", "\\boxed{", "( ", "option ", "n", "\n", "a b "])
def test_long_texts_take_a_time_that_is_linear(piece):
    text = "B. " + piece * (100_000 // len(piece))
    begun = time.process_time()
    assert option(text, "") == read_letter(text, "")
    assert time.process_time() - begun < 10
