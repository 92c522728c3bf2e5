"""The figures as Vega-Lite specifications: drift, weights, ratios. None of them holds a text of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ablation.measures.estimate import Estimate
from ablation.report.post.curves import READOUT, Point
from ablation.report.post.theme import INK, SOFT, chart, series_of
from ablation.training.run_audit import UpdateAudit

PANEL = 258
"""Width of one of two panels that stand side by side, in pixels."""
MEASURES = {"logprob": "log-probability, nats per token", "top20_entropy": "top-20 entropy, nats"}
SHARES = {"negative_share": "negative, % of the weight", "net_share": "net, %", "truncated_share": "on truncated rollouts, %"}
Row = dict[str, Any]
Spec = dict[str, Any]


def drift_chart(points: Sequence[Point], updates: int) -> Spec:
    """Each arm minus the control by update, a panel for each family and measure."""
    control = points[0].control
    arms = list(dict.fromkeys(one.arm for one in points))
    families = list(dict.fromkeys(one.family for one in points))
    titles = {name: title for name, title in MEASURES.items() if any(_known(one, name) for one in points)}
    panels = []
    for name, title in titles.items():
        rows = [_drift_row(one, name, arms, updates) for one in points if _known(one, name)]
        axis = _stages(updates, title=name == list(titles)[-1])
        panels.append(_row(rows, families, arms, axis, title, first=not panels, names=f"{{}} minus {control}"))
    return chart({"vconcat": panels, "spacing": 14})


def _known(one: Point, name: str) -> bool:
    return name in one.estimates and one.estimates[name].value is not None


def _drift_row(one: Point, name: str, arms: list[str], updates: int) -> Row:
    place = updates + 1 if one.stage == READOUT else int(one.stage.removeprefix("update-"))
    found = one.estimates[name]
    step = (arms.index(one.arm) - (len(arms) - 1) / 2) * 0.1
    ends = {"low": found.low, "high": found.high}
    return {"family": one.family, "arm": one.arm, "x": place + step, "y": float(found.value or 0)} | ends


def weights_chart(updates: Sequence[UpdateAudit]) -> Spec:
    """Shares of the absolute weight by update, a panel for each family and share."""
    arms = list(dict.fromkeys(one.arm for one in updates))
    families = list(dict.fromkeys(one.family for one in updates))
    last = max(one.update for one in updates)
    panels = []
    for share, title in SHARES.items():
        rows = []
        for one in updates:
            value = one.audit["weights"][share]
            if value is not None:
                step = (arms.index(one.arm) - (len(arms) - 1) / 2) * 0.06
                rows.append({"family": one.family, "arm": one.arm, "x": one.update + step, "y": round(100 * value, 10)})
        axis = _stages(last, title=share == list(SHARES)[-1], readout=False)
        panels.append(_row(rows, families, arms, axis, title, first=not panels, names="{}", height=92))
    return chart({"vconcat": panels, "spacing": 10})


def ratios_chart(rows: Sequence[tuple[str, str, Estimate]], title: str) -> Spec:
    """(group, model, ratio with its interval): a dot and its interval for each, against the line of no change."""
    groups = list(dict.fromkeys(group for group, _, _ in rows))
    values = [
        {"name": f"{group}: {model}", "group": group, "value": float(one.value or 0), "low": one.low, "high": one.high}
        for group, model, one in rows
    ]
    ends = [row[name] for row in values for name in ("value", "low", "high") if row[name] is not None] + [1.0]
    margin = 0.06 * (max(ends) - min(ends) or 0.1)
    looks = series_of(groups)
    axis = {"format": ".2f", "labelExpr": "datum.label + '\u00d7'", "tickCount": 6, "title": title}
    scale = {"domain": [min(ends) - margin, max(ends) + margin], "nice": False, "zero": False}
    x = {"field": "value", "type": "quantitative", "scale": scale, "axis": axis}
    names = [row["name"] for row in values]
    y_axis = {"title": None, "labelLimit": 260, "grid": False, "ticks": False}
    y = {"field": "name", "type": "nominal", "sort": names, "axis": y_axis}
    colour = _by("group", groups, [looks[one][0] for one in groups])
    shape = _by("group", groups, [looks[one][1] for one in groups])
    span = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour}
    layers = [
        {
            "data": {"values": [{"one": 1}]},
            "mark": {"type": "rule", "color": INK, "strokeDash": [3, 3]},
            "encoding": {"x": {"field": "one", "type": "quantitative", "scale": scale, "axis": axis}},
        },
        {"mark": {"type": "rule", "strokeWidth": 2}, "transform": [{"filter": "isValid(datum.low)"}], "encoding": span},
        {"mark": _dot(90), "encoding": {"x": x, "y": y, "color": colour, "shape": shape}},
    ]
    size = {"width": 2 * PANEL - 90, "height": max(60, 26 * len(values))}
    return chart({"data": {"values": values}, "layer": layers, **size})


def _stages(updates: int, *, title: bool, readout: bool = True) -> Spec:
    """The axis of updates, with the readout behind the last one."""
    last = updates + 1 if readout else updates
    step = max(1, -(-updates // 8))
    axis: Spec = {"values": [*range(1, updates + 1, step), *([last] if readout else [])], "grid": False, "format": "d"}
    axis |= {"labelExpr": f"datum.value == {last} ? 'readout' : datum.label"} if readout else {}
    axis |= {"title": "update"} if title else {"title": None, "labels": False, "ticks": False}
    scale = {"domain": [0.6, last + 0.4], "nice": False}
    return {"field": "x", "type": "quantitative", "axis": axis, "scale": scale}


def _row(
    rows: list[Row], families: list[str], arms: list[str], x: Spec, title: str, *, first: bool, names: str, height: int = 128
) -> Spec:
    """Panels side by side, one a family, with one line an arm."""
    looks = series_of(arms)
    named = [names.format(arm) for arm in arms]
    rows = [row | {"line": names.format(row["arm"])} for row in rows]
    legend = {"columns": min(len(arms), 5), "symbolStrokeWidth": 0} if first else None
    colour = _by("line", named, [looks[arm][0] for arm in arms], legend)
    shape = _by("line", named, [looks[arm][1] for arm in arms], legend)
    dash = _by("line", named, [looks[arm][2] for arm in arms])
    panels = []
    for place, family in enumerate(families):
        axis: Spec = {"tickCount": 5, "title": None} | ({} if place == 0 else {"labels": False, "ticks": False})
        y = {"field": "y", "type": "quantitative", "axis": axis}
        span = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour}
        layers = [
            {
                "data": {"values": [{"zero": 0}]},
                "mark": {"type": "rule", "color": SOFT},
                "encoding": {"y": {"field": "zero", "type": "quantitative", "axis": axis}},
            },
            {"mark": {"type": "rule", "strokeWidth": 1.4}, "transform": [{"filter": "isValid(datum.low)"}], "encoding": span},
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash}},
            {"mark": _dot(52), "encoding": {"x": x, "y": y, "color": colour, "shape": shape}},
        ]
        layers.append(_heading(title, -9, "normal", 12))
        if first:
            layers.append(_heading(f"family {family}", -27, "bold", 13))
        width = PANEL if len(families) > 1 else 2 * PANEL
        own = {"values": [row for row in rows if row["family"] == family]}
        panels.append({"data": own, "layer": layers, "width": width, "height": height})
    return {"hconcat": panels, "spacing": 22, "bounds": "flush", "resolve": {"scale": {"y": "shared"}}}


def _heading(text: str, above: int, weight: str, size: int) -> Spec:
    """A title by its distance from the panel: a chart's own title moves with what the axis needs."""
    mark = {"type": "text", "align": "left", "baseline": "bottom", "text": text, "color": INK, "fontWeight": weight}
    return {"data": {"values": [{}]}, "mark": mark | {"fontSize": size}, "encoding": {"x": {"value": 0}, "y": {"value": above}}}


def _by(field: str, domain: Sequence[str], looks: Sequence[Any], legend: Spec | None = None) -> Spec:
    return {"field": field, "type": "nominal", "scale": {"domain": list(domain), "range": list(looks)}, "legend": legend}


def _dot(size: int) -> Spec:
    return {"type": "point", "filled": True, "size": size, "opacity": 1}
