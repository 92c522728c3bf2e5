"""Decision tables: ordered rows of a label and a condition over rules and earlier labels. The first row that is true decides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, StringConstraints, model_validator

from ablation.plan.section import Name, Section, Text, did_you_mean, refuse_any

STUDY = "study"
Label = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{1,39}$")]
"""What a table can say: capitals, digits and underscores."""
NEVER_A_LABEL = ("UNDECIDED", "INCOMPLETE", "NOT_RUN")
"""What the program says where a table decides nothing; no row can give it."""

Problem = tuple[tuple[str | int, ...], str]


class Condition(Section):
    """True, false or unknown: exactly one of its forms. What is unknown stays unknown unless the rest decides it (Kleene)."""

    all: Annotated[list[Condition], Field(min_length=1, max_length=50)] | None = None
    """Every one of these conditions is true."""
    any: Annotated[list[Condition], Field(min_length=1, max_length=50)] | None = None
    """One of these conditions is true."""
    none: Annotated[list[Condition], Field(min_length=1, max_length=50)] | None = None
    """None of these conditions is true."""
    rule: Name | None = None
    """The section's rule of this name holds."""
    rules: Literal["all", "any"] | None = None
    """All of the section's rules hold, or any does."""
    of: Text | None = None
    """With `label`: whose label it is, for instance `blinded_read`."""
    label: Label | None = None
    """With `of`: the label that it has."""
    reason: Label | None = None
    """In the replication's table alone: this reason was found."""

    @model_validator(mode="after")
    def _one_form(self) -> Condition:
        forms = ("all", "any", "none", "rule", "rules", "reason")
        given = [name for name in forms if getattr(self, name) is not None]
        if (self.of is None) != (self.label is None):
            missing = "of" if self.of is None else "label"
            refuse_any([((missing,), "is missing: `of` and `label` go together, as in {of: blinded_read, label: PASSED}")])
        if self.of is not None:
            given.append("of")
        if len(given) != 1:
            found = " and ".join(f"`{name}`" for name in given) if given else "nothing"
            refuse_any([((), f"found {found}; a condition is exactly one of {', '.join(forms)}, or of with label")])
        return self

    @property
    def inner(self) -> Sequence[Condition]:
        """The conditions that it is made of."""
        return self.all or self.any or self.none or ()


class Row(Section):
    """One row of a decision table."""

    label: Label
    """What the table says if this is the first row whose condition is true."""
    when: Condition | None = None
    """The condition; left out: always true, which the last row must be."""


Table = Literal["study"] | Annotated[list[Row], Field(min_length=1, max_length=50)]


@cache
def _library() -> dict[str, dict[str, list[Row]]]:
    content = yaml.safe_load((Path(__file__).parent / "table_library.yaml").read_bytes())
    return {
        section: {name: [Row.model_validate(row) for row in rows] for name, rows in tables.items()}
        for section, tables in content.items()
    }


def rows_of(section: str, table: Table) -> list[Row]:
    """The rows of `table`, as the section's entry of the library or as the plan writes them."""
    return _library()[section][table] if isinstance(table, str) else list(table)


def labels_of(section: str, table: Table) -> list[str]:
    """Every label that the table can give, each once."""
    return list(dict.fromkeys(row.label for row in rows_of(section, table)))


def table_problems(
    section: str,
    table: Table,
    at: tuple[str | int, ...],
    *,
    rules: Collection[str],
    labels: Mapping[str, Collection[str]],
    reasons: Collection[str] = (),
    needed: Mapping[str, str] | None = None,
) -> list[Problem]:
    """What is wrong with a plan's own table: names that do not exist, rows that cannot be reached, a label that is needed.

    `labels`: what `of` may name -> the labels that it can have. `needed`: label -> what depends on it.
    """
    if isinstance(table, str):
        return []
    problems: list[Problem] = []
    for place, row in enumerate(table):
        if row.label in NEVER_A_LABEL:
            problems.append(
                ((*at, place, "label"), f"`{row.label}` is what the program says where nothing is decided; take another")
            )
        last = place == len(table) - 1
        if row.when is None and not last:
            problems.append(((*at, place), "is always true, so the rows after it can never decide; `when` is missing"))
        if row.when is not None and last:
            problems.append(((*at, place, "when"), "the last row decides what no other row does, so it has no condition"))
        for path, one in _conditions(row.when, (*at, place, "when")):
            problems += _names(one, path, rules, labels, reasons)
    for label, why in (needed or {}).items():
        if label not in {row.label for row in table}:
            problems.append((at, f"no row says `{label}`, and {why}"))
    return problems


def _conditions(condition: Condition | None, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Condition]]:
    if condition is None:
        return
    yield path, condition
    form = next((name for name in ("all", "any", "none") if getattr(condition, name) is not None), "")
    for place, one in enumerate(condition.inner):
        yield from _conditions(one, (*path, form, place))


def _names(
    one: Condition,
    path: tuple[str | int, ...],
    rules: Collection[str],
    labels: Mapping[str, Collection[str]],
    reasons: Collection[str],
) -> Iterator[Problem]:
    for field, value, known, what in (
        ("rule", one.rule, rules, "rule of this section"),
        ("of", one.of, labels, "earlier label"),
        ("reason", one.reason, reasons, "reason"),
    ):
        if value is not None and value not in known:
            there = f"; there are: {', '.join(known)}" if known else "; there is none here"
            yield (*path, field), f"`{value}` is no {what}{there}{did_you_mean(value, known)}"
    if one.rules is not None and not rules:
        yield (*path, "rules"), "this section has no rules"
    if one.of in labels and one.label not in labels[one.of]:
        known = labels[one.of]
        yield (*path, "label"), f"`{one.of}` can be {', '.join(known)}, not `{one.label}`{did_you_mean(one.label, known)}"
