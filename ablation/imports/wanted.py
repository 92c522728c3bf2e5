"""What is imported, and what the user said of the whole file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ablation.imports.tokens import Tokens
from ablation.plan.model import Plan
from ablation.problems.problem import Problem
from ablation.study.sampler import Item


@dataclass(frozen=True)
class Wanted:
    """One stage of a plan."""

    plan: Plan
    problems: Mapping[str, Problem]
    items: Sequence[Item]
    """Every rollout of the stage, in the order in which it is stored."""
    who: tuple[str, str, str, int]
    """(family, arm, stage, update)."""
    tokens: Tokens
    effort: str | None = None
    opens: bool | None = None
    by_count: bool = False

    @property
    def name(self) -> str:
        """For instance `main/C/update-1`."""
        family, arm, stage, update = self.who
        return f"{family}/{arm}/{stage}" + (f"-{update}" if stage == "update" else "")

    def held_by(self, prompt: str) -> list[str]:
        """The problems whose text `prompt` holds, blanks aside. A text that stands inside a longer one's is not held by that."""
        text = bare(prompt)
        if text not in self._held:
            left, found = text, list[str]()
            for problem in sorted(self._texts, key=len, reverse=True):
                if problem in left:
                    found += self._texts[problem]
                    left = left.replace(problem, "\0")
            self._held[text] = found
        return self._held[text]

    @cached_property
    def _texts(self) -> dict[str, list[str]]:
        """Text -> the problems that it is of."""
        found: dict[str, list[str]] = {}
        for name, problem in self.problems.items():
            found.setdefault(bare(problem.prompt), []).append(name)
        return found

    @cached_property
    def _held(self) -> dict[str, list[str]]:
        return {}


def bare(text: str) -> str:
    """`text` without blanks, and without the mark of bytes that are no whole character."""
    return "".join(text.split()).replace("\ufffd", "")
