"""Which of a plan's backends a run is made with. The plan names those that are allowed; one run folder has one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ablation.errors import UsageError
from ablation.plan.lock import LockedPlan
from ablation.plan.model import Plan
from ablation.plan.section import did_you_mean
from ablation.rollouts.folder import START
from ablation.rollouts.inflight import begun_info
from ablation.study.run_folder import run_root

VARIABLE = "ABLATION_POLICY"


def on_backend(plan: Plan, backend: str) -> Plan:
    """The plan of a run whose rollouts `backend` samples."""
    return plan.model_copy(update={"policy": plan.policy.with_backend(backend)})


def choose_backend(
    allowed: Sequence[str], path: Path, option: str | None, environment: Mapping[str, str] | None = None
) -> str | None:
    """What `--policy` says, else the environment, else None. Raises `UsageError` for one that is not `allowed` by the plan."""
    found = os.environ if environment is None else environment
    name, value = ("--policy", option) if option is not None else (VARIABLE, found.get(VARIABLE) or None)
    if value is not None and value not in allowed:
        raise UsageError(
            f"{name}: found `{value}`; the plan {path} may be run with {' or '.join(allowed)}{did_you_mean(value, allowed)}",
            hint="Others are named in the plan, before it is locked: `policy: {backend: local, also: [vllm]}`.",
        )
    return value


def chosen_run(locked: LockedPlan, option: str | None, run_folder: Path | None) -> tuple[LockedPlan, Path, str | None]:
    """(the locked plan with the backend of this run alone, the run's folder, the backend that was named, if one was).

    Digest, bytes and lock of the plan are those of the file.

    A folder that has rollouts keeps the backend that sampled them. A backend that is not the plan's own has a folder of its
    own, runs/NAME-BACKEND, unless `run_folder` names one.
    """
    allowed = locked.plan.policy.backends
    backend = choose_backend(allowed, locked.path, option)
    root = folder_of_backend(run_root(locked, None), allowed, backend) if run_folder is None else run_folder
    chosen = backend or backend_of(allowed, root) or locked.plan.policy.backend
    if backend is not None:
        refuse_other_backend(allowed, root, backend)
    return replace(locked, plan=on_backend(locked.plan, chosen)), root, backend


def folder_of_backend(usual: Path, allowed: Sequence[str], backend: str | None) -> Path:
    """`usual`, or the folder beside it of a `backend` that is not the plan's own, the first of `allowed`."""
    return usual if backend in (None, allowed[0]) else usual.with_name(f"{usual.name}-{backend}")


def refuse_other_backend(allowed: Sequence[str], root: Path, backend: str) -> None:
    """Raise `UsageError` if another of the `allowed` backends than `backend` sampled what is in `root`."""
    began = backend_of(allowed, root)
    if began not in (None, backend):
        raise UsageError(
            f"{root}: its rollouts were sampled with `{began}`, and a run does not mix backends; found `{backend}`",
            hint=f"Leave --policy and {VARIABLE} out to go on with it, or name another folder with --run, for instance "
            f"{root}-{backend}.",
        )


def backend_of(allowed: Sequence[str], root: Path) -> str | None:
    """Which of the `allowed` backends sampled the first rollouts in `root`, whole sweep or not; None if none of them did."""
    for sweep in sorted(root.glob(f"*/{START}/sweep")):
        begun = begun_info(sweep)
        if begun is not None:
            found = begun.engine.get("name")
            return found if found in allowed else None
    return None
