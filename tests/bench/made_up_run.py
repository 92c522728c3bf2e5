"""A finished run of any size, made through the real lock, the real store and the real journal: seven arm-runs and two sweeps.

The rollouts are short (8 to 40 tokens). Some are cut at the cap, some repeat themselves, some have no answer, and every tenth
thinking holds letters beyond ASCII, a few of them Chinese. Arms are drawn a little worse or better than their sweep.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from ablation.files import sha256_bytes, sha256_file
from ablation.plan.lock import LockedPlan, lock_plan, verify_lock
from ablation.problems.problem import load_problems
from ablation.rollouts.folder import RunFolder, part_file
from ablation.rollouts.schema import Rollout, StageInfo
from ablation.rollouts.store import finish_stage, write_part
from ablation.rollouts.values import values_in_effect, values_text
from ablation.study.grading import grade_stage
from ablation.study.journal import Journal
from ablation.study.schedule import plan_cells, rollout_seed

from ..verdict.study import CLOSE, END, OPEN, plan_dict, start_run

PROBLEMS, EFFORTS = 600, ("low", "medium", "xhigh")
CAP, PART = 40, 8192
STAGES = (
    *(("main", arm) for arm in ("start", "C", "N", "X", "XP", "XK")),
    *(("replication", arm) for arm in ("start", "C", "N")),
)
ARMS = {
    "C": {"weighting": "token"},
    "N": {"weighting": "rollout"},
    "X": {"weighting": "rollout", "truncated": "apart"},
    "XP": {"weighting": "rollout", "truncated": "apart", "finish_push": 0.1},
    "XK": {"weighting": "rollout", "truncated": "apart", "kl": {"beta": 0.05}},
}
_KINDS = ("right", "wrong", "cut", "loop", "unread")
_SHARES = {"start": (0.60, 0.25, 0.07, 0.05, 0.03), "C": (0.45, 0.30, 0.12, 0.10, 0.03)}
_WORDS = ("so", "we", "add", "the", "carry", "to", "get", "twelve", "then", "half", "of", "it")
_OTHER = ("naïve", "≤", "\u2019s", "中文", "×")


def made_up_run(folder: Path, rollouts_per_cell: int) -> Path:
    """The run folder below `folder`, made unless it is there: 16,200 rollouts for each one a cell."""
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    root = folder / f"ablation-bench-run-{source}-{rollouts_per_cell}"
    if not (root / "done").is_file():
        if root.exists():  # left by one that was killed
            shutil.rmtree(root)
        locked = _locked(root, rollouts_per_cell)
        run = start_run(root / "run", locked)
        run.problems.write_bytes((root / "problems.jsonl").read_bytes())
        for family, arm in STAGES:
            print(f"  making {family}/{arm}", file=sys.stderr, flush=True)
            _stage(run, locked, family, arm)
        (root / "done").touch()
    return root / "run"


def _locked(root: Path, rollouts_per_cell: int) -> LockedPlan:
    root.mkdir(parents=True)
    names = [f"sum-{number:04d}" for number in range(PROBLEMS)]
    lines = [
        {"id": name, "source": "sums" if i % 2 else "products", "prompt": f"{i}?", "grader": "integer", "gold": str(i)}
        for i, name in enumerate(names)
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    for name, data in {"base": b"base", "adapter": b"adapter", "problems.jsonl": content}.items():
        (root / name).write_bytes(data)
    plan = plan_dict(name="million", arms=ARMS)
    plan["sampling"] = {"max_tokens": CAP, "batch_rollouts": PART}
    plan["problems"] = {
        "training": {"at": "problems.jsonl", "sha256": sha256_bytes(content)},
        "cells": dict.fromkeys(EFFORTS, names),
    }
    plan["training"]["rollouts_per_cell"] = rollouts_per_cell
    rollouts = PROBLEMS * len(EFFORTS) * rollouts_per_cell
    for rule, share in zip(plan["verdict"]["damage"], (-0.06, 0.057, 0.034), strict=False):
        rule["limit"] = round(share * rollouts)
    path = root / "million.yaml"
    path.write_text(json.dumps(plan, indent=1))  # JSON is YAML
    lock_plan(path)
    return verify_lock(path)


def _stage(run: RunFolder, locked: LockedPlan, family: str, arm: str) -> None:
    start = arm == "start"
    plan, problems = locked.plan, load_problems(run.problems)
    folder = run.sweep(family) if start else run.readout(family, arm)
    info = StageInfo(
        plan_digest=locked.digest,
        family=family,
        arm=arm,
        stage="sweep" if start else "readout",
        update=0 if start else plan.training.updates,
        adapter_sha256="a" * 64,
        think_open_id=OPEN,
        think_close_id=CLOSE,
        end_ids=(END,),
        max_tokens=CAP,
        sampling=plan.sampling.model_dump(),
        engine={"name": "made up"},
    )
    sampling = plan.sampling
    values = values_text(values_in_effect(sampling.temperature, sampling.top_p, sampling.top_k, CAP, (END,)))
    rng = np.random.default_rng(STAGES.index((family, arm)))
    seed = plan.families[family].seed
    items = [(cell, index) for cell in plan_cells(plan) for index in range(plan.training.rollouts_per_cell)]
    names, events = [], []
    for number, first in enumerate(range(0, len(items), PART)):
        batch = items[first : first + PART]
        kinds = rng.choice(len(_KINDS), len(batch), p=_SHARES.get(arm, _SHARES["start"]))
        rows = []
        for (cell, index), kind in zip(batch, kinds.tolist(), strict=True):
            ids, thinking, answer = _rollout(rng, _KINDS[kind], problems[cell.problem].gold)
            numbers = rng.random((3, len(ids)))
            rows.append(
                Rollout(
                    family=family,
                    arm=arm,
                    stage=info.stage,
                    update=info.update,
                    problem=cell.problem,
                    effort=cell.effort,
                    source=problems[cell.problem].source,
                    index=index,
                    seed=rollout_seed(seed, info.stage, 0, cell, index),
                    prompt_sha256=sha256_bytes(cell.id.encode()),
                    prompt_length=30,
                    prompt_opens_thinking=True,
                    token_ids=ids,
                    logprobs=np.log(numbers[0]).tolist(),
                    top_entropy=numbers[1].tolist(),
                    top_mass=numbers[2].tolist(),
                    finish_reason="stop" if ids[-1] == END else "length",
                    thinking_text=thinking,
                    answer_text=answer,
                    stop_id=END if ids[-1] == END else None,
                    sampling=values,
                )
            )
        path = part_file(folder, number)
        write_part(path, info, rows)
        names.append(path.name)
        events.append({"part": path.name, "rollouts": len(rows), "part_sha256": sha256_file(path)})
    finish_stage(folder, info, names)
    name = folder.relative_to(run.root).as_posix()
    journal = Journal(run.journal, locked.digest)
    for event in events:
        journal.append("part_written", stage=name, **event)
    journal.append("stage_sampled", stage=name, rollouts=len(items), stage_sha256=sha256_file(folder / "stage.json"))
    grade_stage(run, folder, problems, journal)
    journal.close()


def _rollout(rng: np.random.Generator, kind: str, gold: str) -> tuple[list[int], str, str]:
    """(token ids, thinking, visible answer)."""
    length = CAP if kind == "cut" else int(rng.integers(4, CAP - 4))
    ids = rng.integers(10, 5000, length)
    if kind == "loop":
        length = int(rng.integers(28, CAP - 3))
        ids = np.resize(ids[: int(rng.integers(3, 8))], length)
    words = [_WORDS[one % len(_WORDS)] for one in ids.tolist()]
    if rng.random() < 0.1:
        words[0] = _OTHER[int(rng.integers(len(_OTHER)))]
    if kind == "cut":
        return ids.tolist(), " ".join(words), ""
    off = int(rng.geometric(0.3)) * (1 if rng.random() < 0.5 else -1)  # wrong answers come again, too
    answer = {"wrong": str(int(gold) + off), "unread": "it is hard to say"}.get(kind, gold)
    return [*ids.tolist(), CLOSE, 8, END], " ".join(words), answer
