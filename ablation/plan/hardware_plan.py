"""A plan on named hardware: how memory is split, and time and money of each part, from the model of `hardware_time`.

Left out: loading, the preflight, changes of the adapter, grading, and whatever stands still while something else is waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from ablation.errors import UsageError
from ablation.plan.cost import update_sizes
from ablation.plan.engines import Vllm
from ablation.plan.footprint import (
    BYTES,
    ENGINE_PROCESS,
    GRAPHS,
    adapter_parameters,
    engine_activations,
    kv_bytes,
    rank_times,
    shape_of,
    state_bytes,
    trainer_parts,
)
from ablation.plan.hardware import Assumed, Device, Hardware
from ablation.plan.hardware_time import Lengths, Model, Step, decode, decoding_step, in_batches, passes
from ablation.plan.model import Plan
from ablation.plan.prices import Bill, Held, Prices, bill_devices, bill_tokens
from ablation.plan.work import PROMPT, Part, Work, parts

SLOTS_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
"""Modules that vLLM holds room for an adapter on, whatever the plan trains."""


@dataclass(frozen=True)
class Sampler:
    """How rollouts are sampled."""

    backend: str
    tensor_parallel: int = 1
    replicas: int = 1
    processes: int = 1
    """Of the local sampler: more than one hold the model together (FSDP) and share out the rollouts."""
    sequences: int = 0
    kv_cache: float = 0.0
    """Bytes on each device."""
    chosen: bool = False
    """Here, because the plan says nothing that this hardware could have."""

    @property
    def devices(self) -> int:
        return self.processes if self.backend == "local" else self.tensor_parallel * self.replicas

    def as_json(self) -> dict[str, Any]:
        return {
            "backend": self.backend,
            "tensor_parallel": self.tensor_parallel,
            "replicas": self.replicas,
            "processes": self.processes,
            "sequences": self.sequences,
            "kv_cache_gb": round(self.kv_cache / 1e9, 1),
            "chosen_here": self.chosen,
        }


@dataclass(frozen=True)
class Side:
    """What trainer or sampler take of one device, by purpose, in bytes."""

    parts: dict[str, int]
    devices: int
    room: float | None
    """What programs can have of a device; None where the name does not say."""

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool | None:
        return None if self.room is None else self.total <= self.room

    def as_json(self) -> dict[str, Any]:
        return {"bytes": self.parts, "total": self.total, "devices": self.devices, "fits": self.fits}


@dataclass(frozen=True)
class Taken:
    """What a part of the plan takes at some length of rollouts."""

    sampling: float = 0.0
    scoring: float = 0.0
    training: float = 0.0
    """Seconds."""
    bill: Bill | None = None

    @property
    def seconds(self) -> float:
        return self.sampling + self.scoring + self.training

    def __add__(self, other: Taken) -> Taken:
        bill = self.bill + other.bill if self.bill is not None and other.bill is not None else self.bill or other.bill
        return Taken(self.sampling + other.sampling, self.scoring + other.scoring, self.training + other.training, bill)

    def as_json(self, devices: int) -> dict[str, Any]:
        seconds = {name: round(getattr(self, name), 1) for name in ("sampling", "scoring", "training", "seconds")}
        money = None if self.bill is None else self.bill.as_json()
        return seconds | {"device_hours": round(self.seconds * devices / 3600, 3), "money": money}


@dataclass(frozen=True)
class Row:
    """One part of the plan: in the mean, if a mean is known, and with every rollout at the cap."""

    part: Part
    mean: Taken | None
    most: Taken
    work_mean: Work | None


class OnHardware:
    """A plan on some hardware. `config`: the model's config.json, or nothing where it is not at hand."""

    def __init__(
        self,
        plan: Plan,
        hardware: Hardware,
        config: dict[str, Any] | None = None,
        *,
        backend: str | None = None,
        mean: float | None = None,
        prompt: int = PROMPT,
        assumed: Assumed | None = None,
    ) -> None:
        self.plan, self.hardware, self.config, self.prompt = plan, hardware, config or {}, prompt
        self.assumed = assumed or Assumed()
        self.cap = plan.sampling.max_tokens
        if mean is not None and mean > self.cap:
            raise UsageError(f"--mean-tokens: found {mean:g}; `sampling.max_tokens` is {self.cap}, and no rollout is longer")
        given = plan.training.s0
        self.mean_from = (
            "--mean-tokens" if mean is not None else "training.s0" if given != "sweep" and given <= self.cap else None
        )
        self.mean = mean if mean is not None else float(given) if self.mean_from else None  # type: ignore[arg-type]
        self.shape = shape_of(self.config, plan)
        dtype = plan.model.dtype
        compute = "bfloat16" if plan.training.autocast == "bfloat16" else dtype
        self.model = Model(plan.model.parameters, adapter_parameters(plan, self.shape), self.shape, dtype, compute)
        if hardware.service:
            self.backend = hardware.asked
            return
        names = list(plan.policy.backends)
        self.backend = backend or ("vllm" if "vllm" in names and plan.policy.backend != "local" else plan.policy.backend)
        if self.backend not in ("local", "vllm"):
            raise UsageError(
                f"--policy: `{self.backend}` works on no hardware of yours",
                hint=f"`--hardware {self.backend}` says what it takes.",
            )

    @property
    def device(self) -> Device:
        assert self.hardware.device is not None
        return self.hardware.device

    @property
    def kind(self) -> str:
        return "cuda" if self.device.accelerator else "cpu"

    @property
    def room(self) -> float | None:
        """Bytes of a device that programs can have."""
        return None if self.device.memory is None else self.device.memory * self.assumed.memory_use

    @property
    def kv_of_a_token(self) -> int:
        """Bytes of keys and values, on all devices together."""
        return kv_bytes(self.shape, BYTES[self.plan.model.dtype])

    @property
    def state_of_a_rollout(self) -> int:
        """Bytes that linear attention keeps."""
        return state_bytes(self.shape)

    @property
    def longest(self) -> int:
        return self.prompt + self.cap

    @cached_property
    def sampler(self) -> Sampler:
        """The plan's own where this hardware has as many devices; otherwise the fastest that fits."""
        own, count = self.plan.policy.vllm, self.hardware.count
        if self.backend == "local":
            tried = [Sampler("local", processes=one) for one in dict.fromkeys((1, count))]
            return self._fastest(tried)
        vllm = own or Vllm()
        sequences = vllm.sequences
        if own is not None and own.tensor_parallel * own.replicas <= count:
            return Sampler("vllm", own.tensor_parallel, own.replicas, 1, sequences, own.kv_cache_gb * 1e9)
        tried = []
        for split in (one for one in range(1, count + 1) if count % one == 0):
            free = math.inf if self.room is None else self.room - sum(self._engine(split, 0).values())
            cache = math.floor(min(free, 8 * sequences * self._kv(split, self.longest)) / 1e8) * 1e8
            if cache >= self._kv(split, self.longest):
                tried.append(Sampler("vllm", split, count // split, 1, sequences, cache, True))
        return self._fastest(tried) if tried else Sampler("vllm", count, 1, 1, sequences, 0.0, True)

    def _fastest(self, tried: list[Sampler]) -> Sampler:
        lengths = Lengths(self.mean or self.cap, self.cap)
        fitting = [one for one in tried if self._side(one).fits is not False] or tried[-1:]
        return min(fitting, key=lambda one: self._sample(one, self.plan.sweep_rollouts, lengths))

    def _kv(self, split: int, tokens: float) -> float:
        """Bytes of keys, values and states of one rollout of so many tokens, on one device."""
        heads = min(split, self.shape.key_heads)
        return kv_bytes(self.shape, BYTES[self.plan.model.dtype]) * tokens / heads + state_bytes(self.shape) / split

    def _engine(self, split: int, cache: float) -> dict[str, int]:
        """Of one device, as `policy.memory.estimate` counts it for a run."""
        vllm = self.plan.policy.vllm or Vllm()
        plan = self.plan.model_copy(update={"policy": self.plan.policy.model_copy(update={"vllm": vllm})})
        rank, size = self.plan.model.lora.rank, BYTES[self.plan.model.dtype]
        slots = sum(rank_times(self.shape, name) for name in {*SLOTS_TARGETS, *self.plan.model.lora.targets}) * rank * size
        return {
            "weights": self.model.weights // split,
            "adapter": 2 * slots // split,
            "kv cache": round(cache),
            "activations": engine_activations(plan, self.shape, self.longest),
            "process": ENGINE_PROCESS[self.kind] + (0 if vllm.eager or self.kind == "cpu" else GRAPHS),
        }

    def _side(self, sampler: Sampler) -> Side:
        if sampler.backend == "vllm":
            return Side(self._engine(sampler.tensor_parallel, sampler.kv_cache), sampler.devices, self.room)
        batch, held = min(self.plan.sampling.batch_rollouts, self.plan.sweep_rollouts), self._trainer(sampler.processes)
        text = batch * (self.prompt * self.shape.inside * BYTES[self.model.dtype] * 3 + 16 * self.shape.vocabulary)
        cache = round(
            batch * self._kv(1, self.longest)
        )  # room for the cap is taken from the start, and every process has all of it
        own = {name: size for name, size in held.items() if name != "activations"} | {"kv cache": cache, "activations": text}
        return Side(own, sampler.processes, self.room)

    @cached_property
    def sampling_side(self) -> Side:
        return self._side(self.sampler)

    @property
    def trainer_processes(self) -> int:
        """All devices hold the trainer together (FSDP)."""
        return self.hardware.count

    @cached_property
    def trainer_side(self) -> Side:
        n = self.trainer_processes
        return Side(self._trainer(n), n, self.room)

    def _trainer(self, processes: int) -> dict[str, int]:
        return trainer_parts(self.plan, self.shape, self.longest, self.kind, processes)

    @property
    def together(self) -> bool | None:
        """Whether trainer and engine fit into a device at once; otherwise they take turns. None where memory is not known."""
        if self.backend == "local" or self.room is None:
            return None
        return self.trainer_side.total + self.sampling_side.total <= self.room

    def _step(self, sampler: Sampler) -> Step:
        vllm = self.plan.policy.vllm
        graphs = sampler.backend == "vllm" and self.device.accelerator and not (vllm is not None and vllm.eager)
        parts_, gathered = (sampler.processes, True) if sampler.backend == "local" else (sampler.tensor_parallel, False)
        return decoding_step(self.model, self.device, self.assumed, parts_, graphs=graphs, gathered=gathered)

    def slots(self, sampler: Sampler, lengths: Lengths) -> int:
        """Rollouts that one engine decodes at a time: `sequences`, or as many as the KV cache holds of the mean age."""
        each = self._kv(sampler.tensor_parallel, self.prompt + lengths.context)
        return max(1, min(sampler.sequences, int(sampler.kv_cache // each))) if each else sampler.sequences

    def _sample(self, sampler: Sampler, rollouts: int, lengths: Lengths) -> float:
        """Seconds of one stage, prompts included."""
        step, devices = self._step(sampler), sampler.devices
        operations = self.model.forward(rollouts * self.prompt, self.prompt)
        use = self.assumed.prefill_use if self.device.accelerator else 1.0
        prompts = operations / (devices * self.device.flops[self.model.dtype] * use)
        if sampler.backend == "local":
            return prompts + in_batches(rollouts, self.plan.sampling.batch_rollouts, lengths, self.prompt, step)
        own = math.ceil(rollouts / sampler.replicas)
        return prompts + decode(own, lengths, self.slots(sampler, lengths), self.prompt, step)

    def stage(self, rollouts: int, lengths: Lengths) -> float:
        """Seconds of sampling a stage of so many rollouts."""
        return self._sample(self.sampler, rollouts, lengths)

    def passes(self, work: Work, length: float) -> tuple[float, float]:
        """Seconds of (scoring, training). The trainer computes the prompt of a cell once for all of its rollouts."""
        plan, n, batch = self.plan, self.trainer_processes, self.plan.training.micro_batch_tokens
        text = self.prompt + length
        own = (self.prompt / plan.training.rollouts_per_cell + length) / text
        scored, trained = work.scored * own, work.trained * own
        score = self.model.forward(scored, text)
        train = self.model.train(trained, text, plan.training.gradient_checkpointing)
        return (
            passes(score, scored, self.model, self.device, self.assumed, n, batch, False),
            passes(train, trained, self.model, self.device, self.assumed, n, batch, True),
        )

    def _taken(self, part: Part, mean: float) -> Taken:
        """A part with rollouts of that mean: the cap for an upper bound."""
        if self.hardware.service:
            return Taken(bill=self._bill(lambda prices: bill_tokens(prices, part.work.billed)))
        lengths, plan = Lengths(mean, self.cap), self.plan
        sampling = self._stages(part.stages.rollouts, lengths)
        scoring = trained = 0.0
        if part.updates.rollouts:
            sizes = update_sizes(len(plan.cells), plan.training.updates)
            each = [size * plan.training.rollouts_per_cell for size in sizes]
            rounds, rest = divmod(part.updates.rollouts, sum(each))
            sampling += rounds * sum(self.stage(one, lengths) for one in each)
            sampling += self.stage(rest, lengths) if rest else 0.0
            scoring, trained = self.passes(part.updates, mean)
        found = Taken(sampling, scoring, trained)
        held = Decimal(repr(round(found.seconds * self.hardware.count, 3)))
        charge = [Held(self.device.name, held, self.device.accelerator)]
        return replace(found, bill=self._bill(lambda prices: bill_devices(prices, charge)))

    def _stages(self, rollouts: int, lengths: Lengths) -> float:
        """Sweeps, readouts and checks are of one size, and phase 2 is near enough."""
        whole, rest = divmod(rollouts, self.plan.sweep_rollouts)
        return whole * self.stage(self.plan.sweep_rollouts, lengths) + (self.stage(rest, lengths) if rest else 0.0)

    def _bill(self, make: Callable[[Prices], Bill]) -> Bill | None:
        return None if self.plan.prices is None else make(self.plan.prices)

    def rows(self, find: Callable[..., list[Part]] = parts) -> list[Row]:
        """Every part of the plan; with `later` what follows only after `REPLICATED`."""
        most = find(self.plan, self.prompt)
        mean = find(self.plan, self.prompt, self.mean) if self.mean is not None else []
        found = []
        for place, part in enumerate(most):
            own = mean[place] if self.mean is not None else None
            found.append(
                Row(
                    part,
                    None if own is None or self.mean is None else self._taken(own, self.mean),
                    self._taken(part, self.cap),
                    None if own is None else own.work,
                )
            )
        return found


def summed(found: list[Row]) -> tuple[Taken | None, Taken]:
    """(in the mean, at most) of all of them."""
    means = [row.mean for row in found if row.mean is not None]
    return (sum(means[1:], means[0]) if len(means) == len(found) and means else None), sum(
        (row.most for row in found[1:]), found[0].most
    )
