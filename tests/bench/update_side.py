"""One side of `bench_update`, in its own process: `python -m tests.bench.update_side ours|trl OPTIONS`.

Loads the model, says so, and then makes one update for every line on stdin. What it says is JSON, one object a line, on
stdout: first the memory after loading, then time, peak memory and the file of the gradient of each update.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ablation.plan.load import load_plan
from ablation.plan.locate import locate
from ablation.plan.model import Plan
from ablation.policy.base import TrainRow
from ablation.problems.problem import load_problems
from ablation.problems.render import token_ids
from ablation.rollouts.outcomes import outcomes
from ablation.rollouts.store import read_stage
from ablation.study.sampler import Prompts
from ablation.study.updates import score_rows
from ablation.training.advantages import group_rows

ROOT = Path(__file__).parents[2]
PLAN = ROOT / "plans" / "smollm2.yaml"
RECORD = ROOT / "runs" / "records" / "smollm2"
CELLS, GROUP = 12, 6
LEARNING_RATE = 2e-4


def rollouts(plan: Plan, tokenizer, cells: int) -> list[TrainRow]:
    """`cells` x 6 rollouts that the start model really sampled: the two sweeps of the record, which have 4 of each cell.

    Cells of all efforts where some rollouts are clean (reward 1) and some are not (0), so that every rollout teaches something.
    The weight of every sampled token is the advantage, reward less the group's mean: Dr. GRPO, up to its constant.
    """
    problems = load_problems(RECORD / "problems.jsonl")
    prompts = Prompts(plan, problems, tokenizer)
    rows, names, values = [], [], []
    for family in plan.families:
        stage = read_stage(RECORD / family / "start" / "sweep")
        own = outcomes(stage, problems, plan.loops)
        values.extend(own.clean.astype(float))
        names.extend(own.cell.tolist())
        rows.extend(
            (row, stage.logprobs[stage.offsets[i] : stage.offsets[i + 1]]) for i, row in enumerate(score_rows(stage, prompts))
        )
    groups = [members[:GROUP] for members in group_rows(names).values()]
    groups = [members for members in groups if len({values[row] for row in members}) > 1]
    chosen = [groups[index * len(groups) // cells] for index in range(cells)]
    assert len({id(members) for members in chosen}) == cells, "the record has too few cells with different rewards"
    found = []
    for members in chosen:
        mean = np.mean([values[row] for row in members])
        for row in members:
            score, logprobs = rows[row]
            weights = np.full(len(logprobs), values[row] - mean)
            found.append(TrainRow(score.prompt_ids, score.token_ids, logprobs, weights))
    return found


def memory(field: str) -> int:
    """VmRSS or VmHWM (the peak since `forget_peak`) of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def say(**what) -> None:
    print(json.dumps(what), file=REPORT, flush=True)


class Update:
    """Waits for the word to go, then reports on what happened until `done`."""

    def begin(self) -> bool:
        if not sys.stdin.readline():
            return False
        forget_peak()
        self.started = time.process_time()
        return True

    def done(self, gradient: np.ndarray) -> None:
        seconds, peak = time.process_time() - self.started, memory("VmHWM")
        path = Path(tempfile.mkdtemp(dir=OPTIONS.folder)) / "gradient.npy"
        np.save(path, gradient)
        say(seconds=seconds, peak=peak, gradient=str(path))


def folders(plan: Plan) -> tuple[Path, Path]:
    return locate(plan.model.base, PLAN), locate(plan.model.start_adapter, PLAN)


