"""A plan on named hardware, for a terminal and as data: memory, time and money, and every assumption that they rest on."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ablation.plan.hardware_plan import OnHardware, Row, Side, Taken, summed
from ablation.plan.load import LoadedPlan
from ablation.plan.prices import Bill, money
from ablation.plan.work import later, total
from ablation.report.cost_words import duration
from ablation.report.plan_page import pairs

LEFT_OUT = (
    "Left out: loading, the preflight, changes of the adapter, turns of trainer and engine, grading, and what is done again "
    "after a stop. The model, and what it is worth against measured runs: plans/hardware.md."
)
UNKNOWN_SERVICE = (
    "Of a service: its devices, memory and time; whether it bills common beginnings once (then prefill is less than this); what "
    "it takes for storage; what a request that failed costs."
)


def hardware_summary(loaded: LoadedPlan, found: OnHardware, config: str | None) -> dict[str, Any]:
    """All of it as plain data. `config`: where the model's sizes are from."""
    hardware, plan = found.hardware, found.plan
    runs, after = found.rows(), found.rows(later)
    count = hardware.count
    content: dict[str, Any] = {
        "plan": str(loaded.path),
        "name": plan.name,
        "digest": loaded.digest,
        "hardware": hardware.asked,
        "prompt_tokens": found.prompt,
        "mean_tokens": found.mean,
        "mean_from": found.mean_from or None,
        "cap": found.cap,
        "parts": [_row(row, count) for row in runs],
        "later": [_row(row, count) for row in after],
        "total": _totals(runs, count),
        "later_total": _totals(after, count) if after else None,
        "prices": None if plan.prices is None else plan.prices.model_dump(mode="json", exclude_none=True),
        "prices_from": None if plan.prices is None else "plan",
        "work_at_most": total([row.part for row in runs]).as_json(),
    }
    if hardware.service:
        return content | {"device": None, "unknown": UNKNOWN_SERVICE}
    device = found.device
    return content | {
        "device": {
            "name": device.name,
            "count": count,
            "memory": device.memory,
            "bandwidth": device.bandwidth,
            "flops": device.flops,
            "link": device.link,
            "source": device.source,
        },
        "model": {
            "parameters": plan.model.parameters,
            "weights": found.model.weights,
            "adapter_parameters": found.model.adapter,
            "sizes_from": config,
            "layers": found.shape.layers,
            "full_attention_layers": found.shape.full,
            "kv_bytes_of_a_token": found.kv_of_a_token,
            "state_bytes_of_a_rollout": found.state_of_a_rollout,
        },
        "sampler": found.sampler.as_json(),
        "trainer": {"processes": found.trainer_processes},
        "memory": {
            "room": found.room,
            "trainer": found.trainer_side.as_json(),
            "sampler": found.sampling_side.as_json(),
            "together": found.together,
        },
        "assumed": found.assumed.as_json(),
        "left_out": LEFT_OUT,
    }


def _row(row: Row, count: int) -> dict[str, Any]:
    return {
        "family": row.part.family,
        "name": row.part.name,
        "rollouts": row.part.work.rollouts,
        "mean": None if row.mean is None else row.mean.as_json(count),
        "most": row.most.as_json(count),
    }


def _totals(rows: list[Row], count: int) -> dict[str, Any]:
    mean, most = summed(rows)
    return {"mean": None if mean is None else mean.as_json(count), "most": most.as_json(count)}


