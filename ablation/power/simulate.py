"""Whole studies, simulated: sweep, all arms, choice of the first stable one, replication in the second seeds.

Shapes: S studies in blocks of B, A arms in plan order (the control first), R rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ablation.plan.model import Plan
from ablation.power.decide import Decision, decide, first_stable, holds
from ablation.power.effects import COUNTS, SECTIONS, Effects, move
from ablation.power.kinds import CUBE
from ablation.power.rates import Rates
from ablation.power.stages import Luck, Measures, measure_stage

BLOCK = 250
"""Studies at a time, at most: small enough for the processor's cache. Each block has its own seed, so this moves the result."""
_BLOCK_ROLLOUTS = 100_000
"""Rollouts of one stage over all studies of a block, at most; a study of more is a block of its own."""


@dataclass(frozen=True)
class Model:
    """What is simulated."""

    rates: Rates
    """The starting model on the training cells."""
    sections: dict[str, Rates] = field(default_factory=dict)
    """The same on `held_out` and `never_used`, where the plan has them."""
    spread: dict[str, float] = field(default_factory=dict)
    """Measure -> sd between training seeds, in the unit of effects; every run draws its own change."""
    correlation: float = 0.0
    """Between a readout's rollout and its same-seed partner in the sweep."""


@dataclass(frozen=True)
class Studies:
    """What came of every simulated study."""

    sweeps: tuple[Measures, Measures]
    """First and second family."""
    arms: list[Measures]
    """Readouts of the first family, in plan order."""
    again: tuple[Measures, Measures]
    """Readouts of the second family: control, and first stable arm (without meaning where `stable` is -1)."""
    fired_SAR: np.ndarray
    fired_again: tuple[np.ndarray, np.ndarray]  # [S, R] each
    stable: np.ndarray  # int [S]
    decision: Decision
    sections: dict[str, tuple[Measures, Measures]]
    """Section -> (subject, start)."""
    cut: float
    """Share of the runs with an effect that did not fit into their study's rates."""


def simulate(plan: Plan, model: Model, effects: Effects, studies: int, seed: int) -> Studies:
    """`studies` independent studies. The same arguments give the same numbers."""
    blocks = []
    size = block_size(model.rates.total)
    for number, first in enumerate(range(0, studies, size)):
        generator = np.random.Generator(np.random.SFC64([seed, number]))
        blocks.append(_block(plan, model, effects, min(size, studies - first), generator))
    return _joined(blocks)


