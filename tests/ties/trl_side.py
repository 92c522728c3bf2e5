"""TRL's side of a tie: its real trainers, run by their own `train()`, on rollouts that are given and not sampled.

The rollouts go in where TRL takes those of an environment (`rollout_func`), the rewards through a reward function; advantages,
masks, old and reference logprobs, loss and accumulation are TRL's. The gradient is read just before the optimizer would step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # no warning that rollout_func may change


@dataclass(frozen=True)
class Given:
    """Rollouts of groups of equal size, group after group, and what each earned."""

    prompt_ids: list[list[int]]
    token_ids: list[list[int]]
    rewards: list[float]
    group: int

    @property
    def groups(self) -> int:
        return len(self.rewards) // self.group


def adapter_vector(model: PeftModel, read: Callable[[torch.nn.Parameter], torch.Tensor]) -> np.ndarray:
    """What `read` says of every weight of the trained adapter, in name order, as one float64 array."""
    named = sorted((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
    return np.concatenate([read(weight).detach().double().numpy().ravel() for _, weight in named])


def trl_gradient(
    model: PeftModel,
    tokenizer,
    given: Given,
    folder: Path,
    *,
    trainer: str = "GRPO",
    groups_at_once: int | None = None,
    move_first: dict[str, torch.Tensor] | None = None,
    move_to: dict[str, torch.Tensor] | None = None,
    **options: Any,
) -> np.ndarray:
    """The adapter's gradient of one optimizer step of TRL over all of `given`.

    `groups_at_once` groups form a micro-batch and are generated together (None: all). `move_first`: the adapter gets those weights
    before the first rollout, when TRL has made its reference of what it was given. `move_to`: it gets those after a first step, and
    the gradient is that of the second step on the same rollouts (`num_iterations` 2), whose old logprobs are of the weights before.
    """
    import trl
    from datasets import Dataset
    from transformers import TrainerCallback

    at_once = groups_at_once or given.groups
    seen: list[np.ndarray] = []

    def rollouts_of(prompts: list[str]) -> list[int]:
        numbers = [int(prompt) for prompt in prompts]
        assert numbers == [number for number in numbers[:: given.group] for _ in range(given.group)], "not group after group"
        return [number * given.group + index for number in numbers[:: given.group] for index in range(given.group)]

    def rollout_func(prompts: list[str], _trainer: Any) -> dict[str, Any]:
        rows = rollouts_of(prompts)
        return {
            "prompt_ids": [given.prompt_ids[row] for row in rows],
            "completion_ids": [given.token_ids[row] for row in rows],
            "logprobs": None,
        }

    def reward(prompts: list[str], **_: Any) -> list[float]:
        return [given.rewards[row] for row in rollouts_of(prompts)]

    def move(weights: dict[str, torch.Tensor] | None) -> None:
        with torch.no_grad():
            for name, weight in (weights or {}).items():
                model.get_parameter(name).copy_(weight)

    class Watch(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            move(move_first)

        def on_pre_optimizer_step(self, args, state, control, **_):
            seen.append(adapter_vector(model, lambda weight: weight.grad))

        def on_step_end(self, args, state, control, **_):
            move(move_to)

    config = getattr(trl, f"{trainer}Config")(
        output_dir=str(folder),
        per_device_train_batch_size=at_once * given.group,
        gradient_accumulation_steps=given.groups // at_once,
        steps_per_generation=1,
        num_generations=given.group,
        num_iterations=1 if move_to is None else 2,
        max_steps=1 if move_to is None else 2,
        learning_rate=0.0,
        max_grad_norm=0.0,
        gradient_checkpointing=False,
        bf16=False,
        shuffle_dataset=False,
        use_cpu=True,
        dataloader_pin_memory=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1000,
        **options,
    )

    class GivenRLOO(trl.RLOOTrainer):
        """Takes no `rollout_func`: its sampling is replaced instead."""

        def _tokenize_prompts(self, prompts):
            return rollout_func(prompts, self)["prompt_ids"], None, {}

        def _generate_single_turn(self, prompt_ids, *_):
            assert prompt_ids == given.prompt_ids
            return given.token_ids

    make, sampling = (GivenRLOO, {}) if trainer == "RLOO" else (trl.GRPOTrainer, {"rollout_func": rollout_func})
    make(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [str(number) for number in range(given.groups)]}),
        processing_class=tokenizer,
        callbacks=[Watch()],
        **sampling,
    ).train()
    assert len(seen) == (1 if move_to is None else 2)
    return seen[-1]
