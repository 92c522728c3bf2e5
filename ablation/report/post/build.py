"""The document of a study: its sections in order, and its figures."""

from __future__ import annotations

from typing import Any

from ablation.report.numbers import with_sign
from ablation.report.post import ending, opening, phase2, readouts, weights
from ablation.report.post.charts import drift_chart, ratios_chart, weights_chart
from ablation.report.post.document import Cell, Code, Column, Document, Figure, Section, Table
from ablation.report.post.document import number as num
from ablation.report.post.draw import PACKAGE, Drawer
from ablation.report.post.flow_chart import flow_chart, flow_in_words
from ablation.report.post.glossary import glossary
from ablation.report.post.study import Study
from ablation.report.verdict_parts import ratio
from ablation.verdict.locked import Locked

NO_FIGURES = f"This report was made without figures, because {PACKAGE} is not installed; their numbers are in tables."
NOT_WANTED = "This report was made without figures; their numbers are in tables."
TOKENS = "tokens_per_correct"


def document(study: Study, locked: Locked, drawer: Drawer | None, without: str | None = None) -> Document:
    """The whole report. `without`: what to say where there is no `drawer`."""
    second = phase2.phase2(study, _compared_figure(study, drawer))
    claims = phase2.claims(study)
    luck = ending.luck(study, locked)
    machine = ending.machine(study)
    sections: list[Section | None] = [
        opening.promised(study),
        opening.what_was_run(study, _flow_figure(study, drawer)),
        readouts.readouts(study),
        readouts.drift(study, _drift_figure(study, drawer)),
        readouts.damage(study),
        weights.weights(study, _weights_figure(study, drawer)),
        weights.stops(study),
        second,
        claims,
        ending.labels(study),
        luck,
        ending.limits(study),
        machine,
        opening.how_to_check(study),
        glossary(study.plan, study.verdict),
    ]
    verdict = study.verdict
    return Document(
        kicker="Report of an ablation with a locked plan"
        if study.locked_at is not None
        else "Report of figures that others published",
        title=verdict.plan,
        question=study.plan.question,
        label=study.label(verdict.label),
        opening=opening.opening(study),
        sections=[one for one in sections if one is not None],
        digest=verdict.digest,
        without_figures=without if drawer is None else None,
        footer=("Made by ", Code("ablation report"), " from the plan with the digest ", Code(verdict.digest), "."),
    )


def _figure(drawer: Drawer | None, spec: dict[str, Any], key: str, caption: str, alternative: str, data: Table) -> Figure:
    svg, png = (None, None) if drawer is None else drawer.draw(spec)
    return Figure(key, caption, alternative, data, svg, png)


def _flow_figure(study: Study, drawer: Drawer | None) -> Figure:
    words = flow_in_words(study.flow, study.reported)
    rows = tuple((Cell(title), Cell(said)) for title, said in words)
    data = Table("flow", "The flow in words.", (Column("step", False), Column("what", False)), rows, latex=False)
    caption = "What was planned, what was trained, what left the study, and what was judged."
    return _figure(
        drawer,
        flow_chart(study.flow, study.reported),
        "flow",
        caption,
        " ".join(f"{title}: {said}." for title, said in words),
        data,
    )


def _drift_figure(study: Study, drawer: Drawer | None) -> Figure | None:
    points = [one for one in study.points if any(found.value is not None for found in one.estimates.values())]
    if not points:
        return None
    control = points[0].control
    spec = drift_chart(points, study.plan.training.updates)
    level = f"{100 * study.plan.statistics.level:g}%"
    caption = (
        f"Each arm minus the control {control}, paired by cell, at every update and at the readout, with {level} intervals over "
        "cells. Above: mean log-probability of the sampled thinking tokens. Below: top-20 entropy."
    )
    alternative = (
        f"Lines by update for {', '.join(dict.fromkeys(one.arm for one in points))} minus {control}, one panel a family: "
        f"{_ends(study)} Every number is in the table below the figure."
    )
    return _figure(drawer, spec, "drift", caption, alternative, readouts.drift_table(study, study.points))


def _ends(study: Study) -> str:
    """Where each line ends."""
    said = []
    for one in study.points:
        found = one.estimates.get("logprob")
        if one.stage == "readout" and found is not None and found.value is not None:
            said.append(f"{one.family}/{one.arm} {with_sign(found.value, 3)} nats per token at the readout")
    return f"{'; '.join(said)}." if said else ""


def _weights_figure(study: Study, drawer: Drawer | None) -> Figure | None:
    updates = study.audit.updates if study.audit is not None else []
    if not updates:
        return None
    caption = (
        "Shares of each update's absolute weight: how much was negative, what the weights sum to, and how much sat on truncated "
        "rollouts."
    )
    alternative = "Lines by update and arm, one panel a family and share. Every number is in the table below the figure."
    return _figure(drawer, weights_chart(updates), "weights-updates", caption, alternative, weights.weights_table(study))


def _compared_figure(study: Study, drawer: Drawer | None) -> Figure | None:
    """Tokens per correct answer on every set, beside the readouts."""
    rows = []
    for place, arm in enumerate(study.verdict.arms):
        found = arm.figures.ratios.get(TOKENS) if arm.figures is not None else None
        if found is not None and found.value is not None:
            rows.append((f"training cells, {arm.family}", arm.arm, found, f"/arms/{place}/ratios/{TOKENS}"))
    own = 0
    for name, placed in phase2.by_set(study).items():
        for compared, at in placed:
            found = compared.figures.ratios.get(TOKENS) if compared.figures is not None else None
            if found is not None and found.value is not None:
                rows.append((phase2.SET_WORDS.get(name, name), compared.subject, found, f"{at}/ratios/{TOKENS}"))
                own += 1
    if not own:
        return None
    level = f"{100 * study.plan.statistics.level:g}%"
    cells = []
    for group, model, found, at in rows:
        trace = study.traces.verdict([at], ["see the table of that set"], "as there")
        cells.append((Cell(f"{group}: {model}"), num(ratio(found), trace)))
    data = Table(
        "ratios",
        "Tokens per correct answer.",
        (Column("where", False), Column(f"ratio to the start ({level} CI)")),
        tuple(cells),
        latex=False,
    )
    spec = ratios_chart(
        [(group, model, found) for group, model, found, _ in rows], "tokens per correct answer, ratio to the start"
    )
    caption = (
        f"Tokens per correct answer as a ratio to the starting model, with {level} intervals, on the training cells and on every "
        "other set. Left of the dashed line is cheaper than the start."
    )
    alternative = " ".join(f"{row[0].text} {row[1].text}." for row in cells)
    return _figure(drawer, spec, "ratios", caption, alternative, data)


__all__ = ["NOT_WANTED", "NO_FIGURES", "document"]
