import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.problems.grade import Grade, grade
from ablation.problems.graders.integer import read_integer
from ablation.problems.problem import Problem


def integer(gold: str) -> Problem:
    return Problem("p", "s", "?", "integer", gold)


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
    assert grade(integer(gold), answer) == Grade("incorrect", extracted, "wrong_answer")


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
    found = grade(integer(gold), answer)
    assert (found.status, found.extracted) == ("no_answer", None)
    assert found.reason == ("not_one_integer" if answer.strip() else "empty")


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
