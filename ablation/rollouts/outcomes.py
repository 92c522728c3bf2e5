"""What became of each rollout: graded, split, checked for loops. Computed again from the rollouts whenever it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from ablation.errors import IncompleteError
from ablation.plan.model import Loops
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.rollouts.cjk import cjk_share
from ablation.rollouts.columns import Coded, numbered
from ablation.rollouts.grades import failed_rows, grade_rows
from ablation.rollouts.loops import find_loops
from ablation.rollouts.stage import Stage


@dataclass(frozen=True)
class Outcomes:
    """One entry per rollout, in the stage's order. N rollouts; every array has shape [N]."""

    problem: np.ndarray  # str
    effort: np.ndarray  # str
    source: np.ndarray  # str
    index: np.ndarray  # int64, within the cell
    correct: np.ndarray  # bool: the visible answer was graded as correct
    no_answer: np.ndarray  # bool: there was no visible answer, or none that the grader could read
    extracted: np.ndarray  # object: the answer that was compared, None if there was none
    truncated: np.ndarray  # bool: hit the token cap before an end token
    finished: np.ndarray  # bool: ended with an end token and not inside its thinking
    stopped_in_thinking: np.ndarray  # bool: ended with an end token inside its thinking
    periodic: np.ndarray  # bool
    strong: np.ndarray  # bool
    loop_start: np.ndarray  # int64, tokens from the start of the thinking (0 if no periodic loop)
    loop_period: np.ndarray  # int64, tokens of the repeated unit (0 if no periodic loop)
    loop_length: np.ndarray  # int64, tokens of the longest periodic stretch (0 if no periodic loop)
    repeated_share: np.ndarray  # float64, of windows
    thinking_length: np.ndarray  # int64, tokens, tags excluded
    weighted_length: np.ndarray  # int64, thinking tokens plus the token that closes them, where there is one
    total_tokens: np.ndarray  # int64, all sampled tokens
    logprob: np.ndarray  # float64, mean over the thinking tokens, nats; NaN if there are none
    top_entropy: np.ndarray  # float64, the same of the most likely tokens' entropy
    top_mass: np.ndarray  # float64, the same of their probability mass
    cjk_share: np.ndarray  # float64, of the thinking's letters
    redacted: np.ndarray  # bool: the thinking is not known, so nothing above that is made of it counts

    def __len__(self) -> int:
        return len(self.problem)

    @property
    def looping(self) -> np.ndarray:
        """bool [N]: either loop check."""
        return self.periodic | self.strong

    @property
    def clean(self) -> np.ndarray:
        """bool [N]: correct, finished and free of loops."""
        return self.correct & self.finished & ~self.looping

    @property
    def truncated_or_looping(self) -> np.ndarray:
        return self.truncated | self.looping

    @property
    def cell(self) -> np.ndarray:
        """str [N]: `problem@effort`."""
        if not len(self):
            return np.zeros(0, dtype="<U1")
        (problems, problem), (efforts, effort) = numbered(self.problem), numbered(self.effort)
        return np.char.add(np.char.add(problems, "@")[:, None], efforts)[problem, effort]

    def take(self, rows: np.ndarray) -> Outcomes:
        """The outcomes of `rows` (indices or a mask)."""
        return Outcomes(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def sorted(self) -> Outcomes:
        """The same outcomes by (problem, effort, index): what is computed from them cannot depend on row order."""
        (efforts, effort), (_, problem) = numbered(self.effort), numbered(self.problem)
        return self.take(np.lexsort((self.index, problem * len(efforts) + effort)))


def outcomes(
    stage: Stage, problems: Mapping[str, Problem], loops: Loops, grades: Sequence[Grade | None] | None = None
) -> Outcomes:
    """Grade and measure every rollout of `stage`. `grades`: what `grades.grades_of` gives, else they are computed here.

    Raises:
        IncompleteError: a grader failed on some rows (a failure is never a wrong answer).
        IntegrityError: as `grades.answers`.
    """
    thinking = stage.thinking
    visible = thinking.closed | ~thinking.opened
    said = grade_rows(stage, problems) if grades is None else grades if isinstance(grades, Coded) else Coded.of(grades, key=id)
    rows = failed_rows(said)
    if rows:
        failed = [stage.name(row) for row in rows]
        reasons = ", ".join(sorted({f"`{one.reason}`" for row in rows if (one := said[row])}))
        shown = ", ".join(failed[:5]) + (f" and {len(failed) - 5} more" if len(failed) > 5 else "")
        where = f"{stage.info.family}/{stage.info.arm}/{stage.info.stage}"
        raise IncompleteError(
            f"{where}: the grader failed on {len(failed)} rollouts: {shown} ({reasons})",
            hint="A grader's failure is not a wrong answer. Repair what made it fail, then run `ablation grade`.",
        )
    truncated = stage.truncated
    found = find_loops(stage.token_ids[thinking.take], thinking.offsets, loops, stage.thinking_text)
    return Outcomes(
        problem=np.array(stage.problem, dtype=str),
        effort=np.array(stage.effort, dtype=str),
        source=np.array(stage.source, dtype=str),
        index=stage.index,
        correct=said.map(lambda one: one is not None and one.status == "correct", bool),
        no_answer=said.map(lambda one: one is None or one.status == "no_answer", bool),
        extracted=said.map(lambda one: None if one is None else one.extracted, object),
        truncated=truncated,
        finished=~truncated & visible,
        stopped_in_thinking=~truncated & ~visible,
        periodic=found.periodic,
        strong=found.strong,
        loop_start=found.start,
        loop_period=found.period,
        loop_length=found.length,
        repeated_share=found.repeated_share,
        thinking_length=thinking.lengths,
        weighted_length=thinking.lengths + thinking.closed,
        total_tokens=stage.lengths,
        logprob=thinking.mean(stage.logprobs),
        top_entropy=thinking.mean(stage.top_entropy),
        top_mass=thinking.mean(stage.top_mass),
        cjk_share=cjk_share(stage.thinking_text),
        redacted=stage.redacted,
    )
