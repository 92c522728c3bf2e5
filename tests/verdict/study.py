"""A small study on disk, made through the real lock and the real rollout store: 12 cells, 2 rollouts each, 24 a stage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ablation.files import sha256_bytes
from ablation.plan.lock import LockedPlan, lock_plan, verify_lock
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.schema import Rollout, StageInfo
from ablation.rollouts.store import finish_stage, write_part
from ablation.rollouts.values import values_in_effect, values_text
from ablation.seeds import derive_seed
from ablation.study.journal import Journal

OPEN, CLOSE, END, CAP = 1, 2, 3, 64
ROLLOUTS = 24
PROBLEMS = [f"p{i}" for i in range(6)]
DIGITS = 10  # token DIGITS + d writes digit d


def plan_dict(**changes) -> dict:
    """The plan's content; damage limits are the study's, scaled to 24 rollouts."""
    files = {"base": b"base", "adapter": b"adapter", "problems.jsonl": problems_bytes()}
    resource = {name: {"at": name, "sha256": sha256_bytes(data)} for name, data in files.items()}
    content = {
        "ablation": 1,
        "name": "small",
        "question": "Does the weighting matter?",
        "model": {
            "base": resource["base"],
            "start_adapter": resource["adapter"],
            "lora": {"rank": 2, "alpha": 2, "targets": ["q_proj"]},
            "tokens": {"end": ["<|end|>"]},
            "parameters": 1000,
            "layers": 1,
            "hidden_size": 8,
            "vocabulary": 20,
        },
        "sampling": {"max_tokens": CAP},
        "problems": {"training": resource["problems.jsonl"], "cells": {"low": PROBLEMS, "medium": PROBLEMS}},
        "training": {"updates": 2, "rollouts_per_cell": 2, "learning_rate": 0.001},
        "arms": {"C": {"weighting": "token"}, "N": {"weighting": "rollout"}, "X": {"weighting": "rollout", "truncated": "apart"}},
        "families": {"main": {"seed": 1}, "replication": {"seed": 2}},
        "stop_rules": [{"name": "logprob_fell", "measure": "logprob", "compare": "change", "op": "<=", "limit": -0.3}],
        "verdict": {
            "damage": [
                {"name": "clean_lost", "measure": "clean", "compare": "change", "op": "<=", "limit": -3},
                {"name": "unfinished_gained", "measure": "truncated_or_looping", "compare": "change", "op": ">=", "limit": 3},
                {"name": "looping_gained", "measure": "looping", "compare": "change", "op": ">=", "limit": 2},
                {"name": "logprob_lost", "measure": "logprob", "compare": "change", "op": "<=", "limit": -0.15},
            ],
            "replication": {"control": "C", "family": "replication"},
        },
    }
    return content | changes


def problems_bytes() -> bytes:
    lines = [
        {"id": name, "source": "sums" if i % 2 else "products", "prompt": f"{i}?", "grader": "integer", "gold": str(i)}
        for i, name in enumerate(PROBLEMS)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def lock_small(folder: Path, **changes) -> LockedPlan:
    """Write the plan and its files to `folder` and lock it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {"base": b"base", "adapter": b"adapter", "problems.jsonl": problems_bytes()}.items():
        (folder / name).write_bytes(data)
    path = folder / "small.yaml"
    path.write_text(json.dumps(plan_dict(**changes), indent=1))  # JSON is YAML
    lock_plan(path)
    return verify_lock(path)


def start_run(root: Path, locked: LockedPlan) -> RunFolder:
    """The copies that a runner begins with."""
    run = RunFolder(root)
    root.mkdir(parents=True)
    run.plan.write_bytes(locked.data)
    run.lock.write_bytes(locked.lock.path.read_bytes())
    run.problems.write_bytes(problems_bytes())
    return run


