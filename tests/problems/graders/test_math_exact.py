"""Equality of expressions: exact where they are rational or algebraic, proven or told apart where they are not.

Values by hand, by `fractions` and `math`, or from tables of trigonometric values.
"""

from fractions import Fraction
from math import factorial

import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.problems.graders import math_exact
from ablation.problems.graders.math_text import clean
from ablation.problems.graders.math_work import _is_complex, _parse


def same(one: str, other: str) -> bool:
    is_complex = _is_complex(one) or _is_complex(other)
    return math_exact.same(_parse(clean(one), is_complex), _parse(clean(other), is_complex), is_complex=is_complex)


@pytest.mark.parametrize(
    ("gold", "equal", "different"),
    [
        (r"\frac{25!}{20!\,5!}", r"\binom{25}{5}", r"\frac{24!}{20!\,4!}"),
        (r"\frac{2^{100}}{2^{99}}", "2", r"\frac{2^{100}}{2^{98}}"),
        (r"\frac{2024!}{2023!}", "2024", r"\frac{2025!}{2023!}"),
        (r"\frac{3^{50}+1}{2\cdot3^{50}}", r"\frac12+\frac{1}{2\cdot3^{50}}", r"\frac{1}{2\cdot3^{50}}"),
        (r"1-\frac{365!}{335!\cdot365^{30}}", r"1-\frac{364!}{335!\cdot365^{29}}", r"1-\frac{364!}{335!\cdot365^{30}}"),
        (r"\frac{1}{2^{60}}", r"(\frac14)^{30}", r"\frac{1}{2^{59}}"),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", r"\sqrt{5+2\sqrt{6}}+10^{-50}"),
        (r"\sqrt[3]{2+\sqrt{5}}+\sqrt[3]{2-\sqrt{5}}", "1", r"1+10^{-300}"),
        (r"\sqrt{2+\sqrt{2+\sqrt{2}}}", r"2\cos(\pi/16)", r"2\cos(\pi/16)-10^{-99}"),
        (r"\cos(\pi/7)-\cos(2\pi/7)+\cos(3\pi/7)", "0.5", r"\frac12-3^{-90}"),
        (r"\tan(\pi/8)", r"\sqrt{2}-1", r"\sqrt{2}-1+2^{-200}"),
        (r"\ln 6", r"\ln 2+\ln 3", r"\ln 2+\ln 3+10^{-90}"),
        (r"\log_{4}{8}", r"\frac32", r"\frac32+10^{-30}"),
        (r"e^{2\ln 3+1}", "9e", r"9e+10^{-30}"),
        (r"\arctan 1", r"\frac{\pi}{4}", r"\frac{\pi}{4}+10^{-30}"),
        (r"\frac{\pi^{2}}{6}", r"\sum_{k=1}^{\infty}\frac{1}{k^2}", r"\frac{\pi^{2}}{6}+10^{-30}"),
        ("(1+i)^{10}", "32i", "32i+10^{-30}"),
        (r"e^{i\pi/3}", r"\frac{1+\sqrt{3}i}{2}", r"\frac{1+\sqrt{3}i}{2}+10^{-30}i"),
        (r"\lfloor \sqrt{2}\cdot\sqrt{2}\rfloor", "2", "1"),
        ("10^{10^{10}}", "10^{10^{10}}", r"\sqrt{2}"),
        (r"\frac{1}{\sqrt{n}}", r"\sqrt{1/n}", r"-\sqrt{1/n}"),
        (r"x+2^{-60}", r"2^{-60}+x", "x+2^{-59}"),
        (r"\sin x", r"2\sin\frac{x}{2}\cos\frac{x}{2}", r"\sin x+10^{-400}"),
        (r"\cos x", r"\cos(-x)", r"\cos x+10^{-(5\cdot 10^3)}"),
        (r"\sqrt{x^2}", "|x|", "x"),
        ("(-1)^{n}", r"\cos(n\pi)", "1"),
        ("n!", r"n\cdot(n-1)!", r"n\cdot(n-2)!"),
        ("x^{a+b}", "x^{a}x^{b}", "x^{ab}"),
    ],
)
def test_equal_and_nearly_equal(gold, equal, different):
    assert same(gold, equal)
    if "10^{10^{10}}" in gold:
        with pytest.raises(math_exact.TooLarge):
            same(gold, different)
    else:
        assert not same(gold, different)
        assert not same(gold, f"-({equal})")


