"""The page of an audit: labels, what was checked, what cannot be, what differs."""

from __future__ import annotations

import textwrap

from ablation.audit.run import Audited
from ablation.report.safe import clean

WIDTH = 100
MOST = 200
"""Differences that a terminal shows; `--json` has all."""


def page(audited: Audited) -> str:
    found = audited.found
    lines = [f"audit of {audited.root}", *([f"plan {audited.plan}, digest {audited.digest}"] if audited.plan else [])]
    if audited.labels:
        width = max(map(len, audited.labels))
        lines += ["", "labels, by a path of its own", *(f"  {name:{width}}  {label}" for name, label in audited.labels.items())]
    lines += ["", "checked", *(f"  {number:>11,}  {what}" for what, number in found.checked.items())]
    cannot = [*found.cannot, *audited.as_json()["cannot"][len(found.cannot) :]]
    for title, entries in (
        ("with code of the engine, so not checked by it", found.borrowed),
        ("not checked, or not to be seen from files", cannot),
        ("notes", found.notes),
        ("missing", found.missing),
        ("differences", found.differences[:MOST]),
    ):
        if entries:
            lines += ["", title, *(line for entry in entries for line in _wrapped(entry))]
    if len(found.differences) > MOST:
        lines.append(f"  and {len(found.differences) - MOST} more (--json has all)")
    return _safe("\n".join([*lines, "", summary(audited)]))


def summary(audited: Audited) -> str:
    """The last line."""
    found, checked = audited.found, sum(audited.found.checked.values())
    differ, missing = len(found.differences), len(found.missing)
    if differ:
        return f"DIFFERS: {_things(differ, 'difference')} in {checked:,} checks"
    if missing:
        return f"INCOMPLETE: {checked:,} checks agree; {_things(missing, 'thing')} that the plan asks for: missing"
    return f"AGREES: {checked:,} checks, no difference"


def _things(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _wrapped(entry: str) -> list[str]:
    return textwrap.wrap(
        entry, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _safe(text: str) -> str:
    return "\n".join(clean(line) for line in text.split("\n"))