def block_size(rollouts: int) -> int:
    """Studies of a block whose stages have `rollouts`."""
    return max(1, min(BLOCK, _BLOCK_ROLLOUTS // rollouts))


class _Runs:
    """The readouts of one family in a block of studies."""

    def __init__(self, rates: Rates, model: Model, studies: int, generator: np.random.Generator) -> None:
        self.rates, self.model, self.studies, self.generator = rates, model, studies, generator
        self.split_A = answers_of_finished(rates)
        self.cut: list[np.ndarray] = []

    def sweep(self, rates_BKC: np.ndarray) -> Measures:
        self.rates_BKC = rates_BKC
        self.luck = Luck.draw(self.rates, self.studies, self.generator)
        return measure_stage(self.rates, rates_BKC, self.luck, {})

    def readout(self, effects: Sequence[dict[str, float]], which: np.ndarray | None = None) -> Measures:
        """A run that changes the expected measures, and moves by its training seed besides.

        `which` [B] says whose of the `effects` a study's run has (-1: nobody's); without it all have the only one.
        """
        which = np.zeros(self.studies, dtype=int) if which is None else which
        moved = {name: sd * self.generator.standard_normal(self.studies) for name, sd in self.model.spread.items() if sd}
        rates_BKC, shifts = self.rates_BKC, {name: change for name, change in moved.items() if name not in COUNTS}
        for place, effect in enumerate(effects):
            rows = np.flatnonzero(which == place)
            for name in effect.keys() - set(COUNTS):
                shifts[name] = shifts.get(name, np.zeros(self.studies)) + np.where(which == place, effect[name], 0)
            named = [name for name in COUNTS if name in effect or name in moved]
            if not named or not len(rows):
                continue
            changes = {name: effect.get(name, 0.0) + (moved[name][rows] if name in moved else 0.0) for name in named}
            shares = {name: change / self.rates.total for name, change in changes.items()}
            rates_BKC = rates_BKC.copy() if rates_BKC is self.rates_BKC else rates_BKC
            rates_BKC[rows], cut = move(self.rates_BKC[rows], self.split_A, shares, total=tuple(effect))
            self.cut.append(cut)
        luck = self.luck.partner(self.rates, self.model.correlation, self.generator)
        return measure_stage(self.rates, rates_BKC, luck, shifts)


def _block(plan: Plan, model: Model, effects: Effects, studies: int, generator: np.random.Generator) -> Studies:
    rules, arms, known = plan.verdict.damage, list(plan.arms), model.rates.means
    rates_BKC = model.rates.draw(studies, generator)  # the cells are the same in both families
    first, second = (_Runs(model.rates, model, studies, generator) for _ in range(2))
    sweep = first.sweep(rates_BKC)
    of_arm = [effects.get(arm, {}) for arm in arms]
    readouts = [first.readout([effect]) for effect in of_arm]
    fired_SAR = np.stack([holds(rules, one, sweep, known) for one in readouts], axis=1)
    damaged = fired_SAR.any(axis=2)
    stable = first_stable(damaged)
    sweep_again = second.sweep(rates_BKC)
    again = (second.readout(of_arm[:1]), second.readout(of_arm, stable))
    fired_again = tuple(holds(rules, one, sweep_again, known) for one in again)
    sections, cut = {}, first.cut + second.cut
    for name in SECTIONS:
        if name in model.sections:
            own = _Runs(model.sections[name], model, studies, generator)
            start = own.sweep(model.sections[name].draw(studies, generator))
            sections[name] = (own.readout([effects.get(name, {})]), start)
            cut += own.cut
    return Studies(
        sweeps=(sweep, sweep_again),
        arms=readouts,
        again=again,
        fired_SAR=fired_SAR,
        fired_again=fired_again,
        stable=stable,
        decision=decide(damaged, fired_again[0].any(axis=1), fired_again[1].any(axis=1), plan.verdict.replication.table),
        sections=sections,
        cut=float(np.concatenate(cut).mean()) if cut else 0.0,
    )


def answers_of_finished(rates: Rates) -> np.ndarray:
    """Share of each answer among the start's finished rollouts without loops, [3]."""
    answers = rates.pooled_C.reshape(CUBE)[0, 0]
    return answers / answers.sum() if answers.sum() > 0 else np.array([0.0, 1.0, 0.0])


def _joined(blocks: list[Studies]) -> Studies:
    def measures(parts: list[Measures]) -> Measures:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    sizes = np.array([len(block.stable) for block in blocks])
    return Studies(
        sweeps=tuple(measures([block.sweeps[place] for block in blocks]) for place in range(2)),
        arms=[measures(list(parts)) for parts in zip(*(block.arms for block in blocks), strict=True)],
        again=tuple(measures([block.again[place] for block in blocks]) for place in range(2)),
        fired_SAR=np.concatenate([block.fired_SAR for block in blocks]),
        fired_again=tuple(np.concatenate([block.fired_again[place] for block in blocks]) for place in range(2)),
        stable=np.concatenate([block.stable for block in blocks]),
        decision=Decision(
            {name: np.concatenate([block.decision.reasons[name] for block in blocks]) for name in blocks[0].decision.reasons},
            np.concatenate([block.decision.label for block in blocks]),
        ),
        sections={
            name: tuple(measures([block.sections[name][place] for block in blocks]) for place in range(2))
            for name in blocks[0].sections
        },
        cut=float(np.average([block.cut for block in blocks], weights=sizes)),
    )
