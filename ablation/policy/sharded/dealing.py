"""Which process computes which rows: every process works on this out for itself, and all come to the same."""

from __future__ import annotations

from collections.abc import Sequence

from ablation.policy.base import ScoreRow
from ablation.policy.packing import micro_batches


def deal(rows: Sequence[ScoreRow], tokens: int, processes: int, *, share: bool) -> list[list[list[int]]]:
    """Passes; in each, the indices of `rows` that each process computes, at most `tokens` tokens (a longer row goes alone).

    As few passes as `tokens` allows, as every pass gathers the model (twice to train); within that, batches as small, and so
    as even, as can be. Batches of like size are computed in the same pass, where processes wait for each other. A process
    may have nothing to do in a pass. Nothing depends on the order of `rows`.
    """
    if not rows:
        return []

    def batches(limit: int) -> list[list[int]]:
        return list(micro_batches(rows, limit, share=share))

    best = batches(tokens)
    passes = -(-len(best) // processes)
    small, large = 1, min(tokens, sum(_length(row) for row in rows))
    while small < large:
        middle = (small + large) // 2
        tried = batches(middle)
        if len(tried) <= passes * processes:
            best, large = tried, middle
        else:
            small = middle + 1
    best.sort(key=lambda batch: -sum(_length(rows[index]) for index in batch))  # stable: ties in the order of `micro_batches`
    dealt = [best[start : start + processes] for start in range(0, len(best), processes)]
    return [one + [[] for _ in range(processes - len(one))] for one in dealt]


def _length(row: ScoreRow) -> int:
    return len(row.prompt_ids) + len(row.token_ids)
