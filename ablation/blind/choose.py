"""Which pairs are read: the fixed rule, and nothing that looks at what is in the answers.

Efforts come in the plan's order. At each, its share of the pairs is taken from the problems that both models solved on the same
seed, by the longest thinking of the starting model, ties by problem id and then index. A problem is read once, over all
efforts: one that was taken is passed over, and so is one that a later effort cannot do without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablation.errors import IncompleteError

TOO_FEW = "TOO_FEW_PAIRS"


@dataclass(frozen=True)
class Candidate:
    """Two rollouts of one seed that were both graded as correct."""

    problem: str
    effort: str
    index: int
    length: int
    """Thinking tokens of the starting model."""


class TooFewPairs(IncompleteError):
    """Both models solved too few problems on the same seed for the read that the plan promised."""

    code = TOO_FEW


def quotas(pairs: int, efforts: Sequence[str]) -> dict[str, int]:
    """Pairs at each effort: equally many; what is left over goes to the first ones."""
    share, over = divmod(pairs, len(efforts))
    return {effort: share + (place < over) for place, effort in enumerate(efforts)}


def choose(candidates: Sequence[Candidate], efforts: Sequence[str], pairs: int) -> list[Candidate]:
    """The pairs that are read, efforts in order, the longest first.

    Raises `TooFewPairs` if no choice of `pairs` different problems fills every effort's share; a smaller read is never made.
    """
    wanted = quotas(pairs, efforts)
    ranked = {effort: _ranked([one for one in candidates if one.effort == effort]) for effort in efforts}
    solved = {effort: {one.problem for one in ones} for effort, ones in ranked.items()}
    if not _fits(solved, wanted, set()):
        raise TooFewPairs(_why(solved, wanted, pairs), hint="The plan's read cannot be made, and a smaller one is none.")
    chosen: list[Candidate] = []
    taken: set[str] = set()
    left = dict(wanted)
    for effort in efforts:
        for one in ranked[effort]:
            if not left[effort]:
                break
            after = left | {effort: left[effort] - 1}
            if one.problem not in taken and _fits(solved, after, taken | {one.problem}):
                chosen.append(one)
                taken.add(one.problem)
                left = after
    assert len(chosen) == pairs
    return chosen


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One candidate a problem, its longest; the longest first."""
    found: dict[str, Candidate] = {}
    for one in sorted(candidates, key=lambda one: (-one.length, one.problem, one.index)):
        found.setdefault(one.problem, one)
    return list(found.values())


def _fits(solved: Mapping[str, set[str]], wanted: Mapping[str, int], taken: set[str]) -> bool:
    """Whether every effort can still get its share of problems outside `taken`, none twice: a matching, by augmenting paths."""
    owner: dict[str, str] = {}

    def place(effort: str, tried: set[str]) -> bool:
        for problem in sorted(solved[effort] - taken):
            if problem in tried:
                continue
            tried.add(problem)
            if problem not in owner or place(owner[problem], tried):
                owner[problem] = effort
                return True
        return False

    return all(place(effort, set()) for effort, count in wanted.items() for _ in range(count))


def _why(solved: Mapping[str, set[str]], wanted: Mapping[str, int], pairs: int) -> str:
    short = [f"{effort}: {len(solved[effort])} of {count}" for effort, count in wanted.items() if len(solved[effort]) < count]
    if short:
        return f"both models solved too few problems on the same seed for {pairs} pairs ({'; '.join(short)} that are needed)"
    everywhere = len(set().union(*solved.values()))
    return (
        f"both models solved {everywhere} problems on the same seed, but there is no choice of {pairs} different ones "
        f"with {', '.join(f'{count} at {effort}' for effort, count in wanted.items())}"
    )
