"""The figures of a run as drawings for a page: the report's own, and what happens by update."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ablation.errors import AblationError
from ablation.files import parse_json
from ablation.report.post.charts import PANEL, drift_chart, weights_chart
from ablation.report.post.curves import Curves
from ablation.report.post.draw import PACKAGE, Drawer, can_draw
from ablation.report.post.theme import INK, SOFT, chart, for_page, series_of
from ablation.rollouts.folder import measures_file
from ablation.view.library import Study

RATES = {"truncated_or_looping": "truncated or looping, %", "correct": "correct, %"}
MEANS = {"logprob": "log-probability, nats per token", "top20_entropy": "top-20 entropy, nats"}
Spec = dict[str, Any]
WAIT = 60.0
"""Seconds that the curves, which are drawn beside the pages, wait for the rollouts to be read."""
_COMPARED = ("truncated_or_looping", "logprob", "top20_entropy", "correct")


@dataclass(frozen=True)
class Figure:
    """A drawing, or why there is none."""

    svg: Markup | None
    words: str
    """What it shows, for readers who do not see it."""
    why_not: str | None = None


def curve_page(study: Study) -> dict[str, Any]:
    """What the page of curves shows: figures, and the numbers behind them."""
    rows = measured(study)
    differs = edited(study, rows)
    rows = [row for row in rows if row["folder"] not in differs]
    return {
        "drift": _drawn(lambda: _drift(study), "Each arm minus the control by update, paired by cell, with intervals."),
        "levels": _drawn(lambda: _levels(study, rows), "Shares and means of the rollouts of each update, by arm and family."),
        "rows": rows,
        "differs": differs,
    }


def weights_figure(study: Study) -> Figure:
    """Shares of the absolute weight by update."""
    return _drawn(lambda: _weights(study), "Shares of the absolute weight of each update, by arm and family.")


class Drawings:
    """One process that draws, started when the first figure is asked for; again if it died."""

    def __init__(self) -> None:
        self._drawer: Drawer | None = None
        self._lock = threading.Lock()

    def draw(self, spec: Spec) -> str:
        with self._lock:
            self._drawer = self._drawer or Drawer()
            try:
                return self._drawer.draw(spec)[0]
            except AblationError:
                self._drawer = None
                raise


_DRAWINGS = Drawings()


def _drawn(make: Callable[[], Spec | None], words: str) -> Figure:
    if not can_draw():
        return Figure(None, words, f"Figures need {PACKAGE}: pip install -e '.[view]'.")
    try:
        spec = make()
        # What the drawer gives has known elements and attributes alone: see `draw.plain_svg`.
        return (
            Figure(Markup(for_page(_DRAWINGS.draw(spec))), words)
            if spec
            else Figure(None, words, "There is nothing to draw yet.")
        )
    except AblationError as error:
        return Figure(None, words, " ".join(error.lines()))


def _drift(study: Study) -> Spec | None:
    points = list(Curves(study.root, study.locked).points())
    return drift_chart(points, study.locked.plan.training.updates) if points else None


def _weights(study: Study) -> Spec | None:
    from ablation.training.run_audit import audit_run

    plan = study.locked.plan
    arms = [name for name, arm in plan.arms.items() if arm.external is None]
    found = audit_run(study.root, study.locked, families=list(plan.families), arms=arms).updates
    return weights_chart(found) if found else None


def measured(study: Study) -> list[dict[str, Any]]:
    """What `measures.json` says of each update and readout, and of the sweeps: rows of numbers."""
    plan, run = study.locked.plan, study.run
    found = []
    for family in plan.families:
        places = [("start", "sweep", 0, run.sweep(family))]
        for arm in plan.arms:
            numbers = [one.name.removeprefix("update-") for one in run.arm(family, arm).glob("update-*")]
            updates = sorted(int(one) for one in numbers if one.isdecimal())
            places += [(arm, f"update-{k}", k, run.update(family, arm, k)) for k in updates]
            places.append((arm, "readout", plan.training.updates, run.readout(family, arm)))
        for arm, stage, update, folder in places:
            try:
                content = parse_json(measures_file(folder).read_bytes())
                row = {"family": family, "arm": arm, "stage": stage, "update": update, "rollouts": int(content["rollouts"])}
                row |= {"folder": folder.relative_to(study.root).as_posix()}
                row |= {name: None if (own := content[name]) is None else 100 * own / content["rollouts"] for name in RATES}
                found.append(row | {name: content[name] for name in MEANS})
            except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
                continue
    return found


def edited(study: Study, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Stages whose `measures.json` is not what their rollouts give, by the table that the browser filters; in order.

    Counts have to be the same and means to be within 1e-9. Stages that cannot be read are said where the rollouts are listed.
    """
    study.index.look(WAIT)
    found = study.index.sql(
        "SELECT folder, count(*), 100.0 * sum((truncated OR looping)::INT) / count(*), avg(logprob), avg(entropy), "
        "100.0 * sum(correct::INT) / count(*), count(*) = count(correct) FROM rollouts GROUP BY folder"
    )
    own = {folder: dict(zip(("rollouts", *_COMPARED, "graded"), values, strict=True)) for folder, *values in found}
    differs = []
    for row in rows:
        seen = own.get(row["folder"])
        names = ["rollouts", *(name for name in _COMPARED if name != "correct" or (seen or {}).get("graded"))]
        if seen is not None and any(not _same(seen[name], row[name]) for name in names):
            differs.append(row["folder"])
    return differs


