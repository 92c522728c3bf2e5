"""Deciding a label with an ordered table whose facts may be unknown.

The first row whose condition is true decides. Conditions are three-valued (Kleene 1952, section 64): an `all` with one false part
is false whatever is unknown, an `any` with one true part is true. Where that leaves a row open, its unknown facts are tried both
ways; a label comes out only if every way gives the same one. So an unknown is never silently a pass or a fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablation.plan.tables import Condition, Row

UNDECIDED = "UNDECIDED"
MOST_STEPS = 2_000
Fact = tuple[str, str]
"""(`rule`, name), (`reason`, code) or (`label`, whose)."""


@dataclass(frozen=True)
class Facts:
    """What a table may ask. A name that is not here is unknown."""

    rules: Mapping[str, bool | None] = field(default_factory=dict)
    """Rule of the section -> whether it holds; None: it cannot be said."""
    labels: Mapping[str, str | Collection[str]] = field(default_factory=dict)
    """Whose label -> the label, or all those that it may be."""
    reasons: Mapping[str, bool | None] = field(default_factory=dict)
    """Reason of the replication -> whether it was found."""


@dataclass(frozen=True)
class Decided:
    """What a table says."""

    label: str
    """A label of the table, or `UNDECIDED`."""
    row: int | None
    """Place of the row that gives it; None if several may, or if none does."""
    why: str
    """The row's condition, or what is open, in words."""
    unknowns: tuple[str, ...] = ()
    """Facts that could still change the label, as `rule NAME`, `label of NAME` or `reason CODE`."""


def decide(rows: Sequence[Row], facts: Facts) -> Decided:
    """The label that `rows` give with `facts`: `UNDECIDED` unless every completion of what is unknown gives the same one."""
    outcomes = _outcomes(rows, facts, Steps())
    label, row = next(outcomes)
    same = {row}
    for other, place in outcomes:
        if other != label:
            unknowns = tuple(_named(one) for one in _open_facts(rows, facts))
            return Decided(UNDECIDED, None, f"open: {', '.join(unknowns)}", unknowns)
        same.add(place)
    place = row if len(same) == 1 and row >= 0 else None
    return Decided(label, place, _why(rows, place))


def possible_labels(rows: Sequence[Row], facts: Facts) -> set[str]:
    """Every label that some completion of `facts` gives; all of the table's and `UNDECIDED` if that takes too long to see."""
    steps = Steps()
    found = {label for label, _ in _outcomes(rows, facts, steps)}
    return found if steps.left else found | {row.label for row in rows}


def holds(condition: Condition | None, facts: Facts) -> bool | None:
    """Whether `condition` is true, None if what is unknown may decide it."""
    if condition is None:
        return True
    if condition.all is not None:
        return _all([holds(one, facts) for one in condition.all])
    if condition.any is not None:
        return _any([holds(one, facts) for one in condition.any])
    if condition.none is not None:
        found = _any([holds(one, facts) for one in condition.none])
        return None if found is None else not found
    if condition.rules is not None:
        return {"all": _all, "any": _any}[condition.rules](list(facts.rules.values()))
    if condition.rule is not None:
        return facts.rules.get(condition.rule)
    if condition.reason is not None:
        return facts.reasons.get(condition.reason)
    return _is(facts.labels.get(condition.of or ""), condition.label)


def in_words(condition: Condition | None) -> str:
    """The condition as a sentence's part: `not (all rules hold) and the label of blinded_read is PASSED`."""
    if condition is None:
        return "otherwise"
    if condition.all is not None:
        return _joined(condition.all, " and ")
    if condition.any is not None:
        return _joined(condition.any, " or ")
    if condition.none is not None:
        return f"not ({_joined(condition.none, ' or ')})"
    if condition.rules is not None:
        return {"all": "all rules hold", "any": "a rule holds"}[condition.rules]
    if condition.rule is not None:
        return f"rule {condition.rule} holds"
    if condition.reason is not None:
        return f"{condition.reason} was found"
    return f"{condition.of} is {condition.label}"


def _joined(parts: Sequence[Condition], word: str) -> str:
    said = [in_words(one) for one in parts]
    if len(said) == 1:
        return said[0]
    return word.join(f"({one})" if one_of.all or one_of.any else one for one, one_of in zip(said, parts, strict=True))


def _why(rows: Sequence[Row], place: int | None) -> str:
    return "every way that is open gives it" if place is None else in_words(rows[place].when)


def _is(found: str | Collection[str] | None, label: str | None) -> bool | None:
    """Whether a label that is `found`, or one of several, is `label`."""
    if found is None:
        return None
    if isinstance(found, str):
        return found == label
    return None if label in found and len(found) > 1 else label in found


def _all(parts: Sequence[bool | None]) -> bool | None:
    return False if False in parts else None if None in parts else True


def _any(parts: Sequence[bool | None]) -> bool | None:
    return True if True in parts else None if None in parts else False


