"""The rollouts of one stage as columns, and the checks that make them trustworthy.

Shapes: N rollouts, T = all sampled tokens of the stage; rollout i owns `offsets[i]:offsets[i + 1]` of the flat arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ablation.errors import IntegrityError
from ablation.files import parse_json
from ablation.rollouts.columns import Coded, Texts
from ablation.rollouts.imported import SLACK, is_retokenized
from ablation.rollouts.schema import Rollout, StageInfo
from ablation.rollouts.thinking import Thinking, split


@dataclass(frozen=True)
class Stage:
    """All rollouts of one stage, in stored order. The values of the first four coded columns are sorted."""

    info: StageInfo
    problem: Coded[str]
    effort: Coded[str]
    source: Coded[str]
    index: np.ndarray  # int64 [N]
    seed: np.ndarray  # int64 [N]
    prompt_sha256: Coded[str]
    prompt_length: np.ndarray  # int64 [N]
    prompt_opens_thinking: np.ndarray  # bool [N]
    finish_reason: Coded[str]
    thinking_text: Texts
    redacted: np.ndarray  # bool [N]: the thinking is not known (its text is null in the file, and empty here)
    answer_text: Coded[str]
    sampling: Coded[str]  # values in effect, see `values.values_text`; "" where they are not known
    stop_id: np.ndarray  # int64 [N], -1: was cut, or (of an earlier version or elsewhere) not known
    offsets: np.ndarray  # int64 [N + 1]
    token_ids: np.ndarray  # int32 [T]
    logprobs: np.ndarray  # float64 [T], nats
    top_entropy: np.ndarray  # float64 [T], nats
    top_mass: np.ndarray  # float64 [T]

    def __len__(self) -> int:
        return len(self.problem)

    @property
    def lengths(self) -> np.ndarray:
        """Sampled tokens of each rollout, int64 [N]."""
        return np.diff(self.offsets)

    @property
    def truncated(self) -> np.ndarray:
        """bool [N]: hit the cap without an end token."""
        return self.finish_reason.map(lambda reason: reason == "length", bool)

    @property
    def cell(self) -> np.ndarray:
        """A number for each (problem, effort), in their order, int64 [N]."""
        return self.problem.codes * len(self.effort.values) + self.effort.codes

    @cached_property
    def thinking(self) -> Thinking:
        """Where the thinking of each rollout starts and ends."""
        return split(self)

    @cached_property
    def by_key(self) -> np.ndarray:
        """The rows sorted by (problem, effort, index), int64 [N]."""
        return np.lexsort((self.index, self.cell))

    def name(self, row: int) -> str:
        """How messages name a rollout."""
        return f"{self.problem[row]}@{self.effort[row]} #{self.index[row]}"

    def rollouts(self) -> list[Rollout]:
        """The rows as objects, for code that works on one rollout at a time."""
        info = self.info
        rows = []
        for i in range(len(self)):
            part = slice(self.offsets[i], self.offsets[i + 1])
            rows.append(
                Rollout(
                    family=info.family,
                    arm=info.arm,
                    stage=info.stage,
                    update=info.update,
                    problem=self.problem[i],
                    effort=self.effort[i],
                    source=self.source[i],
                    index=int(self.index[i]),
                    seed=int(self.seed[i]),
                    prompt_sha256=self.prompt_sha256[i],
                    prompt_length=int(self.prompt_length[i]),
                    prompt_opens_thinking=bool(self.prompt_opens_thinking[i]),
                    token_ids=self.token_ids[part].tolist(),
                    logprobs=self.logprobs[part].tolist(),
                    top_entropy=self.top_entropy[part].tolist(),
                    top_mass=self.top_mass[part].tolist(),
                    finish_reason=self.finish_reason[i],
                    thinking_text=None if self.redacted[i] else self.thinking_text[i],
                    answer_text=self.answer_text[i],
                    stop_id=int(self.stop_id[i]) if self.stop_id[i] >= 0 else None,
                    sampling=self.sampling[i],
                    logprob_kind=info.logprob_kind,
                )
            )
        return rows


def check_stage(stage: Stage, where: str) -> None:
    """Raise `IntegrityError` if any row contradicts itself, another row or the stage.

    The finish rule: a rollout ended (`stop`) exactly when its last token is an end token; it is truncated (`length`)
    exactly when it is not and the count equals the cap. The engine's word is stored, so a disagreement is an error.
    Where imported texts were encoded again, a truncated one only has to be near the cap; one without its thinking can be short.
    """
    redacted = stage.info.engine.get("redacted", 0)
    if stage.redacted.sum() != redacted:
        found = int(stage.redacted.sum())
        raise IntegrityError(f"{where}: {found} rollouts have no `thinking_text`, but the stage's settings say {redacted}")
    cell, index = stage.cell[stage.by_key], stage.index[stage.by_key]
    again = np.flatnonzero((cell[1:] == cell[:-1]) & (index[1:] == index[:-1]))
    if len(again):
        raise IntegrityError(f"{where}: rollout {stage.name(stage.by_key[again].min())} is there more than once")
    seeds = np.sort(stage.seed)
    same = seeds[1:][seeds[1:] == seeds[:-1]]
    if len(same):
        rows = np.flatnonzero(stage.seed == same[0])[:2]
        raise IntegrityError(f"{where}: rollouts {stage.name(rows[0])} and {stage.name(rows[1])} have the same seed")
    lengths = stage.lengths
    if (lengths == 0).any():
        raise IntegrityError(f"{where}: rollout {stage.name(int(np.argmin(lengths)))} has no tokens")
    is_end = np.isin(stage.token_ids, np.array(stage.info.end_ids, dtype=np.int32))
    ended = is_end[stage.offsets[1:] - 1]
    early = is_end.copy()
    early[stage.offsets[1:] - 1] = False
    if early.any():
        row = int(np.searchsorted(stage.offsets, np.argmax(early), side="right") - 1)
        raise IntegrityError(f"{where}: rollout {stage.name(row)} goes on after an end token")
    cap = stage.info.max_tokens
    lowest, highest = cap, cap
    if is_retokenized(stage.info):
        lowest, highest = cap * (1 - SLACK), cap * (1 + SLACK)
    reasons = ("stop", "length", "neither stop nor length")
    right = np.where(ended, 0, np.where((lengths >= lowest) | stage.redacted, 1, 2))
    wrong = np.flatnonzero((lengths > highest) | (stage.finish_reason.among(reasons[:2]) != right))
    for row in wrong[:1]:
        length, reason = int(lengths[row]), stage.finish_reason[row]
        if length > highest:
            raise IntegrityError(f"{where}: rollout {stage.name(row)} has {length} tokens, more than the cap of {cap}")
        last = int(stage.token_ids[stage.offsets[row + 1] - 1])
        raise IntegrityError(
            f"{where}: rollout {stage.name(row)} has finish reason `{reason}`, but its {length} tokens of {cap} end with "
            f"token {last}, which {'is' if ended[row] else 'is not'} an end token: {reasons[right[row]]}"
        )
    _check_stop_ids(stage, ended, where)
    _check_values(stage, where)


def _check_stop_ids(stage: Stage, ended: np.ndarray, where: str) -> None:
    """The engine's word for the end token must be the token that is there."""
    last = stage.token_ids[stage.offsets[1:] - 1]
    known = (stage.stop_id >= 0) | stage.sampling.map(bool, bool)
    wrong = np.flatnonzero(known & (stage.stop_id != np.where(ended, last, -1)))
    for row in wrong[:1]:
        said = stage.stop_id[row] if stage.stop_id[row] >= 0 else "none"
        raise IntegrityError(
            f"{where}: rollout {stage.name(row)} has stop id {said}, but ends with token {last[row]} ({stage.finish_reason[row]})"
        )


def _check_values(stage: Stage, where: str) -> None:
    """All rows were sampled under the same values, those of the stage."""
    info, told = stage.info, [text for text in stage.sampling.values if text]
    for text in told:
        row = int(np.argmax(stage.sampling.map(text.__eq__, bool)))
        try:
            values = parse_json(text)
            wanted = {name: value for name, value in info.sampling.items() if name in values}
        except (ValueError, TypeError):
            raise IntegrityError(f"{where}: rollout {stage.name(row)} has sampling values that are no JSON object") from None
        for name, value in (wanted | {"max_tokens": info.max_tokens, "end_ids": list(info.end_ids)}).items():
            if values.get(name) != value:
                raise IntegrityError(
                    f"{where}: rollout {stage.name(row)} was sampled with {name} {values.get(name)}, the stage says {value}"
                )
    if len(told) > 1:
        one, other = (int(np.argmax(stage.sampling.map(text.__eq__, bool))) for text in told[:2])
        raise IntegrityError(
            f"{where}: rollouts {stage.name(one)} and {stage.name(other)} were sampled under different values: "
            f"{told[0]}, {told[1]}"
        )
