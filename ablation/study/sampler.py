"""Sampling one stage: fixed batches, each a Parquet part that appears whole.

A killed run loses what was being sampled: a batch, or, of a policy that streams, the rollouts that had not ended.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Protocol

from ablation.errors import UsageError
from ablation.files import sha256_bytes
from ablation.ledger.ledger import write_mark
from ablation.plan.model import Plan
from ablation.policy.base import Policy, SampledTokens, SampleRequest
from ablation.problems.problem import Problem
from ablation.problems.render import Prompt, TokenIds, refuse_equal_prompts, render_prompt
from ablation.rollouts.marked import use_of
from ablation.rollouts.schema import Cell, Rollout, StageInfo
from ablation.rollouts.store import finish_stage, stage_is_complete, stage_record
from ablation.rollouts.thinking import thinking_span
from ablation.rollouts.values import values_text
from ablation.study.background import Background
from ablation.study.journal import Journal
from ablation.study.schedule import plan_cells, rollout_seed
from ablation.study.stage_writer import StageWriter


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

    def check_context(self, context: int | None, max_tokens: int, field: str | None = None) -> None:
        """Raise `UsageError` if a prompt and the tokens that may follow it do not fit into the context: the model's, or that of a
        `field` of the plan."""
        check_prompts_fit(self._by_cell, context, max_tokens, field)

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


def check_prompts_fit(prompts: Mapping[Cell, Prompt], context: int | None, max_tokens: int, field: str | None = None) -> None:
    """As `RenderedPrompts.check_context`."""
    cell, prompt = max(prompts.items(), key=lambda one: len(one[1].ids))
    if context is not None and len(prompt.ids) + max_tokens > context:
        if field is not None:
            raise UsageError(
                f"{field}: {context} tokens do not hold the prompt of {cell.id} ({len(prompt.ids)} tokens) and the {max_tokens} "
                "of `sampling.max_tokens`",
                hint=f"A plan with at least {len(prompt.ids) + max_tokens} there is needed, or with `null` for the model's own.",
            )
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


def mark_sampled(
    ledger: Path,
    plan: Plan,
    digest: str,
    title: str,
    stage: str,
    items: Sequence[Item],
    problems: Mapping[str, Problem],
    journal: Journal,
) -> None:
    """A mark in the ledger for a stage that will be sampled now, unless it has one. `stage` is its kind, `title` its name."""
    asked = dict.fromkeys(item.cell.problem for item in items)
    write_mark(
        ledger,
        plan=digest,
        study=plan.name,
        stage=title,
        use=use_of(stage),
        problems=[problems[name] for name in asked],
        run=journal.run,
        journal=journal.head,
    )


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

    def sample(self, folder: Path, info: StageInfo, items: list[Item], title: str, only: Collection[int] | None = None) -> None:
        """Sample what is not on disk yet and mark the stage complete. The policy must hold the stage's adapter.

        `title` is how journal and ledger name the stage: its folder below that of the run. With `only`, the batches of these
        numbers are sampled, and the stage is left as it is then.
        """
        if stage_is_complete(folder):
            return
        mark_sampled(self.ledger, self.plan, info.plan_digest, title, info.stage, items, self.prompts.problems, self.journal)
        values, size = values_text(self.policy.sampling_values), self.plan.sampling.batch_rollouts
        writer = StageWriter(folder, info, items, size, partial(self._rollout, info, values), self.journal, title, only)
        self.policy.prepare()
        self.reporter.stage(title, writer.wanted, writer.done, self.plan.sampling.max_tokens)
        started = time.monotonic()
        tokens = (self._stream if self.policy.streams else self._by_batch)(writer)
        seconds = time.monotonic() - started
        if only is not None:
            self.reporter.stage_done(seconds, tokens)
            return
        writer.close()
        # The event goes first: a kill in between leaves an event without its stage, never a stage without its event.
        self.journal.append(
            "stage_sampled",
            stage=title,
            rollouts=len(items),
            tokens=tokens,
            seconds=round(seconds, 3),
            stage_sha256=sha256_bytes(stage_record(folder, info, writer.names)),
        )
        finish_stage(folder, info, writer.names)
        self.reporter.stage_done(seconds, tokens)

    def _by_batch(self, writer: StageWriter) -> int:
        """Sample the batches that are not on disk, each by itself; how many tokens they have."""
        tokens = 0
        for _, places in groupby(writer.missing, lambda place: place // writer.size):
            batch, done, before = list(places), writer.done, tokens
            sampled = self.policy.sample(
                self._requests(writer, batch), lambda rows, count, d=done, t=before: self.reporter.progress(d + rows, t + count)
            )
            writer.keep(list(zip(batch, sampled, strict=True)))
            tokens += sum(len(one.token_ids) for one in sampled)
        return tokens

    def _stream(self, writer: StageWriter) -> int:
        """Sample all that is not on disk at one time, and put each rollout there when it ends; how many tokens they have.

        The disk is another thread's: an engine that waits for somebody to take its rollouts does not sample.
        """
        writer.write_whole()
        missing, done, tokens = writer.missing, writer.done, 0
        if not missing:
            return 0
        with Background(writer.keep) as disk:

            def taken(place: int, sampled: SampledTokens) -> None:
                nonlocal tokens
                tokens += len(sampled.token_ids)
                disk.put((missing[place], sampled))

            self.policy.sample(
                self._requests(writer, missing), lambda rows, count: self.reporter.progress(done + rows, count), taken
            )
        return tokens

    def _requests(self, writer: StageWriter, places: Sequence[int]) -> list[SampleRequest]:
        ids: dict[Cell, tuple[int, ...]] = {}  # one for all rollouts of a cell
        requests = []
        for place in places:
            item = writer.items[place]
            if item.cell not in ids:
                ids[item.cell] = tuple(self.prompts[item.cell].ids)
            requests.append(SampleRequest(ids[item.cell], item.seed))
        return requests

    def _rollout(self, info: StageInfo, values: str, item: Item, sampled: SampledTokens) -> Rollout:
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
            stop_id=sampled.stop_id,
            sampling=values,
            logprob_kind=info.logprob_kind,
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
