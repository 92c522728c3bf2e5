"""What is sampled when, and with which seed: pure functions of the plan."""

from __future__ import annotations

from ablation.plan.model import Plan
from ablation.rollouts.schema import Cell
from ablation.seeds import derive_seed


def plan_cells(plan: Plan) -> list[Cell]:
    """Every cell, in plan order."""
    return [Cell(problem, effort) for problem, effort in plan.cells]


def deal_cells(cells: list[Cell], updates: int, family_seed: int) -> list[list[Cell]]:
    """Cells of update 1, 2, ...: ordered by a hash of the family's seed, dealt so that sizes differ by at most one."""
    order = sorted(cells, key=lambda cell: (derive_seed(family_seed, "shuffle", cell.id), cell.id))
    return [order[start::updates] for start in range(updates)]


def rollout_seed(family_seed: int, stage: str, update: int, cell: Cell, index: int) -> int:
    """Sampling seed of one rollout. A sweep and the readouts of its family share theirs; so do all arms at an update."""
    purpose = ("update", update) if stage == "update" else ("evaluation",)
    return derive_seed(family_seed, "rollout", *purpose, cell.id, index)


def all_seeds(plan: Plan) -> dict[tuple[str, str, str, int], int]:
    """(family, purpose, cell id, index) -> seed, for every rollout that the plan does not pair on purpose."""
    cells, indices = plan_cells(plan), range(plan.training.rollouts_per_cell)
    stages = [("evaluation", 0), *(("update", k) for k in range(1, plan.training.updates + 1))]
    return {
        (name, f"{stage}-{update}", cell.id, index): rollout_seed(family.seed, stage, update, cell, index)
        for name, family in plan.families.items()
        for stage, update in stages
        for cell in cells
        for index in indices
    }
