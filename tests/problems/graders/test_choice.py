import pytest

from ablation.problems.grade import Grade, check_problems, grade
from ablation.problems.graders.choice import listed_options, read_letter
from ablation.problems.problem import Problem
from tests.problems.choice_answers import PROMPT, answers


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


def test_each_answer_of_known_kind():
    known = answers()
    assert len(known) == 500
    assert [(one, read_letter(one.answer, PROMPT)) for one in known if read_letter(one.answer, PROMPT) != one.letter] == []


def test_hedges_and_rejected_options_are_not_paid():
    for answer in ("(A) or (B) or (C)", "A. B. C. D.", r"\boxed{(A) and (C)}", "not A", "A is wrong"):
        assert grade(choice("A"), answer) == Grade("no_answer", None, "not_one_letter")
    assert grade(choice("A"), "(A) is incorrect. Final answer: D.") == Grade("incorrect", "D", "wrong_answer")
    assert grade(choice("D"), "(A) is incorrect. Final answer: D.") == Grade("correct", "D")


def test_the_options_of_the_prompt_tell_whose_text_follows():
    asked = Problem("p", "s", "Which?\n(A) meiosis\n(B) mitosis\n(C) No\n(D) A and B", "choice", "B")
    assert grade(asked, r"\boxed{B - mitosis}") == Grade("correct", "B")
    assert grade(asked, r"\boxed{A - mitosis}") == Grade("no_answer", None, "not_one_letter")
    assert grade(asked, "C. No") == Grade("incorrect", "C", "wrong_answer")  # the option's own text denies nothing
    assert grade(asked, "(D) A and B") == Grade("incorrect", "D", "wrong_answer")
    inline = listed_options(r"$\textbf{(A)}\ 12 \qquad \textbf{(B)}\ 13 \qquad\textbf{(C)}\ 14$")
    assert inline == {"A": "12", "B": "13", "C": "14"}
    assert listed_options("Answer with A. B. or C") == {}  # names without texts are no list
