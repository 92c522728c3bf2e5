"""The flow of a study as boxes and arrows, after CONSORT: planned, trained, stopped or excluded, read out, judged."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ablation.report.phase2_tables import TITLES
from ablation.report.post.flow import FamilyFlow, Flow, RunOfArm
from ablation.report.post.theme import BAD, CARD, INK, SOFT, WASH, chart

MAIN, SIDE, GAP, LEADING = 340, 196, 44, 16
"""Widths of the two columns and the space between them, and from line to line, in pixels."""
ROW_GAP, PAD = 26, 10


@dataclass(frozen=True)
class Box:
    title: str
    lines: tuple[str, ...]

    def wrapped(self, width: int) -> list[str]:
        """Its lines, broken where they would leave the box."""
        characters = (width - 2 * PAD) // 6
        return [part for line in self.lines for part in textwrap.wrap(line, characters, subsequent_indent="   ") or [""]]


@dataclass(frozen=True)
class Step:
    """A box of the main column, and what left the study beside it."""

    box: Box
    side: Box | None = None
    joined: bool = True
    """An arrow leads to it from the step before."""


def steps(flow: Flow, reported: bool) -> list[Step]:
    """The boxes from top to bottom."""
    found: list[Step] = []
    for place, family in enumerate(flow.families):
        if family.runs:
            found += _family(family, first=place == 0, reported=reported)
    if flow.compared:
        lines = []
        for name, subject, rollouts, opened in flow.compared:
            size = f"{rollouts} rollouts each" if rollouts else "not finished"
            lines.append(f"{name}: {subject}, {size}{f' ({opened})' if opened else ''}")
        left = tuple(TITLES[name] for name in flow.planned_sets)
        side = Box("Planned, not sampled", left) if left else None
        found.append(Step(Box("Compared with the start on other problems", tuple(lines)), side))
    return found


def _family(family: FamilyFlow, first: bool, reported: bool) -> list[Step]:
    runs = family.runs
    sweep = f"start: {family.sweep} rollouts" if family.sweep is not None else "start: not sampled yet"
    why = () if first else (f"{family.why}, in new seeds",)
    lines = (f"{_runs(len(runs))}: {_names(runs)}", *why, *(() if reported else (sweep,)))
    planned = Box(f"Family {family.family}: planned", lines)
    idle = [one for one in runs if not one.begun]
    found = [Step(planned, Box("Not begun", (_names(idle),)) if idle else None, joined=not first)]
    begun = [one for one in runs if one.begun]
    if not begun:
        return found
    gone = [
        f"stopped: {one.arm}, by {one.stopped.get('rule')} after update {one.stopped.get('update')}"
        for one in begun
        if one.stopped
    ]
    unfinished = [one for one in begun if one.readout != "yes" and not one.stopped]
    gone += [f"not read out yet: {_names(unfinished)}"] if unfinished else []
    side = Box("Left before the readout", tuple(gone)) if gone else Box("Left before the readout", ("none",))
    if not reported:
        found.append(Step(Box("Trained", tuple(_trained(begun))), side))
    read = [one for one in begun if one.readout == "yes" and one.label is not None and not one.stopped]
    if read:
        sizes = {one.rollouts for one in read}
        size = (
            f"{sizes.pop()} rollouts each, none left out" if len(sizes) == 1 and None not in sizes else "rollouts of every cell"
        )
        size = "figures as reported" if reported else size
        by_label: dict[str, list[RunOfArm]] = {}
        for one in read:
            by_label.setdefault(str(one.label), []).append(one)
        found.append(Step(Box("Read out and judged", (size, *(f"{label}: {_names(own)}" for label, own in by_label.items())))))
    return found


def _trained(runs: Sequence[RunOfArm]) -> list[str]:
    """The runs by how many updates they have."""
    by_updates: dict[str, list[RunOfArm]] = {}
    for one in runs:
        whole = one.updates == one.planned_updates
        told = "elsewhere, imported" if one.imported and not one.updates else f"{one.updates} of {one.planned_updates} updates"
        by_updates.setdefault(f"all {one.updates} updates" if whole else told, []).append(one)
    return [f"{told}: {_names(own)}" for told, own in by_updates.items()]


def _names(runs: Sequence[RunOfArm]) -> str:
    return ", ".join(one.arm for one in runs)


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def flow_in_words(flow: Flow, reported: bool) -> list[tuple[str, str]]:
    """The same as (box, what it says), for whoever does not see the figure."""
    boxes = [box for step in steps(flow, reported) for box in (step.box, step.side) if box is not None]
    return [(box.title, "; ".join(box.lines)) for box in boxes]


def flow_chart(flow: Flow, reported: bool) -> dict[str, Any]:
    """The boxes as a Vega-Lite specification."""
    boxes: list[dict[str, Any]] = []
    texts: list[dict[str, Any]] = []
    arrows: list[dict[str, Any]] = []
    heads: list[dict[str, Any]] = []

    def place(box: Box, x: int, y: int, width: int, kind: str) -> int:
        lines = box.wrapped(width)
        height = 2 * PAD + LEADING * (len(lines) + 1) - 4
        boxes.append({"x": x, "x2": x + width, "y": y, "y2": y + height, "kind": kind})
        texts.append({"x": x + PAD, "y": y + PAD, "text": box.title, "kind": "title"})
        texts.extend(
            {"x": x + PAD, "y": y + PAD + LEADING * at, "text": line, "kind": "line"} for at, line in enumerate(lines, 1)
        )
        return height

    y = 1
    for at, step in enumerate(steps(flow, reported)):
        if at and step.joined:
            arrows.append({"x": MAIN / 2, "x2": MAIN / 2, "y": y - ROW_GAP, "y2": y - 5})
            heads.append({"x": MAIN / 2, "y": y - 5, "angle": 180})
        height = place(step.box, 1, y, MAIN, "main")
        if step.side is not None:
            middle = y + PAD + LEADING
            arrows.append({"x": MAIN + 1, "x2": MAIN + GAP - 5, "y": middle, "y2": middle})
            heads.append({"x": MAIN + GAP - 5, "y": middle, "angle": 90})
            height = max(height, place(step.side, MAIN + GAP, y, SIDE, "side"))
        y += height + ROW_GAP
    width, height = MAIN + GAP + SIDE + 2, y - ROW_GAP + 2
    x = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, width], "nice": False}}
    down = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [height, 0], "nice": False}}
    kinds = ["main", "side"]
    ends = {"x": x, "x2": {"field": "x2"}, "y": down, "y2": {"field": "y2"}}
    fill = {"field": "kind", "type": "nominal", "scale": {"domain": kinds, "range": [WASH, CARD]}, "legend": None}
    stroke = {**fill, "scale": {"domain": kinds, "range": [SOFT, BAD]}}
    rectangle = {"type": "rect", "strokeWidth": 1, "cornerRadius": 4}
    layers = [_layer(boxes, rectangle, ends | {"color": fill, "stroke": stroke})]
    if arrows:
        angle = {"field": "angle", "type": "quantitative", "scale": None}
        head = {"type": "point", "shape": "triangle", "filled": True, "color": SOFT, "size": 60, "opacity": 1}
        layers.append(_layer(arrows, {"type": "rule", "color": SOFT, "strokeWidth": 1.4}, ends))
        layers.append(_layer(heads, head, {"x": x, "y": down, "angle": angle}))
    for kind, weight in (("title", "bold"), ("line", "normal")):
        mark = {
            "type": "text",
            "align": "left",
            "baseline": "top",
            "fontSize": 12,
            "color": INK,
            "fontWeight": weight,
            "limit": 0,
        }
        own = [one for one in texts if one["kind"] == kind]
        layers.append(_layer(own, mark, {"x": x, "y": down, "text": {"field": "text", "type": "nominal"}}))
    return chart({"layer": layers, "width": width, "height": height})


def _layer(values: list[dict[str, Any]], mark: dict[str, Any], encoding: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"values": values}, "mark": mark, "encoding": encoding}
