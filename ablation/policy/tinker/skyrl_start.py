"""Puts a plan's start adapter onto a SkyRL server of one's own (`python -m ablation.recipes.skyrl_start`).

The protocol has no upload. But SkyRL's jax
backend reads sampler weights from a file there when they are first sampled from, and into the very adapter that it trains: so the
file is written with the plan's weights before that, and what was loaded is stored as a training state whose optimizer has taken
no step. A hosted service has no such file: there the start adapter is what was trained there and downloaded.
"""

from __future__ import annotations

from pathlib import Path

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.policy.tinker.service import Service, unique_name
from ablation.policy.tinker.weights import archive_of, from_folder, need_same


def put_start(plan: Plan, adapter: Path, service: Service, checkpoints: Path) -> str:
    """The address of a training state that holds the adapter in `adapter`, proven by a download."""
    from tinker import types

    if plan.policy.tinker is None:
        raise UsageError("policy.tinker: the plan names no service's model")
    weights, lora = from_folder(adapter), plan.model.lora
    model = plan.policy.tinker.base_model
    service.do("waiting for its first answer", lambda: service.client)  # a server that was started a moment ago
    trainer = service.do(
        f"making a client of {model}",
        lambda: service.client.create_lora_training_client(
            base_model=model, rank=lora.rank, seed=0, train_unembed="lm_head" in lora.targets
        ),
    )
    try:
        name = unique_name("put")
        path = service.wait(trainer.save_weights_for_sampler(name)).path
        file = checkpoints / trainer.model_id / "sampler_weights" / f"{name}.tar.gz"
        if not file.is_file():
            raise UsageError(f"{file}: there is no such file", hint="FOLDER is the server's --checkpoints-base.")
        file.write_bytes(archive_of(weights, {"peft_type": "LORA", "r": lora.rank, "lora_alpha": lora.alpha}))
        sampler = service.client.create_sampling_client(model_path=path)
        settings = types.SamplingParams(max_tokens=1, seed=0, temperature=1.0)
        service.wait(sampler.sample(types.ModelInput.from_ints([0]), 1, settings))
        state = service.wait(trainer.save_state(unique_name("start"))).path
        stored = service.wait(trainer.save_weights_for_sampler(unique_name("check"))).path
        need_same(state, service.download(stored)[0], weights, "the plan's start adapter")
    finally:
        service.let_go(trainer)
    return state
