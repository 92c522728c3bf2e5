"""Sampling one stage: fixed batches, each a Parquet part that appears whole, so a killed run loses one batch at most."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ablation.errors import IntegrityError, UsageError
from ablation.files import sha256_bytes, sha256_file
from ablation.ledger.ledger import write_mark
from ablation.plan.model import Plan
from ablation.policy.base import Policy, SampledTokens, SampleRequest
from ablation.problems.problem import Problem
from ablation.problems.render import Prompt, TokenIds, refuse_equal_prompts, render_prompt
from ablation.rollouts.folder import part_file
from ablation.rollouts.marked import use_of
from ablation.rollouts.schema import Cell, Rollout, StageInfo
from ablation.rollouts.store import finish_stage, part_info, stage_is_complete, stage_parts, stage_record, write_part
from ablation.rollouts.thinking import thinking_span
from ablation.study.journal import Journal
from ablation.study.schedule import plan_cells, rollout_seed


class Reporter(Protocol):
    """Where progress goes. A terminal shows bars, a log file lines."""

    def stage(self, title: str, rollouts: int, done: int, cap: int) -> None:
        """A stage begins: `done` of its `rollouts` are on disk already; `cap` is the most tokens a rollout may have."""

    def progress(self, done: int, tokens: int) -> None:
        """`done` rollouts of the stage are finished; `tokens` were sampled since it began here."""

    def stage_done(self, seconds: float, tokens: int) -> None:
        """The stage is on disk."""

    def say(self, message: str) -> None:
        """One line that stays."""


@dataclass(frozen=True)
class Item:
    """One rollout to sample."""

    cell: Cell
    index: int
    seed: int


class RenderedPrompts:
    """Prompts by cell, and the problems behind them. Subclasses render; `_by_cell` is in the order of the cells."""

    problems: dict[str, Problem]
    _by_cell: dict[Cell, Prompt]

    @property
    def cells(self) -> list[Cell]:
        """In the order in which they are sampled."""
        return list(self._by_cell)

    def check_context(self, context: int | None, max_tokens: int) -> None:
        """Raise `UsageError` if a prompt and the tokens that may follow it do not fit into the model's context."""
        check_prompts_fit(self._by_cell, context, max_tokens)

    def __getitem__(self, cell: Cell) -> Prompt:
        return self._by_cell[cell]


class Prompts(RenderedPrompts):
    """Rendered prompts by cell: rendered once, by the model's own chat template."""

    def __init__(self, plan: Plan, problems: dict[str, Problem], tokenizer, cells: Sequence[Cell] | None = None) -> None:
        """`cells`: left out, those of the plan."""
        self.problems = problems
        self._by_cell = {
            cell: render_prompt(tokenizer, problems[cell.problem], cell.effort, plan.model.tokens)
            for cell in (plan_cells(plan) if cells is None else cells)
        }
        refuse_equal_prompts({(cell.problem, cell.effort): prompt for cell, prompt in self._by_cell.items()})


def check_prompts_fit(prompts: Mapping[Cell, Prompt], context: int | None, max_tokens: int) -> None:
    """Raise `UsageError` if one of `prompts` and the tokens that may follow it do not fit into the model's context."""
    cell, prompt = max(prompts.items(), key=lambda one: len(one[1].ids))
    if context is not None and len(prompt.ids) + max_tokens > context:
        raise UsageError(
            f"sampling.max_tokens: {max_tokens} tokens after the prompt of {cell.id} ({len(prompt.ids)} tokens) do not fit "
            f"into the model's context of {context} tokens",
            hint="Beyond its context a model's logprobs mean nothing: a plan with a lower cap or shorter problems is needed.",
        )


def stage_items(
    plan: Plan, family: str, stage: str, update: int, cells: Sequence[Cell], per_cell: int | None = None
) -> list[Item]:
    """Every rollout of a stage, in the order in which it is sampled and stored. `per_cell`: left out, the plan's in training."""
    seed, count = plan.families[family].seed, plan.training.rollouts_per_cell if per_cell is None else per_cell
    return [Item(cell, index, rollout_seed(seed, stage, update, cell, index)) for cell in cells for index in range(count)]


