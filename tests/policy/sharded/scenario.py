"""What one process and several must do alike: models, cases, and a life of a policy that is recorded step by step.

The several are spawned once, as four; the first of them, the first two and all four then hold every case's model in turn.
"""

from __future__ import annotations

import copy
import os
import sys
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from peft import LoraConfig, get_peft_model
from transformers import MistralConfig, PreTrainedModel, Qwen3Config

from ablation.plan.arms import Adam
from ablation.plan.model import Plan
from ablation.policy.base import SampleRequest, ScoreRow, TrainRow
from ablation.policy.probes import weights_kept
from tests.small_models import END, PAD, TARGETS, VOCABULARY, small, small_llama

ROOT = Path(__file__).parents[3]
COUNTS = (1, 2, 4)
WITHOUT_HEAD = [target for target in TARGETS if target != "lm_head"]
STEPS, RATE = 4, 0.01


def small_qwen3_tied() -> PreTrainedModel:
    return small(
        Qwen3Config,
        seed=1,
        hidden_size=36,  # over four processes, as over two: 18, 9 rows of a weight
        intermediate_size=50,  # 13, 13, 13 and 11 rows
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=12,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )


def small_mistral() -> PreTrainedModel:
    """Its window is shorter than some rows, so nothing can be packed."""
    return small(MistralConfig, seed=2, head_dim=8, sliding_window=16)


MODELS = {"llama": (small_llama, TARGETS), "qwen3": (small_qwen3_tied, WITHOUT_HEAD), "mistral": (small_mistral, TARGETS)}


@dataclass(frozen=True)
class Case:
    """`training` and `optimizer` are fields of the plan's; `adapter` and the rest are bounds of relative and absolute differences."""

    model: str = "llama"
    dtype: str = "float32"
    training: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    adapter: float = 1e-5
    logprob: float = 2e-5
    relative: float = 2e-5
    whole: bool = False
    """Also what needs no case of its own: sampling, and updates that are not stepped on; and in any number of processes."""


CASES = {
    "llama": Case(whole=True),
    "qwen3, tied head, files in parts": Case("qwen3", whole=True),
    "mistral, padded": Case("mistral"),
    "gradient checkpointing": Case(training={"gradient_checkpointing": True}),
    "clipped": Case(optimizer={"max_grad_norm": 0.5}),
    "adamw from stored moments": Case("qwen3", optimizer={"name": "adamw", "weight_decay": 0.1, "state": "start"}),
    "one pass for all": Case(training={"micro_batch_tokens": 100000}),
    "bfloat16 base": Case(dtype="bfloat16", adapter=0.02, logprob=0.3, relative=0.05),
    "autocast": Case(training={"autocast": "bfloat16"}, adapter=0.02, logprob=0.3, relative=0.05),
}


def cases_of(count: int) -> dict[str, Case]:
    """What `count` processes do: each case in two, where parts are cut and sums are made; the whole ones in one and four as well."""
    return {name: case for name, case in CASES.items() if count == 2 or case.whole}


def make_folders(folder: Path) -> None:
    """`folder`/MODEL/base and /adapter, the adapter with an effect, and moments beside one of them."""
    for name, (make, targets) in MODELS.items():
        model = make()
        model.save_pretrained(folder / name / "base", **({"max_shard_size": "20KB"} if name == "qwen3" else {}))
        adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=3, target_modules=targets))
        with torch.no_grad():
            for parameter, weight in adapted.named_parameters():
                if "lora_B" in parameter:
                    weight.normal_(std=0.1)
        adapted.save_pretrained(str(folder / name / "adapter"), save_embedding_layers=False)


def make_plan(case: Case) -> Plan:
    tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
    tree["model"] |= {"lora": {"rank": 3, "alpha": 3, "targets": MODELS[case.model][1]}, "dtype": case.dtype}
    tree["problems"]["cells"] = {"low": [f"p{number}" for number in range(58)]}
    tree["sampling"] = {"max_tokens": 16, "batch_rollouts": 16}
    tree["training"] |= {"learning_rate": RATE, "micro_batch_tokens": 100, **case.training}
    tree["training"]["optimizer"] = case.optimizer
    del tree["model"]["layers"], tree["model"]["hidden_size"]
    shape = MODELS[case.model][0]().config
    tree["model"] |= {"layers": shape.num_hidden_layers, "hidden_size": shape.hidden_size, "vocabulary": VOCABULARY}
    return Plan.model_validate(tree)


def arguments(case: Case, folder: Path) -> tuple:
    """Of `LocalPolicy`, and so of all that are like it."""
    return make_plan(case), folder / case.model / "base", folder / case.model / "adapter", (END,), PAD


