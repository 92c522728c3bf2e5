"""The model that ships with the package, with an adapter that TRL can train, and rollouts that it sampled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import AutoModelForCausalLM

from ablation.plan.arms import Arm
from ablation.plan.model import Plan
from ablation.policy.base import SampleRequest, TrainRow
from ablation.policy.loading import load_adapted, load_tokenizer
from ablation.policy.local import LocalPolicy
from ablation.problems.problem import load_problems
from ablation.problems.render import render_prompt, token_ids
from ablation.training.weights import Logprobs, RolloutBatch, token_weights

from .trl_side import Given, adapter_vector, trl_gradient

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "ablation" / "assets" / "tiny-reasoner"
# Not lm_head: TRL's fused head multiplies by the base weight alone and would not see an adapter there.
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CELLS = [("p00", "low"), ("p05", "medium"), ("p12", "xhigh"), ("p20", "medium"), ("p24", "xhigh"), ("p09", "low")]
GROUP, MAX_TOKENS, S0 = 4, 64, 37.0
# By group. The fourth teaches nothing; in the others the mean, the spread and the order differ.
REWARDS = [[1, 0, 0, 1.2], [0, 0, 0, 0.9], [1.1, 1, 0, 0.7], [1, 1, 1, 1], [0, 1, 0.8, 1.3], [0, 0, 1, 0]]


@dataclass
class Bench:
    """One set of rollouts, and both sides' gradients on it."""

    plan: Plan
    policy: LocalPolicy
    tokenizer: object
    adapter: Path
    prompt_ids: list[tuple[int, ...]]
    tokens: list[np.ndarray]
    truncated: np.ndarray
    thinking: list[tuple[int, int]]
    start: dict[str, torch.Tensor]
    moved: dict[str, torch.Tensor]
    folder: Path

    @property
    def rewards(self) -> np.ndarray:
        return np.array(REWARDS, dtype=np.float64).ravel()

    @property
    def given(self) -> Given:
        return Given([list(ids) for ids in self.prompt_ids], [ids.tolist() for ids in self.tokens], self.rewards.tolist(), GROUP)

    def set_adapter(self, weights: dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, weight in self.policy.trainable.items():
                weight.copy_(weights[name])

    def score(self, weights: dict[str, torch.Tensor]) -> list[np.ndarray]:
        """Logprobs of every sampled token under the adapter `weights`."""
        self.set_adapter(weights)
        return self.policy.score(self._rows())

    def weights(self, arm: Arm, logprobs: Logprobs | None = None, sampler: list[np.ndarray] | None = None) -> list[np.ndarray]:
        lengths = np.array([len(ids) for ids in self.tokens])
        spans = self.thinking if arm.tokens == "thinking" else [(0, length) for length in lengths]
        batch = RolloutBatch(
            cells=[f"{problem}@{effort}" for problem, effort in CELLS for _ in range(GROUP)],
            rewards_R=self.rewards,
            truncated_R=self.truncated,
            lengths_R=lengths,
            weighted_start_R=np.array([begin for begin, _ in spans]),
            weighted_length_R=np.array([end - begin for begin, end in spans]),
            sampler_logprobs=sampler or [],
        )
        return token_weights(arm, batch, S0, MAX_TOKENS, logprobs).tokens

    def ours(
        self,
        arm: Arm,
        *,
        at: dict[str, torch.Tensor] | None = None,
        sampler: list[np.ndarray] | None = None,
        anchor: list[np.ndarray] | None = None,
    ) -> np.ndarray:
        """The gradient of one update of `arm` with the adapter `at` (None: the start). `sampler`: logprobs of the sampler (None:
        the trainer's own). `anchor`: logprobs under the starting adapter, for the KL."""
        weights_at = at or self.start
        trainer = self.score(weights_at)
        sampler = sampler or trainer
        weights = self.weights(arm, Logprobs(trainer=trainer, start=anchor), sampler)
        rows = [
            TrainRow(row.prompt_ids, row.token_ids, old, weight)
            for row, old, weight in zip(self._rows(), sampler, weights, strict=True)
        ]
        seen: list[np.ndarray] = []
        hook = register_optimizer_step_pre_hook(
            lambda *_: seen.append(adapter_vector(self.policy.model, lambda weight: weight.grad))
        )
        try:
            stats = self.policy.update(rows, 1e-12)
        finally:
            hook.remove()
            self.policy.reset()
        assert stats.stepped and len(seen) == 1
        return seen[0]

    def trl(self, **options) -> np.ndarray:
        """TRL's gradient (see `trl_gradient`) on a model of its own, which begins with the start adapter."""
        model = load_adapted(self.plan, ASSETS / "base", self.adapter)
        options = {"max_completion_length": MAX_TOKENS} | options
        return trl_gradient(model, self.tokenizer, self.given, self.folder / "trl", **options)

    def _rows(self) -> list[TrainRow]:
        return [
            TrainRow(prompt, ids, np.zeros(len(ids)), np.zeros(len(ids)))
            for prompt, ids in zip(self.prompt_ids, self.tokens, strict=True)
        ]


@pytest.fixture(scope="package")
def bench(tmp_path_factory) -> Bench:
    folder = tmp_path_factory.mktemp("ties")
    torch.manual_seed(0)
    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(ASSETS / "base"), LoraConfig(r=4, lora_alpha=4, target_modules=TARGETS)
    )
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.05)
    adapted.save_pretrained(str(folder / "adapter"), save_embedding_layers=False)

    tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
    tree["model"]["lora"] = {"rank": 4, "alpha": 4, "targets": TARGETS}
    tree["sampling"] = {"max_tokens": MAX_TOKENS, "batch_rollouts": 64}
    plan = Plan.model_validate(tree)
    tokenizer = load_tokenizer(ASSETS / "base")
    ids = token_ids(tokenizer, plan.model.tokens)
    policy = LocalPolicy(plan, ASSETS / "base", folder / "adapter", ids.end, tokenizer.pad_token_id)
    problems = load_problems(ASSETS / "problems.jsonl")
    prompts = [
        tuple(render_prompt(tokenizer, problems[problem], effort, plan.model.tokens).ids)
        for problem, effort in CELLS
        for _ in range(GROUP)
    ]
    sampled = policy.sample([SampleRequest(prompt, 1000 + seed) for seed, prompt in enumerate(prompts)])
    tokens = [np.asarray(one.token_ids) for one in sampled]
    closing = [np.flatnonzero(own == ids.close) for own in tokens]  # the prompt opens the thinking
    start = {name: weight.detach().clone() for name, weight in policy.trainable.items()}
    generator = torch.Generator().manual_seed(1)
    moved = {name: weight + 0.15 * torch.randn(weight.shape, generator=generator) for name, weight in start.items()}
    return Bench(
        plan=plan,
        policy=policy,
        tokenizer=tokenizer,
        adapter=folder / "adapter",
        prompt_ids=prompts,
        tokens=tokens,
        truncated=np.array([one.finish_reason == "length" for one in sampled]),
        thinking=[(0, int(at[0]) + 1 if len(at) else len(own)) for at, own in zip(closing, tokens, strict=True)],
        start=start,
        moved=moved,
        folder=folder,
    )