def _same(one: float | None, other: float | None) -> bool:
    return one is None or other is None or abs(one - other) <= 1e-9 * max(1.0, abs(one))


def _levels(study: Study, rows: Sequence[dict[str, Any]]) -> Spec | None:
    """A row of panels for each measure, one panel a family, one line an arm; dashed: the starting model."""
    own = [row for row in rows if row["stage"].startswith("update-")]
    if not own:
        return None
    families = list(dict.fromkeys(row["family"] for row in own))
    arms = [arm for arm in study.locked.plan.arms if any(row["arm"] == arm for row in own)]
    start = {row["family"]: row for row in rows if row["arm"] == "start"}
    titles = RATES | MEANS
    panels = [
        {
            "hconcat": [_panel(own, start, family, arms, name, place, len(families)) for place, family in enumerate(families)],
            "spacing": 22,
            "bounds": "flush",
            "resolve": {"scale": {"y": "shared"}},
        }
        for name in titles
    ]
    return chart({"vconcat": panels, "spacing": 14})


def _panel(
    own: Sequence[dict[str, Any]],
    start: dict[str, dict[str, Any]],
    family: str,
    arms: list[str],
    name: str,
    place: int,
    count: int,
) -> Spec:
    looks, titles = series_of(arms), RATES | MEANS
    first, last = name == next(iter(titles)), name == list(titles)[-1]
    end = max(row["update"] for row in own)
    legend = {"columns": min(len(arms), 6), "symbolStrokeWidth": 0} if first else None
    axis: Spec = {"grid": False, "format": "d", "values": list(range(1, end + 1, max(1, -(-end // 8))))}
    axis |= {"title": "update"} if last else {"title": None, "labels": False, "ticks": False}
    x = {"field": "update", "type": "quantitative", "axis": axis, "scale": {"domain": [0.6, end + 0.4], "nice": False}}
    y_axis: Spec = {"tickCount": 4, "title": None} | ({} if place == 0 else {"labels": False, "ticks": False})
    y = {"field": name, "type": "quantitative", "axis": y_axis, "scale": {"zero": False}}

    def by(at: int, shown: Spec | None) -> Spec:
        scale = {"domain": arms, "range": [looks[arm][at] for arm in arms]}
        return {"field": "arm", "type": "nominal", "scale": scale, "legend": shown}

    colour, shape, dash = by(0, legend), by(1, legend), by(2, None)
    layers: list[Spec] = [
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash}},
        {
            "mark": {"type": "point", "filled": True, "size": 52, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shape},
        },
        _heading(titles[name], -9, "normal", 12),
    ]
    if first:
        layers.append(_heading(f"family {family}", -27, "bold", 13))
    even = start.get(family, {}).get(name)
    if even is not None:
        rule = {"type": "rule", "color": SOFT, "strokeDash": [3, 3]}
        layers.insert(0, {"data": {"values": [{name: even}]}, "mark": rule, "encoding": {"y": y}})
    values = [{key: row[key] for key in ("arm", "update", name)} for row in own if row["family"] == family]
    data = {"values": [row for row in values if row[name] is not None]}
    return {"data": data, "layer": layers, "width": PANEL if count > 1 else 2 * PANEL, "height": 104}


def _heading(text: str, above: int, weight: str, size: int) -> Spec:
    mark = {"type": "text", "align": "left", "baseline": "bottom", "text": text, "color": INK, "fontWeight": weight}
    return {"data": {"values": [{}]}, "mark": mark | {"fontSize": size}, "encoding": {"x": {"value": 0}, "y": {"value": above}}}
