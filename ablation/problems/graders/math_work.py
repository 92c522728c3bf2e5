"""What a worker process does for `math`: parse both sides and let math-verify compare what text rules cannot.

Only LaTeX is parsed, by a grammar; no text is ever evaluated as a program.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ablation.problems.graders.math_form import Form, Parts, Unreadable, read_form
from ablation.problems.graders.math_same import same

# Parsed before work begins, so that a worker's child starts with a warm parser.
_WARM = (
    r"\frac{\sqrt{2}}{3}+x^2",
    r"\sin(\pi x)-\log_{2}{8}",
    r"\binom{5}{2}",
    "x<3",
    r"(1,2)\cup(3,4)",
    "2i+e^{x}",
    r"5!\cdot 3",
)
_PRIMES = (7, 11, 13, 17, 19, 23, 31, 37, 41, 43, 47, 53, 59)
_IMAGINARY = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")


def prepare() -> None:
    """Import what `work` needs, once for all children."""
    for text in _WARM:
        _same_value(text, text)


def work(item: list[str]) -> dict[str, Any]:
    """[gold, answer] -> {"same": bool}, or {"failed": "gold" or "answer"} if that is no mathematics, or {"failed": "compare"}."""
    gold_text, answer_text = item
    try:
        gold = _read(gold_text)
    except MemoryError:
        raise
    except Exception:
        return {"failed": "gold"}
    try:
        answer = _read(answer_text)
    except MemoryError:
        raise
    except Exception:
        return {"failed": "answer"}
    try:
        return {"same": same(gold, answer, _same_value)}
    except MemoryError:
        raise
    except Exception:
        return {"failed": "compare"}


@lru_cache(maxsize=256)
def _read(text: str) -> Form:
    """The form of `text`, every value of it parsed. Raises whatever the parser raises if one of them is no mathematics."""
    form = read_form(text)
    _parse_all(form)
    return form


def _parse_all(form: Form) -> None:
    if isinstance(form, Parts):
        for part in form.parts:
            _parse_all(part)
    elif form.exact is None:
        if not (form.name is None or form.has_plain_name):
            _parse(form.whole, _is_complex(form.whole))
        _parse(form.text, _is_complex(form.text))


def _same_value(gold: str, answer: str) -> bool:
    """Both texts compared by math-verify, and by values where its algebra finds no proof. If one of them speaks of complex
    numbers, both are read so."""
    is_complex = _is_complex(gold) or _is_complex(answer)
    one, other = _parse(gold, is_complex), _parse(answer, is_complex)
    return _verify(one, other) or _agree(one, other)


def _is_complex(text: str) -> bool:
    from math_verify.grader import should_treat_as_complex

    return should_treat_as_complex(text) or bool(_IMAGINARY.search(text))


@lru_cache(maxsize=1024)
def _parse(text: str, is_complex: bool) -> Any:
    """`text` as a sympy object; a free letter i is the imaginary unit."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from sympy import Basic, I, MatrixBase, nan, zoo

    written = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none")
    parsed = latex2sympy(
        normalize_latex(text, config=written),
        is_real=None if is_complex else True,
        convert_degrees=False,
        normalization_config=None,
        conversion_config=ConversionConfig(lowercase_symbols=False),
    )
    if not isinstance(parsed, Basic | MatrixBase) or parsed in (nan, zoo):
        raise Unreadable("no value")
    if is_complex:
        parsed = parsed.subs({symbol: I for symbol in parsed.free_symbols if symbol.name == "i"})
    return parsed


def _verify(gold: Any, answer: Any) -> bool:
    """math-verify's comparison; the limits of the worker take the place of its alarms."""
    from math_verify import verify

    return bool(verify(gold, answer, timeout_seconds=None, allow_set_relation_comp=True, raise_on_error=True))


def _agree(gold: Any, answer: Any) -> bool:
    """Two expressions in the same letters that have the same value, to 30 digits, at five points of either sign."""
    from sympy import Expr, N, Rational

    if not (
        isinstance(gold, Expr) and isinstance(answer, Expr) and gold.free_symbols == answer.free_symbols and gold.free_symbols
    ):
        return False
    letters = sorted(gold.free_symbols, key=str)
    for point in range(5):
        at = {
            letter: Rational((-1) ** (point + place) * _PRIMES[(3 * point + place) % len(_PRIMES)], 29 + place)
            for place, letter in enumerate(letters)
        }
        value, other = N(gold.subs(at), 40), N(answer.subs(at), 40)
        if not (value.is_number and other.is_number and value.is_finite and other.is_finite):
            return False
        if abs(value - other) > abs(value) * Rational(1, 10**30) + Rational(1, 10**35):
            return False
    return True
