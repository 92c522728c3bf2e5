"""When two forms are the same answer. How two values are compared is handed in: exactly in the program, by algebra in a
worker."""

from __future__ import annotations

import re
from collections.abc import Callable

from ablation.problems.graders.math_form import Form, Parts, Value

Compare = Callable[[str, str], bool]
"""(gold, answer) as LaTeX -> same value."""


def same(gold: Form, answer: Form, compare: Compare) -> bool:
    """Whether `answer` says what `gold` says, by the rules of `math_form`; `compare` decides what is not two exact numbers."""
    if isinstance(gold, Value) and isinstance(answer, Value):
        return _same_value(gold, answer, compare)
    if isinstance(gold, Parts) and isinstance(answer, Parts):
        return _same_parts(gold, answer, compare)
    parts, value = (gold, answer) if isinstance(gold, Parts) else (answer, gold)
    assert isinstance(parts, Parts) and isinstance(value, Value)
    if parts.kind in ("set", "list") and len(parts.parts) == 1:
        return same(parts.parts[0], answer, compare) if parts is gold else same(gold, parts.parts[0], compare)
    if value.exact is not None and value.name is None:
        return False
    return compare(gold.whole, answer.whole)  # an inequality and an interval, a union and a set, ...


def _same_parts(gold: Parts, answer: Parts, compare: Compare) -> bool:
    kinds = {gold.kind, answer.kind}
    if len(kinds) > 1 and not kinds <= {"set", "list"} and kinds != {"list", "()"}:
        return False
    if len(gold.parts) == len(answer.parts) > 1 and (_names(gold) or _names(answer)):
        left, right = (_in_order(one) for one in (gold, answer))
        return all(same(one, other, compare) for one, other in zip(left, right, strict=True))
    if kinds <= {"set", "list"}:
        return all(any(same(one, other, compare) for other in answer.parts) for one in gold.parts) and all(
            any(same(one, other, compare) for one in gold.parts) for other in answer.parts
        )
    return len(gold.parts) == len(answer.parts) and all(
        same(one, other, compare) for one, other in zip(gold.parts, answer.parts, strict=True)
    )


def _names(form: Parts) -> list[str]:
    """The names of all parts, each another letter: x = 1, y = 2. Otherwise none."""
    names = [part.name or "" for part in form.parts if isinstance(part, Value) and part.has_plain_name]
    return names if len(names) == len(form.parts) == len(set(names)) else []


def _in_order(form: Parts) -> list[Form]:
    """The parts in the order of their names, where they have any."""
    names = _names(form)
    return [form.parts[place] for place in sorted(range(len(names)), key=names.__getitem__)] if names else list(form.parts)


def _same_value(gold: Value, answer: Value, compare: Compare) -> bool:
    if gold.name is not None and answer.name is not None:
        if not (gold.has_plain_name and answer.has_plain_name):
            return compare(gold.whole, answer.whole)
        if _letter(gold.name) != _letter(answer.name):
            return False
    elif gold.name is not None and not gold.has_plain_name:
        return compare(gold.whole, answer.whole)
    if gold.clock and answer.clock:
        return gold.clock == answer.clock and not (gold.unit and answer.unit and gold.unit != answer.unit)
    if gold.unit and answer.unit and gold.unit != answer.unit:
        return False
    if gold.percent == answer.percent:
        return _same_number(gold, answer, 1, 1, compare)
    of_gold, of_answer = (100, 1) if gold.percent else (1, 100)
    if _same_number(gold, answer, of_gold, of_answer, compare):
        return True
    percent = (gold if gold.percent else answer).exact
    return (percent is None or abs(percent) > 1) and _same_number(gold, answer, 1, 1, compare)


def _letter(name: str) -> str:
    return re.sub(r"[\s{}]", "", name)


def _same_number(gold: Value, answer: Value, of_gold: int, of_answer: int, compare: Compare) -> bool:
    """Both divided by what their percent signs stand for."""
    if gold.exact is not None and answer.exact is not None:
        return gold.exact / of_gold == answer.exact / of_answer
    return compare(_divided(gold.text, of_gold), _divided(answer.text, of_answer))


def _divided(text: str, by: int) -> str:
    return text if by == 1 else rf"\frac{{{text}}}{{{by}}}"