@given(st.integers(-(10**40), 10**40), st.integers(1, 10**40), st.integers(3, 60), st.sampled_from([-1, 1]))
def test_rationals_are_exact_at_any_size(top, bottom, n, sign):
    value = Fraction(top, bottom)
    written = rf"\frac{{{n}!\cdot({top})}}{{{bottom}\cdot{n}!}}"
    assert math_exact.rational(_parse(written, False)) == value
    assert same(written, rf"\frac{{{top}}}{{{bottom}}}")
    assert not same(written, rf"\frac{{{top}}}{{{bottom}}}+({sign})\cdot\frac{{1}}{{{factorial(n) * bottom}}}")


@given(st.integers(2, 60), st.integers(2, 60), st.integers(-9, 9), st.integers(30, 300))
def test_roots_are_told_apart_and_proven_equal(a, b, c, power):
    nested = rf"\sqrt{{{a + b}+2\sqrt{{{a * b}}}}}+({c})"
    assert same(nested, rf"\sqrt{{{a}}}+\sqrt{{{b}}}+({c})")
    assert not same(nested, rf"\sqrt{{{a}}}+\sqrt{{{b}}}+({c})-10^{{-{power}}}")


@settings(max_examples=25)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(20, 90))
def test_sines_of_fractions_of_pi_are_algebraic(top, bottom, power):
    angle = rf"\frac{{{top}\pi}}{{{bottom}}}"
    assert same(rf"\sin^2({angle})+\cos^2({angle})", "1")
    assert not same(rf"2\sin({angle})\cos({angle})", rf"\sin(\frac{{{2 * top}\pi}}{{{bottom}}})+2^{{-{power}}}")


@pytest.mark.parametrize("text", [r"7^{7^{7^{7}}}", r"(3^{20000000})!", r"10^{10^{10}}"])
def test_what_is_too_large_is_no_wrong_answer(text):
    with pytest.raises(math_exact.TooLarge):
        same(text, "6")


@pytest.mark.parametrize("text", [r"\frac{1}{1-1}", r"\ln(1-1)", r"\tan(\pi/2)", r"(2-2)^{-1}"])
def test_what_has_no_value(text):
    with pytest.raises(math_exact.Undefined):
        math_exact.check_defined(_parse(text, False))


def test_what_nobody_can_prove_is_not_comparable():
    # Machin's formula is true, and beyond the proofs here.
    with pytest.raises(math_exact.NotComparable):
        same(r"4\arctan\frac{1}{5}-\arctan\frac{1}{239}", r"\frac{\pi}{4}")


@pytest.mark.parametrize(
    ("text", "same_digits", "other_digits"),
    [
        (r"\sqrt{2}", ["1.414214", "1.41421356"], ["1.414213", "1.4142", "-1.414214"]),
        (r"\frac{\pi}{10^{6}}", ["0.00000314", "0.000003142"], ["0.000003", "0.0000034", "0.0"]),
        (r"10^{12}\pi", ["3141592653589.793238"], ["3141592653589.793", "3141592653589.8"]),
        (r"-\frac{\pi}{10^{9}}", ["-0.00000000314"], ["0.0", "0.00000000314"]),
    ],
)
def test_a_decimal_is_rounded_to_six_places_or_three_digits(text, same_digits, other_digits):
    tree = _parse(text, False)
    assert all(math_exact.rounds_to(Fraction(digits), tree) for digits in same_digits)
    assert not any(math_exact.rounds_to(Fraction(digits), tree) for digits in other_digits)


def test_rational_parts_of_a_tree_become_numbers():
    assert math_exact.settled(_parse(r"x>\frac{2^{100}}{2^{98}}", False)).rhs == sp.Integer(4)
