"""Decision tables, decided by drawing them: one diagram that branches at each fact that is not known, with equal parts as one
(Bryant 1986). A label comes out only if no other is left at the diagram's ends. The ways grow exponentially with the unknown
facts, the diagram of a table that asks for each fact once does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ablation.errors import IncompleteError

UNDECIDED = "UNDECIDED"
MOST_BRANCHES = 100_000

STUDY: dict[str, list[dict[str, Any]]] = {
    "replication": [
        {
            "label": "NOT_REPLICATED",
            "when": {
                "any": [{"reason": name} for name in ("CONTROL_NOT_DAMAGED", "NO_STABLE_ARM", "NOT_STABLE_AGAIN", "STOPPED")]
            },
        },
        {"label": "REPLICATED", "when": None},
    ],
    "held_out": [
        {"label": "NO_WIN", "when": {"none": [{"rules": "all"}]}},
        {"label": "WIN_VERIFIED", "when": {"of": "blinded_read", "label": "PASSED"}},
        {"label": "WIN_UNVERIFIED", "when": None},
    ],
    "never_used": [{"label": "CONFIRMED", "when": {"rules": "all"}}, {"label": "NOT_CONFIRMED", "when": None}],
    "main": [{"label": "WIN", "when": {"rules": "all"}}, {"label": "NO_WIN", "when": None}],
    "release": [
        {"label": "NO_RELEASE", "when": {"any": [{"of": "main", "label": "NO_WIN"}, {"none": [{"rules": "all"}]}]}},
        {"label": "RELEASE", "when": None},
    ],
}
"""What `table: study` stands for (plans/README.md), written down here a second time."""


def rows_of(section: str, table: Any) -> list[Mapping[str, Any]]:
    return STUDY[section] if table in (None, "study") else list(table)


def labels_of(section: str, table: Any) -> list[str]:
    return list(dict.fromkeys(row["label"] for row in rows_of(section, table)))


def decide(
    rows: Sequence[Mapping[str, Any]],
    rules: Mapping[str, bool | None] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    reasons: Mapping[str, bool | None] | None = None,
) -> str:
    """The label of the first row that is true. `labels`: whose label -> all that it may be (one if it is known).

    Raises `IncompleteError` where the diagram would be too large: what could not be drawn is not known.
    """
    facts: dict[tuple[str, str], list[Any]] = {}
    for kind, known in (("rule", rules or {}), ("reason", reasons or {})):
        facts |= {(kind, name): [True, False] if value is None else [value] for name, value in known.items()}
    for name in asked_of(rows):
        possible = (labels or {}).get(name)
        facts["of", name] = list(possible) if possible is not None else [*asked_labels(rows, name), ""]
    order = [_fact_of(one) for row in rows for one in _conditions(row.get("when"))]
    return _Diagram({fact: facts[fact] for fact in dict.fromkeys([*order, *facts]) if fact in facts}).label(rows)


class _Diagram:
    """An end is True, False or a label; a branch is a whole number, with a fact's place and what follows each of its values."""

    def __init__(self, facts: Mapping[tuple[str, str], Sequence[Any]]) -> None:
        self.facts, self.place = facts, {fact: place for place, fact in enumerate(facts)}
        self.branches: list[tuple[int, tuple[Any, ...]]] = []
        self.numbers: dict[tuple[int, tuple[Any, ...]], int] = {}
        self.chosen: dict[tuple[Any, Any, Any], Any] = {}

    def label(self, rows: Sequence[Mapping[str, Any]]) -> str:
        found: Any = UNDECIDED
        for row in reversed(rows):
            found = self.choose(self.condition(row.get("when")), row["label"], found)
        return found if isinstance(found, str) else UNDECIDED  # a branch has more than one label at its ends

    def condition(self, when: Mapping[str, Any] | None) -> Any:
        said = {name: value for name, value in (when or {}).items() if value is not None}
        if not said:
            return True
        if "all" in said:
            return self.every([self.condition(one) for one in said["all"]])
        if "any" in said:
            return self.some([self.condition(one) for one in said["any"]])
        if "none" in said:
            return self.choose(self.some([self.condition(one) for one in said["none"]]), False, True)
        if "rules" in said:
            rules = [self.fact(fact, True) for fact in self.facts if fact[0] == "rule"]
            return self.every(rules) if said["rules"] == "all" else self.some(rules)
        if "of" in said:
            return self.fact(("of", said["of"]), said["label"])
        kind = "rule" if "rule" in said else "reason"
        return self.fact((kind, said[kind]), True)

    def every(self, parts: Sequence[Any]) -> Any:
        found: Any = True
        for part in reversed(parts):
            found = self.choose(part, found, False)
        return found

    def some(self, parts: Sequence[Any]) -> Any:
        found: Any = False
        for part in reversed(parts):
            found = self.choose(part, True, found)
        return found

    def fact(self, fact: tuple[str, str], value: Any) -> Any:
        return self.branch(self.place[fact], tuple(one == value for one in self.facts[fact]))

    def branch(self, place: int, ways: tuple[Any, ...]) -> Any:
        if all(_same(way, ways[0]) for way in ways):
            return ways[0]
        key = (place, tuple((type(way), way) for way in ways))  # True is 1 to a dictionary, and no branch
        if key not in self.numbers:
            if len(self.branches) >= MOST_BRANCHES:
                raise IncompleteError("too many unknown facts are asked for in too many ways for this audit to decide it")
            self.numbers[key] = len(self.branches)
            self.branches.append((place, ways))
        return self.numbers[key]

    def choose(self, condition: Any, then: Any, other: Any) -> Any:
        """`then` where `condition` is true, `other` where it is not."""
        if isinstance(condition, bool):
            return then if condition else other
        if _same(then, other):
            return then
        key = tuple((type(one), one) for one in (condition, then, other))
        if key not in self.chosen:
            place = min(self.branches[one][0] for one in (condition, then, other) if type(one) is int)
            ways = [
                self.choose(*(self.follow(one, place, way) for one in (condition, then, other)))
                for way in range(len(list(self.facts.values())[place]))
            ]
            self.chosen[key] = self.branch(place, tuple(ways))
        return self.chosen[key]

    def follow(self, one: Any, place: int, way: int) -> Any:
        if type(one) is not int or self.branches[one][0] != place:
            return one
        return self.branches[one][1][way]


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def _conditions(when: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if when is not None:
        yield when
        for name in ("all", "any", "none"):
            for one in when.get(name) or ():
                yield from _conditions(one)


def _fact_of(when: Mapping[str, Any]) -> tuple[str, str]:
    """The fact that a condition is about; of no fact if it is made of others."""
    return next(((kind, when[kind]) for kind in ("rule", "reason", "of") if when.get(kind)), ("", ""))


def asked_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whose labels the table asks for."""
    return list(dict.fromkeys(one["of"] for row in rows for one in _conditions(row.get("when")) if one.get("of")))


def asked_labels(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    found = (one["label"] for row in rows for one in _conditions(row.get("when")) if one.get("of") == name)
    return list(dict.fromkeys(found))


def possible(rows: Sequence[Mapping[str, Any]], name: str, label: str, known: Sequence[str]) -> list[str]:
    """What a label may be: itself, or, where it says nothing (UNDECIDED, NOT_RUN), any of `known`, unless it is asked for."""
    return [label] if label in known or label in asked_labels(rows, name) else list(known)
