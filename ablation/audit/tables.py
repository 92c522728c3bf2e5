"""Decision tables, decided by trying everything: each fact that is not known is set to each value that it may have, and a label
comes out only if all of these worlds have the same. In one world every condition is plainly true or false.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

UNDECIDED = "UNDECIDED"
MOST_WORLDS = 1 << 18

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
    """The label of the first row that is true. `labels`: whose label -> all that it may be (one if it is known)."""
    facts: dict[tuple[str, str], list[Any]] = {}
    for kind, known in (("rule", rules or {}), ("reason", reasons or {})):
        facts |= {(kind, name): [True, False] if value is None else [value] for name, value in known.items()}
    for name in asked_of(rows):
        possible = (labels or {}).get(name)
        facts["of", name] = list(possible) if possible is not None else [*asked_labels(rows, name), ""]
    if len(list(itertools.islice(itertools.product(*facts.values()), MOST_WORLDS))) == MOST_WORLDS:
        raise ValueError("more facts of a decision table are unknown than this audit can try")
    found = {_first(rows, dict(zip(facts, world, strict=True))) for world in itertools.product(*facts.values())}
    return found.pop() if len(found) == 1 else UNDECIDED


def _first(rows: Sequence[Mapping[str, Any]], world: Mapping[tuple[str, str], Any]) -> str:
    return next((row["label"] for row in rows if _true(row.get("when"), world)), UNDECIDED)


def _true(when: Mapping[str, Any] | None, world: Mapping[tuple[str, str], Any]) -> bool:
    if when is None:
        return True
    said = {name: value for name, value in when.items() if value is not None}
    if "all" in said:
        return all(_true(one, world) for one in said["all"])
    if "any" in said:
        return any(_true(one, world) for one in said["any"])
    if "none" in said:
        return not any(_true(one, world) for one in said["none"])
    if "rules" in said:
        values = [value for (kind, _), value in world.items() if kind == "rule"]
        return all(values) if said["rules"] == "all" else any(values)
    if "rule" in said:
        return world["rule", said["rule"]]
    if "reason" in said:
        return world["reason", said["reason"]]
    return world["of", said["of"]] == said["label"]


def _conditions(when: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if when is not None:
        yield when
        for name in ("all", "any", "none"):
            for one in when.get(name) or ():
                yield from _conditions(one)


def asked_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Whose labels the table asks for."""
    return list(dict.fromkeys(one["of"] for row in rows for one in _conditions(row.get("when")) if one.get("of")))


def asked_labels(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    found = (one["label"] for row in rows for one in _conditions(row.get("when")) if one.get("of") == name)
    return list(dict.fromkeys(found))


def possible(rows: Sequence[Mapping[str, Any]], name: str, label: str, known: Sequence[str]) -> list[str]:
    """What a label may be: itself, or, where it says nothing (UNDECIDED, NOT_RUN), any of `known`, unless it is asked for."""
    return [label] if label in known or label in asked_labels(rows, name) else list(known)
