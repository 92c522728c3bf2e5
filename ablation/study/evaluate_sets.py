"""The sets of phase 2 as they are sampled: their file, cells, rollouts and prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.errors import IntegrityError, UsageError
from ablation.files import sha256_bytes, write_bytes
from ablation.measures.agent import turn_measures, turns_of
from ablation.measures.safety import safety_measures
from ablation.plan.locate import locate
from ablation.plan.lock import LockedPlan
from ablation.plan.model import Plan
from ablation.plan.phase2 import EvaluationSet, evaluation_sets
from ablation.plan.section import did_you_mean
from ablation.problems.agent_states import load_states
from ablation.problems.problem import Problem, load_problems
from ablation.problems.safety_prompts import load_safety_prompts
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.schema import Cell
from ablation.rollouts.stage import Stage
from ablation.study.models import PromptSet
from ablation.study.sampler import Prompts
from ablation.study.set_prompts import AgentPrompts, SafetyPrompts, agent_cells, safety_cells

FIELDS = {
    "held-out": "verdict.held_out.problems",
    "never-used": "verdict.never_used.problems",
    "selection": "extension.selection",
    "main": "verdict.release.main",
    "agent": "verdict.release.agent",
    "safety": "verdict.release.safety",
}
"""Set -> the field of a plan that makes it."""


@dataclass(frozen=True)
class SampledSet:
    """What is sampled of one set, by each model."""

    name: str
    problems: dict[str, Problem]
    """By id; agent states and safety prompts as the ledger marks them."""
    cells: list[Cell]
    per_cell: int
    make_prompts: Callable[[Any], PromptSet]
    """From the model's tokenizer."""
    aside: Callable[[Stage], dict[str, Any]] | None = None
    """The measures of one model's stage where no answer is right or wrong: agent turns, safety prompts."""

    @property
    def rollouts(self) -> int:
        """Of each model."""
        return len(self.cells) * self.per_cell


def find_set(locked: LockedPlan, name: str) -> EvaluationSet:
    """The plan's set of that name. Raises `UsageError` that lists what there is."""
    there = evaluation_sets(locked.plan)
    if name in there:
        return there[name]
    known = ", ".join(there) or "none"
    if name in FIELDS:
        raise UsageError(f"{locked.path}: {FIELDS[name]}: the plan names no `{name}` set", hint=f"Its sets: {known}.")
    raise UsageError(f"there is no set `{name}`{did_you_mean(name, FIELDS)}", hint=f"Sets of {locked.path}: {known}.")


def copy_set(locked: LockedPlan, run: RunFolder, spec: EvaluationSet) -> Path:
    """The run's copy of the set's file, made if it is not there. Raises `IntegrityError` for one with another digest."""
    path, wanted = run.set_problems(spec.name), locked.lock.resources[spec.field]["sha256"]
    if not path.exists():
        data = locate(spec.resource, locked.path).read_bytes()
        _check_digest(sha256_bytes(data), wanted, locate(spec.resource, locked.path))
        write_bytes(path, data)
    _check_digest(sha256_bytes(path.read_bytes()), wanted, path)
    return path


def _check_digest(found: str, wanted: str | None, path: Path) -> None:
    if found != wanted:
        raise IntegrityError(
            f"{path}: is not the file that the plan was locked with ({found[:12]}, not {str(wanted)[:12]})",
            hint="Put it back; the lock names its digest.",
        )


def read_set(plan: Plan, spec: EvaluationSet, path: Path) -> SampledSet:
    """The set whose file is at `path`. Raises `UsageError` for a file that cannot be read or rollouts that cannot be dealt."""
    if spec.name == "agent":
        states = load_states(path)
        cells, problems = agent_cells(states, spec.efforts[0]), {name: one.as_problem() for name, one in states.items()}
        return SampledSet(
            spec.name,
            problems,
            cells,
            spec.per_cell(len(states)),
            lambda tokenizer: AgentPrompts(plan, states, spec.efforts[0], tokenizer),
            lambda stage: turn_measures(turns_of(stage, states), plan.loops),
        )
    if spec.name == "safety":
        asked = load_safety_prompts(path)
        cells, problems = safety_cells(asked, spec.efforts), {name: one.as_problem() for name, one in asked.items()}
        return SampledSet(
            spec.name,
            problems,
            cells,
            spec.per_cell(len(asked)),
            lambda tokenizer: SafetyPrompts(plan, asked, spec.efforts, tokenizer),
            lambda stage: safety_measures(stage, asked, None, plan.loops),
        )
    problems = load_problems(path)
    cells = [Cell(name, effort) for effort in spec.efforts for name in problems]
    return SampledSet(
        spec.name, problems, cells, spec.per_cell(len(problems)), lambda tokenizer: Prompts(plan, problems, tokenizer, cells)
    )
