"""Grades of visible answers, read by this audit's own code for the graders `integer`, `exact` and `choice`.

The others (`math`, `reasoning_gym`, `code`) are what `grades.json` says, or what the engine's one
grading function says. Those of `math` are held against this audit's own arithmetic (`mathematics`) where it reads both texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ablation.audit import mathematics
from ablation.audit.findings import Findings
from ablation.audit.options import option

OWN = ("integer", "exact", "choice")
SLOW = ("math", "reasoning_gym", "code")
LIMITED = ("grader_timeout", "memory_limit", "too_long", "not_comparable")
"""Reasons of a wrong answer that say nothing about its value."""
BLANKS = {" ", "\u00a0", "\u2009", "\u202f"}
MARKS = ("{,}", "\\,", ",", *sorted(BLANKS))
MINUS = {"-", "\u2212"}

Grade = tuple[str, str | None]
"""(status, the answer that was compared)."""


def own_grade(grader: str, gold: str, answer: str, prompt: str = "") -> Grade:
    """The grade of one answer; `prompt` matters to `choice`, which reads the options there."""
    readers = {"integer": integer, "exact": lambda text: text.strip() or None, "choice": lambda text: option(text, prompt)}
    read = readers[grader]
    wanted, given = read(gold), read(answer)
    if wanted is None:
        return "grader_error", given
    if given is None:
        return "no_answer", None
    return ("correct" if given == wanted else "incorrect"), given


def integer(text: str) -> str | None:
    """The one integer that the whole text is, as plain digits with a `-` if it is negative; None if it is not one."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == "$":
        text = text[1:-1].strip()
    text = _unboxed(text)
    sign, text = _sign(text)
    text, paid = _currency(text)
    if paid:
        second, text = _sign(text)
        if second and sign:
            return None
        sign = sign or second
    digits = _digits(text)
    if digits is None:
        return None
    plain = digits.lstrip("0") or "0"
    return f"-{plain}" if sign in MINUS and plain != "0" else plain


def _unboxed(text: str) -> str:
    if text.startswith("\\boxed") and text.endswith("}"):
        inside = text[len("\\boxed") :].lstrip()
        if inside.startswith("{"):
            return inside[1:-1].strip()
    return text


def _sign(text: str) -> tuple[str, str]:
    if text[:1] in MINUS | {"+"} and text:
        return text[0], text[1:].lstrip()
    return "", text


def _currency(text: str) -> tuple[str, bool]:
    for mark in ("\\$", "$", "\u20ac", "\u00a3"):
        if text.startswith(mark):
            return text[len(mark) :].lstrip(), True
    return text, False


def _digits(text: str) -> str | None:
    """Digits, in groups of three behind one mark or in one piece; then a dot and zeros, if anything."""
    whole, dot, zeros = text.partition(".")
    if dot and zeros.strip("0"):
        return None
    if _decimal(whole):
        return whole
    for mark in MARKS:
        first, *groups = whole.split(mark)
        if groups and _decimal(first) and len(first) <= 3 and all(_decimal(group) and len(group) == 3 for group in groups):
            return first + "".join(groups)
    return None


def _decimal(text: str) -> bool:
    return text.isascii() and text.isdigit()


def grades(
    pairs: Iterable[tuple[dict[str, Any], str] | None],
    stored: list[dict[str, Any]] | None,
    where: str,
    found: Findings,
    *,
    regrade: bool,
) -> list[Grade | None]:
    """One grade a rollout: of (problem, visible answer); None where there is no visible answer.

    `stored` is what `grades.json` says of each. What this audit reads itself must be what is stored.
    """
    pairs, result = list(pairs), []
    asked: list[tuple[int, dict[str, Any], str]] = []
    for row, pair in enumerate(pairs):
        told = stored[row] if stored is not None else None
        result.append(None)
        if pair is None:
            if told is not None and told["status"] is not None:
                found.differ(where, f"{_who(told)}: has grade `{told['status']}`, but no visible answer")
            continue
        problem, answer = pair
        if problem["grader"] in OWN:
            result[row] = own_grade(problem["grader"], problem["gold"], answer, problem["prompt"])
            found.count("answers graded by this audit's own code")
        elif told is not None and problem["grader"] in SLOW and not regrade:
            result[row] = (told["status"], told["extracted"])
            found.count("grades taken from grades.json")
            if problem["grader"] != "math":
                found.leave(f"grades of `{problem['grader']}`: taken from grades.json (--regrade asks the grader again)")
        else:
            asked.append((row, problem, answer))
    if asked:
        for (row, problem, _), one in zip(asked, _by_the_engine([(one, two) for _, one, two in asked]), strict=True):
            result[row] = one
            found.count("answers graded by the engine's grading function")
            found.borrow(f"the grader `{problem['grader']}`")
    for pair, told, one in zip(pairs, stored or [None] * len(pairs), result, strict=True):
        if pair is not None and one is not None and pair[0]["grader"] == "math":
            who = f"{_who(told)} " if told else f"an answer to {pair[0]['id']} "
            _hold_mathematics(*pair, one, told.get("reason") if told else None, where, who, found)
    for row, one in enumerate(result):
        told = stored[row] if stored is not None else None
        if one is not None and told is not None and (told["status"], told["extracted"]) != one:
            text = f"is stored as `{told['status']}` ({told['extracted']!r}); the answer is `{one[0]}` ({one[1]!r})"
            found.differ(where, f"{_who(told)} {text}")
    return result


def _hold_mathematics(
    problem: dict[str, Any], answer: str, grade: Grade, reason: str | None, where: str, who: str, found: Findings
) -> None:
    """A grade of `math` against this audit's own arithmetic."""
    status, given = grade
    box = mathematics.last_box(answer)
    if status == "grader_error":
        return
    if (given is None) != (box is None or not re.sub(r"\\boxed|[{}\s]", "", box)):
        found.differ(where, f"{who}is graded `{status}` ({given!r}); in its last box is {box!r}")
    elif given is not None:
        if re.sub(r"\\boxed|[{}\s]", "", given) != re.sub(r"\\boxed|[{}\s]", "", str(box)):
            found.differ(where, f"{who}has the answer {given!r} stored; in its last box is {box!r}")
        try:
            seen = mathematics.compared(mathematics.last_box(problem["gold"]) or problem["gold"], given)
        except mathematics.Left as left:
            found.leave(f"grades of `math` that this audit's own arithmetic does not reach: {left}")
            return
        if status == ("incorrect" if seen == "same" else "correct" if seen == "apart" else None) and reason not in LIMITED:
            text = "the same number" if seen == "same" else "another number"
            found.differ(where, f"{who}is graded `{status}`, but {given!r} is {text} beside the gold {problem['gold']!r}")
        elif seen == "close" and status == "incorrect":
            found.leave("grades of `math` that this audit's own arithmetic does not reach: two values that it cannot tell apart")
        else:
            found.count("grades of `math` held by this audit's own arithmetic")


def _by_the_engine(pairs: list[tuple[dict[str, Any], str]]) -> list[Grade]:
    from ablation.problems.grade import grade_all
    from ablation.problems.problem import Problem

    known = ("id", "source", "prompt", "grader")
    made = {
        problem["id"]: Problem(
            *(problem[name] for name in known), problem.get("gold", ""), tests=problem.get("tests"), entry=problem.get("entry")
        )
        for problem, _ in pairs
    }
    return [(one.status, one.extracted) for one in grade_all([(made[problem["id"]], answer) for problem, answer in pairs])]


def _who(told: dict[str, Any]) -> str:
    return f"rollout {told['problem']}@{told['effort']} #{told['index']}"
