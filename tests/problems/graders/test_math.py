"""Grading of mathematics from the box to the verdict. The truth of each pair is written by hand."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ablation.problems.grade import Grade, check_problems, grade, grade_all
from ablation.problems.graders import math
from ablation.problems.problem import Problem
from ablation.problems.workers import Limits, close_workers


def maths(gold: str) -> Problem:
    return Problem("p", "s", "?", "math", gold)


def boxed(gold: str, *answers: str) -> list[Grade]:
    return grade_all([(maths(gold), rf"So \boxed{{{answer}}}.") for answer in answers])


@pytest.fixture(autouse=True, scope="module")
def _no_worker_is_left():
    yield
    close_workers()


@pytest.mark.parametrize("between", ["; ", "; " + "rechecking " * 10])
def test_the_last_box_counts_however_far_it_is_from_the_first(between):  # A01
    text = rf"My first try gave \boxed{{8}}{between}the carry, it is \boxed{{11}}."
    assert grade(maths("11"), text) == Grade("correct", "11")
    assert grade(maths("8"), text) == Grade("incorrect", "11", "wrong_answer")


@pytest.mark.parametrize("text", ["It is certainly not 11", "I think the value 11 shows up. The final result: unclear", ""])
def test_without_a_box_nothing_is_searched_for(text):  # A07, and what A02 leaves to a grader
    assert grade(maths("11"), text) == Grade("no_answer", None, "no_box")


def test_numbers_in_many_dresses_are_one_number():  # A08
    found = boxed("12500", "12,500", r"12\,500", "12 500", "12\u2009500", r"\$12,500.00", "12{,}500", "12 500 dollars", "€12,500")
    assert [one.status for one in found] == ["correct"] * 8
    assert boxed("6", "6.")[0].status == "correct"
    assert boxed("512", "12 500")[0] == Grade("incorrect", "12 500", "wrong_answer")


def test_braces_are_balanced():  # A10
    assert grade(maths(r"\frac{3}{8}"), r"\boxed{\frac{3}{7}}") == Grade("incorrect", r"\frac{3}{7}", "wrong_answer")
    assert grade(maths(r"\frac{3}{8}"), r"\boxed{\frac{3}{8}}").status == "correct"
    assert grade(maths(r"\frac{3}{8}"), r"\boxed{\frac{3}{8}") == Grade("no_answer", None, "unclosed_box")
    assert grade(maths(r"\{3,8\}"), r"\boxed{\{8,3\}}").status == "correct"
    assert grade(maths(r"\frac{3}{8}"), r"\boxed{ \boxed{\frac{3}{8}} }").status == "correct"


TOWERS = [r"\boxed{7^{7^{7^{7}}}}", r"\boxed{(3^{20000000})!}"]  # A04


@pytest.mark.parametrize("from_thread", [False, True])
def test_a_huge_number_ends_at_the_limit_and_the_same_way_twice(from_thread):
    limits = Limits(seconds=0.5)
    pairs = [(maths("6"), answer) for answer in [*TOWERS, r"\boxed{\sqrt{36}}"]]
    begun = time.process_time()
    if from_thread:
        with ThreadPoolExecutor(1) as pool:
            found = [pool.submit(math.grade_many, pairs, 1, limits).result() for _ in range(2)]
    else:
        found = [math.grade_many(pairs, limits=limits) for _ in range(2)]
    assert found[0] == found[1]
    assert [(one.status, one.reason) for one in found[0]] == [("incorrect", "grader_timeout")] * 2 + [("correct", None)]
    assert time.process_time() - begun < 0.5


def test_the_limits_of_a_run_are_five_seconds_and_one_gibibyte():
    assert Limits() == math.LIMITS == Limits(seconds=5.0, memory=2**30)


@pytest.mark.parametrize("gold", [r"\frac{1}{3}", r"\sqrt{3}"])
def test_threads_get_what_one_thread_gets(gold):  # A05; the root needs the workers
    pairs = [(maths(gold), rf"\boxed{{{gold}}}")] * 20
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda pair: grade(*pair), pairs))
    assert [one.status for one in found] == ["correct"] * 20


@pytest.mark.parametrize("gold", ["", " ", r"\text{see figure}", "½", "see figure", r"\frac{1}{0}", r"\foo{1}", "x^{", "不明"])
def test_a_gold_that_cannot_be_read_is_refused_and_never_a_wrong_answer(gold):  # A12
    assert grade(maths(gold), r"\boxed{7}").status == "grader_error"
    assert grade(maths(gold), rf"\boxed{{{gold or ' '}}}").status != "correct"
    assert len(check_problems({"cell": maths(gold)})) == 1


@pytest.mark.parametrize(
    "answer",
    ["__import__('os').getpid()", r"\text{six}", "½", r"\frac{6}{0}", r"\foo", "6 or so I think", "!", r"\\", "2 3", "1 2 3"],
)
def test_an_answer_that_is_no_mathematics_is_wrong(answer):  # B03: no text is evaluated
    assert boxed("6", answer) == [Grade("incorrect", answer, "unreadable_answer")]


def test_a_very_long_answer_is_not_compared():
    assert boxed("6", "6" + "+0" * 2_000) == [Grade("incorrect", "6" + "+0" * 2_000, "too_long")]


@pytest.mark.parametrize(
    ("gold", "equal", "different"),
    [
        (r"\frac{1}{3}", [r"\frac13", "1/3", r"\dfrac{2}{6}", r"0.\overline{3}", r"-\frac{-1}{3}", "x = 1/3"], ["0.333333", "0.3", "3", "-1/3"]),
        ("0.5", [r"\frac{1}{2}", "50\\%", ".5", r"5 \times 10^{-1}", r"\frac{1}{2}\text{ cm}"], ["5", "0.05", "0.5\\%"]),
        (r"50\%", ["50", "0.5", r"50\%", "50 percent"], [r"0.5\%", "5"]),
        (r"0.5\%", ["0.005", r"\frac{1}{2}\%"], ["0.5", r"50\%"]),
        (r"5\text{ cm}", ["5", "5 cm", "5 centimeters", r"5\,\mathrm{cm}", r"5\text{ apples}"], [r"5\text{ m}", "5 km", r"5\text{ cm}^2", "50"]),
        (r"90^\circ", ["90", r"90^{\circ}", "90 degrees"], ["90 radians", r"\frac{\pi}{2}"]),
        (r"2\frac{1}{2}", ["2.5", r"\frac{5}{2}", "2 1/2"], ["1", r"\frac{21}{2}"]),
        ("x=5", ["5", "x=5", "x = 10/2"], ["y=5", "x=6", "x"]),
        ("5", ["x=5", "2+3=5", r"x \approx 5"], ["x=4", "5=4"]),
        ("x^2+y^2=1", ["y^2+x^2=1", "1=x^2+y^2"], ["1", "x^2+y^2=2", "x^2-y^2=1"]),
        (r"\{1,2\}", ["2, 1", r"\{2,1,1\}", r"x=1 \text{ or } x=2", "1 and 2", r"\left\{1, 2\right\}"], ["(1,2)", "[1,2]", "1", "1,2,3"]),
        (r"\{7\}", ["7", r"\{7\}"], ["8", r"\{7,8\}", r"\emptyset"]),
        (r"\emptyset", [r"\varnothing", r"\{\}", "∅"], ["0", r"\{0\}"]),
        ("(1,2)", ["(1, 2)", "1, 2", r"(x,y)=(1,2)", "]1,2["], ["(2,1)", "[1,2]", "(1,2]", r"\{1,2\}", "(1,2,3)"]),
        (r"[0,\infty)", [r"x \in [0, \infty)", r"x \ge 0", r"[0,+\infty)"], [r"(0,\infty)", r"[0,\infty]", r"x > 0"]),
        (r"(-\infty,1)\cup(1,\infty)", [r"(1,\infty) \cup (-\infty,1)", r"\mathbb{R}\setminus\{1\}"], [r"(-\infty,1]\cup(1,\infty)", r"\mathbb{R}"]),
        (r"\pm\sqrt{2}", [r"\sqrt{2}, -\sqrt{2}", r"\{-2^{1/2}, 2^{1/2}\}"], [r"\sqrt{2}", r"\pm 2"]),
        (r"\frac{\sqrt{3}}{3}", [r"\frac{1}{\sqrt{3}}", r"3^{-1/2}", "0.577350"], [r"\sqrt{3}", "0.577351", "0.6"]),
        ("(x+1)^2", ["x^2+2x+1", "(1+x)(x+1)", r"x^{2} + 2\cdot x + 1"], ["x^2+1", "(y+1)^2", "(X+1)^2", "(x-1)^2"]),
        ("2+3i", ["3i+2", "2+3\\mathrm{i}", "i(3-2i)"], ["2-3i", "3+2i", "2+3x"]),
        ("4x^{2}+\\sin x", ["\\frac{8x^3+2x\\sin x}{2x}"], ["4x^2-\\sin x"]),
        (r"\sqrt{x^2}", [r"|x|", r"\sqrt{x \cdot x}"], ["x", "-x"]),
        (r"3\sin 2x", [r"6\sin x\cos x", r"\frac{3(e^{2ix}-e^{-2ix})}{2i}", r"\frac{6\tan x}{1+\tan^2 x}"], [r"3\sin^2 x", r"3\cos 2x"]),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", [r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}"], [r"\begin{pmatrix}1&2\\4&3\end{pmatrix}"]),
        (r"120", ["5!", r"\binom{10}{3}", r"2^3 \cdot 15"], ["4!", r"\binom{10}{2}"]),
        (r"\frac{1}{2}\ln 3", [r"\ln\sqrt{3}", r"\frac{\ln 3}{2}"], [r"\ln 3", r"\frac{1}{2}\ln 2"]),
        ("3.14", ["3.140"], [r"\pi", "3.1416"]),
        ("1,234", ["1234"], ["1, 234"]),
        ("(1,200)", ["(1, 200)"], ["1200"]),
        ("10^{-7}", ["0.0000001", r"\frac{1}{10^7}"], ["0", "2 \\times 10^{-7}"]),
        (r"\frac{25!}{20!\,5!}", ["53130", r"\binom{25}{5}", "C(25,5)"], [r"\frac{24!}{20!\,4!}", "-53130"]),
        (r"(\frac{1}{2^{60}},\sqrt{2})", ["(2^{-60},2^{1/2})", r"2^{-60}, \sqrt2"], [r"(2^{-59},\sqrt2)", r"(2^{-60},\sqrt2+2^{-60})", r"(-2^{-60},\sqrt2)"]),
        (r"[\frac{1}{2^{60}},1)", ["[2^{-60},1)", r"2^{-60}\le x<1"], ["[2^{-59},1)", "[0,1)", r"2^{-59}\le x<1"]),
        (r"\{2^{-60},3\}", [r"3, \frac{1}{2^{60}}"], ["3, 2^{-61}", r"\{0,3\}"]),
        (r"x=\frac{1}{2^{60}}", ["2^{-60}", "x=2^{-60}"], ["2^{-59}", "x=2^{-59}", "x=-2^{-60}"]),
        (r"(-\infty,2^{-60})\cup(\sqrt2,\infty)", [r"(2^{1/2},\infty)\cup(-\infty,\frac{1}{2^{60}})"], [r"(-\infty,2^{-59})\cup(\sqrt2,\infty)", r"(-\infty,2^{-60})\cup(\sqrt2+10^{-40},\infty)"]),
        ("x>2^{-60}", [r"(2^{-60},\infty)", "2^{-60}<x", "2x>2^{-59}"], ["x>2^{-59}", "x>-2^{-60}", r"x\ge2^{-60}"]),
        ("x^2+y^2=2^{-60}", [r"y^2+x^2=\frac{1}{2^{60}}"], ["x^2+y^2=2^{-59}", "x^2+y^2=0"]),
        (r"\begin{pmatrix}2^{-60}&1\end{pmatrix}", [r"\begin{pmatrix}\frac{1}{2^{60}}&1\end{pmatrix}"], [r"\begin{pmatrix}2^{-59}&1\end{pmatrix}"]),
        ("x+2^{-60}", [r"\frac{1}{2^{60}}+x"], ["x+2^{-59}", "x", "x-2^{-60}"]),
        ("300000000", ["3e8", "3E8", "3.0e+8", "3e+8", r"3\text{e}8", "3×10⁸", "3 x 10^8"], ["3e9", "-3e8"]),
        ("0.00003", ["3e-5", "1e-05+2e-05", r"3\times10^{-5}"], ["3e-4", "3e5"]),
        ("2e-1", ["-1+2e"], ["0.2"]),
        (r"\frac{\pi}{2}", ["pi/2", "0.5pi", "π/2", r"\text{pi}/2", "arccos(0)"], ["pi/3", "-pi/2"]),
        (r"\frac1{\sqrt n}", [r"\sqrt{1/n}", "n^{-1/2}", "1/sqrt(n)"], [r"-\sqrt{1/n}", r"\frac1n"]),
        ("2<x<5", ["(2,5)", "5>x>2"], [r"2\le x<5", "(2,6)"]),
        (r"\arcsin x", [r"\frac\pi2-\arccos x"], [r"\arccos x"]),
        (r"\infty", ["infinity", "inf", r"\text{infinity}", "∞"], ["-infinity", "0"]),
        (r"\sin 30^\circ", ["0.5", "sin(30°)"], [r"\sin 30"]),
        ("101_2", ["101", "101_{2}"], ["101_3", "110_2"]),
        ("5", [r"\$5.00", r"5\text{ apples}", r"5\,\operatorname{cm}"], [r"5\text{ or more}", r"5\text{ is not the answer}", r"5\text{ or 6}", r"5\text{ out of 10}", r"5\text{ million}", "5 thousand", r"5\text{ dozen}", r"5\text{ squared}", r"5\text{ halves}", r"5\text{?}", "5'", r"5\ldots", "5..."]),
        ("5000000", ["5 million", r"\$5\text{ million}", r"5\text{ million people}"], ["5 thousand", "5"]),
        (r"\$5", ["5 dollars", "US\\$5.00", r"\text{USD }5"], ["5 cents", "€5", r"5\text{ euros}", "50"]),
        (r"5\text{ km/h}", [r"5\text{ kilometers per hour}", "5 kph"], [r"5\text{ miles per hour}", r"5\text{ m/s}"]),
        (r"9.8\text{ m/s}^2", [r"9.8\text{ meters per second squared}", r"9.8\ \mathrm{m/s^2}"], [r"9.8\text{ m/s}", r"9.8\text{ km/s}^2"]),
        (r"5\text{ kJ}", [r"5\text{ kilojoules}"], [r"5\text{ J}", r"5\text{ MJ}", r"5\text{ kW}"]),
        ("2mg+1", ["1+2gm"], ["2+1", "2"]),
        ("2mg", ["2gm"], ["2"]),
        (r"10:30\text{ a.m.}", ["10:30 AM", "10:30"], [r"10:30\text{ p.m.}", "10:03"]),
        ("3:45", ["3{:}45"], ["1:15", "3:54"]),
        ("3:2", [r"3\text{ to }2", "6:4", r"\frac32"], ["2:3", "3:2:1"]),
        ("1:2:3", ["2:4:6"], ["1:3:2", r"\frac16", "1:2"]),
        (r"3\pmod 7", ["3", r"3 \pmod{7}"], [r"4\pmod 7", r"3\pmod 5"]),
        ("(1,2)", ["y=2,x=1", "(y,x)=(2,1)"], ["y=1,x=2", "(y,x)=(1,2)"]),
        ("x=1,y=2", ["y=2, x=1", "(x,y)=(1,2)", "(1,2)"], ["2,1", "x=2,y=1", "(y,x)=(1,2)"]),
        (r"x<-1\text{ or }x>2", ["x>2 or x<-1", r"(-\infty,-1)\cup(2,\infty)", r"x<-1\lor x>2"], [r"x<-1\text{ and }x>2", "x>2", "-1<x<2"]),
        (r"x>1\text{ and }x<4", ["1<x<4", "(1,4)"], [r"x>1\text{ or }x<4", "x>1"]),
        (r"[2,\infty)", [r"\{x: x\ge 2\}", r"\{x\in\mathbb{R} \mid x\ge 2\}"], [r"\{x: x>2\}"]),
        (r"-2\le x\le 4", [r"4\ge x\ge-2"], [r"-2\le y\le 4"]),
        ("f'(x)=2x", ["2x", r"f^{\prime}(x)=2x"], ["f(x)=2x", "f''(x)=2x"]),
        ("f(3)", ["f(3)"], ["f'(3)", "f(2)"]),
        ("y'=3y", ["y'=3y"], ["y''=3y", "y=3y"]),
        (r"\frac{dy}{dx}=\frac{x}{y}", [r"\dfrac{dy}{dx}=x/y", "x/y"], [r"\frac{dx}{dy}=\frac{x}{y}", r"\frac{dy}{dx}=\frac{2x}{y}"]),
        ("2e^T", [r"e^T\cdot 2"], ["2e", "2e^2"]),
        ("A^TB", [r"A^{\top}B"], ["AB", "A^{-1}B"]),
        (r"\Gamma(5)", ["24"], [r"\gamma(5)"]),
        ("a_n=2n+1", ["a_{n}=1+2n"], ["a_{n+1}=2n+1", "b_n=2n+1"]),
        (r"\frac13", ["0.333...", r"0.\bar3", r"0.3333\ldots"], ["0.3333"]),
        (r"\log_2 10", [r"\log_4 100", r"\frac{\operatorname{ln} 10}{\log_e 2}"], [r"\log_{4} 10"]),
        (r"-1\pm2i", [r"-1\mp 2i"], [r"1\pm2i"]),
        (r"\binom n2", [r"\dbinom n2", r"\tfrac{n(n-1)}2"], [r"\binom2n"]),
        (r"\vec{v}=(1,2)", ["(1,2)", r"\vec{v}=(1,2)"], [r"\vec{v}=(2,1)"]),
        ("101_2", [r"101_{\text{two}}", "(101)_2"], [r"101_{\text{three}}"]),
        ("0", [r"\sin\pi", "1-1"], ["10^{-400}", r"1-\frac{99999999999999999999}{100000000000000000000}"]),
    ],
)  # fmt: skip
def test_the_rules_of_one_answer(gold, equal, different):
    found = boxed(gold, *equal, *different)
    right = {answer for answer, one in zip([*equal, *different], found, strict=True) if one.status == "correct"}
    assert right == set(equal)
    assert boxed(gold, gold)[0].status == "correct"


@pytest.mark.parametrize(
    "answer", [r"\text{13}", r"\mathrm{13}", "**13**", r"\mathbf{1}3", r"\bf 13", "１３", r"\underline{13}", "`13`"]
)
def test_fonts_and_emphasis_do_not_count(answer):
    assert [one.status for one in boxed("13", answer)] == ["correct"]
    assert boxed("73", answer) == [Grade("incorrect", answer, "wrong_answer")]


@pytest.mark.parametrize("answer", ["root 2", "0,5", "six", r"\sqrt\frac34", "tau", "11½"])
def test_what_may_be_misread_is_named_and_no_wrong_answer(answer):
    assert boxed("1.5", answer) == [Grade("incorrect", answer, "unreadable_answer")]


@pytest.mark.parametrize(
    ("gold", "answer", "reason"),
    [("6", "10^{10^{10}}", "grader_timeout"), (r"\frac{\pi}{4}", r"4\arctan\frac15-\arctan\frac1{239}", "not_comparable")],
)
def test_what_is_beyond_the_bounds_is_named(gold, answer, reason):
    assert boxed(gold, answer) == [Grade("incorrect", answer, reason)]


def test_a_gold_may_come_in_a_box_or_dollars():
    for gold in (r"\boxed{\frac{1}{2}}", r"$\frac{1}{2}$", r"\(\frac{1}{2}\)"):
        assert [one.status for one in boxed(gold, "0.5", "0.6")] == ["correct", "incorrect"]
        assert check_problems({"p": maths(gold)}) == []
