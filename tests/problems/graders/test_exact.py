from ablation.problems.grade import Grade, grade
from ablation.problems.problem import Problem


def exact(gold: str) -> Problem:
    return Problem("p", "s", "?", "exact", gold)


def test_exact_compares_without_surrounding_space_only():
    assert grade(exact(" yes "), "yes\n") == Grade("correct", "yes")
    assert grade(exact("yes"), "Yes") == Grade("incorrect", "Yes", "wrong_answer")
    assert grade(exact("a b"), "a  b") == Grade("incorrect", "a  b", "wrong_answer")
    assert grade(exact("yes"), " \n") == Grade("no_answer", None, "empty")
