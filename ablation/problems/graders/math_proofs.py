"""Proofs that a number is zero where it is not algebraic: what holds for any values of pi, e and the logarithms of primes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import sympy as sp
from mpmath import iv

from ablation.problems.graders.math_bound import halves_of
from ablation.problems.graders.math_values import (
    FIRST_BITS,
    HYPERBOLIC,
    TRIG,
    Evaluation,
    NotComparable,
    TooLarge,
    Undefined,
    Wide,
    ends,
    is_zero,
    minus,
)


def holds_in_general(tree: sp.Expr, is_complex: bool) -> bool:
    """Whether `tree` is zero for any values of pi, e and the logarithms of primes in it."""
    try:
        free = _freed(tree, is_complex)
        letters = sorted(free.free_symbols, key=str)
        points = [
            {letter: Fraction(10_007 + 613 * point + 97 * place, 2_003 + 31 * place) for place, letter in enumerate(letters)}
            for point in range(3)
        ]
        if all(is_zero(free, at, is_complex) for at in points):
            return True
    except (NotComparable, Undefined, TooLarge, Wide):
        pass
    return sp.simplify(tree) == 0


def _freed(tree: sp.Basic, is_complex: bool) -> sp.Expr:
    """`tree` with a letter for pi, for e, for the logarithm of each prime, and for whatever else is not algebraic."""
    if tree is sp.pi:
        return sp.Symbol("pi", positive=True)
    if tree is sp.E:
        return sp.Symbol("e", positive=True)
    if isinstance(tree, sp.Rational) or tree is sp.I:
        return tree
    value = Evaluation(4 * FIRST_BITS, {}, is_complex).value(tree)
    if isinstance(value, Fraction):
        return sp.Rational(value.numerator, value.denominator)
    kind = tree.func
    if kind in (sp.Add, sp.Mul):
        return kind(*(_freed(arg, is_complex) for arg in tree.args))
    if kind is sp.UnevaluatedExpr:
        return _freed(tree.args[0], is_complex)
    if kind is sp.log:
        logs = [_freed_log(arg, is_complex) for arg in tree.args]
        return logs[0] if len(logs) == 1 else logs[0] / logs[1]
    if kind is sp.Pow and isinstance(tree.args[1], sp.Rational):
        return _freed(tree.args[0], is_complex) ** tree.args[1]
    if kind is sp.exp:
        return _freed_exp(sp.expand(_freed(tree.args[0], is_complex)))
    if kind is sp.Pow:
        power = _freed(tree.args[1], is_complex) * _freed_log(tree.args[0], is_complex)
        return _freed_exp(sp.expand(sp.cancel(power)))
    if kind in TRIG and halves_of(tree.args[0]) is not None:
        return tree
    if kind in HYPERBOLIC:
        return _freed(HYPERBOLIC[kind](tree.args[0]), is_complex)
    if kind in (sp.asin, sp.acos, sp.atan) and (halves := _arc_halves(kind, tree.args[0], value)) is not None:
        return halves * sp.Symbol("pi", positive=True)
    return sp.Symbol(sp.srepr(tree), positive=True)


def _freed_log(tree: sp.Basic, is_complex: bool) -> sp.Expr:
    if tree is sp.E:
        return sp.Integer(1)
    value = Evaluation(4 * FIRST_BITS, {}, is_complex).value(tree)
    if isinstance(value, Fraction) and value > 0:
        found = sp.Integer(0)
        for number, sign in ((value.numerator, 1), (value.denominator, -1)):
            for prime, times in sp.factorint(number, limit=10_000).items():
                found += sign * times * sp.Symbol(f"log {prime}", positive=True)
        return found
    if isinstance(value, iv.mpf) and value > 0:
        if tree.func is sp.exp:
            return _freed(tree.args[0], is_complex)
        if tree.func is sp.Pow:
            return _freed(tree.args[1], is_complex) * _freed_log(tree.args[0], is_complex)
        if tree.func is sp.Mul:
            return sp.Add(*(_freed_log(arg, is_complex) for arg in tree.args))
    return sp.Symbol(f"log of {sp.srepr(tree)}", positive=True)


def _freed_exp(power: sp.Expr) -> sp.Expr:
    found: sp.Expr = sp.Integer(1)
    for term in sp.Add.make_args(power):
        number, letter = term.as_coeff_Mul()
        if letter == 1:
            found *= sp.Symbol("e", positive=True) ** number
        elif isinstance(letter, sp.Symbol) and letter.name.startswith("log ") and letter.name[4:].isdigit():
            found *= sp.Integer(int(letter.name[4:])) ** number
        else:
            found *= sp.Symbol(f"exp of {sp.srepr(letter)}", positive=True) ** number
    return found


def _arc_halves(kind: type, arg: sp.Expr, value: Any) -> sp.Rational | None:
    """The angle divided by pi, if it is a fraction with a denominator of at most 120: found by its value, then proven."""
    if not isinstance(value, iv.mpf):
        return None
    iv.prec = 4 * FIRST_BITS
    low, high = ends(value / iv.mpf(iv.pi))
    halves = ((low + high) / 2).limit_denominator(120)
    if not low <= halves <= high:
        return None
    back = {sp.asin: sp.sin, sp.acos: sp.cos, sp.atan: sp.tan}[kind]
    angle = sp.Rational(halves.numerator, halves.denominator)
    try:
        proven = is_zero(minus(back(angle * sp.pi, evaluate=False), arg), {}, False)
    except (NotComparable, Undefined):
        return None
    return angle if proven else None
