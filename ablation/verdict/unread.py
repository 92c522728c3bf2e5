"""Answers that could not be read: a stage that is full of them looks like a lost ability and need not be one.

Counted are rollouts that ended by themselves and have no answer that the grader reads, among all that ended by themselves: so one
that ended inside its thinking is unread, and one that was cut off is not looked at (it is counted as truncated).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from ablation.plan.judging import UnreadLimits
from ablation.verdict.exact import exact

if TYPE_CHECKING:
    from ablation.rollouts.outcomes import Outcomes


class Unread(NamedTuple):
    """Of one stage."""

    unread: int
    ended: int

    @property
    def share(self) -> Fraction | None:
        """None if no rollout ended."""
        return Fraction(self.unread, self.ended) if self.ended else None

    @property
    def shown(self) -> str:
        return "-" if self.share is None else f"{100 * float(self.share):.0f}%"

    def as_json(self) -> dict[str, Any]:
        return {"unread": self.unread, "ended": self.ended, "share": None if self.share is None else float(self.share)}


def unread_of(outcomes: Outcomes) -> Unread:
    ended = ~outcomes.truncated
    return Unread(int((outcomes.no_answer & ended).sum()), int(ended.sum()))


def too_many(own: Unread, reference: Unread, limits: UnreadLimits | None = None) -> str | None:
    """Why two stages cannot be set against each other under `limits` (None: the defaults); None if they can."""
    limits = limits or UnreadLimits()
    if own.share is None or reference.share is None:
        return None
    most, differ = exact(limits.at_most), exact(limits.differ_at_most)
    said = f"{own.unread} of {own.ended} answers that ended could not be read"
    said += f", {reference.unread} of {reference.ended} of the reference"
    if max(own.share, reference.share) > most:
        return f"{said}; at most {100 * float(most):g}% may be"
    if abs(own.share - reference.share) > differ:
        return f"{said}; they may differ by {100 * float(differ):g} points"
    return None