@dataclass
class Steps:
    """How many completions may still be looked at: their number can double with every unknown fact."""

    left: int = field(default_factory=lambda: MOST_STEPS)
    seen: set[tuple] = field(default_factory=set)
    """What is left of the rows by facts that were set: other facts that leave the same were looked at already."""

    def again(self, rows: Sequence[Row], facts: Facts, first: int) -> bool:
        """Whether the same was left of the rows from `first` before."""
        rest: list[bool | tuple] = []
        for row in rows[first:]:
            rest.append(_left(row.when, facts))
            if rest[-1] is True:
                break
        key = (first, *rest)
        if key in self.seen:
            return True
        self.seen.add(key)
        return False


def _outcomes(rows: Sequence[Row], facts: Facts, steps: Steps, first: int = 0) -> Iterator[tuple[str, int]]:
    """(label, row or -1 if it is any of several) of completions of `facts`; every label that can come out is among them.

    Where the steps end before that, `UNDECIDED` is among them: what could not be looked at is not known.
    """
    if not steps.left:
        yield UNDECIDED, -1
        return
    if steps.again(rows, facts, first):
        return
    steps.left -= 1
    for place in range(first, len(rows)):
        found = holds(rows[place].when, facts)
        if found is False:
            continue
        if found is True or len({row.label for row in rows[place:]}) == 1:
            yield rows[place].label, place if found else -1
            return
        fact = next(_unknown(rows[place].when, facts))
        for completed in _settled(facts, fact, asked(rows, fact[1]) if fact[0] == "label" else ()):
            yield from _outcomes(rows, completed, steps, place)
        return
    yield UNDECIDED, -1  # a table whose last row has a condition, which no plan has


def _left(condition: Condition | None, facts: Facts) -> bool | tuple:
    """True or false as `holds` says, or what of `condition` is open, without the parts that are not."""
    if condition is None or not condition.inner:
        said = holds(condition, facts)
        if said is not None:
            return said
        assert condition is not None
        if condition.rules is not None:
            return condition.rules, *(name for name, found in facts.rules.items() if found is None)
        possible = facts.labels.get(condition.of or "")
        return condition.rule, condition.reason, condition.of, condition.label, None if possible is None else tuple(possible)
    parts = [_left(one, facts) for one in condition.inner]
    ends = condition.all is None  # an `any` or a `none` ends with one that is true, an `all` with one that is false
    if ends in parts:
        return condition.any is not None
    parts = [one for one in parts if not isinstance(one, bool)]
    if not parts:
        return condition.any is None
    return "all" if condition.all else "any" if condition.any else "none", *parts


def _open_facts(rows: Sequence[Row], facts: Facts) -> list[Fact]:
    """The unknown facts of the rows that may decide, in order, each once."""
    found: dict[Fact, None] = {}
    for row in rows:
        outcome = holds(row.when, facts)
        if outcome is None:
            found |= dict.fromkeys(_unknown(row.when, facts))
        if outcome is True:
            break
    return list(found)


def _unknown(condition: Condition | None, facts: Facts) -> Iterator[Fact]:
    """The facts that leave `condition` open, in order; at least one if it is open."""
    if condition is None or holds(condition, facts) is not None:
        return
    for one in condition.inner:
        yield from _unknown(one, facts)
    if condition.rules is not None:
        yield from (("rule", name) for name, found in facts.rules.items() if found is None)
    elif condition.rule is not None:
        yield "rule", condition.rule
    elif condition.reason is not None:
        yield "reason", condition.reason
    elif condition.of is not None:
        yield "label", condition.of


def asked(rows: Sequence[Row], name: str) -> list[str]:
    """The labels of `name` that the table asks for, in order."""

    def of(condition: Condition | None) -> Iterator[str]:
        if condition is not None:
            for one in condition.inner:
                yield from of(one)
            if condition.of == name and condition.label is not None:
                yield condition.label

    return list(dict.fromkeys(label for row in rows for label in of(row.when)))


def _settled(facts: Facts, fact: Fact, labels: Sequence[str]) -> Iterator[Facts]:
    """`facts` with `fact` each way that it may be."""
    kind, name = fact
    if kind == "rule":
        yield from (replace(facts, rules={**facts.rules, name: one}) for one in (True, False))
    elif kind == "reason":
        yield from (replace(facts, reasons={**facts.reasons, name: one}) for one in (True, False))
    else:
        possible = facts.labels.get(name)
        ways = [*labels, ""] if possible is None else list(possible)  # "": none of those that are asked for
        yield from (replace(facts, labels={**facts.labels, name: one}) for one in ways)


def _named(fact: Fact) -> str:
    kind, name = fact
    return f"label of {name}" if kind == "label" else f"{kind} {name}"


def deciding_rows(rows: Sequence[Row], facts: Facts, most: int = MOST_STEPS) -> set[int]:
    """Places of the rows that decide for some completion of `facts`; all of them if that takes more than `most` steps to see."""
    found: set[int] = set()
    steps = Steps(most)

    def walk(facts: Facts, first: int) -> None:
        if len(found) == len(rows) or not steps.left or steps.again(rows, facts, first):
            return
        steps.left -= 1
        for place in range(first, len(rows)):
            said = holds(rows[place].when, facts)
            if said is True:
                found.add(place)
                return
            if said is None:
                fact = next(_unknown(rows[place].when, facts))
                for completed in _settled(facts, fact, asked(rows, fact[1]) if fact[0] == "label" else ()):
                    walk(completed, place)
                return

    walk(facts, 0)
    return found if steps.left else set(range(len(rows)))
