"""The fixed texts of the check: rollouts that the run stored, chosen by a stated seed, token ids as they were sampled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablation.errors import IntegrityError
from ablation.merge.source import Source
from ablation.plan.locate import locate
from ablation.plan.model import START
from ablation.policy.base import ScoreRow
from ablation.problems.problem import Problem, load_problems
from ablation.problems.render import ChatTokenizer, render_prompt
from ablation.rollouts.imported import is_imported
from ablation.rollouts.store import read_stage, stage_info, stage_is_complete
from ablation.seeds import derive_seed


@dataclass(frozen=True)
class Texts:
    """Prompts and the tokens whose logprobs are compared."""

    rows: list[ScoreRow]
    names: list[str]
    origin: str
    """The stage in the run folder, or `prompts`."""
    seed: int
    longest: int
    """Tokens of a text that are scored at most."""
    told: list[np.ndarray] | None = None
    """Raw logprobs of the sampler, where the merged adapter itself sampled the texts."""

    @property
    def tokens(self) -> int:
        return sum(len(row.token_ids) for row in self.rows)

    def record(self) -> dict[str, Any]:
        counts = {"count": len(self.rows), "tokens": self.tokens, "longest": self.longest, "seed": self.seed}
        return {"origin": self.origin, **counts, "rollouts": self.names}


def choose_texts(source: Source, tokenizer: ChatTokenizer, count: int, seed: int, longest: int) -> Texts:
    """`count` rollouts of the stage that is nearest to the checkpoint, each cut after `longest` sampled tokens.

    Which ones depends on `seed` and their names alone. Where there is no rollout of its own yet, the training prompts
    themselves are the texts. Raises `IntegrityError` if a prompt is not rendered now as it was when it was sampled.
    """
    for folder, own in _stages(source):
        if not stage_is_complete(folder) or is_imported(stage_info(folder)):
            continue
        stage = read_stage(folder)
        problems = training_problems(source)
        origin = folder.relative_to(source.run.root).as_posix()
        rows = sorted(range(len(stage)), key=lambda row: derive_seed(seed, "merge", origin, stage.name(row)))[:count]
        made, told = [], []
        for row in rows:
            prompt = _prompt(tokenizer, problems, stage.problem[row], stage.effort[row], source)
            if prompt.sha256 != stage.prompt_sha256[row]:
                raise IntegrityError(
                    f"{folder}: the prompt of {stage.name(row)} is rendered otherwise now than when it was sampled",
                    hint="Tokenizer or chat template are others. Nothing was merged.",
                )
            part = slice(stage.offsets[row], min(stage.offsets[row + 1], stage.offsets[row] + longest))
            made.append(ScoreRow(tuple(prompt.ids), stage.token_ids[part].astype(np.int64)))
            told.append(stage.logprobs[part])
        return Texts(made, [stage.name(row) for row in rows], origin, seed, longest, told if own else None)
    return _prompts(source, tokenizer, count, seed, longest)


def training_problems(source: Source) -> dict[str, Problem]:
    """Of the run's own copy, or where nothing has run of the plan's file."""
    copy = source.run.problems
    return load_problems(copy if copy.is_file() else locate(source.locked.plan.problems.training, source.locked.path))


def _stages(source: Source) -> Iterator[tuple[Path, bool]]:
    """(stage folder, whether the checkpoint itself sampled it), the nearest first."""
    run, family, arm, k = source.run, source.family, source.arm, source.updates
    if arm == START:
        yield run.sweep(family), True
        return
    if k == source.locked.plan.training.updates:
        yield run.readout(family, arm), True
    yield run.check(family, arm, k), True
    yield run.update(family, arm, k + 1), True
    yield run.update(family, arm, k), False
    yield run.sweep(family), False


def _prompt(tokenizer: ChatTokenizer, problems: dict[str, Problem], problem: str, effort: str, source: Source) -> Any:
    return render_prompt(tokenizer, problems[problem], effort, source.locked.plan.model.tokens)


def _prompts(source: Source, tokenizer: ChatTokenizer, count: int, seed: int, longest: int) -> Texts:
    plan = source.locked.plan
    problems = training_problems(source)
    cells = sorted(plan.cells, key=lambda cell: derive_seed(seed, "merge", "prompts", *cell))[:count]
    rows = []
    for problem, effort in cells:
        ids = _prompt(tokenizer, problems, problem, effort, source).ids[: longest + 1]
        rows.append(ScoreRow(tuple(ids[:1]), np.array(ids[1:], dtype=np.int64)))
    return Texts(rows, [f"{problem}@{effort}" for problem, effort in cells], "prompts", seed, longest)
