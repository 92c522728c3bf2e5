"""One update of one arm: sample its cells, weigh the rollouts, take one optimizer step, save."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ablation.errors import IntegrityError
from ablation.files import folder_is_complete, json_bytes, sha256_bytes, write_bytes, write_folder, write_json
from ablation.measures.measure import measure
from ablation.plan.arms import Arm
from ablation.plan.model import Plan
from ablation.policy.base import Policy, ScoreRow, TrainRow, UpdateStats
from ablation.problems.problem import Problem
from ablation.rollouts.folder import RunFolder, measures_file
from ablation.rollouts.grades import grades_of
from ablation.rollouts.outcomes import Outcomes, outcomes
from ablation.rollouts.schema import Cell
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import read_stage
from ablation.rollouts.values import RAW
from ablation.study.journal import Journal
from ablation.study.sampler import Prompts
from ablation.training.audit import audit_weights
from ablation.training.batch import weigh_update
from ablation.training.stops import rollout_metrics
from ablation.training.weights import Weights

STEPPED, EMPTY_STEP, NO_SIGNAL, NONFINITE, UNCHANGED = "stepped", "empty_step", "no_signal", "nonfinite", "unchanged"
OUTCOMES = {
    STEPPED: "one optimizer step was taken",
    EMPTY_STEP: "no step: no token has a weight",
    NO_SIGNAL: "no step: the rewards of every group are all equal",
    NONFINITE: "no step: the loss, the gradient or what the step would lead to is not finite",
    UNCHANGED: "the arm's own command left the adapter as it was",
}
"""What an update can come to, in words. Only the first one moves the adapter or the optimizer's state."""
MISMATCH = {
    "mismatch_mean": "mean_absolute",
    "mismatch_p99": "p99_absolute",
    "mismatch_outside": "share_ratio_outside_10_percent",
    "mismatch_k3": "k3",
}
"""Measure of an update -> its name in `UpdateStats.mismatch`."""


def train_on_stage(
    plan: Plan,
    arm: Arm,
    policy: Policy,
    prompts: Prompts,
    problems: dict[str, Problem],
    folder: Path,
    *,
    reference: dict[str, float],
    s0: float,
    journal: Journal,
) -> dict[str, Any]:
    """Train the policy on the sampled stage in `folder`, write its measures and audit, and return the audit."""
    started = time.monotonic()
    path = folder / "audit.json"
    path.unlink(missing_ok=True)  # of a runner that was killed before it could save: this update is trained again
    stage = read_stage(folder)
    own = outcomes(stage, problems, plan.loops, grades_of(folder, stage, problems))
    rows = score_rows(stage, prompts)
    scored = 0

    def score(start: bool = False) -> list[np.ndarray]:
        nonlocal scored
        scored += passed_tokens(rows)
        return policy.score(rows, start=start)

    weighted = weigh_update(
        arm,
        plan,
        stage,
        own,
        reference=reference,
        s0=s0,
        trainer_logprobs=score,
        start_logprobs=lambda: score(start=True),
    )
    learning_rate = plan.training.learning_rate_of(arm)
    train_rows = [
        TrainRow(
            row.prompt_ids, row.token_ids, stage.logprobs[stage.offsets[i] : stage.offsets[i + 1]], weighted.weights.tokens[i]
        )
        for i, row in enumerate(rows)
    ]
    stats = policy.update(train_rows, learning_rate)
    audit = {
        "update": stage.info.update,
        "learning_rate": learning_rate,
        "s0": s0,
        "reward_mean": float(weighted.rewards_R.mean()),
        "weights": audit_weights(weighted.weights, own.truncated, own.source.tolist(), own.effort.tolist()),
    }
    outcome = update_outcome(stats, all_without_signal(own, weighted.weights))
    audit["step"] = _step_report(stats, outcome, stage, audit["weights"]["weighted_tokens"])
    shares = {name: audit["weights"][name] for name in ("negative_share", "truncated_share", "kl_share")}
    audit["metrics"] = update_metrics(own, stage, stats) | shares
    write_json(measures_file(folder), measure(own))
    record, seconds = json_bytes(audit), time.monotonic() - started
    journal.append(
        "update_trained",
        arm=f"{stage.info.family}/{stage.info.arm}",
        update=stage.info.update,
        tokens=audit["weights"]["weighted_tokens"],
        trained_tokens=trained_tokens(train_rows),
        scored_tokens=scored,
        stepped=stats.stepped,
        outcome=outcome,
        seconds=round(seconds, 3),
        audit_sha256=sha256_bytes(record),
    )
    write_bytes(path, record)  # the event goes first, see StageSampler.sample
    return audit


