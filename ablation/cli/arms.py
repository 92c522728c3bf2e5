"""`ablation arms`: the parts that an arm is made of, the library, and what an arm does with rollouts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ablation.plan.load import LoadedPlan

app = typer.Typer(help="What arms can be made of, the library of arms, and what one does with rollouts.")

PlanOption = Annotated[Path | None, typer.Option("--plan", help="Also this plan's arms; it need not be locked.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@app.callback(invoke_without_command=True)
def arms(context: typer.Context, plan: PlanOption = None, as_json: Json = False) -> None:
    """List every weighting with its formula, every other part of an arm, and the arms of the library."""
    if context.invoked_subcommand is not None:
        _no_options_before(context)
        return
    from ablation.report.arm_tables import all_arms, arms_page

    loaded = _loaded(plan)
    found = all_arms(None if loaded is None else loaded.plan.arms, None if plan is None else str(plan))
    if as_json:
        _print_json(found)
        return
    from ablation.report.terminal import print_page

    print_page(arms_page(found))


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An arm of the library or, with --plan, of the plan.")],
    plan: PlanOption = None,
    example: Annotated[
        bool, typer.Option("--example", help="The weights of a small made-up update, and how to work them out.")
    ] = False,
    rollout: Annotated[int, typer.Option("--rollout", min=1, max=9, help="With --example: the one that is worked by hand.")] = 1,
    as_json: Json = False,
) -> None:
    """One arm: its formula, what it does in words, and every field as YAML that a plan can hold."""
    from ablation.plan.arms import Reward
    from ablation.report.arm_example import Example
    from ablation.report.arm_tables import arm_content, arm_yaml, example_content, example_page

    loaded = _loaded(plan)
    arm, source = _find(name, loaded, plan)
    training = loaded.plan.training if loaded is not None and name in loaded.plan.arms else None
    content = arm_content(name, arm, source, training)
    if not example:
        if as_json:
            _print_json(content)
        else:
            sys.stdout.write(arm_yaml(content))
        return
    if arm.external is not None:
        from ablation.errors import UsageError

        raise UsageError(f"{name}: a command outside this program trains it, so there are no weights to work out")
    own = {} if arm.reward is None else arm.reward.model_dump(exclude_none=True)
    worked = Example(arm, training.reward_of(arm) if training is not None else Reward(**own))
    content["example"] = example_content(worked, rollout - 1)
    if as_json:
        _print_json(content)
        return
    from ablation.report.terminal import print_page

    print_page(example_page(content, worked))


def _no_options_before(context: typer.Context) -> None:
    """`arms --plan P show N` would ignore P without a word."""
    from ablation.errors import UsageError

    if context.params.get("plan") is not None or context.params.get("as_json"):
        raise UsageError(f"--plan and --json go behind `{context.invoked_subcommand}`")


def _loaded(plan: Path | None) -> LoadedPlan | None:
    from ablation.plan.load import load_plan

    return None if plan is None else load_plan(plan)


def _find(name: str, loaded: LoadedPlan | None, plan: Path | None) -> tuple[Any, str]:
    """The arm and where it is from; the plan's own goes before one of the library with the same name."""
    from ablation.errors import UsageError
    from ablation.plan.section import did_you_mean
    from ablation.plan.weightings import WEIGHTINGS
    from ablation.report.arm_tables import library

    own = {} if loaded is None else loaded.plan.arms
    if name in own:
        return own[name], f"an arm of {plan}"
    known = library()
    if name in known:
        return known[name], "an arm of the library"
    if name in WEIGHTINGS:
        raise UsageError(
            f"there is no arm `{name}`: it is a weighting",
            hint=f"`ablation arms` has its formula; `R: {{weighting: {name}}}` under a plan's arms makes an arm of it.",
        )
    hint = f"Arms of {plan}: {', '.join(own)}. " if own else ""
    hint += f"Library: {', '.join(known)}." + ("" if own else " An arm of a plan needs --plan PLAN.")
    raise UsageError(f"there is no arm `{name}`{did_you_mean(name, [*own, *known])}", hint=hint)


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