class StageSampler:
    """Samples stages with one policy into one run folder."""

    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        prompts: Prompts,
        tokenizer,
        ids: TokenIds,
        journal: Journal,
        ledger: Path,
        reporter: Reporter,
    ):
        self.plan, self.policy, self.prompts, self.tokenizer = plan, policy, prompts, tokenizer
        self.ids, self.journal, self.ledger, self.reporter = ids, journal, ledger, reporter

    def sample(self, folder: Path, info: StageInfo, items: list[Item], title: str) -> None:
        """Sample what is not on disk yet and mark the stage complete. The policy must hold the stage's adapter.

        `title` is how journal and ledger name the stage: its folder below that of the run.
        """
        if stage_is_complete(folder):
            return
        size = self.plan.sampling.batch_rollouts
        batches = [items[start : start + size] for start in range(0, len(items), size)]
        present = {path.name for path in stage_parts(folder)}
        names = [part_file(folder, number).name for number in range(len(batches))]
        done = sum(len(batch) for batch, name in zip(batches, names, strict=True) if name in present)
        self.reporter.stage(title, len(items), done, self.plan.sampling.max_tokens)
        problems = {item.cell.problem: self.prompts.problems[item.cell.problem] for item in items}
        write_mark(
            self.ledger,
            plan=info.plan_digest,
            study=self.plan.name,
            stage=title,
            use=use_of(info.stage),
            problems=list(problems.values()),
        )
        started, tokens = time.monotonic(), 0
        for number, batch in enumerate(batches):
            path = part_file(folder, number)
            if path.name in present:
                self._check_part(path, info)
                continue
            before, before_tokens = done, tokens
            requests = [SampleRequest(tuple(self.prompts[item.cell].ids), item.seed) for item in batch]
            sampled = self.policy.sample(
                requests, lambda rows, count, b=before, t=before_tokens: self.reporter.progress(b + rows, t + count)
            )
            write_part(path, info, [self._rollout(info, item, one) for item, one in zip(batch, sampled, strict=True)])
            done += len(batch)
            tokens += sum(len(one.token_ids) for one in sampled)
            self.journal.append("part_written", stage=title, part=path.name, rollouts=len(batch), part_sha256=sha256_file(path))
        seconds = time.monotonic() - started
        # The event goes first: a kill in between leaves an event without its stage, never a stage without its event.
        self.journal.append(
            "stage_sampled",
            stage=title,
            rollouts=len(items),
            tokens=tokens,
            seconds=round(seconds, 3),
            stage_sha256=sha256_bytes(stage_record(folder, info, names)),
        )
        finish_stage(folder, info, names)
        self.reporter.stage_done(seconds, tokens)

    def _check_part(self, path: Path, info: StageInfo) -> None:
        found = part_info(path)
        if found != info:
            names = ("plan_digest", "adapter_sha256", "engine", "sampling")
            changed = ", ".join(name for name in names if getattr(found, name) != getattr(info, name)) or "tokens"
            raise IntegrityError(
                f"{path}: was sampled under other settings ({changed}) than this machine would use now",
                hint="A stage never mixes engines: go on with the machine and versions that it began with, or delete its folder.",
            )

    def _rollout(self, info: StageInfo, item: Item, sampled: SampledTokens) -> Rollout:
        prompt = self.prompts[item.cell]
        ids = sampled.token_ids.tolist()
        thinking, answer = self._texts(ids, prompt.opens_thinking)
        return Rollout(
            family=info.family,
            arm=info.arm,
            stage=info.stage,
            update=info.update,
            problem=item.cell.problem,
            effort=item.cell.effort,
            source=self.prompts.problems[item.cell.problem].source,
            index=item.index,
            seed=item.seed,
            prompt_sha256=prompt.sha256,
            prompt_length=len(prompt.ids),
            prompt_opens_thinking=prompt.opens_thinking,
            token_ids=ids,
            logprobs=sampled.logprobs.tolist(),
            top_entropy=sampled.top_entropy.tolist(),
            top_mass=sampled.top_mass.tolist(),
            finish_reason=sampled.finish_reason,
            thinking_text=thinking,
            answer_text=answer,
        )

    def _texts(self, ids: list[int], opened: bool) -> tuple[str, str]:
        """Thinking and visible answer as text; split by token ids, and neither with the tags or the end token."""
        span = thinking_span(ids, prompt_opens_thinking=opened, open_id=self.ids.open, close_id=self.ids.close)
        thinking = ids[span.start : span.stop]
        answer = ids[span.answer_start :] if span.closed or not span.opened else []
        return self._decode(thinking), self._decode(answer)

    def _decode(self, ids: list[int]) -> str:
        if ids and ids[-1] in self.ids.end:
            ids = ids[:-1]
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