def make_rows(seed: int) -> list[TrainRow]:
    """Thirteen rollouts: some of one prompt, one longer than all others, one without a weight."""
    random = np.random.default_rng(seed)
    rows = []
    for place in range(13):
        prompt = tuple(random.integers(2, VOCABULARY, 3 + place % 3).tolist()) if place % 4 else (5, 6, 7)
        count = 70 if place == 5 else int(random.integers(1, 24))
        weights = random.normal(size=count) * (random.random(count) < 0.7)
        rows.append(
            TrainRow(
                prompt,
                random.integers(2, VOCABULARY, count),
                -np.abs(random.normal(3, 0.5, size=count)),
                weights * (place != 2),
            )
        )
    return rows


def life(policy: Any, folder: Path, case: Case) -> dict[str, Any]:
    """What a policy does, step by step; writes its checkpoint into `folder`/saved."""
    rows = make_rows(0)
    seen: dict[str, Any] = {"base": policy.base_sha256, "start": policy.adapter_sha256(), "sampled": []}
    if case.whole:
        policy.self_test()
        requests = [SampleRequest(row.prompt_ids, seed) for seed, row in enumerate(rows)]
        seen["sampled"] = [(one.token_ids, one.logprobs) for one in policy.sample(requests)]
    empty = ScoreRow((3, 4), np.zeros(0, dtype=np.int64))
    seen["scores"] = [policy.score([*rows, empty])]
    seen["stats"] = [policy.update(make_rows(seed), RATE) for seed in range(STEPS)]
    seen["scores"] += [policy.score(rows), policy.score(rows, start=True), policy.score(rows[:1]), policy.score([])]
    if case.whole:
        seen |= _not_stepped_on(policy)
        seen["probes"] = probe(policy)
    seen["stats"].append(policy.update([rows[3]], RATE))  # a single row: most processes have none
    saved = folder / "saved"
    saved.mkdir(parents=True, exist_ok=True)
    policy.save(saved)
    seen["saved"] = policy.adapter_sha256()
    policy.update(make_rows(9), RATE)
    went_on = policy.adapter_sha256()
    policy.load(saved)
    seen["loaded"] = policy.adapter_sha256()
    policy.update(make_rows(9), RATE)
    seen["resumed bit for bit"] = policy.adapter_sha256() == went_on
    policy.load_adapter(saved)
    seen["adapter alone"] = policy.adapter_sha256()
    policy.reset(Adam())
    seen["reset"] = policy.adapter_sha256()
    return seen


def probe(policy: Any) -> dict[str, Any]:
    """What vLLM's preflight asks of a trainer."""
    before = policy.adapter_sha256()
    with weights_kept(policy):
        policy.zero_weights()
        seen = {"zeros": policy.adapter_sha256(), "of the base": policy.score(make_rows(0)[:3])}
        policy.made_up_weights("v_proj", 0.1)
        seen["made up"] = policy.adapter_sha256()
    return seen | {"logits": policy.logits([5, 6, 7, 8], 2), "kept": policy.adapter_sha256() == before}


def _not_stepped_on(policy: Any) -> dict[str, Any]:
    rows, before = make_rows(0), policy.adapter_sha256()
    seen = {"weightless": policy.update([replace(row, weights=np.zeros(len(row.weights))) for row in rows], RATE)}
    wrong = copy.deepcopy(rows)
    wrong[7].weights[0], wrong[7].sampler_logprobs[0] = 1.0, -np.inf
    seen["not finite"] = policy.update(wrong, RATE)
    # The gradient is finite, its square in the second moment is not.
    seen["too large"] = policy.update([replace(row, weights=row.weights * 1e25) for row in rows], RATE)
    return seen | {"stayed": policy.adapter_sha256() == before}


def work(rank: int, folder: Path) -> None:
    """One of the four processes."""
    sys.stdout = sys.stderr = open(folder / f"log-{rank}.txt", "w", buffering=1)  # noqa: SIM115
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    from ablation.policy.sharded.rank import RankPolicy

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=max(COUNTS), timeout=timedelta(seconds=120)
    )
    for count in COUNTS:
        mesh, control = DeviceMesh("cpu", list(range(count))), dist.new_group(list(range(count)))
        if rank >= count:
            continue
        for name, case in cases_of(count).items():
            own = folder / f"{count}" / name
            policy = RankPolicy(*arguments(case, folder), mesh=mesh, control=control)
            seen = life(policy, own, case)
            if rank == 0:
                torch.save(seen, own / "seen.pt")
        policy = RankPolicy(*arguments(Case(), folder), torch.float64, mesh=mesh, control=control)
        policy.update(make_rows(0), RATE)  # after one step the first moment is a share of the gradient
        saved = folder / f"{count}" / "float64"
        saved.mkdir(exist_ok=True)
        policy.save(saved)
    dist.barrier()
    os._exit(0)