def hardware_page(found: OnHardware, content: dict[str, Any]) -> RenderableType:
    """The page for 80 columns or more."""
    plan, service = found.plan, found.hardware.service
    ours = "The plan has" if content["prices_from"] == "plan" else "There is"
    parts: list[RenderableType] = [Text(f"{plan.name} on {content['hardware']}", style="bold")]

    def section(title: str, *blocks: RenderableType) -> None:
        parts.append(Text(f"\n{title}", style="bold cyan"))
        parts.extend(Padding(block, (0, 0, 0, 2)) for block in blocks)

    section("What is reckoned with", pairs(_facts(found, content)))
    if not service:
        section(*_memory(found))
    runs, after = found.rows(), found.rows(later)
    title = "Money by tokens" if service else "Time and money"
    section(f"{title}, the runs of the plan", _table(found, runs))
    if after:
        left = " (agent states and safety prompts not counted)" if plan.verdict.release is not None else ""
        section(f"Only after REPLICATED{left}", _table(found, after))
    if plan.prices is None:
        device = re.sub(r"x[0-9]+$", "", found.hardware.asked)
        price = "million_tokens: {prefill: ..., sample: ..., train: ...}" if service else f"device_hour: {{{device}: ...}}"
        words = f"No money: the plan names no prices (section `prices`, or --prices '{{currency: EUR, {price}}}')."
        parts.append(Padding(Text(words), (1, 0, 0, 2)))
    else:
        unpriced = summed(runs)[1].bill
        if unpriced is not None and unpriced.unpriced:
            names = ", ".join(dict.fromkeys(unpriced.unpriced))
            parts.append(Padding(Text(f"{ours} no price for {names}: not counted."), (1, 0, 0, 2)))
    if service:
        section("What is not known", Text(UNKNOWN_SERVICE))
    else:
        words = ", ".join(f"{name} {value:g}" for name, value in content["assumed"].items())
        section("Assumed, and to be changed with --assume NAME=VALUE", Text(words), Text(""), Text(LEFT_OUT))
    return Group(*parts)


def _facts(found: OnHardware, content: dict[str, Any]) -> list[tuple[str, str]]:
    plan, rows = found.plan, []
    if not found.hardware.service:
        device, model = found.device, content["model"]
        memory = "" if device.memory is None else f"{device.memory / 1e9:g} GB, "
        rate = device.flops[found.model.compute] / 1e12
        rows = [
            (
                "devices",
                f"{found.hardware.count} x {device.name}: {memory}{device.bandwidth / 1e9:,.4g} GB/s, {rate:,.4g} TFLOP/s in "
                f"{found.model.compute} ({device.source})",
            ),
            (
                "model",
                f"{plan.model.parameters:,} parameters, {_gb(found.model.weights)} in {plan.model.dtype}; keys and values of a "
                f"token {found.kv_of_a_token:,} bytes"
                + (f", states of a rollout {_gb(found.state_of_a_rollout)}" if found.shape.linear else ""),
            ),
            ("its sizes", model["sizes_from"] or "assumed: the model's config.json is not at hand (--config FILE)"),
            ("sampler", _sampler(found)),
            ("trainer", _trainer(found)),
        ]
    mean = "no mean is known before the sweep (--mean-tokens N)"
    if found.mean is not None:
        says = (
            "training.s0, thinking that ended; truncated rollouts and answers come on top"
            if found.mean_from != "--mean-tokens"
            else found.mean_from
        )
        mean = f"{found.mean:,g} in the mean ({says})"
    rows.append(("tokens of a rollout", f"{mean}, at most {found.cap:,}; prompts {found.prompt:,} (--prompt-tokens)"))
    return rows


def _sampler(found: OnHardware) -> str:
    one = found.sampler
    idle = found.hardware.count - one.devices
    rest = f"; {idle} device{'s' * (idle != 1)} idle" if idle else ""
    if one.backend == "local":
        how = "in one process" if one.processes == 1 else f"in {one.processes} processes (--processes {one.processes})"
        return f"local, {how}, {found.plan.sampling.batch_rollouts} rollouts at a time{rest}"
    given = {"tensor_parallel": one.tensor_parallel, "replicas": one.replicas, "sequences": one.sequences}
    settings = ", ".join(f"{name}: {value:g}" for name, value in (given | {"kv_cache_gb": one.kv_cache / 1e9}).items())
    return f"vllm, {settings}; {'the fastest that fits; the plan does not say it' if one.chosen else 'as the plan says'}{rest}"


