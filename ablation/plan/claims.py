"""Claims: tests of one measure between arms, with the error rate that the plan accepts, corrected for how many are made."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ablation.plan import measures
from ablation.plan.section import Name, OpenShare, Section, Text, did_you_mean, refuse_any

MEASURES = (*measures.PAIRED, "tokens_per_correct", "clean_length")
Problem = tuple[tuple[str | int, ...], str]


class Claim(Section):
    """That subjects differ from the reference in a measure of their readouts, in the same seeds."""

    subjects: Annotated[list[Name], Field(min_length=1)]
    """Arms, each tested against the reference."""
    reference: Name
    """An arm, or `start` for the sweep."""
    measure: Text
    """What is compared."""
    side: Literal["greater", "less", "two_sided"]
    """Which difference of subject minus reference the claim is about."""
    method: Literal["cluster_bootstrap", "cluster_t", "sign", "welch"] = "cluster_bootstrap"
    """How the p-value is made. `welch` compares training seeds (a claim about the recipe), the others these checkpoints."""
    alpha: OpenShare = 0.05
    """The accepted rate of false claims among all subjects together (with `holm`) or each (with `none`)."""
    correction: Literal["holm", "none"] = "holm"
    """For the number of subjects."""
    families: Annotated[list[Name], Field(min_length=1)] | None = None
    """Families whose readouts are compared; left out: the plan's first. `welch` needs two or more."""

    @model_validator(mode="after")
    def _possible(self) -> Claim:
        problems: list[Problem] = []
        if self.measure not in MEASURES:
            text = f"`{self.measure}` cannot be tested; these can: {', '.join(MEASURES)}{did_you_mean(self.measure, MEASURES)}"
            problems.append((("measure",), text))
        for place, name in enumerate(self.subjects):
            if name == self.reference:
                problems.append((("subjects", place), f"`{name}` is the reference"))
            if name in self.subjects[:place]:
                problems.append((("subjects", place), f"`{name}` is listed twice"))
        families = self.families or []
        problems += [
            (("families", place), f"`{name}` is listed twice") for place, name in enumerate(families) if name in families[:place]
        ]
        if self.method == "welch" and len(families) < 2:
            problems.append((("families",), "`welch` compares training seeds, so it needs two families or more"))
        if self.method != "welch" and len(families) > 1:
            text = f"`{self.method}` speaks of the checkpoints of one family; name one, or take `welch`"
            problems.append((("families",), text))
        refuse_any(problems)
        return self


def claim_problems(claims: dict[str, Claim], arms: Collection[str], families: Collection[str], start: str) -> list[Problem]:
    """Arms and families that a claim names and the plan does not have."""
    problems: list[Problem] = []
    for name, claim in claims.items():
        for place, arm in enumerate(claim.subjects):
            if arm not in arms:
                text = f"there is no arm `{arm}`; arms: {', '.join(arms)}{did_you_mean(arm, arms)}"
                problems.append(((name, "subjects", place), text))
        known = [*arms, start]
        if claim.reference not in known:
            text = f"there is no arm `{claim.reference}`; known: {', '.join(known)}{did_you_mean(claim.reference, known)}"
            problems.append(((name, "reference"), text))
        for place, family in enumerate(claim.families or []):
            if family not in families:
                text = f"there is no family `{family}`; families: {', '.join(families)}{did_you_mean(family, families)}"
                problems.append(((name, "families", place), text))
    return problems
