from concurrent.futures import ThreadPoolExecutor

import pytest

from ablation.problems.grade import check_problems, grade
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
