"""Claims of a plan: tests of one measure between arms, with the rate of false claims that the plan accepts.

A test over clusters (cells) speaks of the checkpoints that were read out: in other rollouts of them, the difference would be
there again. Welch's test over families compares training runs with other seeds: it speaks of the recipe.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ablation.measures.bootstrap import estimate, interval_method, resample
from ablation.measures.bootstrap_test import bootstrap_test
from ablation.measures.clusters import Pair, partners
from ablation.measures.contrast import RATIOS, contrast
from ablation.measures.estimate import REASONS, Estimate
from ablation.measures.holm import holm
from ablation.measures.jackknife import jackknife
from ablation.measures.measure import measure
from ablation.measures.rates import correct_rate
from ablation.measures.sign_test import sign_test
from ablation.measures.t_test import t_test, welch
from ablation.plan.claims import Claim
from ablation.plan.model import Plan, Statistics
from ablation.rollouts.outcomes import Outcomes
from ablation.verdict.unread import too_many, unread_of

SHOWN, NOT_SHOWN, UNDECIDED = "SHOWN", "NOT_SHOWN", "UNDECIDED"
CLAIM_LABELS = (SHOWN, NOT_SHOWN, UNDECIDED)
OF_CHECKPOINTS = (
    "These checkpoints: the test is over cells of one training run each, so it does not say what other training seeds would give."
)
OF_RECIPE = "The recipe: the test is over training seeds, one number a run, so it says what the recipe does from seed to seed."
NO_SPREAD = "The runs of each arm all give one number, so there is no spread between training seeds to test against."
NO_EVIDENCE_OF_EQUALITY = "That is no evidence that nothing differs."

OutcomesOf = Callable[[str, str], Outcomes | None]
"""(family, arm or `start`) -> its readout (or sweep); None where there is none."""


@dataclass(frozen=True)
class ClaimTest:
    """One subject of a claim."""

    subject: str
    label: str
    reason: str
    """Why, in one sentence."""
    effect: Estimate | None = None
    """Subject minus reference, or subject / reference for a ratio, with an interval at the plan's level."""
    p: float | None = None
    adjusted: float | None = None
    """After the correction; equal to `p` without one."""

    def as_json(self) -> dict[str, Any]:
        effect = None if self.effect is None else self.effect.as_json()
        return {"subject": self.subject, "label": self.label, "p": self.p, "adjusted_p": self.adjusted} | {
            "effect": effect,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class ClaimVerdict:
    """One claim of the plan."""

    name: str
    claim: Claim
    families: tuple[str, ...]
    tests: tuple[ClaimTest, ...]
    """One a subject, in plan order."""

    @property
    def speaks_of(self) -> str:
        return OF_RECIPE if self.claim.method == "welch" else OF_CHECKPOINTS

    def as_json(self) -> dict[str, Any]:
        claim = self.claim
        content: dict[str, Any] = {"name": self.name, "families": list(self.families), "reference": claim.reference}
        content |= {"measure": claim.measure, "compares": "ratio" if claim.measure in RATIOS else "change", "side": claim.side}
        content |= {
            "method": claim.method,
            "alpha": claim.alpha,
            "correction": claim.correction,
            "tests_made": len(claim.subjects),
        }
        return content | {"speaks_of": self.speaks_of, "subjects": [one.as_json() for one in self.tests]}


def judge_claims(plan: Plan, outcomes_of: OutcomesOf) -> list[ClaimVerdict]:
    """Every claim of the plan, in its order. Raises `IncompleteError` for rollouts without a partner."""
    return [_judge(name, claim, plan, outcomes_of) for name, claim in plan.verdict.claims.items()]


def _judge(name: str, claim: Claim, plan: Plan, outcomes_of: OutcomesOf) -> ClaimVerdict:
    families = tuple(claim.families or (plan.main_family,))
    test = _over_seeds if claim.method == "welch" else _over_cells
    tests = [
        _too_unread(claim, subject, families, plan, outcomes_of) or test(claim, subject, families, plan.statistics, outcomes_of)
        for subject in claim.subjects
    ]
    found = [one.p for one in tests]
    adjusted = holm(found) if claim.correction == "holm" else found
    labelled = [_labelled(one, p, claim) for one, p in zip(tests, adjusted, strict=True)]
    return ClaimVerdict(name, claim, families, tuple(labelled))


def _labelled(one: ClaimTest, adjusted: float | None, claim: Claim) -> ClaimTest:
    if adjusted is None:
        return one
    many = len(claim.subjects)
    after = f" after Holm for {many} subjects" if claim.correction == "holm" and many > 1 else ""
    shown = adjusted <= claim.alpha
    text = f"p = {adjusted:.2g}{after}, {'at most' if shown else 'above'} {claim.alpha:g}."
    label, reason = (SHOWN, text) if shown else (NOT_SHOWN, f"{text} {NO_EVIDENCE_OF_EQUALITY}")
    return replace(one, label=label, reason=reason, adjusted=adjusted)


def _undecided(subject: str, reason: str, effect: Estimate | None = None) -> ClaimTest:
    return ClaimTest(subject, UNDECIDED, reason, effect)


def _too_unread(claim: Claim, subject: str, families: tuple[str, ...], plan: Plan, outcomes_of: OutcomesOf) -> ClaimTest | None:
    """UNDECIDED where the plan allows less unread answers than one of the families has."""
    for family in families if plan.verdict.unread is not None else ():
        own, other = outcomes_of(family, subject), outcomes_of(family, claim.reference)
        if own is not None and other is not None and (why := too_many(unread_of(own), unread_of(other), plan.verdict.unread)):
            return _undecided(subject, f"{family}/{subject}: {why}.")
    return None


def _over_cells(
    claim: Claim, subject: str, families: tuple[str, ...], settings: Statistics, outcomes_of: OutcomesOf
) -> ClaimTest:
    (family,) = families
    own, other = outcomes_of(family, subject), outcomes_of(family, claim.reference)
    if own is None or other is None:
        return _undecided(subject, f"There is no readout of {family}/{subject if own is None else claim.reference}.")
    pair = Pair.by(*partners(own, other), "cell")
    one = contrast(pair, claim.measure, settings)
    if one.value is None:
        return _undecided(subject, _sentence(one.reason), Estimate(None, clusters=len(pair), reason=one.reason))
    estimand = settings.estimand if claim.measure == "correct_rate" else None
    effect = estimate(one.value, one.columns_KM, one.statistic, settings, log=one.log, estimand=estimand)
    clusters = len(one.columns_KM)
    if claim.method == "sign":
        return ClaimTest(subject, UNDECIDED, "", effect, sign_test(one.signs_K, claim.side))
    method = interval_method(clusters, settings) if claim.method == "cluster_bootstrap" else "t"
    if method is None or clusters < 2:
        why = f"There are {clusters} cells, and the plan has no interval with fewer than {settings.min_clusters}."
        return _undecided(subject, why if clusters > 1 else "One cell says nothing of how cells differ.", effect)
    if claim.method == "cluster_bootstrap" and clusters >= settings.min_clusters:
        draws = resample(one.columns_KM, one.statistic, settings)
        p = bootstrap_test(draws, one.null, clusters, "expanded", claim.side)  # the plain tail claims too much from few cells
    else:
        found = jackknife(one.columns_KM, one.statistic, log=one.log)
        p = None if found is None else t_test(found, claim.side)
    if p is None:
        return _undecided(subject, _sentence(effect.reason or "undefined_in_resamples"), effect)
    return ClaimTest(subject, UNDECIDED, "", effect, p)


def _over_seeds(
    claim: Claim, subject: str, families: tuple[str, ...], settings: Statistics, outcomes_of: OutcomesOf
) -> ClaimTest:
    log = claim.measure in RATIOS
    groups: list[list[float]] = []
    for arm in (subject, claim.reference):
        numbers = []
        for family in families:
            outcomes = outcomes_of(family, arm)
            if outcomes is None:
                return _undecided(subject, f"There is no readout of {family}/{arm}.")
            number = _number(outcomes, claim.measure, settings)
            if number is None or (log and number <= 0):
                return _undecided(subject, f"`{claim.measure}` is undefined for {family}/{arm}.")
            numbers.append(math.log(number) if log else number)
        groups.append(numbers)
    found = welch(*groups)
    centre = sum(groups[0]) / len(groups[0]) - sum(groups[1]) / len(groups[1])
    if found is None:
        value = math.exp(centre) if log else centre
        return _undecided(subject, NO_SPREAD, Estimate(value, clusters=len(families), reason="degenerate"))
    from scipy.special import stdtrit

    half = float(stdtrit(found.freedom, (1 + settings.level) / 2)) * found.error
    ends = [math.exp(number) if log else number for number in (found.centre, found.centre - half, found.centre + half)]
    effect = Estimate(*ends, settings.level, len(families), method="welch")
    return ClaimTest(subject, UNDECIDED, "", effect, t_test(found, claim.side))


def _number(outcomes: Outcomes, name: str, settings: Statistics) -> float | None:
    """One model's own number."""
    if name == "correct_rate":
        value = correct_rate(outcomes, settings).value
        return None if value is None else float(value)
    return measure(outcomes)[name]


def _sentence(reason: str | None) -> str:
    text = REASONS[reason or "undefined_in_resamples"]
    return f"{text[0].upper()}{text[1:]}."
