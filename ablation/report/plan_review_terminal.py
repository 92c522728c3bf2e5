"""The review page for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ablation.report.checklist import OPEN, by_part
from ablation.report.phase2_words import TITLE
from ablation.report.plan_page import (
    EXTENSION_TITLE,
    SAME,
    WIDEST_TABLE,
    deviation_words,
    listed_fields,
    lock_words,
    pairs,
    resource_words,
)
from ablation.report.plan_review import NOW
from ablation.report.power_tables import REASONS_TITLE
from ablation.report.terminal import clean


def review_page(content: dict[str, Any]) -> RenderableType:
    """`content` is what `plan_review.review` returns."""
    found = clean(content)
    parts: list[RenderableType] = [Text(f"Review of {found['name']}", style="bold")]
    if found["refused"]:
        parts.append(Text(f"\nREFUSED. {NOW}\n{found['refused']}", style="bold red"))
    for number, (title, *blocks) in enumerate(_sections(found), 1):
        parts.append(Text(f"\n{number}. {title}", style="bold cyan"))
        for place, block in enumerate(blocks):
            parts.append(Padding(block, (int(place > 0), 0, 0, 2), expand=False))
    return Group(*parts)


def _sections(found: dict[str, Any]) -> Iterator[tuple[str, *tuple[RenderableType, ...]]]:
    """Title and blocks of each section; a blank line goes between two blocks."""
    verdict, arms, schedule, luck = found["verdict"], found["arms"], found["schedule"], found["luck"]
    items = found["checklist"]
    table = [f"{one['label']} {one['text']}" for one in verdict["table"]]
    later = [(one["label"], one["text"]) for one in verdict["later"]]
    yield "The question", Text(found["question"])
    yield (
        f"What would make the label {verdict['label']}",
        _under(verdict["opening"], _numbered(verdict["conditions"])),
        _under(verdict["damaged"], _rules(verdict["damage"])),
        *([_under(verdict["table_title"], _numbered(table))] if table else []),
        _under(f"{verdict['reasons_title']}:", _coded(verdict["reasons"])),
        _under(f"{verdict['no_label_title']}:", _coded(verdict["no_label"])),
        *([_under("Labels after that:", pairs(later))] if later else []),
        _bullets(verdict["does_not_mean"]),
    )
    yield (
        f"Arms side by side ({SAME} = as the control {arms['control']})",
        _arms(arms),
        _formulas(arms["rows"]),
        Text(arms["symbols"]),
        pairs(arms["shared"].items()),
    )
    yield "Every rule", *(_group(group) for group in found["rules"])
    yield (
        "Schedule: rollouts of each stage",
        *(_under(f"family {one['name']}, seed {one['seed']}", _runs(one["runs"])) for one in schedule["families"]),
        pairs(schedule["facts"]),
        *([_under(EXTENSION_TITLE, pairs(schedule["extension"]))] if schedule["extension"] else []),
        *([_under(TITLE, pairs(schedule["phase2"]))] if schedule["phase2"] else []),
    )
    yield "Cost, at most: every rollout at the token cap", pairs(found["cost"]["facts"])
    yield (
        "Digests, lock, proofs, deviations",
        pairs(_identity(found)),
        pairs((row["field"], resource_words(row)) for row in found["resources"]),
    )
    yield (
        "Luck: if no arm differed from the start at all",
        Text(luck["sentence"]),
        Text(luck["assumed"]),
        _shares("damage rule", luck["rules"], "fires in"),
        *([_shares("stop rule", luck["stops"], "ends a run in")] if luck["stops"] else []),
        *(_shares(f"{one['title']} rule", one["rules"], "holds in") for one in luck["sections"]),
        _shares("label", luck["labels"], "comes out in"),
        _shares(REASONS_TITLE, luck["reasons"], "found in"),
        Text(f"From {luck['studies']:,} simulated studies, as `plan lock` prints it. With effects: {luck['more']}"),
    )
    yield "What the lock does not prove", _bullets(found["not_proven"])
    yield (
        f"What the plan leaves open: {found['left_open']} of {len(items)}",
        Text("[x] stated in the plan or fixed by the program; [ ] left open, and why it matters."),
        *(_under(part, _checklist(own)) for part, own in by_part(items)),
    )


def _under(text: str, block: RenderableType) -> RenderableType:
    return Group(Text(text), Padding(block, (0, 0, 0, 2), expand=False))


def _group(group: dict[str, Any]) -> RenderableType:
    if group["key"] == "damage":
        return Text(f"Damage rules: the {len(group['rules'])} in section 2.")
    return _under(group["title"], _rules(group["rules"]))


def _numbered(lines: Sequence[str]) -> Table:
    return pairs((f"{number}.", line) for number, line in enumerate(lines, 1))


def _bullets(lines: Sequence[str]) -> Table:
    return pairs(("-", line) for line in lines)


def _coded(rows: Sequence[dict[str, str]]) -> Table:
    return pairs((row["code"], row["text"]) for row in rows)


def _rules(rows: Sequence[dict[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        text = Text(row["words"])
        detail = "; ".join(part for part in (row["share"], row["turns"]) if part)
        if detail:
            text.append(f"\n({detail})", style="dim")
        table.add_row(Text(row["name"], style="bold"), text)
    return table


def _arms(arms: dict[str, Any]) -> Table:
    if len(arms["fields"]) > WIDEST_TABLE:
        rows = []
        for row in arms["rows"]:
            control = row["name"] == arms["control"]
            own = [(one["field"], one["value"]) for one in row["values"] if one["differs"] or control]
            rows.append((row["name"], listed_fields(own) or SAME))
        return pairs(rows)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for name in ("arm", *arms["fields"]):
        table.add_column(Text(name), overflow="fold")
    for row in arms["rows"]:
        is_control = row["name"] == arms["control"]
        values = [
            Text(one["value"], style="bold yellow" if one["differs"] else "") if one["differs"] or is_control else Text(SAME)
            for one in row["values"]
        ]
        table.add_row(Text(row["name"]), *values)
    return table


def _formulas(rows: Sequence[dict[str, Any]]) -> Table:
    notes = {row["name"]: [f"note: {row['note']}"] if row["note"] else [] for row in rows}
    return pairs((row["name"], "\n".join([row["formula"], *row["words"], *notes[row["name"]]])) for row in rows)


def _runs(runs: Sequence[dict[str, Any]]) -> Table:
    """A line a run: `C  72 > 72 > 72 > 66 > 66 > readout 348`."""
    return pairs((run["name"], " > ".join(f"{_short(one['what'])}{one['rollouts']}" for one in run["stages"])) for run in runs)


def _short(stage: str) -> str:
    return "" if stage.startswith("update ") else f"{stage} "


def _identity(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("plan", found["digest"]), ("file", found["bytes_sha256"]), ("lock", lock_words(found["lock"]))]
    rows += [("warning", line) for line in found["lock"].get("warnings", [])]
    for one in found["proofs"]:
        limits = f"; does not prove {one['limits']}" if one["limits"] else ""
        rows.append((one["kind"], f"{one['state']}: {one['says']}{limits}"))
    rows += [("journal", found["journal"])] if found["journal"] else []
    rows += [(f"deviation {one['number']}", deviation_words(one)) for one in found["deviations"]]
    return rows if found["deviations"] else [*rows, ("deviations", "none so far")]


def _shares(heading: str, rows: Sequence[dict[str, Any]], what: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(Text(heading), overflow="fold")
    table.add_column(Text(what), no_wrap=True)
    for row in rows:
        table.add_row(Text(row["name"]), Text(row["shown"]))
    return table


def _checklist(items: Sequence[dict[str, str]]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for item in items:
        is_open = item["state"] == OPEN
        text = Text(f"{item['topic']}: ", style="bold" if is_open else "").append(item["says"], style="not bold")
        if is_open:
            text.append(f" {item['why']}", style="not bold dim")
        table.add_row(Text("[ ]" if is_open else "[x]"), text)
    return table
