"""What a plan takes at most, in words: rollouts, tokens, memory, a rough time, and money by the plan's own prices."""

from __future__ import annotations

from typing import Any

from ablation.plan.cost import SAMPLE_FLOPS, TRAIN_FLOPS, Cost, base_bytes, cost, default_flops
from ablation.plan.model import Plan
from ablation.plan.prices import bill_tokens
from ablation.plan.words import number
from ablation.plan.work import PROMPT, later, parts, total

GPU_FLOPS = 1e14
"""Assumed useful rate of one data-center GPU, sampling included: about a tenth of its bfloat16 peak."""
HOPELESS = 86_400
"""Seconds of CPU time above which the page also says how long a GPU would take."""


def cost_summary(plan: Plan, flops: float | None = None) -> dict[str, Any]:
    """All of it as plain data. `flops`: operations per second of the machine in question."""
    bound = cost(plan)
    return {
        "sweep_rollouts": bound.sweep_rollouts,
        "training_rollouts": bound.training_rollouts,
        "readout_rollouts": bound.readout_rollouts,
        "rollouts": bound.rollouts,
        "phase2_rollouts": bound.phase2_rollouts,
        "extension_rollouts": bound.extension_rollouts,
        "tokens_at_most": bound.tokens,
        "trained_tokens_at_most": bound.trained_tokens,
        "estimates": _estimates(plan, bound, flops),
        "base_bytes": base_bytes(plan),
        "money": planned_money(plan),
    }


def duration(seconds: float) -> str:
    """`90` -> `1.5 minutes`."""
    for limit, size, unit in ((90, 1, "seconds"), (5400, 60, "minutes"), (129_600, 3600, "hours"), (63_072_000, 86_400, "days")):
        if seconds < limit:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds / 31_536_000:,.0f} years"


def _memory(size: int) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"


def cost_rows(plan: Plan, bound: dict[str, Any]) -> list[tuple[str, str]]:
    """Rollouts, tokens, memory and time."""
    rows = [
        (
            "rollouts",
            f"{bound['rollouts']:,} = {bound['sweep_rollouts']:,} in sweeps + {bound['training_rollouts']:,} in updates + "
            f"{bound['readout_rollouts']:,} in readouts",
        ),
        ("tokens", f"{bound['tokens_at_most']:,} sampled, {bound['trained_tokens_at_most']:,} of them trained on"),
        ("base weights", f"{_memory(bound['base_bytes'])} in {plan.model.dtype}"),
        *(("time" if place == 0 else "", _time(one)) for place, one in enumerate(bound["estimates"])),
        (
            "",
            f"({plan.model.parameters:,} parameters x ({SAMPLE_FLOPS} operations per sampled + {TRAIN_FLOPS} per trained token))",
        ),
    ]
    if bound["phase2_rollouts"]:
        rows.insert(1, ("phase 2", f"{bound['phase2_rollouts']:,} more rollouts (start and subject), only after REPLICATED"))
    if bound["extension_rollouts"]:
        words = f"{bound['extension_rollouts']:,} more rollouts in updates and checks, only after REPLICATED"
        rows.insert(2 if bound["phase2_rollouts"] else 1, ("extension", words))
    return rows + _money_rows(plan, bound["money"])


def planned_money(plan: Plan) -> dict[str, Any] | None:
    """What the plan takes at most by its own prices per million tokens; None if it names no prices."""
    if plan.prices is None:
        return None
    given: dict[str, Any] = {"prices": plan.prices.model_dump(mode="json", exclude_none=True), "prompt_tokens_assumed": PROMPT}
    if plan.prices.million_tokens is None:
        return given | {"tokens": None, "runs": None, "later": None}
    runs, after = total(parts(plan)).billed, total(later(plan)).billed
    return given | {
        "tokens": runs.as_json(),
        "runs": bill_tokens(plan.prices, runs).as_json(),
        "later": bill_tokens(plan.prices, after).as_json() if after else None,
    }


def _money_rows(plan: Plan, found: dict[str, Any] | None) -> list[tuple[str, str]]:
    """What `planned_money` found, in words."""
    if found is None or plan.prices is None:
        return [("money", "not known: the plan names no prices (section `prices`)")]
    rows = []
    if found["runs"] is not None:
        rows.append(f"at most {found['runs']['shown']} at a service that bills tokens")
        for one in found["runs"]["charges"]:
            rows.append(f"  {one['what']}: {one['formula']}{', ' if one['amount'] is None else ' = '}{one['shown']}")
        rows.append(f"  (prompts taken as {found['prompt_tokens_assumed']} tokens, each computed by itself)")
        if found["later"] is not None:
            left = ", agent states and safety prompts not counted" if plan.verdict.release is not None else ""
            rows.append(f"at most {found['later']['shown']} more after REPLICATED{left}")
    for name, price in (plan.prices.device_hour or {}).items():
        rows.append(f"{number(price)} {plan.prices.currency} for an hour of one {name}")
    if plan.prices.device_hour:
        rows.append("  (how many hours: `ablation plan show PLAN --hardware NAME`)")
    return [("money" if place == 0 else "", row) for place, row in enumerate(rows)]


def _estimates(plan: Plan, bound: Cost, flops: float | None) -> list[dict[str, Any]]:
    """Time on named hardware: at the rate that was asked for, or on the plan's CPU threads and, where that is hopeless, a GPU."""
    threads = plan.policy.threads
    rates = [("your hardware", flops)] if flops else [(f"{threads} CPU thread{'s' * (threads > 1)}", default_flops(plan))]
    if flops is None and bound.seconds(plan.model.parameters, rates[0][1]) > HOPELESS:
        rates.append(("one data-center GPU", GPU_FLOPS))
    return [
        {"hardware": name, "flops_per_second_assumed": rate, "seconds": bound.seconds(plan.model.parameters, rate)}
        for name, rate in rates
    ]


def _time(estimate: dict[str, Any]) -> str:
    rate = f"{estimate['flops_per_second_assumed']:.2g}".replace("e+", "e")
    return f"about {duration(estimate['seconds'])} on {estimate['hardware']} at an assumed {rate} operations/s"
