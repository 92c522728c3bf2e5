"""What is sampled when, and with which seed: pure functions of the plan."""

from __future__ import annotations

from ablation.plan.extension import extension_family
from ablation.plan.model import Plan
from ablation.rollouts.schema import Cell
from ablation.seeds import derive_seed

ON_CELLS = ("sweep", "readout", "check")
"""Stages on all training cells, which share their seeds within a family."""


def plan_cells(plan: Plan) -> list[Cell]:
    """Every cell, in plan order."""
    return [Cell(problem, effort) for problem, effort in plan.cells]


def deal_cells(cells: list[Cell], updates: int, family_seed: int, passed: int = 0) -> list[list[Cell]]:
    """Cells of the updates of one pass: ordered by a hash of the family's seed, dealt so that sizes differ by at most one.

    `passed` is how often all cells were dealt before: an extension deals them again, in another order each time.
    """
    purpose = ("shuffle", passed) if passed else ("shuffle",)
    order = sorted(cells, key=lambda cell: (derive_seed(family_seed, *purpose, cell.id), cell.id))
    return [order[start::updates] for start in range(updates)]


def cells_of_update(plan: Plan, family: str, k: int) -> list[Cell]:
    """The cells of update `k` (1, 2, ...) of every arm of `family`, in the order in which they are sampled."""
    passed, place = divmod(k - 1, plan.training.updates)
    return deal_cells(plan_cells(plan), plan.training.updates, plan.families[family].seed, passed)[place]


def rollout_seed(family_seed: int, stage: str, update: int, cell: Cell, index: int) -> int:
    """Sampling seed of one rollout. Sweep, readouts and checks of a family share theirs; so do all arms at an update, and all
    models that are compared on one evaluation set, whose name is then the `stage`.
    """
    purpose = ("update", update) if stage == "update" else ("evaluation",) if stage in ON_CELLS else (stage,)
    return derive_seed(family_seed, "rollout", *purpose, cell.id, index)


def all_seeds(plan: Plan) -> dict[tuple[str, str, str, int], int]:
    """(family, purpose, cell id, index) -> seed, for every rollout that the plan does not pair on purpose."""
    cells, indices = plan_cells(plan), range(plan.training.rollouts_per_cell)
    stages = [("evaluation", 0), *(("update", k) for k in range(1, plan.training.updates + 1))]
    found = {
        (name, f"{stage}-{update}", cell.id, index): rollout_seed(family.seed, stage, update, cell, index)
        for name, family in plan.families.items()
        for stage, update in stages
        for cell in cells
        for index in indices
    }
    if plan.extension is None:
        return found
    name = extension_family(plan)
    return found | {
        (name, f"update-{k}", cell.id, index): rollout_seed(plan.families[name].seed, "update", k, cell, index)
        for k in range(plan.training.updates + 1, plan.extension.updates + 1)
        for cell in cells_of_update(plan, name, k)
        for index in indices
    }
