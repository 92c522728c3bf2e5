"""Which GPUs or cores each engine gets, of those that this process may use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ablation.policy.memory import TooSmall
from ablation.policy.vllm.client import VISIBLE
from ablation.policy.vllm.messages import EngineSettings


def visible_gpus(count: int, environment: Mapping[str, str] | None = None) -> list[str]:
    """Names of the `count` GPUs that this process sees, for CUDA_VISIBLE_DEVICES of another one."""
    said = (os.environ if environment is None else environment).get(VISIBLE)
    names = [str(number) for number in range(count)] if said is None else [name.strip() for name in said.split(",")]
    return names[:count]


def gpu_count() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def shared_with_trainer(copies: int, tensor_parallel: int, gpus: int, processes: int = 1) -> bool:
    """Whether an engine must work on a GPU of the trainer (the first ones, as many as it has processes)."""
    return gpus < copies * tensor_parallel + processes


def on_own_devices(settings: EngineSettings, copies: int, gpus: Sequence[str], cores: Sequence[int]) -> list[EngineSettings]:
    """`settings` for each of `copies` engines. They get the last of `gpus`: the first is the trainer's alone if it can be.

    Without a GPU, several engines get cores of their own if there are as many as they have threads. Raises `TooSmall` if there
    are too few GPUs.
    """
    each = settings.tensor_parallel
    if gpus:
        if len(gpus) < copies * each:
            raise TooSmall(
                f"policy.vllm: {copies} replicas with tensor_parallel {each} need {copies * each} GPUs; "
                f"this process sees {len(gpus)}",
                hint=f"{VISIBLE} says which ones; nothing was started.",
            )
        names = gpus[len(gpus) - copies * each :]
        return [replace(settings, devices=",".join(names[number * each :][:each])) for number in range(copies)]
    threads = each * settings.threads
    if copies == 1 or len(cores) < copies * threads:
        return [settings] * copies
    return [replace(settings, cores=tuple(cores[number * threads :][:threads])) for number in range(copies)]


def engine_settings_here(settings: EngineSettings, copies: int) -> list[EngineSettings]:
    """`on_own_devices` of this process."""
    return on_own_devices(settings, copies, visible_gpus(gpu_count()), sorted(os.sched_getaffinity(0)))
