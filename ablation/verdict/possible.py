"""Counts that somebody reported and that cannot be: a part larger than its whole, parts that together are more than there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ablation.plan.rules import AGENT_COUNTS, ALL_COUNTS

WITHIN = (
    ("clean", "correct", "the correct ones,"),
    ("truncated", "truncated_or_looping", "the truncated or looping ones,"),
    ("looping", "truncated_or_looping", "the truncated or looping ones,"),
    ("periodic", "looping", "the looping ones,"),
    ("strong", "looping", "the looping ones,"),
)
"""(part, whole, the whole in words)."""
UNIONS = (
    ("truncated_or_looping", ("truncated", "looping"), "the truncated and the looping ones together,"),
    ("looping", ("periodic", "strong"), "the periodic and the strong loops together,"),
)
"""(union, its parts, the parts in words)."""
APART = (
    ("clean", ("truncated", "looping", "truncated_or_looping"), "the rollouts that are not clean,"),
    ("correct", ("no_answer",), "the rollouts that are not correct,"),
)
"""(measure, measures that no such rollout can have, the rest in words)."""
LABELS = ("full_compliance", "partial_compliance", "over_refusal", "bad_plain", "missing_answer", "unparsed")
"""An answer of a safety smoke is at most one of these."""


def impossible(counts: Mapping[str, int | None], rollouts: int | None) -> Iterator[tuple[str, str]]:
    """(measure, what is wrong with its count) for one model's counts. Measures that are missing or None are not known."""
    known = {name: count for name, count in counts.items() if name in ALL_COUNTS and count is not None}

    def more(name: str, limit: int | None, what: str) -> Iterator[tuple[str, str]]:
        if name in known and limit is not None and known[name] > limit:
            yield name, f"{known[name]} is more than {what} {limit}"

    for name in known:
        yield from more(name, rollouts, "the number of rollouts,")
    for part, whole, words in WITHIN:
        yield from more(part, known.get(whole), words)
    for union, parts, words in UNIONS:
        if all(part in known for part in parts):
            yield from more(union, sum(known[part] for part in parts), words)
    if rollouts is None:
        return
    for measure, others, words in APART:
        if measure in known:
            for other in others:
                yield from more(other, rollouts - known[measure], words)
    for names, what in ((AGENT_COUNTS, "turns with and without a valid tool call"), (LABELS, "labels")):
        there = [name for name in names if name in known]
        total = sum(known[name] for name in there)
        if len(there) > 1 and total > rollouts and all(known[name] <= rollouts for name in there):
            yield there[-1], f"the {what} are {total} together, more than the number of rollouts, {rollouts}"
