import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ablation.problems.extract import boxed_answer
from ablation.problems.grade import check_problems, grade
from ablation.problems.graders.choice import read_letter
from ablation.problems.graders.code import read_code
from ablation.problems.graders.integer import read_integer
from ablation.problems.graders.math_form import Unreadable, read_form
from ablation.problems.graders.reasoning_gym import read_answer
from ablation.problems.graders.reasoning_gym_work import is_arithmetic
from ablation.problems.problem import Problem


def integer(gold: str) -> Problem:
    return Problem("p", "s", "?", "integer", gold)


@pytest.mark.parametrize("gold", ["", "\\text{see figure}", "½", "1.5", "1/2"])
def test_a_gold_that_cannot_be_read_is_never_an_incorrect_answer(gold):
    assert grade(integer(gold), "7").status == "grader_error"
    assert grade(integer(gold), gold).status == "grader_error"
    assert grade(integer(gold), "").status == "grader_error"


def test_check_problems_names_the_problems_whose_gold_fails():
    problems = {
        "good": Problem("good", "s", "?", "integer", "1,000"),
        "figure": Problem("figure", "s", "?", "integer", "\\text{see figure}"),
        "half": Problem("half", "s", "?", "integer", "½"),
        "empty": Problem("empty", "s", "?", "exact", " "),
        "text": Problem("text", "s", "?", "exact", "½"),
    }
    lines = check_problems(problems)
    assert [line.split("`")[1] for line in lines] == ["figure", "half", "empty"]
    assert "gold `½`" in lines[1]


def test_grading_in_threads_gives_what_one_thread_gives():
    answers = [str(number) for number in range(20)] * 20
    alone = [grade(integer("7"), answer) for answer in answers]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda answer: grade(integer("7"), answer), answers)) == alone
    assert sum(found.status == "correct" for found in alone) == 20


BLANKS, MANY = " " * 30_000, 30_000
HOSTILE = {
    "blanks after a sign": f"-{BLANKS}x",
    "blanks after a currency sign": f"-${BLANKS}x",
    "blanks after a bracket": f"({BLANKS}x",
    "blanks before a fence's end": f"```{BLANKS}`",
    "blanks after tildes": f"{'~' * MANY}{BLANKS}`",
    "backticks": "`" * MANY + "x`",
    "fences that never close": "```\n" * MANY,
    "digits": "9" * MANY + "x",
    "thousands": "1" + ",000" * MANY + "x",
    "letters": "a" * MANY + "$",
    "boxes in boxes": "\\boxed{" * MANY + "1" + "}" * MANY,
    "boxes that never close": "\\boxed{" * MANY,
    "braces": "{" * MANY + "}" * MANY,
    "tags": "<answer>" * MANY,
    "texts in texts": "\\text{" * MANY,
    "a box that is as long as is read": "\\boxed{" + "1 000" * 790 + "x}",
    "slashes in a box": "\\boxed{1" + "/" * 3900 + "}",
    "units in a box": "\\boxed{1" + "\\text{a}" * 480 + "x}",
    "blanks in a box": "\\boxed{- " + "\\ " * 1900 + "x}",
    "brackets in a box": "\\boxed{" + "(" * 1900 + "1" + ")" * 1900 + "}",
    "words in a box": "\\boxed{1" + " aa" * 1300 + "+}",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_to_read_an_answer_costs_about_as_much_as_its_length(text):
    began = time.process_time()
    read_integer(text)
    read_letter(text)
    read_code(text)
    read_answer(text)
    is_arithmetic(text)
    boxed = boxed_answer(text)
    if isinstance(boxed, str):
        with contextlib.suppress(Unreadable):
            read_form(boxed)
    assert time.process_time() - began < 3
