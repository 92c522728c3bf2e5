"""Effects that a user names, and how they move the rates of a cell.

`ARM.MEASURE=CHANGE`: the change that is expected in one readout against the start, in both families: rollouts for counts, nats
for `logprob`. ARM is an arm of the plan, `others` (every arm but the control that is not named itself), `held_out`, `never_used`
or `main` (the model that is checked there). A change is spread in proportion: a loss of 10% of all clean rollouts is a loss of
10% in every cell.

- looping: rollouts begin (or cease) to loop; nothing else of them changes.
- truncated: rollouts run into the cap and give no answer; those that no longer do answer as the start's finished ones do.
- clean: the total change. What truncated and looping have not moved already is moved between correct and incorrect answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.plan.phase2 import HeldOut, MainSet, NeverUsed
from ablation.plan.section import did_you_mean
from ablation.power.kinds import CUBE

OTHERS = "others"
SECTIONS = ("held_out", "never_used", "main")
"""Sets on which finished models are compared; `main` is the release's."""
COUNTS = ("looping", "truncated", "clean")
"""In the order in which they are applied."""
MEASURES = (*COUNTS, "logprob")

Effects = dict[str, dict[str, float]]
"""Arm or section -> measure -> expected change."""


def section_of(plan: Plan, name: str) -> HeldOut | NeverUsed | MainSet | None:
    """The plan's section of that name in `SECTIONS`."""
    if name == "main":
        return plan.verdict.release.main if plan.verdict.release is not None else None
    return getattr(plan.verdict, name)


def parse_effects(options: Sequence[str], plan: Plan) -> Effects:
    """`["C.clean=-25", "others.logprob=0.01"]` -> effects by arm. Raises `UsageError` that names the option."""
    control = plan.verdict.replication.control
    sections = [name for name in SECTIONS if section_of(plan, name) is not None]
    known = [*plan.arms, *([OTHERS] if OTHERS not in plan.arms else []), *sections]
    named: Effects = {}
    for option in options:
        what = f"--effect {option}"
        left, equals, right = option.partition("=")
        who, dot, measure = left.strip().partition(".")
        if not equals or not dot:
            raise UsageError(f"{what}: is not ARM.MEASURE=CHANGE", hint=f"For instance --effect {control}.clean=-25.")
        if who not in known:
            raise UsageError(f"{what}: there is no arm `{who}`; known: {', '.join(known)}{did_you_mean(who, known)}")
        if measure not in MEASURES:
            hint = "Name `truncated` and `looping` instead." if measure == "truncated_or_looping" else None
            suggestion = did_you_mean(measure, MEASURES)
            raise UsageError(f"{what}: `{measure}` is no effect; known: {', '.join(MEASURES)}{suggestion}", hint=hint)
        if measure in named.setdefault(who, {}):
            raise UsageError(f"{what}: {who}.{measure} is given twice")
        named[who][measure] = finite_number(right, what)
    effects = {name: dict(one) for name, one in named.items() if name in plan.arms or name in sections}
    if OTHERS not in plan.arms:
        for arm in plan.arms:
            if arm != control and OTHERS in named:
                effects[arm] = named[OTHERS] | effects.get(arm, {})
    return effects


def parse_spread(options: Sequence[str]) -> dict[str, float]:
    """`["clean=8", "logprob=0.05"]` -> measure -> sd between training seeds, in the unit of effects."""
    found: dict[str, float] = {}
    for option in options:
        what = f"--seed-sd {option}"
        measure, equals, right = option.partition("=")
        measure = measure.strip()
        if not equals:
            raise UsageError(f"{what}: is not MEASURE=SD", hint="For instance --seed-sd clean=8.")
        if measure not in MEASURES:
            raise UsageError(f"{what}: `{measure}` has none; known: {', '.join(MEASURES)}{did_you_mean(measure, MEASURES)}")
        if measure in found:
            raise UsageError(f"{what}: {measure} is given twice")
        found[measure] = finite_number(right, what)
        if found[measure] < 0:
            raise UsageError(f"{what}: a standard deviation is 0 or more")
    return found


def finite_number(text: str, what: str) -> float:
    """A finite number, or a `UsageError` that says what was found."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{what}: found `{text.strip()}`, which is not a number")
    return number


def move(
    rates_BKC: np.ndarray, split_A: np.ndarray, shares: Mapping[str, np.ndarray | float], total: Sequence[str] = COUNTS
) -> tuple[np.ndarray, np.ndarray]:
    """(rates after the changes, where a change did not fit, bool [B]). `shares`: measure -> change of its share of rollouts, [B].

    `split_A`: answers of the start's finished rollouts. `clean` in `total` means that its change is against the rates as they
    came; else it is on top of what truncated and looping do. A change that does not fit is cut to what there is.
    """
    cube = rates_BKC.reshape(*rates_BKC.shape[:2], *CUBE).copy()
    start_clean = cube[:, :, 0, 0, 0].mean(axis=1)
    cut = np.zeros(len(cube), dtype=bool)
    if "looping" in shares:
        gained, lost = _parts(shares["looping"], cube[:, :, :, 1].sum(axis=(2, 3)).mean(axis=1), cut)
        free, loops = cube[:, :, :, 0].copy(), cube[:, :, :, 1].copy()
        begin, cease = free * gained[:, None, None, None], loops * lost[:, None, None, None]
        cube[:, :, :, 0], cube[:, :, :, 1] = free - begin + cease, loops - cease + begin
    if "truncated" in shares:
        gained, lost = _parts(shares["truncated"], cube[:, :, 1].sum(axis=(2, 3)).mean(axis=1), cut)
        run_on, finish = cube[:, :, 0] * gained[:, None, None, None], cube[:, :, 1] * lost[:, None, None, None]
        cube[:, :, 0] += finish.sum(axis=-1, keepdims=True) * split_A - run_on
        cube[:, :, 1] -= finish
        cube[:, :, 1, :, 2] += run_on.sum(axis=-1)
    if "clean" in shares:
        right, wrong = cube[:, :, 0, 0, 0].copy(), cube[:, :, 0, 0, 1].copy()
        change = shares["clean"] + (start_clean - right.mean(axis=1) if "clean" in total else 0.0)
        gained, lost = _parts(change, right.mean(axis=1), cut, wrong.mean(axis=1))
        learn, forget = wrong * gained[:, None], right * lost[:, None]
        cube[:, :, 0, 0, 0], cube[:, :, 0, 0, 1] = right - forget + learn, wrong - learn + forget
    return cube.reshape(rates_BKC.shape), cut


def _parts(
    change: np.ndarray | float, have: np.ndarray, cut: np.ndarray, source: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(share of the source that joins, share of those there that leave), both [B]; `cut` is set where that is more than all."""
    change = np.broadcast_to(change, have.shape)
    source = 1 - have if source is None else source
    gained = np.where(change > 0, change, 0) / np.maximum(source, 1e-300)
    lost = np.where(change < 0, -change, 0) / np.maximum(have, 1e-300)
    cut |= (gained > 1 + 1e-9) | (lost > 1 + 1e-9)
    return np.minimum(gained, 1), np.minimum(lost, 1)