def gradient(model) -> np.ndarray:
    """Of every weight of the adapter, in name order, float64."""
    named = sorted((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
    return np.concatenate([weight.grad.double().numpy().ravel() for _, weight in named])


def ours(plan: Plan) -> None:
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    from ablation.policy.loading import load_tokenizer
    from ablation.policy.local import LocalPolicy

    base, adapter = folders(plan)
    tokenizer = load_tokenizer(base)
    rows = rollouts(plan, tokenizer, OPTIONS.cells)
    policy = LocalPolicy(plan, base, adapter, token_ids(tokenizer, plan.model.tokens).end, 0)
    update, seen = Update(), [np.zeros(0)]
    if OPTIONS.gradient:
        register_optimizer_step_pre_hook(lambda *_: seen.append(gradient(policy.model)))
    say(loaded=memory("VmRSS"), tokens=sum(len(row.token_ids) for row in rows))
    while update.begin():
        policy.update(rows, LEARNING_RATE)
        update.done(seen[-1])
        policy.reset()


def trl(plan: Plan) -> None:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from ablation.policy.loading import load_adapted, load_tokenizer

    torch.set_num_threads(plan.policy.threads)
    base, adapter = folders(plan)
    tokenizer = load_tokenizer(base)
    rows = rollouts(plan, tokenizer, OPTIONS.cells)
    model = load_adapted(plan, base, adapter)
    start = {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}

    def rollout_func(prompts, _trainer):
        assert prompts == [str(cell) for cell in range(OPTIONS.cells) for _ in range(GROUP)], "rollouts of another order"
        return {
            "prompt_ids": [list(row.prompt_ids) for row in rows],
            "completion_ids": [row.token_ids.tolist() for row in rows],
            "logprobs": [row.sampler_logprobs.tolist() for row in rows],
        }

    class Watch(TrainerCallback):
        def __init__(self) -> None:
            self.update, self.gradient = Update(), np.zeros(0)

        def on_train_begin(self, args, state, control, **_):
            say(loaded=memory("VmRSS"), tokens=sum(len(row.token_ids) for row in rows))

        def on_step_begin(self, args, state, control, **_):
            control.should_training_stop = not self.update.begin()
            if control.should_training_stop:
                sys.exit(0)

        def on_pre_optimizer_step(self, args, state, control, **_):
            if OPTIONS.gradient:
                self.gradient = gradient(model)

        def on_step_end(self, args, state, control, **_):
            self.update.done(self.gradient)
            with torch.no_grad():
                for name in start:
                    model.get_parameter(name).copy_(start[name])

    config = GRPOConfig(
        output_dir=str(OPTIONS.folder / "trl"),
        per_device_train_batch_size=OPTIONS.batch,
        gradient_accumulation_steps=len(rows) // OPTIONS.batch,
        num_generations=GROUP,
        max_completion_length=plan.sampling.max_tokens,
        loss_type="dr_grpo",
        scale_rewards="none",
        gradient_checkpointing=OPTIONS.checkpointing,
        bf16=OPTIONS.precision == "autocast",
        learning_rate=LEARNING_RATE,
        max_grad_norm=0.0,
        max_steps=1000,
        shuffle_dataset=False,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1000,
        dataloader_pin_memory=False,
    )
    GRPOTrainer(
        model=model,
        reward_funcs=lambda prompts, **_: [float(row.weights[0]) for row in rows],  # less a mean that is 0 already
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [str(cell) for cell in range(OPTIONS.cells)]}),
        processing_class=tokenizer,
        rollout_func=rollout_func,
        callbacks=[Watch()],
    ).train()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=("ours", "trl"))
    parser.add_argument("--precision", choices=("float32", "bfloat16", "autocast"), default="bfloat16")
    parser.add_argument("--batch", type=int, default=4, help="TRL's per_device_train_batch_size")
    parser.add_argument("--checkpointing", action="store_true", help="TRL's gradient_checkpointing")
    parser.add_argument("--cells", type=int, default=CELLS)
    parser.add_argument("--gradient", action="store_true", help="keep the gradient (costs memory)")
    parser.add_argument("--folder", type=Path, required=True)
    OPTIONS = parser.parse_args()
    REPORT = sys.stdout
    tree = load_plan(PLAN).plan.model_dump(mode="json")
    tree["model"]["dtype"] = "bfloat16" if OPTIONS.precision == "bfloat16" else "float32"
    if OPTIONS.precision == "autocast":
        tree["training"]["autocast"] = "bfloat16"
    with contextlib.redirect_stdout(sys.stderr):
        {"ours": ours, "trl": trl}[OPTIONS.side](Plan.model_validate(tree))
