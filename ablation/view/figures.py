"""The figures of a run as drawings for a page: the report's own, and how often things happen by update."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ablation.errors import AblationError
from ablation.files import parse_json
from ablation.rollouts.folder import measures_file
from ablation.view.library import Study

if TYPE_CHECKING:
    from collections.abc import Sequence

RATES = (
    ("truncated_or_looping", "truncated or looping, %"),
    ("correct", "correct, %"),
)
MEANS = (
    ("logprob", "log-probability, nats per token"),
    ("top20_entropy", "top-20 entropy, nats"),
)
_PACKAGES = {"altair": "altair", "vl_convert": "vl-convert-python"}
_PANEL = 262
"""Width of one of two panels that stand side by side, in pixels: the report's."""


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
    return {
        "drift": _drawn(lambda: _drift(study), "Each arm minus the control by update, paired by cell, with intervals."),
        "levels": _drawn(lambda: _levels(study, rows), "Shares and means of the rollouts of each update, by arm and family."),
        "rows": rows,
    }


def weights_figure(study: Study) -> Figure:
    """Shares of the absolute weight by update."""
    return _drawn(lambda: _weights(study), "Shares of the absolute weight of each update, by arm and family.")


def _drawn(make: Any, words: str) -> Figure:
    from ablation.report.post.draw import plain_svg
    from ablation.report.post.theme import for_page

    lacking = [package for module, package in _PACKAGES.items() if find_spec(module) is None]
    if lacking:
        return Figure(None, words, f"Figures need {' and '.join(lacking)}: pip install 'ablation[view]'.")
    try:
        chart = make()
    except AblationError as error:
        return Figure(None, words, " ".join(error.lines()))
    if chart is None:
        return Figure(None, words, "There is nothing to draw yet.")
    import vl_convert

    svg = plain_svg(vl_convert.vegalite_to_svg(chart.to_dict()))
    return Figure(Markup(for_page(svg)), words)  # known elements and attributes alone: see `plain_svg`


def _drift(study: Study) -> Any:
    from ablation.report.post.charts import drift_chart
    from ablation.report.post.curves import curves

    points = curves(study.root, study.locked)
    return drift_chart(points, study.locked.plan.training.updates) if points else None


def _weights(study: Study) -> Any:
    from ablation.report.post.charts import weights_chart
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
                row |= {name: 100 * content[name] / content["rollouts"] for name, _ in RATES}
                found.append(row | {name: content[name] for name, _ in MEANS})
            except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
                continue
    return found


def _levels(study: Study, rows: Sequence[dict[str, Any]]) -> Any:
    import altair as alt

    from ablation.report.post.theme import SOFT, config, series_of

    own = [row for row in rows if row["stage"].startswith("update-")]
    if not own:
        return None
    families = list(dict.fromkeys(row["family"] for row in own))
    arms = [arm for arm in study.locked.plan.arms if any(row["arm"] == arm for row in own)]
    looks, last = series_of(arms), max(row["update"] for row in own)
    start = {row["family"]: row for row in rows if row["arm"] == "start"}
    colour, shape, dash = (
        (kind)("arm:N", scale=alt.Scale(domain=arms, range=[looks[arm][at] for arm in arms]), legend=None)
        for at, kind in enumerate((alt.Color, alt.Shape, alt.StrokeDash))
    )
    legend = {"legend": alt.Legend(orient="top", title=None, columns=min(len(arms), 6), symbolStrokeWidth=2)}
    panels = []
    for place, (name, title) in enumerate((*RATES, *MEANS)):
        axis = alt.Axis(grid=False, format="d", values=list(range(1, last + 1, max(1, -(-last // 8)))))
        x = alt.X("update:Q", axis=axis, scale=alt.Scale(domain=[0.6, last + 0.4], nice=False), title="update")
        side = []
        for at, family in enumerate(families):
            values = [{key: row[key] for key in ("arm", "update", name)} for row in own if row["family"] == family]
            values = [row for row in values if row[name] is not None]
            label = title if at == 0 else None
            y = alt.Y(f"{name}:Q", title=label, axis=alt.Axis(tickCount=4), scale=alt.Scale(zero=False))
            base = alt.Chart(alt.Data(values=values))
            hue = (
                colour.copy()
                if place or at
                else alt.Color("arm:N", scale=alt.Scale(domain=arms, range=[looks[arm][0] for arm in arms]), **legend)
            )
            line = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=hue, strokeDash=dash)
            dots = base.mark_point(filled=True, size=52, opacity=1).encode(x=x, y=y, color=hue, shape=shape)
            layers = [line, dots]
            if start.get(family, {}).get(name) is not None:
                even = alt.Chart(alt.Data(values=[{"start": start[family][name]}]))
                layers.insert(0, even.mark_rule(color=SOFT, strokeDash=[3, 3]).encode(y=alt.Y("start:Q", title=label)))
            width = _PANEL if len(families) > 1 else 2 * _PANEL
            panel = alt.layer(*layers).properties(width=width, height=110)
            if not place:
                panel = panel.properties(title=alt.Title(f"family {family}", fontSize=13, anchor="start", offset=8))
            side.append(panel)
        panels.append(alt.hconcat(*side, spacing=22).resolve_scale(y="shared"))
    return alt.vconcat(*panels, spacing=16).configure(**config())
