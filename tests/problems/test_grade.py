from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.problems.grade import Grade, check_problems, grade, read_integer
from ablation.problems.problem import GRADERS, Problem


def integer(gold: str) -> Problem:
    return Problem("p", "s", "?", "integer", gold)


def exact(gold: str) -> Problem:
    return Problem("p", "s", "?", "exact", gold)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("12500", "12,500"),
        ("12500", "12\\,500"),
        ("12500", "12 500"),
        ("12500", "12\u2009500"),
        ("12500", "12\u00a0500"),
        ("12500", "12{,}500"),
        ("12500", "$12,500.00"),
        ("12500", "\\$12,500.00"),
        ("12500", "\\boxed{12,500}"),
        ("12500", "\\boxed{12\\,500}"),
        ("12500", "\\boxed{\\$12,500.00}"),
        ("12500", "$\\boxed{12500}$"),
        ("12,500", "12500"),
        ("1234567", "1,234,567"),
        ("6", "6."),
        ("6", " 6\n"),
        ("6", "+6"),
        ("6", "006"),
        ("0", "-0"),
        ("-6", "-6"),
        ("-6", "\u22126"),
        ("-6", "-$6.00"),
        ("-6", "$-6"),
        ("-6", "$-6$"),
    ],
)
def test_integer_accepts_the_same_number_in_another_dress(gold, answer):
    assert grade(integer(gold), answer) == Grade("correct", str(int(gold.replace(",", ""))))


@pytest.mark.parametrize(
    ("gold", "answer", "extracted"),
    [("512", "12 500", "12500"), ("512", "12,500", "12500"), ("6", "-6", "-6"), ("11", "8", "8"), ("125", "1250", "1250")],
)
def test_another_integer_is_incorrect(gold, answer, extracted):
    assert grade(integer(gold), answer) == Grade("incorrect", extracted)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("11", "It is certainly not 11"),  # the model is not paid for mentioning a number
        ("42", "I think the value 42 shows up. The final result: unclear"),
        ("12", "12.5"),
        ("12", "12.05"),
        ("125", "1,25"),
        ("1234567", "1,234 567"),  # two kinds of mark
        ("1234567", "1234,567"),
        ("12500", "12  500"),
        ("12", "1 2"),
        ("12", "12 12"),
        ("12", "--12"),
        ("12", "-$-12"),
        ("12", "12%"),
        ("12", "\\boxed{12"),
        ("12", "\\boxed{\\boxed{12}} 12"),
        ("12", "1e1"),
        ("12", "\u0661\u0662"),  # digits of another script
        ("12", "()"),
        ("12", "."),
        ("12", ""),
        ("12", " \n"),
    ],
)
def test_what_is_not_one_integer_is_no_answer(gold, answer):
    assert grade(integer(gold), answer) == Grade("no_answer", None)


@given(st.integers())
def test_integer_reads_every_python_format(number):
    gold = integer(str(number))
    for text in (f"{number}", f"{number:,}", f" {number}. ", f"{number:,}".replace(",", " "), f"{number:,}".replace(",", "\\,")):
        assert grade(gold, text) == Grade("correct", str(number))
    assert grade(gold, str(number + 1)).status == "incorrect"


def test_a_number_of_any_length_is_read_as_text():
    digits = "9" * 200_000  # int() refuses more than 4,300 digits
    assert grade(integer(digits), digits) == Grade("correct", digits)
    assert read_integer(digits + "x") is None


def test_exact_compares_without_surrounding_space_only():
    assert grade(exact(" yes "), "yes\n") == Grade("correct", "yes")
    assert grade(exact("yes"), "Yes") == Grade("incorrect", "Yes")
    assert grade(exact("a b"), "a  b") == Grade("incorrect", "a  b")
    assert grade(exact("yes"), " \n") == Grade("no_answer", None)


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


def test_every_grader_name_grades():
    assert [grade(Problem("p", "s", "?", name, "7"), "7").status for name in GRADERS] == ["correct"] * len(GRADERS)


def test_grading_in_threads_gives_what_one_thread_gives():
    answers = [str(number) for number in range(20)] * 20
    alone = [grade(integer("7"), answer) for answer in answers]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda answer: grade(integer("7"), answer), answers)) == alone
    assert sum(found.status == "correct" for found in alone) == 20
