"""Is a stage the one that the plan asks for, whole, and paired with its reference?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ablation.errors import IntegrityError
from ablation.plan.model import Plan
from ablation.rollouts.imported import has_seeds, is_imported, is_retokenized, prompt_kind
from ablation.rollouts.stage import Stage

Cells = Sequence[tuple[str, str]]
"""(problem, effort) pairs."""


def check_stage_of_plan(stage: Stage, plan: Plan, digest: str, who: tuple[str, str, str, int], folder: Path) -> None:
    """Raise `IntegrityError` unless `stage` was sampled for this plan, as (family, arm, stage, update) `who`, with its values."""
    info = stage.info
    if info.plan_digest != digest:
        raise IntegrityError(
            f"{folder}: was sampled under another plan ({info.plan_digest[:12]}, not {digest[:12]})",
            hint="Name the run folder of this plan with --run.",
        )
    if (info.family, info.arm, info.stage, info.update) != who:
        found = f"{info.family}/{info.arm} {info.stage} {info.update}"
        raise IntegrityError(f"{folder}: holds the rollouts of {found}; they were moved here")
    wanted = plan.sampling.model_dump()
    differing = [name for name, value in wanted.items() if info.sampling.get(name) != value]
    if info.max_tokens != plan.sampling.max_tokens:
        differing.append("max_tokens")
    if differing:
        name = differing[0]
        found = info.max_tokens if name == "max_tokens" else info.sampling.get(name)
        raise IntegrityError(f"{folder}: was sampled with {name} {found}; the plan says {wanted[name]}")


def missing_rollouts(stage: Stage, plan: Plan, folder: Path) -> str | None:
    """A sentence if rollouts of the plan's cells are missing. Raises `IntegrityError` for one that the plan does not have."""
    what = f"{stage.info.family}/{stage.info.arm}: the {stage.info.stage}"
    return missing_of(stage, plan.cells, plan.training.rollouts_per_cell, what, folder)


def missing_of(stage: Stage, cells: Cells, each: int, what: str, folder: Path) -> str | None:
    """A sentence if `stage`, which is `what`, lacks any of `each` rollouts of every cell. Raises `IntegrityError` for others."""
    if _is_whole(stage, cells, each):
        return None
    wanted = {(problem, effort, index) for problem, effort in cells for index in range(each)}
    found = set(zip(stage.problem, stage.effort, stage.index.tolist(), strict=True))
    extra = sorted(found - wanted)
    if extra:
        problem, effort, index = extra[0]
        raise IntegrityError(f"{folder}: rollout {problem}@{effort} #{index} is not in the plan")
    gone = sorted(wanted - found)
    if not gone:
        return None
    problem, effort, index = gone[0]
    return f"{what} lacks {len(gone)} of {len(wanted)} rollouts, for instance {problem}@{effort} #{index}"


def _is_whole(stage: Stage, cells: Cells, each: int) -> bool:
    """Whether `stage`, which has no rollout twice, has just the wanted ones."""
    problems, efforts, wanted = stage.problem.values, stage.effort.values, set(cells)
    there = {(problems[cell // len(efforts)], efforts[cell % len(efforts)]) for cell in np.unique(stage.cell).tolist()}
    inside = bool(((stage.index >= 0) & (stage.index < each)).all())
    return inside and there <= wanted and len(stage) == len(wanted) * each


def check_pairing(
    sweep: Stage, readout: Stage, folder: Path, who: str | None = None, against: str = "sweep", kind: str = "readout"
) -> list[str]:
    """Raise `IntegrityError` unless each rollout has the seed and prompt of its partner and both have one kind of logprob.

    `who`, `against` and `kind` name the two in messages. Both stages must be whole. Returns notes on what differs and is allowed
    to, and on what imported rows do not tell.
    """
    for name in ("logprob_kind", "think_open_id", "think_close_id", "end_ids"):
        one, other = getattr(sweep.info, name), getattr(readout.info, name)
        if one != other:
            raise IntegrityError(f"{folder}: {name} is {other}, the {against}'s is {one}: they cannot be compared")
    who, notes = who or f"{readout.info.family}/{readout.info.arm}", []
    prompts = (sweep.prompt_sha256.codes, readout.prompt_sha256.among(sweep.prompt_sha256.values))
    paired = {
        "seed": (has_seeds(sweep.info) and has_seeds(readout.info), sweep.seed, readout.seed),
        "prompt_sha256": (prompt_kind(sweep.info) == prompt_kind(readout.info) != "absent", *prompts),
    }
    for name, (known, one, other) in paired.items():
        if not known:
            what = {"seed": "seed", "prompt_sha256": "prompt"}[name]
            notes.append(f"{who}: whether its rollouts have the {what} of their partner in the {against} is not known")
            continue
        differ = one[sweep.by_key] != other[readout.by_key]
        if differ.any():
            row = int(readout.by_key[np.argmax(differ)])
            raise IntegrityError(
                f"{folder}: rollout {readout.name(row)} has another {name} than in the {against}; the two are not paired"
            )
    if is_imported(sweep.info) or is_imported(readout.info):
        if is_imported(sweep.info) != is_imported(readout.info):
            notes.append(f"{who}: of {against} and {kind} one was imported, so the engine changed between them")
        elif is_retokenized(sweep.info) != is_retokenized(readout.info):
            notes.append(
                f"{who}: of {against} and {kind} one has the sampled token ids and the other does not: lengths may differ"
            )
        return notes
    differing = sorted(
        name
        for name in sweep.info.engine.keys() | readout.info.engine.keys()
        if sweep.info.engine.get(name) != readout.info.engine.get(name)
    )
    if not differing:
        return notes
    changes = ", ".join(f"{name} {sweep.info.engine.get(name)} -> {readout.info.engine.get(name)}" for name in differing)
    return [*notes, f"{who}: the engine changed between {against} and {kind}: {changes}"]
