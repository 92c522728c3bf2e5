"""Which rollouts a plan asks for and with which seeds, from the written definition (plans/README.md, runs/README.md).

A seed is the first 63 bits of the SHA-256 of the decimal text of the family's seed and of what the seed is for, each part written
as LENGTH:PART. The order in which cells are dealt over the updates is that of the seeds for `shuffle`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ablation.audit.locked import LockedTree

Key = tuple[str, str, int]
"""(problem, effort, index)."""


def seed_for(family_seed: int, *purpose: str | int) -> int:
    """The documented function, written again."""
    digest = hashlib.sha256()
    for part in (family_seed, *purpose):
        text = str(part)
        digest.update(f"{len(text)}:{text}".encode())
    return int(digest.hexdigest()[:16], 16) // 2


def rollouts_of(cells: Iterable[tuple[str, str]], per_cell: int) -> list[Key]:
    return [(problem, effort, index) for problem, effort in cells for index in range(per_cell)]


def dealt(tree: LockedTree, family: str, update: int) -> list[tuple[str, str]]:
    """The cells of one update: every `updates`-th cell of the shuffled ones. Each pass over all cells has its own shuffle."""
    passes, place = divmod(update - 1, tree.updates)
    seed, purpose = tree.families[family], ["shuffle", passes] if passes else ["shuffle"]
    ranked = sorted(
        (seed_for(seed, *purpose, f"{problem}@{effort}"), f"{problem}@{effort}", (problem, effort))
        for problem, effort in tree.cells
    )
    return [cell for rank, (_, _, cell) in enumerate(ranked) if rank % tree.updates == place]


def rollout_seed(family_seed: int, stage: str, update: int, key: Key) -> int:
    """`stage`: `update`, or anything that all models share: a sweep, a readout, a check, or the name of an evaluation set."""
    problem, effort, index = key
    shared = ("evaluation",) if stage in ("sweep", "readout", "check") else (stage,)
    purpose = ("update", update) if stage == "update" else shared
    return seed_for(family_seed, "rollout", *purpose, f"{problem}@{effort}", index)
