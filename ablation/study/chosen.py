"""Which of a plan's backends a run is made with. The plan names those that are allowed; one run folder has one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ablation.errors import UsageError
from ablation.plan.lock import LockedPlan
from ablation.plan.model import Plan
from ablation.plan.section import did_you_mean
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.inflight import begun_info
from ablation.study.run_folder import run_root

VARIABLE = "ABLATION_POLICY"


def on_backend(plan: Plan, backend: str) -> Plan:
    """The plan of a run whose rollouts `backend` samples."""
    return plan.model_copy(update={"policy": plan.policy.with_backend(backend)})


def choose_backend(plan: Plan, path: Path, option: str | None, environment: Mapping[str, str] | None = None) -> str | None:
    """What `--policy` says, else the environment, else None. Raises `UsageError` for a backend that the plan does not name."""
    found = os.environ if environment is None else environment
    name, value = ("--policy", option) if option is not None else (VARIABLE, found.get(VARIABLE) or None)
    allowed = plan.policy.backends
    if value is not None and value not in allowed:
        raise UsageError(
            f"{name}: found `{value}`; the plan {path} may be run with {' or '.join(allowed)}{did_you_mean(value, allowed)}",
            hint="Others are named in the plan, before it is locked: `policy: {backend: local, also: [vllm]}`.",
        )
    return value


def chosen_run(locked: LockedPlan, option: str | None, run_folder: Path | None) -> tuple[LockedPlan, Path]:
    """(the locked plan with the backend of this run alone, the run's folder). Digest, bytes and lock are those of the file.

    A folder that has rollouts keeps the backend that sampled them. A backend that is not the plan's own has a folder of its
    own, runs/NAME-BACKEND, unless `run_folder` names one.
    """
    backend = choose_backend(locked.plan, locked.path, option)
    root = run_root(locked, run_folder)
    if run_folder is None and backend is not None and backend != locked.plan.policy.backend:
        root = root.with_name(f"{root.name}-{backend}")
    began = backend_of(locked, root)
    if backend is not None and began is not None and began != backend:
        raise UsageError(
            f"{root}: its rollouts were sampled with `{began}`, and a run does not mix backends",
            hint=f"Leave --policy out to go on with it, or name another folder with --run, for instance {root}-{backend}.",
        )
    chosen = backend or began or locked.plan.policy.backend
    return replace(locked, plan=on_backend(locked.plan, chosen)), root


def backend_of(locked: LockedPlan, root: Path) -> str | None:
    """The backend that sampled the first rollouts in `root`, whole sweep or not; None if there are none, or of another plan."""
    run = RunFolder(root)
    for family in locked.plan.families:
        begun = begun_info(run.sweep(family))
        if begun is not None:
            found = begun.engine.get("name")
            return found if found in locked.plan.policy.backends else None
    return None