def save_checkpoint(policy: Policy, run: RunFolder, journal: Journal, family: str, arm: str, update: int) -> None:
    """Adapter and optimizer after `update`, complete or not at all; the journal has the digest of the folder's marker."""
    told = {"arm": f"{family}/{arm}", "update": update}
    write_folder(
        run.checkpoint(family, arm, update),
        policy.save,
        tell=lambda digest: journal.append("checkpoint_saved", **told, checkpoint_sha256=digest),
    )


def update_is_done(run: RunFolder, family: str, arm: str, update: int) -> bool:
    return folder_is_complete(run.checkpoint(family, arm, update)) and run.audit(family, arm, update).is_file()


def score_rows(stage: Stage, prompts: Prompts) -> list[ScoreRow]:
    """The sampled ids as they were stored, behind the prompt that they were sampled from (checked by its digest).

    Raises `IntegrityError` if their logprobs are of another kind than the trainer's, which are raw.
    """
    if stage.info.logprob_kind != RAW:
        who, kind = f"{stage.info.family}/{stage.info.arm}/{stage.info.stage}", stage.info.logprob_kind
        raise IntegrityError(
            f"{who}: its logprobs are {kind}, the trainer's are raw: a ratio of the two would be of the kinds, not of the models"
        )
    rows = []
    for i in range(len(stage)):
        prompt = prompts[Cell(stage.problem[i], stage.effort[i])]
        assert prompt.sha256 == stage.prompt_sha256[i], f"{stage.name(i)}: was sampled from another prompt"
        rows.append(ScoreRow(tuple(prompt.ids), stage.token_ids[stage.offsets[i] : stage.offsets[i + 1]]))
    return rows


def passed_tokens(rows: Sequence[ScoreRow]) -> int:
    """Tokens that a pass over `rows` goes through: prompts and what followed them, each row by itself."""
    return sum(len(row.prompt_ids) + len(row.token_ids) for row in rows)


def trained_tokens(rows: Sequence[TrainRow]) -> int:
    """Those of the forward and backward pass over an update: of each row with a weight, up to its last weighted token."""
    ends = [int(np.flatnonzero(row.weights)[-1]) + 1 if np.any(row.weights) else 0 for row in rows]
    return sum(len(row.prompt_ids) + end for row, end in zip(rows, ends, strict=True) if end)


def update_metrics(own: Outcomes, stage: Stage, stats: UpdateStats) -> dict[str, float | int | None]:
    """What stop rules look at. `nonfinite` counts a loss, a gradient, a step and sampled logprobs that are not finite.

    Mismatch and entropy are of the weighted tokens under the trainer before the step; without such tokens there is none.
    """
    broken = (not math.isfinite(stats.loss)) + (stats.grad_norm is not None and not math.isfinite(stats.grad_norm))
    if stats.tokens and not stats.stepped and not broken:  # only the weights or moments after the step would not be finite
        broken = 1
    nonfinite = int((~np.isfinite(stage.logprobs)).sum()) + broken
    return {
        **rollout_metrics(own),
        "nonfinite": nonfinite,
        **{name: _finite(stats.mismatch[key]) if stats.tokens else None for name, key in MISMATCH.items()},
        "grad_norm": _finite(stats.grad_norm) if stats.tokens else None,
        "entropy": _finite(stats.entropy),
    }


def update_outcome(stats: UpdateStats, no_signal: bool) -> str:
    """What an update came to: one of the names of `OUTCOMES`. `no_signal`: no group had one."""
    if stats.stepped:
        return STEPPED
    if stats.tokens:
        return NONFINITE
    return NO_SIGNAL if no_signal else EMPTY_STEP


def all_without_signal(own: Outcomes, weights: Weights) -> bool:
    """Whether no group of the update has a signal."""
    return set(own.cell.tolist()) == set(weights.no_signal)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _step_report(stats: UpdateStats, outcome: str, stage: Stage, weighted_tokens: int) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "loss": _finite(stats.loss),
        "grad_norm": _finite(stats.grad_norm),
        "weighted_tokens": weighted_tokens,
        "stepped": stats.stepped,
        "mismatch": {name: _finite(value) for name, value in stats.mismatch.items()},
    } | ({"nonfinite_rollouts": [stage.name(row) for row in stats.nonfinite_rows]} if stats.nonfinite_rows else {})
