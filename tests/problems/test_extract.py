import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.problems.extract import boxed_answer, last_box, strip_groups


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"My first try gave \boxed{8}; rechecking the carry, it is \boxed{11}.", "11"),  # A01
        (r"My first try gave \boxed{8}; " + "rechecking " * 10 + r"it is \boxed{11}.", "11"),
        (r"\boxed{\frac{3}{7}}", r"\frac{3}{7}"),  # A10
        (r"\boxed{\{8,3\}}", r"\{8,3\}"),
        (r"\boxed{ \boxed{\frac{3}{8}} }", r"\frac{3}{8}"),
        (r"\boxed{\boxed{3}+1}", "{3}+1"),
        (r"\boxed{8} and then \boxed{\frac{3}{8}", "8"),  # what never closes hides nothing
        (r"\boxed{ \boxed{3} + ", "3"),
        (r"{1, 2 and \boxed{3}", "3"),  # a stray brace before it
        (r"} \boxed{3}} }", "3"),
        (r"\boxed {3}", "3"),
        ("\\boxed\n{3}", "3"),
        (r"\boxed{{3}}", "3"),
        (r"\boxed{}", ""),
        (r"\boxed{\left\{1,2\right\}}", r"\left\{1,2\right\}"),
        (r"a \\\boxed{3}", "3"),  # a line break, then a box
    ],
)
def test_the_last_complete_box_is_opened(text, inside):
    assert last_box(text) == inside


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"\boxed{\frac{3}{8}", "unclosed_box"),  # A10
        (r"\boxed{3\}", "unclosed_box"),
        ("It is certainly not 11", "no_box"),  # A07
        (r"\boxed 3", "no_box"),
        (r"\\boxed{3}", "no_box"),
        (r"\boxed{ }", "empty_box"),
        ("", "no_box"),
    ],
)
def test_without_a_complete_box_there_is_no_answer_and_a_reason(text, reason):
    found = boxed_answer(text)
    assert (found.status, found.extracted, found.reason) == ("no_answer", None, reason)


BALANCED = st.recursive(
    st.text("ab1+ ,", max_size=4),
    lambda inner: st.one_of(
        inner.map(lambda text: "{" + text + "}"), st.tuples(inner, inner).map("".join), inner.map(r"\{".__add__)
    ),
)


@given(BALANCED, BALANCED, st.text("ab{ ", max_size=8))
def test_any_balanced_text_comes_back_whole(first, last, between):
    assert last_box(rf"\boxed{{{first}}}{between}\boxed{{{last}}} end") == strip_groups(last)


def test_a_hostile_text_costs_linear_time():
    begun = time.perf_counter()
    assert last_box(r"\boxed{" * 100_000) is None
    assert last_box(r"\boxed{" * 50_000 + "7" + "}" * 50_000) == "7"
    assert time.perf_counter() - begun < 5
