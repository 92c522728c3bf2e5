"""The audit's reading of integers, by hand and against the grader's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.audit.answers import grades, integer, own_grade
from ablation.audit.findings import Findings
from ablation.problems.graders.integer import read_integer


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 42 ", "42"),
        ("-007", "-7"),
        ("\u22123", "-3"),
        ("-0", "0"),
        ("+5", "5"),
        ("1,234,567", "1234567"),
        ("1{,}234", "1234"),
        ("12 345", "12345"),
        ("\\boxed{6}", "6"),
        ("$\\boxed {-6.00}$", "-6"),
        ("$-5", "-5"),
        ("-$5", "-5"),
        ("\u20ac 9.", "9"),
        ("-$-5", None),
        ("1,23", None),
        ("1,234 567", None),
        ("12.5", None),
        ("6 apples", None),
        ("", None),
        ("\\boxed{}", None),
        ("\u0663", None),
    ],
)
def test_by_hand(text, value):
    assert integer(text) == value == read_integer(text)


@given(st.text(alphabet="0123456789,.$-+ {}\\\u2212\u00a0\u20ac", max_size=14))
def test_as_the_grader_reads_it(text):
    assert integer(text) == read_integer(text)
    assert integer(f"\\boxed{{{text}}}") == read_integer(f"\\boxed{{{text}}}")


def test_grades_and_what_they_are_compared_with():
    assert own_grade("integer", "7", "7.0") == ("correct", "7")
    assert own_grade("integer", "7", "8") == ("incorrect", "8")
    assert own_grade("integer", "seven", "8") == ("grader_error", "8")
    assert own_grade("exact", " yes", "yes ") == ("correct", "yes")
    assert own_grade("exact", "yes", " ") == ("no_answer", None)
    found, problem = Findings(), {"id": "p", "grader": "math", "gold": "\\frac{1}{2}"}
    stored = [{"problem": "p", "effort": "low", "index": 0, "status": "correct", "extracted": "0.5"}]
    assert grades([(problem, "\\boxed{0.5}")], stored, "there", found, regrade=False) == [("correct", "0.5")]
    assert (found.cannot, found.differences) == ([], [])  # `math` is held by the audit's own arithmetic
    choice = {"id": "c", "source": "s", "prompt": "?", "grader": "choice", "gold": "B"}
    assert grades([(choice, "(B)"), None], None, "there", found, regrade=False) == [("correct", "B"), None]
    assert found.borrowed == []
