"""What `plan power` is told, checked, and turned into the model that is simulated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ablation.errors import UsageError
from ablation.plan.load import LoadedPlan
from ablation.plan.section import did_you_mean
from ablation.power.effects import COUNTS, SECTIONS, Effects, finite_number, move, parse_effects, parse_spread, section_of
from ablation.power.rates import FIXED, Mean, Rates, assumed_pool, assumed_rates
from ablation.power.simulate import Model, answers_of_finished
from ablation.power.target import parse_target

ASSUMED = {
    "correct": 0.6,
    "truncated": 0.13,
    "looping": 0.05,
    "looping_truncated": 0.8,
    "logprob_sd": 0.2,
    "logprob_cell_sd": 0.1,
}
"""What is assumed of the starting model when nobody measured it; the rates are near the published study's."""
CONCENTRATION = 2.0
"""Assumed variation between cells: a third of the variance of one rollout's outcome lies between cells."""
SECTION_CELL = 2
"""Rollouts of a cell on held-out and never-used problems: the plan has their total alone, and the study had 2."""
STUDIES = (100, 200_000)
SECTION_FIELDS = {"held_out": "verdict.held_out", "never_used": "verdict.never_used", "main": "verdict.release.main"}


@dataclass(frozen=True)
class Settings:
    """The options of `plan power`. None: not given."""

    studies: int = 10_000
    seed: int = 0
    pilot: Path | None = None
    correct: float | None = None
    truncated: float | None = None
    looping: float | None = None
    looping_truncated: float | None = None
    logprob_sd: float | None = None
    logprob_cell_sd: float | None = None
    concentration: float | None = None
    correlation: float = 0.0
    effects: Sequence[str] = ()
    seed_sd: Sequence[str] = ()
    held_out: Sequence[str] = ()
    never_used: Sequence[str] = ()
    main: Sequence[str] = ()
    target: str | None = None


@dataclass(frozen=True)
class Inputs:
    """What is simulated, and what a reader must know of it."""

    model: Model
    effects: Effects
    target: tuple[float, float] | None
    notes: list[str]


def inputs(loaded: LoadedPlan, settings: Settings) -> Inputs:
    """Raises `UsageError` for an option that cannot be, and what reading a pilot raises."""
    plan = loaded.plan
    _check(settings)
    effects, spread = parse_effects(settings.effects, plan), parse_spread(settings.seed_sd)
    target = None if settings.target is None else parse_target(settings.target)
    rates, notes = _rates(loaded, settings)
    sections = {}
    for name in SECTIONS:
        section, options = section_of(plan, name), getattr(settings, name)
        if section is not None:
            sections[name] = _section_rates(name, options, section.rollouts, rates)
        elif options:
            raise UsageError(f"--{name.replace('_', '-')} {options[0]}: the plan has no {SECTION_FIELDS[name]}")
    for who, effect in effects.items():
        _check_fit(who, effect, sections.get(who, rates) if who not in plan.arms else rates)
    return Inputs(Model(rates, sections, spread, settings.correlation), effects, target, notes)


def _check(settings: Settings) -> None:
    def refuse(option: str, found: object, allowed: str) -> None:
        raise UsageError(f"--{option} {found}: must be {allowed}")

    if not STUDIES[0] <= settings.studies <= STUDIES[1]:
        refuse("studies", settings.studies, f"{STUDIES[0]:,} to {STUDIES[1]:,}")
    if not 0 <= settings.seed < 2**63:
        refuse("seed", settings.seed, "0 or more, below 2^63")
    for name in ("correct", "truncated", "looping", "looping_truncated", "correlation"):
        value = getattr(settings, name)
        if value is not None and not 0 <= value <= 1:  # NaN is not, either
            refuse(name.replace("_", "-"), f"{value:g}", "a share from 0 to 1")
    for name in ("logprob_sd", "logprob_cell_sd"):
        value = getattr(settings, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            refuse(name.replace("_", "-"), f"{value:g}", "0 nats or more")
    if settings.concentration is not None and not settings.concentration >= 0.05:
        refuse("concentration", f"{settings.concentration:g}", "0.05 or more (inf: no variation between cells)")
    given = [name for name in ASSUMED if getattr(settings, name) is not None]
    if settings.pilot is not None and given:
        option = given[0].replace("_", "-")
        raise UsageError(f"--{option}: is assumed only without --pilot", hint=f"The pilot says it: leave out --{option}.")


def _rates(loaded: LoadedPlan, settings: Settings) -> tuple[Rates, list[str]]:
    plan = loaded.plan
    if settings.pilot is not None:
        from ablation.power.pilot import read_pilot  # reads Parquet, which `plan lock` need not wait for

        return read_pilot(settings.pilot, loaded, settings.concentration)
    used = {name: value if (given := getattr(settings, name)) is None else given for name, value in ASSUMED.items()}
    logprob = Mean(None, used.pop("logprob_sd"), used.pop("logprob_cell_sd"))
    concentration = CONCENTRATION if settings.concentration is None else settings.concentration
    return assumed_rates(assumed_pool(**used), len(plan.cells), plan.training.rollouts_per_cell, concentration, logprob), []


def _section_rates(name: str, options: Sequence[str], rollouts: int, training: Rates) -> Rates:
    """Rates on the problems of a section: those of the training cells, unless the options state others."""
    pool, source = training.pooled_C, f"rates as on the training cells, unless --{name.replace('_', '-')} says others"
    if options:
        stated = training.expected()
        known = {key: stated[key] for key in ("correct", "truncated", "looping")}
        both = stated["truncated"] + stated["looping"] - stated["truncated_or_looping"]
        given: set[str] = set()
        for option in options:
            what = f"--{name.replace('_', '-')} {option}"
            measure, equals, right = option.partition("=")
            measure = measure.strip()
            if not equals or measure not in known:
                suggestion = did_you_mean(measure, known) if equals else ""
                raise UsageError(f"{what}: is not NAME=RATE with a name of {', '.join(known)}{suggestion}")
            if measure in given:
                raise UsageError(f"{what}: {measure} is given twice")
            given.add(measure)
            known[measure] = finite_number(right, what)
            if not 0 <= known[measure] <= 1:
                raise UsageError(f"{what}: a rate is from 0 to 1")
        share = (
            min(both / stated["looping"], known["truncated"] / known["looping"], 1.0)
            if stated["looping"] and known["looping"]
            else 0.0
        )
        pool, source = assumed_pool(**known, looping_truncated=share), "rates as you stated them"
    per_cell = SECTION_CELL if rollouts % SECTION_CELL == 0 else 1
    parameters = np.tile(pool * min(training.concentration, FIXED), (rollouts // per_cell, 1))
    return Rates(parameters, per_cell, training.concentration, source, training.means)


def _check_fit(who: str, effect: dict[str, float], rates: Rates) -> None:
    """An effect must fit into the expected rates."""
    shares = {name: effect[name] / rates.total for name in COUNTS if name in effect}
    for count in range(1, len(shares) + 1):
        some = dict(list(shares.items())[:count])
        name = list(some)[-1]
        _, cut = move(rates.pooled_C[None, None], answers_of_finished(rates), some, total=tuple(effect))
        if cut.any():
            found = {key: round(value * rates.total, 1) for key, value in rates.expected().items()}
            raise UsageError(
                f"--effect {who}.{name}={effect[name]:g}: does not fit",
                hint=f"Of {rates.total} rollouts of the start {found[name]:g} are expected to be {name} "
                f"({found['clean']:g} clean, {found['truncated_or_looping']:g} truncated or looping).",
            )
