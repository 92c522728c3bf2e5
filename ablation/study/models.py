"""The one model of a run: loaded when it is first needed, made to hold the start or a checkpoint, and sampled from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ablation.errors import IntegrityError
from ablation.files import folder_is_complete
from ablation.ledger.ledger import ledger_path
from ablation.plan.deviations import Deviation, opened_by
from ablation.plan.locate import locate
from ablation.plan.lock import LockedPlan
from ablation.plan.model import START
from ablation.problems.problem import Problem
from ablation.problems.render import Prompt, TokenIds, token_ids
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.schema import Cell, StageInfo
from ablation.rollouts.store import stage_info, stage_is_complete
from ablation.study.backends import Backend, ModelFolders, load_backend
from ablation.study.environment import environment
from ablation.study.extension import deviate_command
from ablation.study.journal import Journal
from ablation.study.machine import Machine
from ablation.study.sampler import Item, Reporter, StageSampler


class PromptSet(Protocol):
    """Rendered prompts by cell, and the problems behind them: `sampler.Prompts` and those of `set_prompts`."""

    problems: dict[str, Problem]

    @property
    def cells(self) -> list[Cell]: ...

    def check_context(self, context: int | None, max_tokens: int, field: str | None = None) -> None: ...

    def __getitem__(self, cell: Cell) -> Prompt: ...


@dataclass(frozen=True)
class Loaded:
    """A model in memory, and what came of loading it."""

    policy: Backend
    tokenizer: Any
    prompts: PromptSet
    ids: TokenIds
    engine: dict[str, Any]
    proof: dict[str, Any]


class Models:
    """The model of an open run. `make_prompts` renders with its tokenizer what will be sampled."""

    def __init__(
        self,
        locked: LockedPlan,
        run: RunFolder,
        journal: Journal,
        reporter: Reporter,
        machine: Machine,
        make_prompts: Callable[[Any], PromptSet],
    ) -> None:
        self.locked, self.plan, self.run = locked, locked.plan, run
        self.journal, self.reporter, self.machine, self._make_prompts = journal, reporter, machine, make_prompts
        self.deviations: Sequence[Deviation] = ()
        """Those that are known by now; the owner keeps them so."""
        self.held: tuple[str, str, int] | None = None
        """Family, arm and updates done of what the policy holds now; None if that is nothing known."""
        self.kept: Loaded | None = None
        """The model that is in memory. Whoever has one of the same plan may put it here, and it is not loaded again."""
        self._policy: Backend | None = None
        self._told_engine = False

    @property
    def policy(self) -> Backend:
        """The model, loaded when it is first needed."""
        if self._policy is None:
            self._load()
        assert self._policy is not None
        return self._policy

    @property
    def prompts(self) -> PromptSet:
        """What `make_prompts` made, with the model's own tokenizer."""
        assert self.policy
        return self._prompts

    def release(self) -> None:
        """Let go of the model: a command may need all of the memory. It is loaded again when it is needed."""
        if self._policy is not None:
            self._policy.close()
        self._policy = self._sampler = self.held = self.kept = None
        if "torch" in sys.modules:  # a service needs none
            from ablation.policy.loading import free_memory

            free_memory()

    def hold(self, family: str, arm: str, updates: int) -> None:
        """Make the policy hold `arm` after `updates` updates: the start, what it holds already, or a checkpoint."""
        optimizer = None if arm == START else self.plan.training.optimizer_of(self.plan.arms[arm])
        if updates == 0:
            self.policy.reset(optimizer)
        elif self.held != (family, arm, updates):
            checkpoint = self.run.checkpoint(family, arm, updates)
            if not folder_is_complete(checkpoint):
                raise IntegrityError(
                    f"{checkpoint}: is not what was saved after update {updates}, so nothing can go on from it",
                    hint="Put the folder back from a copy.",
                )
            if self.plan.arms[arm].external is not None:
                self.policy.load_adapter(checkpoint)
            else:
                self.policy.load(checkpoint, optimizer)
        self.held = (family, arm, updates)

    def sample(
        self,
        folder: Path,
        family: str,
        arm: str,
        stage: str,
        update: int,
        items: list[Item],
        only: Collection[int] | None = None,
    ) -> None:
        """Sample `items` into the stage `folder` from what the policy holds, unless they are there. `only`: these batches."""
        policy = self.policy
        self._check_engine()
        sampling = self.plan.sampling
        info = StageInfo(
            plan_digest=self.locked.digest,
            family=family,
            arm=arm,
            stage=stage,
            update=update,
            adapter_sha256=policy.adapter_sha256(),
            think_open_id=self._ids.open,
            think_close_id=self._ids.close,
            end_ids=self._ids.end,
            max_tokens=sampling.max_tokens,
            sampling=sampling.model_dump(),
            engine=self.engine,
        )
        self._sampler.sample(folder, info, items, folder.relative_to(self.run.root).as_posix(), only)

    def _load(self) -> None:
        fresh = self.kept is None
        loaded = self.kept = self.kept or self._from_disk()
        self._policy, self._prompts, self._ids, self.engine = loaded.policy, loaded.prompts, loaded.ids, loaded.engine
        self._sampler = StageSampler(
            self.plan,
            loaded.policy,
            loaded.prompts,
            loaded.tokenizer,
            loaded.ids,
            self.journal,
            ledger_path(self.locked.path),
            self.reporter,
        )
        if fresh:
            told = {"base": loaded.policy.base_sha256, "adapter": loaded.policy.adapter_sha256()}
            self.journal.append("model_loaded", **told, environment=environment(), **loaded.proof)

    def _from_disk(self) -> Loaded:
        from ablation.policy.tokenizer import load_tokenizer

        base = locate(self.plan.model.base, self.locked.path)
        self.reporter.say(f"loading {self.plan.model.base.at}")
        tokenizer = load_tokenizer(base)
        ids = token_ids(tokenizer, self.plan.model.tokens)
        pad = tokenizer.pad_token_id
        adapter = locate(self.plan.model.start_adapter, self.locked.path)
        prompts = self._make_prompts(tokenizer)
        folders = ModelFolders(base, adapter, ids.end, ids.end[0] if pad is None else pad)
        policy, engine, proof = load_backend(self.plan, folders, prompts, self.reporter, self.machine)
        return Loaded(policy, tokenizer, prompts, ids, engine, proof)

    def _check_engine(self) -> None:
        """Raise IntegrityError if the run began with another engine: what it pairs would differ by more than the arm."""
        first = self.run.sweep(self.plan.main_family)
        if not stage_is_complete(first):
            return  # its parts are compared one by one
        began = stage_info(first).engine
        changed = [
            f"{name} {began.get(name)} -> {self.engine.get(name)}"
            for name in began.keys() | self.engine.keys()
            if began.get(name) != self.engine.get(name)
        ]
        if not changed:
            return
        opened, words = opened_by(self.deviations, "engine"), ", ".join(sorted(changed))
        if opened is None:
            raise IntegrityError(
                f"{self.run.root}: this run began with another engine: {words}",
                hint="A run does not mix engines: go on with the machine and versions that it began with, or start another. "
                f"Mixing them is a deviation: {deviate_command(self.locked, self.run.root, 'engine')}.",
            )
        if not self._told_engine:
            self._told_engine = True
            self.journal.append("engine_changed", began=began, now=self.engine, deviation=opened.number)
            self.reporter.say(f"goes on with another engine ({words}) under deviation {opened.number}")
