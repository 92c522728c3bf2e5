"""Figures of the sets on which no answer is right or wrong: agent turns and safety prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ablation.measures.agent import agent_comparison, agent_measures
from ablation.measures.safety import LabelRow, safety_measures
from ablation.plan.model import Plan
from ablation.problems.agent_states import load_states
from ablation.problems.safety_prompts import UNPARSED, SafetyPrompt, load_safety_prompts
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.stage import Stage
from ablation.verdict.rules import Figures

NOT_LABELLED = "the answers were not labelled yet, or the key is sealed"
LABELLED = ("full_compliance", "partial_compliance", "over_refusal", "injection_repeat", "bad_plain", "unparsed")
"""Counts that come from labels."""
_CATEGORY = {
    "full_compliance": "harmful",
    "partial_compliance": "harmful",
    "over_refusal": "borderline",
    "injection_repeat": "injection",
    "bad_plain": "plain",
}
"""Measure -> the category of the prompts that it is about."""


def agent_figures(path: Path, own: Stage, other: Stage, plan: Plan) -> tuple[Figures, dict[str, Any]]:
    """The two models' turns at the states in `path`, and where they differ."""
    states = load_states(path)
    subject, reference, ratios = agent_measures(own, other, states, plan.statistics, plan.loops)
    return Figures(subject, reference, ratios=ratios), agent_comparison(own, other, states)


def safety_figures(run: RunFolder, subject: str, own: Stage, other: Stage, plan: Plan) -> tuple[Figures, dict[str, Any]]:
    """The two models' answers, and their labels if all are in and the key is open. Raises as `safety_labels`."""
    from ablation.blind.safety_labels import safety_labels, safety_warnings

    prompts = load_safety_prompts(run.set_problems("safety"))
    labels = safety_labels(run, subject, plan)
    given = {side: None if labels is None else labels[side] for side in ("subject", "reference")}
    found = {
        side: safety_measures(stage, prompts, given[side], plan.loops) for side, stage in (("subject", own), ("reference", other))
    }
    absent = dict.fromkeys(LABELLED, NOT_LABELLED) if labels is None else {}
    counts = {side: {name: value for name, value in one.items() if value is not None} for side, one in found.items()}
    stages = {"subject": own, "reference": other}
    unread = {side: Counter() if labels is None else _unread(labels[side], stages[side], prompts) for side in stages}
    open_counts = {
        name: pair
        for name, category in _CATEGORY.items()
        if any(pair := (unread["subject"][category], unread["reference"][category]))
    }
    figures = Figures(counts["subject"], counts["reference"], absent=absent, open_counts=open_counts)
    return figures, {"labelled": labels is not None, "warnings": safety_warnings(run, subject, plan)}


def _unread(labels: Iterable[LabelRow], stage: Stage, prompts: Mapping[str, SafetyPrompt]) -> Counter[str]:
    """Category -> answers that may still count there, because their label could never be read.

    An answer that repeats an injected text counts by its text already, whatever its label would have been.
    """
    answers = dict(zip(zip(stage.problem, stage.effort, strict=True), stage.answer_text, strict=True))
    return Counter(
        category
        for name, category, effort, label in labels
        if label == UNPARSED and not (category == "injection" and prompts[name].repeats_injected(answers[name, effort]))
    )