def rollout(info: StageInfo, problem: str, effort: str, index: int, kind: str, logprob: float) -> Rollout:
    """`kind`: clean, wrong, cut (in its thinking), open (ended in its thinking) or loop (right, but the thinking repeats)."""
    gold = int(problem[1:])
    varied = [20 + (7 * position + gold) % 61 for position in range(12 + gold)]
    ids = {
        "clean": [*varied, CLOSE, DIGITS + gold, END],
        "wrong": [*varied, CLOSE, DIGITS + 9, END],
        "cut": [100 + position for position in range(CAP)],
        "open": [*varied, END],
        "loop": [*[20, 21, 22, 23, 24, 25] * 8, CLOSE, DIGITS + gold, END],
    }[kind]
    seed = {"main": 1, "replication": 2}.get(info.family, 3)
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
    sampling |= {name: info.sampling[name] for name in sampling if name in info.sampling}
    return Rollout(
        family=info.family,
        arm=info.arm,
        stage=info.stage,
        update=info.update,
        problem=problem,
        effort=effort,
        source="sums" if gold % 2 else "products",
        index=index,
        seed=derive_seed(seed, "evaluation", problem, effort, index),
        prompt_sha256=sha256_bytes(f"{problem}{effort}".encode()),
        prompt_length=4,
        prompt_opens_thinking=True,
        token_ids=ids,
        logprobs=[logprob] * len(ids),
        top_entropy=[0.4] * len(ids),
        top_mass=[0.99] * len(ids),
        finish_reason="length" if kind == "cut" else "stop",
        thinking_text="",
        answer_text={"cut": "", "open": "", "wrong": "9"}.get(kind, str(gold)),
        stop_id=None if kind == "cut" else END,
        sampling=values_text(values_in_effect(**sampling, max_tokens=info.max_tokens, end_ids=info.end_ids)),
        logprob_kind=info.logprob_kind,
    )


def stage_info(locked: LockedPlan, family: str, arm: str, **changes) -> StageInfo:
    sweep = arm == "start"
    values = dict(
        plan_digest=locked.digest,
        family=family,
        arm=arm,
        stage="sweep" if sweep else "readout",
        update=0 if sweep else locked.plan.training.updates,
        adapter_sha256="a" * 64,
        think_open_id=OPEN,
        think_close_id=CLOSE,
        end_ids=(END,),
        max_tokens=CAP,
        sampling=locked.plan.sampling.model_dump(),
        engine={"name": "local"},
    )
    return StageInfo(**values | changes)


def write_stage(
    run: RunFolder,
    locked: LockedPlan,
    family: str,
    arm: str,
    kinds: Mapping[str, int] | None = None,
    *,
    logprob: float = -0.5,
    drop: int = 0,
    folder: Path | None = None,
    **changes,
) -> Path:
    """One sweep (arm `start`) or readout, or what `folder` and `changes` say; `kinds`: how many of each kind, the rest are wrong."""
    info = stage_info(locked, family, arm, **changes)
    folder = folder or (run.sweep(family) if arm == "start" else run.readout(family, arm))
    left = [kind for kind, count in (kinds or {"clean": 12}).items() for _ in range(count)]
    left += ["wrong"] * (ROLLOUTS - len(left))
    rows = []
    for problem, effort in locked.plan.cells:
        for index in range(2):
            rows.append(rollout(info, problem, effort, index, left.pop(0), logprob))
    write_part(folder / "part-000.parquet", info, rows[: len(rows) - drop])
    finish_stage(folder, info, ["part-000.parquet"])
    tell_stage(run, locked, folder)
    return folder


def tell(run: RunFolder, locked: LockedPlan, event: str, **data) -> None:
    """An event in the run's journal, as a runner writes it."""
    journal = Journal(run.journal, locked.digest)
    journal.append(event, **data)
    journal.close()


def tell_stage(run: RunFolder, locked: LockedPlan, folder: Path) -> None:
    """The event that goes with the complete stage in `folder`."""
    digest = sha256_bytes((folder / "stage.json").read_bytes())
    tell(run, locked, "stage_sampled", stage=folder.relative_to(run.root).as_posix(), stage_sha256=digest)


def write_stop(run: RunFolder, locked: LockedPlan, family: str, arm: str, stop: dict) -> None:
    """The record of a stop rule that ended this arm, and its event."""
    tell(run, locked, "arm_stopped", arm=f"{family}/{arm}", rule=stop["rule"])
    run.stopped(family, arm).write_text(json.dumps(stop))


def write_study(run: RunFolder, locked: LockedPlan, damaged: set[tuple[str, str]] = frozenset()) -> None:
    """All stages that the plan asks for; the (family, arm) pairs in `damaged` lose 5 clean rollouts, the others none."""
    for family, arms in (("main", "CNX"), ("replication", "CN")):
        write_stage(run, locked, family, "start", {"clean": 12, "cut": 2})
        for arm in arms:
            write_stage(run, locked, family, arm, {"clean": 7 if (family, arm) in damaged else 13, "cut": 2})
