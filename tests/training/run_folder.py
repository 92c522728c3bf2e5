"""Trained updates of a small run: rollouts in the real store, audits from the code that a runner calls, events in the real journal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ablation.files import sha256_file, write_json
from ablation.plan.lock import LockedPlan
from ablation.problems.problem import load_problems
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.outcomes import outcomes
from ablation.rollouts.store import read_stage
from ablation.training.audit import audit_weights
from ablation.training.batch import weigh_update
from ablation.training.scale import fixed_scale, sweep_reference
from ablation.training.stops import rollout_metrics
from tests.verdict.study import lock_small, start_run, tell, write_stage

ARMS = {
    "C": {"weighting": "token"},
    "N": {"weighting": "rollout"},
    "X": {"library": "X"},
    "XK": {"library": "XK"},
    "M": {"library": "GRPO", "truncated": "mask"},
    "P": {"library": "P"},
}
KINDS = [{"clean": 9, "cut": 4, "loop": 1}, {"clean": 11, "cut": 3}]
"""Of update 1 and update 2; the other rollouts are wrong."""


def write_run(folder: Path) -> tuple[LockedPlan, RunFolder]:
    """A locked plan with these arms, and a run folder with its sweep and two updates of every arm in family `main`."""
    locked = lock_small(folder / "plans", arms=ARMS)
    run = start_run(folder / "runs" / "small", locked)
    write_stage(run, locked, "main", "start", {"clean": 12, "cut": 2})
    for arm in ARMS:
        for k, kinds in enumerate(KINDS, 1):
            write_update(run, locked, arm, k, kinds)
    return locked, run


def write_update(run: RunFolder, locked: LockedPlan, arm: str, k: int, kinds: dict[str, int]) -> None:
    """Update `k` as a runner leaves it, without the checkpoint. After update 1 every token has moved by 0.1 nats from the start."""
    folder, plan = run.update("main", arm, k), locked.plan
    write_stage(run, locked, "main", arm, kinds, folder=folder, stage="update", update=k)
    problems = load_problems(run.problems)
    sweep = outcomes(read_stage(run.sweep("main")), problems, plan.loops)
    stage = read_stage(folder)
    own = outcomes(stage, problems, plan.loops)
    s0 = fixed_scale(plan.training, lambda: sweep)
    start = [np.full(length, -0.5) for length in stage.lengths]
    moved = 0.0 if k == 1 else 0.1
    found = weigh_update(
        plan.arms[arm],
        plan,
        stage,
        own,
        reference=sweep_reference(sweep),
        s0=s0,
        trainer_logprobs=lambda: [one + moved for one in start],
        start_logprobs=lambda: start,
    )
    weights = audit_weights(found.weights, own.truncated, own.source.tolist(), own.effort.tolist())
    audit = {
        "update": k,
        "learning_rate": plan.training.learning_rate_of(plan.arms[arm]),
        "s0": s0,
        "reward_mean": float(found.rewards_R.mean()),
        "weights": weights,
        "step": {"outcome": "stepped"},
        "metrics": rollout_metrics(own) | {name: weights[name] for name in ("negative_share", "truncated_share", "kl_share")},
    }
    write_json(folder / "audit.json", audit)
    tell(run, locked, "update_trained", arm=f"main/{arm}", update=k, audit_sha256=sha256_file(folder / "audit.json"))


def edit_audit(path: Path, change: Callable[[dict], None]) -> None:
    """What somebody with an editor does."""
    audit = json.loads(path.read_bytes())
    change(audit)
    write_json(path, audit)


def forget_digests(run: RunFolder, locked: LockedPlan) -> None:
    """The journal as an earlier version of the program wrote it: whole, but without the digests of audits."""
    events = [json.loads(line) for line in run.journal.read_bytes().splitlines()]
    run.journal.unlink()
    for event in events:
        own = {name: value for name, value in event.items() if name not in ("seq", "time", "event", "plan", "prev", "sha256")}
        own.pop("audit_sha256", None)
        tell(run, locked, event["event"], **own)
