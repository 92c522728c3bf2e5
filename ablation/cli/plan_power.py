"""`ablation plan power`, and what `check` and `lock` say of a plan's rules before anybody signs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ablation.plan.load import LoadedPlan
    from ablation.power.power import Power

LOCK_STUDIES = 100, 1000
"""Simulated studies behind the summary of `plan lock`, at least and at most; fewer in large plans, to stay under two seconds."""
LOCK_ROLLOUTS = 1_000_000
"""Rollouts of one stage over all of these studies."""

Many = list[str]


def power(
    file: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan file, for instance plans/my-study.yaml.")],
    studies: Annotated[int, typer.Option(help="Simulated studies.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
    pilot: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A finished sweep of the starting model; it replaces assumed rates.")
    ] = None,
    correct: Annotated[float | None, typer.Option(help="Assumed share of correct (and clean) rollouts [default: 0.6]")] = None,
    truncated: Annotated[float | None, typer.Option(help="Assumed share of truncated rollouts [default: 0.13]")] = None,
    looping: Annotated[float | None, typer.Option(help="Assumed share of looping rollouts [default: 0.05]")] = None,
    looping_truncated: Annotated[
        float | None, typer.Option(help="Assumed share of looping rollouts that are truncated, too [default: 0.8]")
    ] = None,
    logprob_sd: Annotated[
        float | None, typer.Option(help="Assumed sd of a rollout's mean logprob in its cell, in nats [default: 0.2]")
    ] = None,
    logprob_cell_sd: Annotated[
        float | None, typer.Option(help="Assumed sd of the cells' own mean logprobs, in nats [default: 0.1]")
    ] = None,
    concentration: Annotated[
        float | None,
        typer.Option(help="How alike cells are: 1 / (1 + it) of the variance lies between them [default: 2, or the pilot's]"),
    ] = None,
    correlation: Annotated[float, typer.Option(help="Of a readout's rollout with its same-seed partner in the sweep.")] = 0.0,
    effect: Annotated[
        Many | None,
        typer.Option(
            metavar="ARM.MEASURE=CHANGE",
            help="An expected change of one readout: C.clean=-25, others.truncated=-10, C.logprob=-0.2. Repeat for more.",
        ),
    ] = None,
    seed_sd: Annotated[
        Many | None, typer.Option(metavar="MEASURE=SD", help="Spread between training seeds, in the unit of effects: clean=8.")
    ] = None,
    held_out: Annotated[
        Many | None, typer.Option(metavar="NAME=RATE", help="The start's rates on held-out problems, if others: correct=0.5.")
    ] = None,
    never_used: Annotated[
        Many | None, typer.Option(metavar="NAME=RATE", help="The same on never-used problems: truncated=0.1.")
    ] = None,
    main: Annotated[Many | None, typer.Option(metavar="NAME=RATE", help="The same on the release's main set.")] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="LOW-HIGH", help="Propose limits that an equal model meets in this share of runs: 0.01-0.025."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; everything else goes to stderr.")] = False,
) -> None:
    """Before signing: how often each rule fires and each label comes out, if nothing differed and under effects you name."""
    from ablation.plan.load import load_plan
    from ablation.power.power import power as simulate_plan
    from ablation.power.settings import Settings
    from ablation.training.stops import fired_rule

    loaded = load_plan(file)
    settings = Settings(
        studies=studies,
        seed=seed,
        pilot=pilot,
        correct=correct,
        truncated=truncated,
        looping=looping,
        looping_truncated=looping_truncated,
        logprob_sd=logprob_sd,
        logprob_cell_sd=logprob_cell_sd,
        concentration=concentration,
        correlation=correlation,
        effects=effect or (),
        seed_sd=seed_sd or (),
        held_out=held_out or (),
        never_used=never_used or (),
        main=main or (),
        target=target,
    )
    found = simulate_plan(loaded, settings, fired_rule)
    if as_json:
        result = {"plan": str(file), "digest": loaded.digest} | found.as_json()
        typer.echo(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))
        return
    from ablation.report.power_tables import power_page
    from ablation.report.terminal import print_page

    print_page(power_page(loaded, found))


def refuse_idle_rules(loaded: LoadedPlan) -> None:
    """Raise `PlanError` that names every rule that cannot both hold and not hold, and every row of a table that never decides."""
    from ablation.power.idle import idle_rows
    from ablation.power.reach import reach
    from ablation.training.stops import fired_rule

    rules = [(one.place, one.problem) for one in reach(loaded.plan, fired_rule) if one.problem]
    loaded.refuse([*rules, *idle_rows(loaded.plan)])


def limits_between(loaded: LoadedPlan) -> list[str]:
    """A line for every limit on a share that no whole number of the plan's rollouts makes, with the nearest that one does."""
    from ablation.plan.load import field_path
    from ablation.power.reach import reach
    from ablation.training.stops import fired_rule

    return [f"{field_path(one.place)}: {one.between}" for one in reach(loaded.plan, fired_rule) if one.between]


def short_power(loaded: LoadedPlan) -> Power:
    """The simulation behind the summary of `plan lock` and `plan review`: assumed rates and few studies, so the same in both."""
    from ablation.power.power import power as simulate_plan
    from ablation.power.settings import Settings
    from ablation.training.stops import fired_rule

    fewest, most = LOCK_STUDIES
    studies = max(fewest, min(most, LOCK_ROLLOUTS // loaded.plan.sweep_rollouts))
    return simulate_plan(loaded, Settings(studies=studies), fired_rule)


def luck_before_lock(loaded: LoadedPlan) -> tuple[dict[str, Any], list[str]]:
    """(for `--json`, lines for a reader): the labels if nothing differed, from assumed rates and few studies."""
    from ablation.report.power_tables import summary_lines

    found = short_power(loaded)
    whole = found.as_json()
    calm = whole["no_difference"]
    short = {"studies": found.settings.studies, "source": whole["model"]["source"], "rates": whole["model"]["rates"]}
    return short | {"labels": calm["labels"], "damaged": calm["damaged"]}, summary_lines(loaded, found)
