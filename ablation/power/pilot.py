"""Rates of the starting model from a sweep that was sampled already."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ablation.errors import UsageError
from ablation.plan.load import LoadedPlan
from ablation.plan.locate import locate
from ablation.power.kinds import CUBE, KINDS
from ablation.power.rates import Mean, Rates, pilot_rates
from ablation.problems.problem import load_problems
from ablation.rollouts.folder import RunFolder, stage_file
from ablation.rollouts.grades import grades_of
from ablation.rollouts.outcomes import Outcomes, outcomes
from ablation.rollouts.store import read_stage

MEANS = {"logprob": "logprob", "top20_entropy": "top_entropy", "top20_mass": "top_mass"}
"""Measure that is a mean over rollouts -> its column in `Outcomes`."""


def read_pilot(folder: Path, loaded: LoadedPlan, concentration: float | None) -> tuple[Rates, list[str]]:
    """(rates of the plan's cells, what a reader should know of the pilot).

    Raises `UsageError` for a folder that is no sweep or has none of the plan's cells, and what reading a stage raises.
    """
    plan, folder = loaded.plan, Path(folder)
    if not stage_file(folder).is_file():
        found = sorted(path.parent for path in folder.glob("*/start/sweep/stage.json")) if folder.is_dir() else []
        hint = f"There is {found[0]}." if found else "Name the folder of a finished sweep, for instance RUN/main/start/sweep."
        raise UsageError(f"--pilot {folder}: there is no finished sweep", hint=hint)
    stage = read_stage(folder)
    if stage.info.stage != "sweep":
        raise UsageError(
            f"--pilot {folder}: is the {stage.info.stage} of {stage.info.family}/{stage.info.arm}, not a sweep",
            hint="A pilot tells what the starting model does: name the folder of a sweep.",
        )
    problems = RunFolder(folder.parents[2] if len(folder.parents) > 2 else folder).problems
    if not problems.is_file():
        problems = locate(plan.problems.training, loaded.path)
    known = load_problems(problems)
    own = outcomes(stage, known, plan.loops, grades_of(folder, stage, known))
    if own.redacted.any():
        raise UsageError(f"--pilot {folder}: the thinking of some of its rollouts is not known, so nobody can count its loops")
    names = [f"{problem}@{effort}" for problem, effort in plan.cells]
    counts_KC = np.array([np.bincount(kinds(own.take(own.cell == name)), minlength=KINDS) for name in names])
    sampled = int((counts_KC.sum(axis=1) > 0).sum())
    if not sampled:
        raise UsageError(f"--pilot {folder}: has none of the {len(names)} cells of {loaded.path}")
    notes = []
    if sampled < len(names):
        notes.append(f"{len(names) - sampled} of {len(names)} cells are not in the pilot: they get its average rates.")
    if stage.info.max_tokens != plan.sampling.max_tokens:
        notes.append(
            f"The pilot's cap is {stage.info.max_tokens} tokens and the plan's is {plan.sampling.max_tokens}: "
            "the plan's rate of truncated rollouts will be another one."
        )
    means = {name: spread for name, column in MEANS.items() if (spread := _spread(own, getattr(own, column))) is not None}
    pool_C = np.bincount(kinds(own), minlength=KINDS)
    source = f"pilot sweep {folder} ({len(own)} rollouts)"
    return pilot_rates(counts_KC, pool_C, plan.training.rollouts_per_cell, concentration, means, source), notes


def kinds(own: Outcomes) -> np.ndarray:
    """The kind of each rollout, int [N]."""
    answer = np.where(own.correct, 0, np.where(own.no_answer, 2, 1))
    return np.ravel_multi_index((own.truncated.astype(int), own.looping.astype(int), answer), CUBE)


def _spread(own: Outcomes, values: np.ndarray) -> Mean | None:
    """By moments: within cells pooled over cells, between them what their means vary more than that. None without two values in
    any cell."""
    there = np.isfinite(values)
    names, cell_N = np.unique(own.cell[there], return_inverse=True)
    values = values[there]
    sizes = np.bincount(cell_N, minlength=len(names))
    free = int((sizes - 1).sum())
    if free < 1:
        return None
    centres = np.bincount(cell_N, weights=values, minlength=len(names)) / sizes
    within = ((values - centres[cell_N]) ** 2).sum() / free
    between = max(centres.var(ddof=1) - within * (1 / sizes).mean(), 0.0) if len(names) > 1 else 0.0
    return Mean(float(values.mean()), float(np.sqrt(within)), float(np.sqrt(between)))
