import pytest

from ablation.problems.grade import Grade, check_problems, grade
from ablation.problems.problem import Problem


def choice(gold: str) -> Problem:
    return Problem("p", "s", "?", "choice", gold)


@pytest.mark.parametrize(
    "answer",
    [
        r"\boxed{B}", r"so it is \boxed{B}.", r"\boxed{A}, no: \boxed{B}", r"\boxed{\text{B}}", r"\boxed{\textbf{(B)}\ 12}", r"\boxed{(B)}",
        r"$\boxed{\mathrm{B}}$", "B", " b\n", "(B)", "B.", "B)", "B: Paris", "(B) Paris", "**B**", "**B.** Paris", "$B$", "B. 12",
    ],
)  # fmt: skip
def test_one_letter_in_a_box_or_as_the_whole_answer(answer):
    assert grade(choice("B"), answer) == Grade("correct", "B")
    assert grade(choice("C"), answer) == Grade("incorrect", "B", "wrong_answer")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("The answer is B", "not_one_letter"),
        ("A, B", "not_one_letter"),
        ("AB", "not_one_letter"),
        ("B or C", "not_one_letter"),
        ("Because", "not_one_letter"),
        ("B. Paris\nor maybe C", "not_one_letter"),
        (r"\boxed{B", "not_one_letter"),
        (r"B \boxed{}", "not_one_letter"),
        (r"B \boxed{12}", "not_one_letter"),
        ("Б", "not_one_letter"),  # a letter, but not from A to Z
        ("", "empty"),
    ],
)
def test_anything_else_is_no_answer(answer, reason):
    assert grade(choice("B"), answer) == Grade("no_answer", None, reason)


def test_a_gold_is_one_letter():
    golds = {"b": "B", "small": "c", "two": "AB", "none": "", "number": "3"}
    problems = {name: Problem(name, "s", "?", "choice", gold) for name, gold in golds.items()}
    assert [line.split("`")[1] for line in check_problems(problems)] == ["two", "none", "number"]
