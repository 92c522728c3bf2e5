"""What the journal tells of comparisons of a model with the start: when both were sampled, and which ones came before.

Each time that a comparison begins or goes on, `evaluation_opened` is written: `set`, `subject`, `reference`, `reused`,
`deviation` and `there`, which has how many parts of the stages `reference` and `subject` were on disk by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from ablation.rollouts.journal_chain import SAMPLED

OPENED = "evaluation_opened"
SIDES = ("reference", "subject")


def in_words(set_name: str) -> str:
    """The set in a sentence: `main` alone is the name of a family, too."""
    return "main set" if set_name == "main" else set_name


def stage_name(set_name: str, subject: str, side: str) -> str:
    """How journal and ledger name a stage of a comparison; `side` is `reference` or `subject`."""
    return f"evaluations/{set_name}/{subject}/{side}"


def reused_from(events: Sequence[dict[str, Any]], set_name: str, subject: str) -> str | None:
    """The comparison (its subject) that the reference was taken over from; None if it was sampled for this one."""
    stage = stage_name(set_name, subject, "reference")
    newest = next((one for one in reversed(events) if one.get("stage") == stage and one.get("event") in _WHOLE), None)
    return None if newest is None or newest.get("event") != "stage_reused" else str(newest.get("of"))


def comparison_hours(
    events: Sequence[dict[str, Any]], set_name: str, subject: str, until: datetime | None = None
) -> float | None:
    """Hours from the first rollout of the two models of a comparison to the last one, by the journal; None if there is none.

    The first one is counted from the moment that sampling began with nothing on disk, so a part whose event a kill took away
    counts, too. `until`: as if the last rollout were sampled then. A reference that was taken over counts from its sampling.
    """
    source, times = _sampled_for(events, set_name, subject), [] if until is None else [until]
    for side, own in (("reference", source), ("subject", subject)):
        stage = stage_name(set_name, own, side)
        parts = [event for event in events if event.get("stage") == stage and event.get("event") in SAMPLED]
        begun = [event for event in _opened(events, set_name, own) if event["there"][side] == 0]
        if not parts:
            continue
        first = max((event["seq"] for event in begun if event["seq"] < parts[-1]["seq"]), default=parts[0]["seq"])
        times += [_time(event) for event in (*begun, *parts) if event["seq"] >= first]
    if len(times) <= (until is not None):
        return None
    return (max(times) - min(times)).total_seconds() / 3600


def earlier_references(events: Sequence[dict[str, Any]], set_name: str, subject: str) -> list[str]:
    """Comparisons (their subjects) whose own reference on the set was sampled before this one's, oldest first."""
    last = {str(event.get("stage")): place for place, event in enumerate(events) if event.get("event") in _WHOLE}
    own = last.get(stage_name(set_name, _sampled_for(events, set_name, subject), "reference"), len(events))
    found = []
    for stage, place in sorted(last.items(), key=lambda one: one[1]):
        kind, _, rest = stage.partition("/")
        of, _, rest = rest.partition("/")
        other, _, side = rest.partition("/")
        if (
            (kind, of, side) == ("evaluations", set_name, "reference")
            and place < own
            and events[place]["event"] == "stage_sampled"
        ):
            found.append(other)
    return [other for other in found if other != subject]


_WHOLE = ("stage_sampled", "stage_reused")


def _sampled_for(events: Sequence[dict[str, Any]], set_name: str, subject: str) -> str:
    """The comparison that the reference of this one was sampled for."""
    seen = {subject}
    while (other := reused_from(events, set_name, subject)) is not None and other not in seen:
        seen.add(other)
        subject = other
    return subject


def _opened(events: Sequence[dict[str, Any]], set_name: str, subject: str) -> Iterator[dict[str, Any]]:
    return (one for one in events if (one.get("event"), one.get("set"), one.get("subject")) == (OPENED, set_name, subject))


def _time(event: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(str(event["time"]))
