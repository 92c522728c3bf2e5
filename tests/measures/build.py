"""Outcomes written by hand: a few columns that matter, the rest neutral."""

from __future__ import annotations

import numpy as np

from ablation.rollouts.outcomes import Outcomes


def outcomes(rows) -> Outcomes:
    """Rows of (problem, effort, index, correct, thinking tokens, total tokens) and, if wanted, a dict of other columns."""
    rows = [(*row, {}) if len(row) == 6 else row for row in rows]
    extra = [row[6] for row in rows]

    def column(name, default):
        return np.array([one.get(name, default) for one in extra])

    correct = np.array([bool(row[3]) for row in rows])
    truncated = column("truncated", False)
    return Outcomes(
        problem=np.array([row[0] for row in rows], dtype=str),
        effort=np.array([row[1] for row in rows], dtype=str),
        source=column("source", "sums").astype(str),
        index=np.array([row[2] for row in rows]),
        correct=correct,
        no_answer=column("no_answer", False),
        extracted=np.array([None] * len(rows), dtype=object),
        truncated=truncated,
        finished=~truncated,
        stopped_in_thinking=np.zeros(len(rows), dtype=bool),
        periodic=column("periodic", False),
        strong=column("strong", False),
        loop_start=np.zeros(len(rows), dtype=int),
        loop_period=np.zeros(len(rows), dtype=int),
        loop_length=np.zeros(len(rows), dtype=int),
        repeated_share=np.zeros(len(rows)),
        thinking_length=np.array([row[4] for row in rows]),
        weighted_length=np.array([row[4] + 1 for row in rows]),
        total_tokens=np.array([row[5] for row in rows]),
        logprob=column("logprob", -0.5).astype(float),
        top_entropy=column("top_entropy", 0.25).astype(float),
        top_mass=column("top_mass", 0.99).astype(float),
        cjk_share=column("cjk_share", 0.0).astype(float),
        redacted=column("redacted", False),
    )


def many(seed, cells=58, rollouts=6, scale=1.0):
    """A made-up stage with cells that differ a lot from each other and less within."""
    rng = np.random.default_rng(seed)
    rows = []
    for cell in range(cells):
        length, skill = rng.lognormal(5, 0.8), rng.beta(2, 1.5)
        for index in range(rollouts):
            tokens = 1 + int(scale * length * rng.lognormal(0, 0.3))
            rows.append((f"p{cell:02d}", "low", index, rng.random() < skill, tokens, tokens + 5))
    return outcomes(rows)
