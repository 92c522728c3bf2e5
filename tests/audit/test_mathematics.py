"""The audit's own reading of mathematics: by hand, on pairs of known truth, and against grades that are not true."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.audit.answers import grades
from ablation.audit.findings import Findings
from ablation.audit.mathematics import Left, compared, last_box
from ablation.problems.graders.math_work import work
from tests.problems.answer_pairs import answer_pairs
from tests.problems.maths_pairs import pairs


@pytest.mark.parametrize(
    ("gold", "answer", "found"),
    [
        (r"\frac{25!}{20!\,5!}", r"\binom{25}{5}", "same"),
        (r"\frac{25!}{20!\,5!}", r"\frac{24!}{20!\,4!}", "apart"),
        (r"\frac{1}{2^{60}}", r"\frac{1}{2^{59}}", "apart"),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", "close"),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}+10^{-90}", "apart"),
        ("12,500", "12500.00", "same"),
        (r"2\frac{1}{2}", "2.5", "same"),
        (r"x=\frac12", "0.5", "same"),
        (r"\left(1,\frac{2}{4}\right)", "(1,0.5)", "same"),
        (r"\{1,2\}", r"\{2,1,1\}", "same"),
        ("(1,2)", "(2,1)", "apart"),
        (r"(-\infty,3]", r"(-\infty,4]", "apart"),
        (r"(-\infty,3]", "(0,3]", "apart"),
        (r"\ln(4)", r"2\ln(2)", "close"),
        (r"\sqrt{2}", "1.4142", "apart"),
        (r"\infty", r"-\infty", "apart"),
        (r"\infty", "5", "apart"),
    ],
)
def test_by_hand(gold, answer, found):
    assert compared(gold, answer) == found


@pytest.mark.parametrize(
    ("gold", "answer", "why"),
    [
        ("x+1", "1+x", "letters"),
        (r"\sqrt{2}", "1.414214", "decimals near a value that is not rational"),
        ("50", r"50\text{ cm}", "units, percent and words"),
        ("23", "2 3", "writing that can be read in two ways"),
        ("15", "1{,}5", "writing that can be read in two ways"),
        (r"\frac{1}{2\pi}", r"1/2\pi", "writing that can be read in two ways"),
        ("x=5", "y=5", "equations of two names"),
        ("1,2", r"\{1,2\}", "lists without brackets"),
        (r"\infty", "∞", "writing that can be read in two ways"),
        (r"\infty", r"\pm\infty", "other commands and relations"),
        (r"\infty", r"\text{infinity}", "units, percent and words"),
        (r"2\frac12", r"2{\frac12}", "writing that can be read in two ways"),
        (r"\frac13", "0.333...", "writing that can be read in two ways"),
        (r"\frac{1}{0}", "1", "values that are not defined or too large"),
    ],
)
def test_what_is_left_out(gold, answer, why):
    with pytest.raises(Left, match=why):
        compared(gold, answer)


def test_the_last_box():
    assert last_box(r"\boxed{1} and \boxed{\frac{2}{3}} or \boxed{4") == r"\frac{2}{3}"
    assert last_box(r"\boxed{\{1\}}") == r"\{1\}"
    assert last_box("42") is None


def test_pairs_of_known_truth():
    read = 0
    for pair in answer_pairs() + pairs():
        try:
            found = compared(pair.gold, pair.answer)
        except Left:
            continue
        read += 1
        assert found in (("same", "close") if pair.equal else ("apart",)), pair
    assert read > 1_800


@given(st.text(alphabet="0123456789abe+-*/^!(){}[]\\,.= πi", max_size=30))
def test_any_text_is_read_or_left(text):
    for gold, answer in ((text, "1"), ("1", text), (text, text)):
        try:
            found = compared(gold, answer)
        except Left:
            continue
        assert found in ("same", "close", "apart") and not (gold == answer and found == "apart")


def held(gold: str, answer: str, status: str, extracted: str | None, reason: str | None = None) -> Findings:
    found = Findings()
    stored = [{"problem": "p", "effort": "low", "index": 0, "status": status, "extracted": extracted, "reason": reason}]
    grades([({"id": "p", "grader": "math", "gold": gold, "prompt": "?"}, answer)], stored, "there", found, regrade=False)
    return found


def test_a_grade_that_is_not_true_is_a_difference():
    gold, wrong = r"\frac{25!}{20!\,5!}", r"\boxed{\frac{24!}{20!\,4!}}"
    assert held(gold, wrong, "correct", r"\frac{24!}{20!\,4!}").differences == [
        r"there: rollout p@low #0 is graded `correct`, but '\\frac{24!}{20!\\,4!}' is another number beside the gold '\\frac{25!}{20!\\,5!}'"
    ]
    assert held(gold, wrong, "incorrect", r"\frac{24!}{20!\,4!}", "wrong_answer").differences == []
    assert held(gold, r"\boxed{53130}", "incorrect", "53130", "wrong_answer").differences
    assert held(gold, r"\boxed{53130}", "no_answer", None, "no_box").differences
    assert held(gold, r"\boxed{53130} or so", "correct", "53131").differences
    fine = held(gold, r"so \boxed{ {53130} }", "correct", "53130")
    assert (fine.differences, fine.cannot) == ([], [])
    assert fine.checked["grades of `math` held by this audit's own arithmetic"] == 1
    assert held("x+1", r"\boxed{1+x}", "correct", "1+x").cannot == [
        "grades of `math` that this audit's own arithmetic does not reach: letters"
    ]


NUMBERS = st.one_of(
    st.integers(0, 20).map(str),
    st.sampled_from(["0.5", "1.25", r"\pi", "e", r"\sqrt{2}", r"\frac12", r"2\frac{1}{3}", "10^{20}"]),
)
SUMS = st.recursive(
    NUMBERS,
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["+", "-", r"\cdot ", "/", "*", "^", ""]), part).map(lambda t: f"({t[0]}){t[1]}({t[2]})"),
        st.tuples(part, st.sampled_from(["+", "-", r"\cdot ", r" \times "]), part).map("".join),
        st.tuples(part, part).map(lambda t: rf"\frac{{{t[0]}}}{{{t[1]}}}"),
        part.map(lambda one: f"-{one}"),
        part.map(lambda one: rf"\sqrt{{{one}}}"),
        part.map(lambda one: rf"\ln({one})"),
        st.tuples(part, st.integers(2, 9)).map(lambda t: f"({t[0]})^{t[1]}"),
        st.integers(0, 9).map(lambda n: f"{n}!"),
    ),
    max_leaves=5,
)


@settings(deadline=None)
@given(SUMS, SUMS)
def test_the_grader_sees_the_same(gold, answer):
    """Two readers and two ways to compute, of one text."""
    for one, other in ((gold, answer), (gold, f"({gold})+1-1"), (gold, f"{gold}+10^{{-40}}")):
        try:
            found = compared(one, other)
        except Left:
            continue
        told = work([one, other])
        assert "failed" in told or told["same"] == (found != "apart"), (one, other, found, told)
