"""Agent turns: how long two models think at the same frozen states, and whether what they do then is a valid tool call.

A *turn* is one rollout at a state. With T_m(s) the mean thinking tokens of model m over its turns at state s:

- ratio of a state: r(s) = max(1, T_subject(s)) / max(1, T_reference(s));
- typical turn: geometric mean over tasks of the geometric mean over the task's states of r(s), so every task counts once;
- ratio of sums: all thinking tokens of the subject / of the reference, so long turns count most.

A mean of less than one token is taken as one token: zero has no logarithm, and to leave such states out would hide a model that
began or ceased to think there. How many there are is in the measures (`under_one_token`). Intervals resample tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ablation.errors import IncompleteError, IntegrityError
from ablation.measures.bootstrap import estimate
from ablation.measures.estimate import Estimate
from ablation.measures.ratio_of_sums import sums_ratio
from ablation.plan.model import Loops, Statistics
from ablation.problems.agent_states import AgentState
from ablation.problems.tool_calls import Turn, judge_turn
from ablation.rollouts.loops import find_loops
from ablation.rollouts.stage import Stage
from ablation.rollouts.thinking import split

SHORT = 100
"""Tokens: a turn with fewer is short."""
MOST = 20
"""Turns that are listed as those that differ most."""


@dataclass(frozen=True)
class Turns:
    """The turns of one model, sorted by (state, effort, index). N turns."""

    stage: Stage
    rows: np.ndarray  # int64 [N], of the stage
    keys: list[tuple[str, str, int]]
    tasks: list[str]
    thinking: np.ndarray  # int64 [N], tokens
    states: Mapping[str, AgentState]

    @cached_property
    def judged(self) -> list[Turn]:
        """What each turn does."""
        return [
            judge_turn(self.stage.answer_text[row], self.states[key[0]]) for row, key in zip(self.rows, self.keys, strict=True)
        ]

    @cached_property
    def means(self) -> dict[str, float]:
        """State -> mean thinking tokens over its turns."""
        names, place = np.unique([key[0] for key in self.keys], return_inverse=True)
        means = np.bincount(place, weights=self.thinking) / np.bincount(place)
        return dict(zip(names.tolist(), means.tolist(), strict=True))


def turns_of(stage: Stage, states: Mapping[str, AgentState]) -> Turns:
    """The turns of a stage of the agent set.

    Raises:
        IntegrityError: a rollout of a state that is not among `states`, or whose source is not the state's task.
        IncompleteError: a state without a turn, or one with fewer than the others.
    """
    rows = np.lexsort((stage.index, np.array(list(stage.effort)), np.array(list(stage.problem))))
    keys = [(stage.problem[row], stage.effort[row], int(stage.index[row])) for row in rows]
    for row, (name, _, _) in zip(rows, keys, strict=True):
        if name not in states:
            raise IntegrityError(f"rollout {stage.name(row)}: there is no agent state `{name}`")
        if stage.source[row] != states[name].task:
            raise IntegrityError(
                f"rollout {stage.name(row)}: its source is `{stage.source[row]}`, its task `{states[name].task}`"
            )
    counts = Counter(name for name, _, _ in keys)
    most = max(counts.values(), default=1)
    if lacking := [f"{name} ({counts[name]} of {most})" for name in states if counts[name] < most]:
        shown = ", ".join(lacking[:5]) + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
        raise IncompleteError(f"agent turns are missing: {shown}", hint="Sample the set to its end: `ablation evaluate agent`.")
    thinking = split(stage).lengths[rows]
    return Turns(stage, rows, keys, [states[name].task for name, _, _ in keys], thinking, states)


def agent_measures(
    subject: Stage, reference: Stage, states: Mapping[str, AgentState], settings: Statistics, loops: Loops
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Estimate]]:
    """Measures of the subject, of the reference, and the ratios `agent_turn` and `agent_tokens`.

    Raises as `turns_of`, and `IncompleteError` if one model has turns that the other has not: they are paired by state and index.
    """
    own, other = _pair(subject, reference, states)
    return turn_measures(own, loops), turn_measures(other, loops), agent_ratios(own, other, settings)


def turn_measures(turns: Turns, loops: Loops) -> dict[str, Any]:
    """Counts as whole numbers and means of one model's turns.

    `valid_tool_call`, `invalid_tool_call` and `no_tool_call` add up to `rollouts`; `reasons` says why the last two are none.
    """
    verdicts = Counter(turn.verdict for turn in turns.judged)
    reasons = Counter(turn.reason for turn in turns.judged if turn.reason)
    total = int(turns.thinking.sum())
    return stage_totals(turns.stage, loops) | {
        "states": len(turns.means),
        "tasks": len(set(turns.tasks)),
        "agent_tokens": total,
        "agent_turn": total / len(turns.keys),
        "median_turn": float(np.median(turns.thinking)),
        "under_one_token": sum(mean < 1 for mean in turns.means.values()),
        "valid_tool_call": verdicts["valid"],
        "invalid_tool_call": verdicts["invalid"],
        "no_tool_call": verdicts["none"],
        "reasons": dict(sorted(reasons.items())),
    }


def stage_totals(stage: Stage, loops: Loops) -> dict[str, int]:
    """Counts that need no grader."""
    thinking = split(stage)
    found = find_loops(stage.token_ids[thinking.take], thinking.offsets, loops, stage.thinking_text)
    return {
        "rollouts": len(stage),
        "truncated": int(stage.truncated.sum()),
        "looping": int((found.periodic | found.strong).sum()),
        "periodic": int(found.periodic.sum()),
        "strong": int(found.strong.sum()),
        "total_tokens": int(stage.lengths.sum()),
    }


def agent_ratios(subject: Turns, reference: Turns, settings: Statistics) -> dict[str, Estimate]:
    """The typical turn and the ratio of sums, each with its interval over tasks."""
    tasks = sorted(set(subject.tasks))
    place = {task: at for at, task in enumerate(tasks)}
    logs, counts = np.zeros(len(tasks)), np.zeros(len(tasks))
    for name, ratio in state_ratios(subject, reference).items():
        logs[place[subject.states[name].task]] += np.log(ratio)
        counts[place[subject.states[name].task]] += 1
    by_task = np.stack([logs / counts, np.ones(len(tasks))], axis=1)
    typical = float(np.exp(by_task[:, 0].mean()))
    of = [place[task] for task in subject.tasks]
    sums = np.stack([np.bincount(of, weights=one.thinking, minlength=len(tasks)) for one in (subject, reference)], axis=1)
    return {
        "agent_turn": estimate(typical, by_task, lambda s: np.exp(s[:, 0] / s[:, 1]), settings),
        "agent_tokens": sums_ratio(sums, settings),
    }


def state_ratios(subject: Turns, reference: Turns) -> dict[str, float]:
    """State -> r(s)."""
    return {name: max(1.0, mean) / max(1.0, reference.means[name]) for name, mean in subject.means.items()}


def agent_comparison(subject: Stage, reference: Stage, states: Mapping[str, AgentState]) -> dict[str, Any]:
    """What a reader of a report wants to know besides: where the difference comes from. Plain JSON values.

    `pairs` counts pairs of turns by which model thought for less than `SHORT` tokens; `both_short_ratio` is the ratio of sums
    over those where both did; `median_ratio` is the median of r(s); `most` lists the pairs that differ by most tokens.
    """
    own, other = _pair(subject, reference, states)
    short = own.thinking < SHORT, other.thinking < SHORT
    both = short[0] & short[1]
    below = int(other.thinking[both].sum())
    order = np.argsort(-np.abs(own.thinking - other.thinking), kind="stable")
    return {
        "short": SHORT,
        "pairs": {
            "all": len(own.keys),
            "both_short": int(both.sum()),
            "subject_long": int((~short[0] & short[1]).sum()),
            "reference_long": int((short[0] & ~short[1]).sum()),
            "both_long": int((~short[0] & ~short[1]).sum()),
        },
        "both_short_ratio": int(own.thinking[both].sum()) / below if below else None,
        "median_ratio": float(np.median(list(state_ratios(own, other).values()))),
        "most": [_difference(own, other, at) for at in order[:MOST] if own.thinking[at] != other.thinking[at]],
    }


def _difference(subject: Turns, reference: Turns, at: int) -> dict[str, Any]:
    state, effort, index = subject.keys[at]
    return {
        "state": state,
        "task": subject.tasks[at],
        "effort": effort,
        "index": index,
        "subject": int(subject.thinking[at]),
        "reference": int(reference.thinking[at]),
        "subject_call": subject.judged[at].reason or "valid",
        "reference_call": reference.judged[at].reason or "valid",
    }


def _pair(subject: Stage, reference: Stage, states: Mapping[str, AgentState]) -> tuple[Turns, Turns]:
    own, other = turns_of(subject, states), turns_of(reference, states)
    if own.keys != other.keys:
        lacks = [(who, sorted(set(a.keys) - set(b.keys))) for who, a, b in (("subject", other, own), ("reference", own, other))]
        said = "; ".join(
            f"the {who} lacks {len(gone)}: " + ", ".join(f"{name}@{effort} #{index}" for name, effort, index in gone[:5])
            for who, gone in lacks
            if gone
        )
        raise IncompleteError(f"subject and reference do not have the same turns: {said}", hint="Sample both to their end.")
    return own, other
