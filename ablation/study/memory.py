"""Whether trainer and engine fit into this machine's memory, together or in turns, before either is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.policy.memory import Estimate, TooSmall
from ablation.study.workspace import free_memory

SURE = 0.75
"""An estimate is off by less than a quarter where it was measured: only what does not fit even so is refused."""
Mode = Literal["together", "restart", "sleep"]
_FIELDS = {
    ("trainer", "activations"): "training.micro_batch_tokens or sampling.max_tokens, or plan training.gradient_checkpointing",
    ("trainer", "weights"): "model.base or model.dtype",
    ("trainer", "gathered"): "model.base or model.dtype",
    ("trainer", "adapter"): "model.lora.rank",
    ("engine", "weights"): "model.base, model.dtype or policy.vllm.tensor_parallel",
    ("engine", "adapter"): "model.lora.rank",
    ("engine", "kv cache"): "policy.vllm.kv_cache_gb",
    ("engine", "activations"): "policy.vllm.batch_tokens or policy.vllm.sequences",
}
"""What to lower, by what takes most."""


@dataclass(frozen=True)
class Device:
    """`kind`: `cuda` or `cpu`; `free` bytes, None where the system does not say; `host_free` is that of the machine itself."""

    name: str
    kind: str
    free: int | None
    host_free: int | None


@dataclass(frozen=True)
class Chosen:
    """How trainer and engine share the device, why, and whether that may change once seconds are measured."""

    mode: Mode
    why: str
    quickest: bool = False


def this_device(gpus: int) -> Device:
    """Where the trainer works."""
    found = free_memory()
    host = free_memory(accelerator=False)
    name, free = found if found is not None else ("this machine", None)
    return Device(name, "cuda" if gpus else "cpu", free, None if host is None else host[1])


def choose_turns(plan: Plan, estimate: Estimate, device: Device, asked: str, processes: int = 1) -> Chosen:
    """What was asked for, or with `auto` the quickest that fits. Raises `UsageError` for what cannot be, naming the field;
    `TooSmall` if that is this machine's memory. `processes`: over how many the trainer is divided.
    """
    vllm = plan.policy.vllm
    assert vllm is not None
    if estimate.kv_of_one > estimate.kv_given:
        raise UsageError(
            f"policy.vllm.kv_cache_gb: {vllm.kv_cache_gb:g} GB hold no rollout of {estimate.longest} tokens (the longest prompt "
            f"and `sampling.max_tokens`): its keys and values need {_gb(estimate.kv_of_one)}",
            hint="Nothing was loaded.",
        )
    if asked == "sleep" and device.kind == "cpu":
        raise UsageError(
            "--turns sleep: an engine on the CPU has no sleep mode",
            hint="`--turns restart` ends it while the trainer works, and starts it again.",
        )
    free = device.free
    together, in_turns = estimate.together, estimate.in_turns
    if processes > 1 and device.kind == "cuda":
        # Aside, the trainer would still score a few tokens, in host memory, where its processes have no way to each other.
        if asked not in ("auto", "together"):
            raise UsageError(
                f"--turns {asked}: a trainer that is divided over GPUs stays on them",
                hint="Leave GPUs to the engine that the trainer does not use, or have both in memory: `--turns together`.",
            )
        _refuse(estimate, together, device, True)
        return Chosen("together", "the trainer is divided over GPUs, and stays on them")
    if asked != "auto":
        _refuse(estimate, together if asked == "together" else in_turns, device, asked == "together")
        return Chosen(asked, "asked for")  # type: ignore[arg-type]
    if estimate.engines_here == 0:
        return Chosen("together", "the engine has GPUs of its own")
    if free is None:
        return Chosen("together", "the system does not say how much memory is free")
    words = f"both need about {_gb(together)}; {device.name} has {_gb(free)} free"
    if together <= free:
        return Chosen("together", words)
    _refuse(estimate, in_turns, device, False)
    if device.kind == "cpu":
        return Chosen("restart", words)
    if device.host_free is not None and device.host_free < estimate.engine["weights"] + estimate.trainer["weights"]:
        return Chosen("restart", f"{words}, and host memory is short of the weights of a sleeping engine")
    return Chosen("sleep", words, quickest=True)


def _refuse(estimate: Estimate, need: int, device: Device, together: bool) -> None:
    if device.free is None or SURE * need <= device.free:
        return
    sides = {"trainer": estimate.trainer}
    engines = estimate.engines_here * sum(estimate.engine.values())
    if together or (estimate.engines_here and estimate.trainer_idle + engines > sum(estimate.trainer.values())):
        sides = {"engine": estimate.engine} | (sides if together else {})
    parts = [(side, name) for side, own in sides.items() for name in own if (side, name) in _FIELDS]
    part = max(parts, key=lambda one: sides[one[0]][one[1]])
    how = "trainer and engine together" if together else "trainer and engine in turns"
    raise TooSmall(
        f"memory: {how} need about {_gb(need)}; {device.name} has {_gb(device.free)} free. "
        f"Most of it is the {part[0]}'s {part[1]} ({_gb(sides[part[0]][part[1]])}): lower {_FIELDS[part]}",
        hint="Nothing was loaded." + (" `--turns restart` keeps one of the two in memory at a time." if together else ""),
    )


def as_record(estimate: Estimate, device: Device) -> dict[str, Any]:
    """For the journal and `--json`: bytes."""
    return {
        "device": device.name,
        "free": device.free,
        "trainer": estimate.trainer,
        "engine": estimate.engine,
        "engines_here": estimate.engines_here,
        "together": estimate.together,
        "in_turns": estimate.in_turns,
        "longest_rollout": estimate.longest,
        "kv_of_one": estimate.kv_of_one,
        "longest_at_once": estimate.at_once,
    }


def memory_table(record: dict[str, Any]) -> list[str]:
    """`as_record` as a small table."""
    names = list(dict.fromkeys([*record["trainer"], *record["engine"]]))
    lines = [f"{'memory, estimated':<25} {'trainer':>10} {'engine':>10}"]
    for name in names:
        cells = (_gb(record[side][name]) if name in record[side] else "" for side in ("trainer", "engine"))
        lines.append(f"  {name:<23} {next(cells):>10} {next(cells):>10}")
    sums = (_gb(sum(record[side].values())) for side in ("trainer", "engine"))
    lines.append(f"  {'sum':<23} {next(sums):>10} {next(sums):>10}")
    free = "unknown" if record["free"] is None else _gb(record["free"])
    lines.append(f"  together {_gb(record['together'])}, in turns {_gb(record['in_turns'])}; {record['device']} has {free} free")
    lines.append(
        f"  a rollout of {record['longest_rollout']} tokens takes {_gb(record['kv_of_one'])} of the KV cache; "
        f"{record['longest_at_once']} fit at one time"
    )
    return lines


def _gb(size: int) -> str:
    if size < 0.1e9:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e9:.2f} GB" if size < 10e9 else f"{size / 1e9:.0f} GB"
