"""How often each rule fires and each label comes out, before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ablation.plan.load import LoadedPlan
from ablation.plan.phase2 import guard_set
from ablation.plan.tables import STUDY
from ablation.power.rates import FIXED
from ablation.power.reach import Reach, StopJudge, reach
from ablation.power.settings import Inputs, Settings, inputs
from ablation.power.stops import StopShare, stop_shares
from ablation.power.summary import RuleShare, Scenario, run_scenario
from ablation.power.target import Proposal, propose


@dataclass(frozen=True)
class Power:
    """The answer of `plan power`."""

    settings: Settings
    inputs: Inputs
    no_difference: Scenario
    """Every arm is as good as the start."""
    with_effects: Scenario | None
    """Under the effects that were named; None if none was."""
    proposals: list[Proposal]
    stops: list[StopShare]
    """Of the starting model: how often chance alone would end a run that changes nothing."""
    reach: list[Reach]
    left_out: list[str]

    def as_json(self) -> dict[str, Any]:
        model = self.inputs.model
        return {
            "studies": self.settings.studies,
            "seed": self.settings.seed,
            "model": {
                "source": model.rates.source,
                "rollouts": model.rates.total,
                "rates": model.rates.expected(),
                "means": {name: one._asdict() for name, one in model.rates.means.items()},
                "concentration": None if model.rates.concentration >= FIXED else model.rates.concentration,
                "correlation": model.correlation,
                "seed_sd": model.spread,
                "sections": {
                    name: {"source": one.source, "rollouts": one.total, "rates": one.expected()}
                    for name, one in model.sections.items()
                },
                "notes": self.inputs.notes,
                "left_out": self.left_out,
            },
            "no_difference": self.no_difference.as_json(),
            "with_effects": None if self.with_effects is None else self.with_effects.as_json(),
            "stop_rules": [one.as_json() for one in self.stops],
            "target": self.inputs.target,
            "proposals": [one.as_json() for one in self.proposals],
            "every_rule": [one.as_json() for one in self.reach],
        }


def power(loaded: LoadedPlan, settings: Settings, stop_judge: StopJudge) -> Power:
    """Simulate the plan's whole decision. Raises `UsageError` for settings that cannot be."""
    plan, given = loaded.plan, inputs(loaded, settings)
    calm = run_scenario(plan, given.model, {}, settings.studies, settings.seed)
    changed = run_scenario(plan, given.model, given.effects, settings.studies, settings.seed) if given.effects else None
    return Power(
        settings=settings,
        inputs=given,
        no_difference=calm,
        with_effects=changed,
        proposals=propose(plan, given.model, calm.studies, given.target) if given.target else [],
        stops=stop_shares(plan, given.model.rates, settings.studies, settings.seed),
        reach=reach(plan, stop_judge),
        left_out=_left_out(loaded, given, calm),
    )


def _left_out(loaded: LoadedPlan, given: Inputs, calm: Scenario) -> list[str]:
    verdict, model = loaded.plan.verdict, given.model
    lines = []
    if model.correlation == 0:
        lines.append(
            "A readout has the seeds of its sweep. It is drawn here as if it had its own, so luck is overstated where equal "
            "seeds give equal rollouts (--correlation)."
        )
    if not model.spread:
        lines.append(
            "Training seeds: every run of an arm is equally good here; real runs differ by luck of training (--seed-sd)."
        )
    lines.append("An effect is the same in both families and spread over all cells in proportion.")
    lines.append("Logprob is drawn apart from the counts, as a mean of independent rollouts.")
    if loaded.plan.stop_rules:
        lines.append(
            "Stop rules do not move the labels here: every run has a readout. What training does to updates is not simulated."
        )
    damage = [one for one in calm.rules if not one.simulated]
    if damage:
        lines.append(f"Damage rules that are not simulated, as if they never fired: {_names(damage)}.")
    for name, section in calm.sections.items():
        others = [one for one in section.rules if not one.simulated]
        if others:
            what = "Guards" if name == "release" else f"Rules of {name}"
            lines.append(f"{what} that are not simulated, so fewer studies pass than shown: {_names(others)}.")
    if verdict.held_out is not None:
        lines.append("The blinded read is not simulated.")
    if calm.sections:
        lines.append("The sets of phase 2 are shown as if they were sampled in every study, whatever the label.")
    if loaded.plan.verdict.replication.table != STUDY:
        lines.append("The plan's own table of the replication is followed.")
    if verdict.release is not None and any(guard_set(guard) in ("agent", "safety") for guard in verdict.release.guards):
        lines.append(
            "Guards on agent turns and safety prompts are not simulated: nothing is known of the start there. `ablation verdict` "
            "shows how often an equal model fails each, from the start's own answers."
        )
    return lines


def _names(rules: list[RuleShare]) -> str:
    return ", ".join(one.rule.name for one in rules)