def _trainer(found: OnHardware) -> str:
    n, checkpointing = found.trainer_processes, found.plan.training.gradient_checkpointing
    how = f"{n} processes that hold the model together (--processes {n})" if n > 1 else "one process"
    again = ", layers computed again in the backward pass" if checkpointing else ""
    return f"{how}, {found.plan.training.micro_batch_tokens:,} tokens in a pass{again}"


def _memory(found: OnHardware) -> tuple[str, RenderableType, RenderableType]:
    trainer, sampler = found.trainer_side, found.sampling_side
    names = list(dict.fromkeys((*trainer.parts, *sampler.parts)))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("GB", overflow="fold")
    for title in ("trainer", "sampler"):
        table.add_column(title, justify="right")
    for name in names:
        table.add_row(name, *(_cell(side, name) for side in (trainer, sampler)))
    table.add_row("together", *(f"{side.total / 1e9:.1f}" for side in (trainer, sampler)))
    room = "the machine's own" if found.room is None else f"of {found.room / 1e9:.1f} GB that programs can have"
    return f"Memory of each device, {room}", table, Text(_fits(found))


def _cell(side: Side, name: str) -> str:
    size = side.parts.get(name)
    return "-" if size is None else f"{size / 1e9:.1f}" if size >= 5e7 else f"{size / 1e9:.2g}"


def _fits(found: OnHardware) -> str:
    if found.room is None:
        return "Whether it fits depends on the machine; a run looks before it loads."
    trainer, sampler = found.trainer_side, found.sampling_side
    lines = [
        f"DOES NOT FIT: the {name} ({_most(side)})."
        for name, side in (("trainer", trainer), ("sampler", sampler))
        if not side.fits
    ]
    if not trainer.fits and not found.plan.training.gradient_checkpointing:
        lines.append("`training.gradient_checkpointing: true` keeps no activations inside a layer.")
    if not sampler.fits and found.backend == "local":
        lines.append("A smaller `sampling.batch_rollouts` needs less of it.")
    if not lines and found.backend == "local":
        return "Both fit."
    return " ".join(lines) or (
        "Both fit at once." if found.together else "Each fits; both at once do not, so they take turns (--turns)."
    )


def _most(side: Side) -> str:
    name = max(side.parts, key=lambda one: side.parts[one])
    return f"most of it {name}: {_gb(side.parts[name])}"


def _table(found: OnHardware, rows: list[Row]) -> Table:
    """A line for each part and their sum: in the mean, and at most."""
    service, priced, several = found.hardware.service, found.plan.prices is not None, found.mean is not None
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("part", overflow="fold")
    if service:
        table.add_column("M tokens at most", justify="right")
    for title in ("in the mean", "at most") if several else ("at most",):
        if not service:
            table.add_column(title, justify="right")
            table.add_column("device h", justify="right")
        if priced:
            table.add_column("money" if not service else title, justify="right")
    mean, most = summed(rows)
    lines = [(f"{row.part.family}: {row.part.name}", row.mean, row.most, row.part) for row in rows]
    for name, one, highest, part in [*lines, ("all", mean, most, None)]:
        cells = [name]
        if service:
            billed = total([row.part for row in rows]).billed if part is None else part.work.billed
            cells.append(f"{sum(billed.as_json().values()) / 1e6:,.1f}")
        for taken in (one, highest) if several else (highest,):
            cells += _taken(found, taken, service, priced)
        table.add_row(*cells, style="bold" if part is None else None)
    return table


def _taken(found: OnHardware, taken: Taken | None, service: bool, priced: bool) -> list[str]:
    if taken is None:
        return ["-"] * (2 * (not service) + priced)
    hours = taken.seconds * found.hardware.count / 3600
    cells = [] if service else [duration(taken.seconds), f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"]
    return cells + ([_money(taken.bill)] if priced else [])


def _money(bill: Bill | None) -> str:
    return "-" if bill is None or bill.total is None else money(bill.total, bill.currency)


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"
