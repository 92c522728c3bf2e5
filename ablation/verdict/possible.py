"""Figures that somebody reported and that cannot be: a part larger than its whole, parts that together are more than there is,
a change that leaves fewer than none, a ratio that is not that of its two numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction

from ablation.plan.measures import AGENT_COUNTS, COUNTS
from ablation.verdict.exact import exact

WITHIN = (
    ("clean", "correct", "the correct ones,"),
    ("truncated", "truncated_or_looping", "the truncated or looping ones,"),
    ("looping", "truncated_or_looping", "the truncated or looping ones,"),
    ("periodic", "looping", "the looping ones,"),
    ("strong", "looping", "the looping ones,"),
)
"""(part, whole, the whole in words)."""
UNIONS = (
    ("truncated_or_looping", ("truncated", "looping"), "the truncated and the looping ones together,"),
    ("looping", ("periodic", "strong"), "the periodic and the strong loops together,"),
)
"""(union, its parts, the parts in words)."""
APART = (
    ("clean", ("truncated", "looping", "truncated_or_looping"), "the rollouts that are not clean,"),
    ("correct", ("no_answer",), "the rollouts that are not correct,"),
)
"""(measure, measures that no such rollout can have, the rest in words)."""
LABELS = ("full_compliance", "partial_compliance", "over_refusal", "bad_plain", "missing_answer", "unparsed")
"""An answer of a safety smoke is at most one of these."""
PER = {"tokens_per_correct": "correct", "clean_length": "clean"}
"""A number -> the rollouts that it is over: of none it is undefined."""
OWN_RATIOS = ("tokens_per_correct", "cjk_share")
"""Measures whose ratio is that of the two models' own numbers; the others' are means of ratios."""
SLACK = Fraction(2, 100)
"""How far such a ratio may be from theirs, beyond the rounding of what is stated."""


def impossible(counts: Mapping[str, int | None], rollouts: int | None) -> Iterator[tuple[str, str]]:
    """(measure, what is wrong with its count) for one model's counts. Measures that are missing or None are not known."""
    known = {name: count for name, count in counts.items() if name in COUNTS and count is not None}

    def more(name: str, limit: int | None, what: str) -> Iterator[tuple[str, str]]:
        if name in known and limit is not None and known[name] > limit:
            yield name, f"{known[name]} is more than {what} {limit}"

    for name in known:
        yield from more(name, rollouts, "the number of rollouts,")
    for part, whole, words in WITHIN:
        yield from more(part, known.get(whole), words)
    for union, parts, words in UNIONS:
        if all(part in known for part in parts):
            yield from more(union, sum(known[part] for part in parts), words)
    if rollouts is None:
        return
    for measure, others, words in APART:
        if measure in known:
            for other in others:
                yield from more(other, rollouts - known[measure], words)
    for names, what in ((AGENT_COUNTS, "turns with and without a valid tool call"), (LABELS, "labels")):
        there = [name for name in names if name in known]
        total = sum(known[name] for name in there)
        if len(there) > 1 and total > rollouts and all(known[name] <= rollouts for name in there):
            yield there[-1], f"the {what} are {total} together, more than the number of rollouts, {rollouts}"


def undefined(numbers: Mapping[str, float | int | None]) -> Iterator[tuple[str, str]]:
    """(measure, what is wrong with it) for one model's numbers that are over rollouts which it does not have."""
    for name, count in PER.items():
        if numbers.get(name) is not None and numbers.get(count) == 0:
            yield name, f"{_plain(numbers[name])} is over the {count} rollouts, and there are 0"
    total, correct, each = (numbers.get(name) for name in ("total_tokens", "correct", "tokens_per_correct"))
    if total and correct and each and not _close(each, exact(total) / exact(correct), _rounding(each)):
        yield "tokens_per_correct", f"{_plain(each)} is not total_tokens {_plain(total)} / correct {correct}"


def impossible_changes(
    changes: Mapping[str, float | int],
    subject: Mapping[str, int | None],
    reference: Mapping[str, int | None],
    rollouts: int | None,
) -> Iterator[tuple[str, str]]:
    """(measure, what is wrong) where a change of counts, from one model's known counts, leaves the other with impossible ones.

    `changes`: subject minus reference.
    """
    for side, known, other, sign in (("subject", subject, reference, 1), ("reference", reference, subject, -1)):
        own = {name: count for name, count in known.items() if name in COUNTS and count is not None}
        left = {
            name: other[name] + sign * int(change)
            for name, change in changes.items()
            if name in COUNTS and other.get(name) is not None and name not in own
        }
        for name, count in left.items():
            if count < 0:
                yield name, f"{_plain(changes[name])} would leave the {side} with {count}"
        before = {name for name, _ in impossible(own, rollouts)}
        whole = {name: count for name, count in (own | left).items() if count >= 0}
        for name, text in impossible(whole, rollouts):
            if name not in before:
                at = name if name in left else next((one for one in left if one in whole), name)
                yield at, f"by this change the {side} has impossible counts: `{name}` {text}"


def of_count(stated: float, count: int, rollouts: int) -> bool:
    """Whether a share is that of `count` in `rollouts`, as far as its digits say."""
    return abs(exact(stated) - Fraction(count, rollouts)) <= _half_digit(stated)


def of_numbers(ratio: float, subject: float, reference: float) -> bool:
    """Whether a ratio is that of two numbers, as far as the digits of the three say. `subject` and `reference` are not 0."""
    rounding = sum((_rounding(one) for one in (ratio, subject, reference)), Fraction(0))
    return _close(ratio, exact(subject) / exact(reference), rounding)


def _close(stated: float, wanted: Fraction, rounding: Fraction) -> bool:
    return abs(exact(stated) - wanted) <= wanted * (SLACK + rounding)


def _rounding(stated: float) -> Fraction:
    return abs(_half_digit(stated) / exact(stated))


def _half_digit(stated: float) -> Fraction:
    """Half a unit of the last digit that is stated; of no more digits than a double has."""
    exponent = Decimal(repr(stated)).as_tuple().exponent
    return Fraction(1, 2 * 10 ** min(max(0, -int(exponent)), 15))


def _plain(number: float | int | None) -> str:
    return f"{number:g}" if isinstance(number, float) and number.is_integer() else str(number)
