"""A small finished run on disk, as a runner leaves it, without a model: rollouts by hand, everything else by the code that a run calls.

Three arms, 12 cells, 2 rollouts each; two updates, a readout, and an extension of N to update 4 with a check. C is damaged, N stable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ablation.files import json_bytes, sha256_bytes, sha256_file, write_bytes, write_folder, write_json
from ablation.ledger.ledger import ledger_path, write_mark
from ablation.measures.measure import measure
from ablation.plan.deviations import record_deviation
from ablation.plan.lock import LockedPlan
from ablation.problems.problem import Problem, load_problems
from ablation.rollouts.folder import RunFolder, measures_file
from ablation.rollouts.grades import grades_of
from ablation.rollouts.marked import use_of
from ablation.rollouts.outcomes import Outcomes, outcomes
from ablation.rollouts.schema import Rollout, StageInfo
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import finish_stage, read_stage, stage_record, write_part
from ablation.study.deviations import take_up_deviations
from ablation.study.extension import check_record
from ablation.study.grading import grade_stage
from ablation.study.journal import Journal
from ablation.study.sampler import Item, stage_items
from ablation.study.schedule import cells_of_update, plan_cells
from ablation.training.audit import audit_weights
from ablation.training.batch import weigh_update
from ablation.training.scale import fixed_scale, sweep_reference
from ablation.training.stops import rollout_metrics
from ablation.training.weights import Weights
from ablation.verdict.run import judge_check
from tests.verdict.study import CLOSE, DIGITS, END, lock_small, rollout, stage_info, start_run

METRICS = {"mismatch_mean": 0.125, "mismatch_p99": 0.5, "mismatch_outside": 0.0, "mismatch_k3": 0.0625}
METRICS |= {"grad_norm": 1.5, "entropy": 0.4}
EXTENSION = {"updates": 4, "checks": [4]}
BOTH = {("main", "C"), ("replication", "C")}


class Made:
    """A run while it is made."""

    def __init__(self, folder: Path, **changes) -> None:
        self.locked: LockedPlan = lock_small(folder / "plans", **changes)
        self.plan = self.locked.plan
        self.run: RunFolder = start_run(folder / "runs" / "small", self.locked)
        self.problems = load_problems(self.run.problems)
        self.journal = Journal(self.run.journal, self.locked.digest)
        self.journal.append("runner_started", removed_partial_files=0)
        self.adapters: dict[tuple[str, str, int], np.ndarray] = {}

    def stage(
        self, folder: Path, family: str, arm: str, stage: str, update: int, kinds: dict[str, int], logprob=-0.5
    ) -> Outcomes:
        """One training stage as it is sampled and graded."""
        cells = cells_of_update(self.plan, family, update) if stage == "update" else plan_cells(self.plan)
        items = stage_items(self.plan, family, stage, update, cells)
        self.sampled(folder, family, arm, stage, update, items, kinds, self.problems, logprob)
        grade_stage(self.run, folder, self.problems, self.journal)
        own = self.outcomes(folder)
        write_json(measures_file(folder), measure(own))
        return own

    def sampled(
        self,
        folder: Path,
        family: str,
        arm: str,
        stage: str,
        update: int,
        items: list[Item],
        kinds: dict[str, int],
        problems: Mapping[str, Problem],
        logprob=-0.5,
    ) -> None:
        """One stage as it is sampled: mark, parts, events. `kinds`: how many of each kind, the rest are wrong."""
        before = update - (stage == "update")
        digest = adapter_digest(self.adapter(family, arm, before))
        info = stage_info(self.locked, family, arm, stage=stage, update=update, adapter_sha256=digest)
        left = [kind for kind, count in kinds.items() for _ in range(count)]
        left += ["wrong"] * (len(items) - len(left))
        if stage == "update":  # spread, so that rewards differ within a cell
            left = [left[5 * place % len(items)] for place in range(len(items))]
        rows = [made_rollout(info, item, kind, logprob, problems) for item, kind in zip(items, left, strict=True)]
        name = folder.relative_to(self.run.root).as_posix()
        used = [problems[problem] for problem in sorted({item.cell.problem for item in items})]
        marked = {"plan": self.locked.digest, "study": self.plan.name, "stage": name, "use": use_of(stage), "problems": used}
        write_mark(ledger_path(self.locked.path), **marked)
        half = len(rows) // 2
        names = ["part-000.parquet", "part-001.parquet"]
        for part, own in zip(names, (rows[:half], rows[half:]), strict=True):
            write_part(folder / part, info, own)
            self.journal.append("part_written", stage=name, part=part, rollouts=len(own), part_sha256=sha256_file(folder / part))
        record = sha256_bytes(stage_record(folder, info, names))
        tokens = sum(len(row.token_ids) for row in rows)
        self.journal.append("stage_sampled", stage=name, rollouts=len(rows), tokens=tokens, seconds=1.0, stage_sha256=record)
        finish_stage(folder, info, names)

    def outcomes(self, folder: Path) -> Outcomes:
        stage = read_stage(folder)
        return outcomes(stage, self.problems, self.plan.loops, grades_of(folder, stage, self.problems))

    def adapter(self, family: str, arm: str, update: int) -> np.ndarray:
        return self.adapters.get((family, arm, update), np.zeros((2, 4), dtype=np.float32))

    def update(self, family: str, arm: str, k: int, kinds: dict[str, int], logprob=-0.5) -> None:
        folder = self.run.update(family, arm, k)
        own = self.stage(folder, family, arm, "update", k, kinds, logprob)
        stage = read_stage(folder)
        s0 = fixed_scale(self.plan.training, lambda: self.outcomes(self.run.sweep("main")))
        same = [np.zeros(length) for length in stage.lengths]
        found = weigh_update(
            self.plan.arms[arm],
            self.plan,
            stage,
            own,
            reference=sweep_reference(self.outcomes(self.run.sweep(family))),
            s0=s0,
            trainer_logprobs=lambda: [one + 0.1 * (k > 1) for one in same],
            start_logprobs=lambda: same,
        )
        weights = audit_weights(found.weights, own.truncated, own.source.tolist(), own.effort.tolist())
        shares = {name: weights[name] for name in ("negative_share", "truncated_share", "kl_share")}
        stepped = weights["weighted_tokens"] > 0
        outcome = {"outcome": "stepped" if stepped else "no_signal", "stepped": stepped}
        audit = {
            "update": k,
            "learning_rate": self.plan.training.learning_rate_of(self.plan.arms[arm]),
            "s0": s0,
            "reward_mean": float(found.rewards_R.mean()),
            "weights": weights,
            "step": outcome
            | {
                "loss": 0.25,
                "grad_norm": 1.5,
                "weighted_tokens": weights["weighted_tokens"],
                "mismatch": {"mean_absolute": 0.125, "p99_absolute": 0.5, "share_ratio_outside_10_percent": 0.0, "k3": 0.0625},
            },
            "metrics": rollout_metrics(own) | shares | (METRICS if stepped else dict.fromkeys(METRICS)) | {"nonfinite": 0},
        }
        told = {"arm": f"{family}/{arm}", "update": k}
        counts = self.counted(stage, own, arm, found.weights)
        self.journal.append(
            "update_trained", **told, **counts, **outcome, seconds=0.0, audit_sha256=sha256_bytes(json_bytes(audit))
        )
        write_json(folder / "audit.json", audit)
        moved = self.adapter(family, arm, k - 1) + np.float32(stepped * (1 + ord(arm[0])))
        self.adapters[family, arm, k] = moved
        write_folder(
            self.run.checkpoint(family, arm, k),
            lambda path: save_file(tensors(moved), path / "adapter_model.safetensors"),
            tell=lambda digest: self.journal.append("checkpoint_saved", **told, checkpoint_sha256=digest),
        )

    def counted(self, stage: Stage, own: Outcomes, arm: str, weights: Weights) -> dict[str, int]:
        """Tokens of an update: with a weight, in its backward pass, and scored alone."""
        last = [int(np.flatnonzero(one)[-1]) + 1 if one.any() else 0 for one in weights.tokens]
        trained = sum(int(prompt) + end for prompt, end in zip(stage.prompt_length, last, strict=True) if end)
        passes = 2 if self.plan.arms[arm].kl else 0
        scored = passes * int(sum(stage.prompt_length) + sum(stage.lengths))
        return {"tokens": int(weights.weighted_R.sum()), "trained_tokens": trained, "scored_tokens": scored}

    def arm(self, family: str, arm: str, kinds: dict[str, int], idle: bool = False) -> None:
        """`idle`: every rollout of its updates is wrong, so no group has a signal."""
        for k in (1, 2):
            right = {"clean": 5, "cut": 1} if k == 1 else {"clean": 4, "loop": 1, "cut": 2}
            self.update(family, arm, k, {} if idle else right)
        self.stage(self.run.readout(family, arm), family, arm, "readout", 2, kinds, -0.5 + 0.01 * len(arm))
        self.journal.append("arm_finished", arm=f"{family}/{arm}")

    def extend(self, arm: str, kinds: dict[str, int]) -> None:
        for k in (3, 4):
            self.update("main", arm, k, {"clean": 6, "cut": 1})
        self.stage(self.run.check("main", arm, 4), "main", arm, "check", 4, kinds)
        record = check_record(self.locked, judge_check(self.run.root, self.locked, "main", arm, 4), 4)
        told = {"arm": f"main/{arm}", "update": 4, "label": record["label"], "pauses": record["pauses"]}
        self.journal.append("check_judged", **told, check_sha256=sha256_bytes(json_bytes(record)))
        write_json(self.run.check_result("main", arm, 4), record)
        self.journal.append("extension_reached", arm=f"main/{arm}", update=4)

    def deviate(self, **what) -> None:
        from ablation.rollouts.journal_chain import check_journal

        head = check_journal(self.run.root, self.locked.digest).head
        record_deviation(self.locked, journal=head, **what)
        take_up_deviations(self.run, self.locked, self.journal)


def make_run(
    folder: Path,
    damaged: set[tuple[str, str]] = BOTH,
    *,
    extended: bool = True,
    deviation: bool = True,
    kinds: Mapping[tuple[str, str], dict[str, int]] | None = None,
    idle: str = "",
    **changes,
) -> Made:
    """The whole run in `folder`/runs/small, of the plan `folder`/plans/small.yaml, without its verdict. `kinds`: of some readouts."""
    made = Made(folder, **{"extension": EXTENSION, "statistics": {"resamples": 500}} | changes)
    made.stage(made.run.sweep("main"), "main", "start", "sweep", 0, {"clean": 12, "cut": 2})
    if deviation:
        made.deviate(reason="An amendment that opens nothing.", seen="progress")
    for arm in made.plan.arms:
        made.arm("main", arm, (kinds or {}).get(("main", arm)) or readout("main", arm, damaged), f"main/{arm}" == idle)
    made.stage(made.run.sweep("replication"), "replication", "start", "sweep", 0, {"clean": 11, "cut": 2})
    for arm in ("C", "N"):
        made.arm("replication", arm, readout("replication", arm, damaged), f"replication/{arm}" == idle)
    if extended:
        made.extend("N", {"clean": 12, "cut": 2})
    return made


def readout(family: str, arm: str, damaged: set[tuple[str, str]]) -> dict[str, int]:
    return {"clean": 7 if (family, arm) in damaged else 13, "cut": 2, "loop": 1}


def write_verdict(made: Made) -> None:
    from ablation.verdict.run import judge_run

    write_bytes(made.run.verdict, json_bytes(judge_run(made.run.root, made.locked).as_json()))


def made_rollout(info: StageInfo, item: Item, kind: str, logprob: float, problems: Mapping[str, Problem]) -> Rollout:
    """Texts are functions of the ids, as a tokenizer's are."""
    made = rollout(info, item.cell.problem, item.cell.effort, item.index, kind, logprob)
    ids = made.token_ids
    closed = CLOSE in ids
    end = ids.index(CLOSE) if closed else len(ids) - (ids[-1] == END)
    own = [logprob - 0.001 * place for place in range(len(ids))]
    answer = "".join(str(one - DIGITS) for one in ids[end + 1 :] if one != END)
    thinking = " ".join(map(str, ids[:end]))
    source = problems[item.cell.problem].source
    return replace(made, seed=item.seed, logprobs=own, thinking_text=thinking, answer_text=answer, source=source)


def tensors(values: np.ndarray) -> dict[str, np.ndarray]:
    return {f"base_model.model.layer.lora_{side}.weight": values + np.float32(side == "B") for side in "AB"}


def adapter_digest(values: np.ndarray) -> str:
    """As a policy computes it: over the names that the weights have in a peft model."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors(values).items()):
        digest.update(name.replace(".weight", ".default.weight").encode() + b"\0" + tensor.tobytes())
    return digest.hexdigest()
