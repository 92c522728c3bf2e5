"""Hardware by name, such as `h200x8`: what its data sheet says, and which share of that is assumed to be reached.

The catalog (`hardware.yaml`) has no prices. Every assumption is a number here, is printed with what follows from it, and can be
given another value (`--assume NAME=VALUE`). Rates: operations and bytes per second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.plan.prices import CPU, SERVICES
from ablation.plan.section import did_you_mean
from ablation.plan.yaml_reader import read_yaml

MOST_DEVICES = 4096
LEAST_ASSUMED, MOST_ASSUMED = 1e-6, 1e9
"""Beyond them a number is a slip, and times are none that can be printed."""


@dataclass(frozen=True)
class Assumed:
    """What no data sheet says. `gpu-check` is the record of that name in runs/records."""

    prefill_use: float = 0.25
    """Share of the dense peak in a forward pass over prompts and texts: gpu-check reached 0.26 of the data sheet's."""
    train_use: float = 0.15
    """The same of a forward and backward pass: gpu-check reached 0.16."""
    decode_use: float = 0.6
    """Share of the memory bandwidth in decoding; not measured by us."""
    link_use: float = 0.7
    """Share of a link's rate; not measured by us."""
    step_ms: float = 3.0
    """Of every decoding step beside memory and arithmetic: scheduling, choosing tokens, the adapter's kernels; not measured."""
    layer_ms: float = 0.3
    """Of each layer in every decoding step where no graph is captured (`local`, `eager`): launching kernels; not measured."""
    reduce_us: float = 10.0
    """Of each of the two sums over devices that a layer needs when it is split; not measured."""
    memory_use: float = 0.92
    """Share of a device's memory that programs can have."""
    cpu_gflops: float = 10.0
    """Of one CPU thread in float32; the rate that `plan show` assumes without hardware."""
    cpu_bf16_gflops: float = 40.0
    """The same in bfloat16, of a processor that has instructions for it: fitted to the sampling of the record `smollm2`."""
    cpu_gbps: float = 8.0
    """Memory bandwidth of one CPU thread; not measured by us."""

    def changed(self, given: Iterable[str]) -> Assumed:
        """With `NAME=VALUE` of each of `given`. Raises `UsageError` for what is no assumption or no number that it can be."""
        values: dict[str, float] = {}
        names = [one.name for one in fields(self)]
        for text in given:
            name, _, value = text.partition("=")
            if name not in names:
                raise UsageError(f"--assume: `{name}` is no assumption; known: {', '.join(names)}{did_you_mean(name, names)}")
            try:
                number = float(value)
            except ValueError:
                number = 0.0
            most = 1 if name.endswith("_use") else MOST_ASSUMED
            if not LEAST_ASSUMED <= number <= most:
                raise UsageError(f"--assume {name}: found `{value[:40]}`; a number from {LEAST_ASSUMED:g} to {most:g} is needed")
            values[name] = number
        return replace(self, **values)

    def as_json(self) -> dict[str, float]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True)
class Device:
    """One device. Rates per second; `memory` and `bandwidth` in bytes."""

    key: str
    name: str
    memory: float | None
    """None: as much as the machine has, which the name does not say."""
    bandwidth: float
    flops: dict[str, float]
    """`bfloat16` and `float32` -> dense peak."""
    link: float
    source: str

    @property
    def accelerator(self) -> bool:
        return self.key != CPU


@dataclass(frozen=True)
class Hardware:
    """Devices of one kind in one machine, or a service."""

    device: Device | None
    """None: a training service, whose devices nobody knows."""
    count: int
    asked: str
    """As it was named."""

    @property
    def service(self) -> bool:
        return self.device is None


def hardware(name: str, threads: int = 1, assumed: Assumed | None = None) -> Hardware:
    """`h200x8`, `a10`, `cpu` (with the plan's threads), `cpux16`, `tinker`. Raises `UsageError` with what is known."""
    assumed = assumed or Assumed()
    text = name.strip().lower()
    if text in SERVICES:
        return Hardware(None, 0, text)
    found = re.fullmatch(r"([a-z0-9]+?)(?:x([0-9]{1,6}))?", text)
    known = [*catalog(), CPU]
    # a device's own name may end in `x` and digits, so whole names go first
    key, count = (text, None) if text in known else (found[1], found[2]) if found else (text, None)
    if key not in known:
        listed = ", ".join([*known, *SERVICES])
        raise UsageError(
            f"--hardware: there is no `{name}` in the catalog; known: {listed}{did_you_mean(key, [*known, *SERVICES])}",
            hint="A device and how many of it, for instance h200x8, a10x1, cpu, or a service, for instance tinker.",
        )
    number = int(count) if count else threads if key == CPU else 1
    if not 1 <= number <= MOST_DEVICES:
        raise UsageError(f"--hardware: found {number} devices in `{name}`; from 1 to {MOST_DEVICES} are allowed")
    if key == CPU:
        return Hardware(_processor(number, assumed), 1, f"cpu, {number} thread{'s' * (number > 1)}")
    return Hardware(catalog()[key], number, f"{key}x{number}")


def _processor(threads: int, assumed: Assumed) -> Device:
    return Device(
        CPU,
        f"{threads} CPU thread{'s' * (threads > 1)}",
        None,
        threads * assumed.cpu_gbps * 1e9,
        {"bfloat16": threads * assumed.cpu_bf16_gflops * 1e9, "float32": threads * assumed.cpu_gflops * 1e9},
        1e12,
        "assumed useful rates of a thread",
    )


@cache
def catalog() -> dict[str, Device]:
    """Key -> device, from `hardware.yaml`."""
    document = read_yaml((Path(__file__).parent / "hardware.yaml").read_bytes())
    assert isinstance(document.value, dict) and not document.faults, "a file of this package"
    return {key: _device(key, given) for key, given in document.value.items()}


def _device(key: str, given: dict[str, Any]) -> Device:
    return Device(
        key,
        given["name"],
        given["memory"] * 1e9,
        given["bandwidth"] * 1e9,
        {name: given[name] * 1e12 for name in ("bfloat16", "float32")},
        given["link"] * 1e9,
        given["source"],
    )
