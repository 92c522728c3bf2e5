"""What a worker process does for `math`: parse both sides and let math-verify compare what text rules cannot.

Only LaTeX is parsed, by a grammar; no text is ever evaluated as a program.
"""

from __future__ import annotations

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


def prepare() -> None:
    """Import what `work` needs, once for all children."""
    for text in _WARM:
        _verify(_parse(text), _parse(text))


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
        return {"same": same(gold, answer, lambda one, other: _verify(_parse(one), _parse(other)))}
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
            _parse(form.whole)
        _parse(form.text)


@lru_cache(maxsize=1024)
def _parse(text: str) -> Any:
    """`text` as a sympy object."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from math_verify.grader import should_treat_as_complex
    from sympy import Basic, MatrixBase, nan, zoo

    written = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none")
    parsed = latex2sympy(
        normalize_latex(text, config=written),
        is_real=not should_treat_as_complex(text),
        convert_degrees=False,
        normalization_config=None,
        conversion_config=ConversionConfig(lowercase_symbols=False),
    )
    if not isinstance(parsed, Basic | MatrixBase) or parsed in (nan, zoo):
        raise Unreadable("no value")
    return parsed


def _verify(gold: Any, answer: Any) -> bool:
    """math-verify's comparison; the limits of the worker take the place of its alarms."""
    from math_verify import verify

    return bool(verify(gold, answer, timeout_seconds=None, allow_set_relation_comp=True, raise_on_error=True))
