"""A small stage sampled by the local policy as an engine would hand it over: one rollout at a time, in any order.

All are decoded once, together: the tests sample the same rollouts again and again, and a rollout must be what it was.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from ablation.plan.locate import locate
from ablation.plan.model import Plan
from ablation.policy.base import SampledTokens
from ablation.policy.loading import load_tokenizer
from ablation.policy.local import LocalPolicy
from ablation.problems.problem import load_problems
from ablation.problems.render import token_ids
from ablation.rollouts.inflight import rollouts_on_disk
from ablation.rollouts.schema import StageInfo
from ablation.study.journal import Journal
from ablation.study.sampler import Prompts, StageSampler, stage_items
from ablation.study.schedule import plan_cells

from .mini import ROOT, mini_tree

HERE = ROOT / "plans" / "mini.yaml"
CAP, SIZE, ROLLOUTS = 32, 7, 24


def plan() -> Plan:
    """Eight cells with three rollouts each: parts of 7, 7, 7 and 3."""
    tree = mini_tree()
    tree["sampling"] |= {"max_tokens": CAP, "batch_rollouts": SIZE}
    return Plan.model_validate(tree)


class Streaming(LocalPolicy):
    """Hands rollouts over in the order of `shuffle`; `ended` is called after each with how many there were.

    `paced`: the stage whose folder must have one rollout before the next one comes, as with an engine that takes its time.
    """

    streams = True
    shuffle: int | None = None
    known: dict[int, SampledTokens] = {}  # noqa: RUF012
    paced: Path | None = None
    ended: Callable[[int], None] = staticmethod(lambda count: None)

    def sample(self, requests, progress=None, taken=None):
        self.asked = [request.seed for request in requests]
        order = list(range(len(requests)))
        if self.shuffle is not None:
            random.Random(self.shuffle).shuffle(order)
        new = [request for request in requests if request.seed not in self.known]
        decoded = LocalPolicy.sample(self, new) if new else []
        self.known |= {request.seed: one for request, one in zip(new, decoded, strict=True)}
        tokens, there = 0, 0 if self.paced is None else rollouts_on_disk(self.paced)
        for count, place in enumerate(order, 1):
            one = self.known[requests[place].seed]
            tokens += len(one.token_ids)
            taken(place, one)
            progress(count, tokens)
            until = time.monotonic() + 1
            while self.paced is not None and rollouts_on_disk(self.paced) < there + count and time.monotonic() < until:
                time.sleep(0.001)
            self.ended(count)
        return []


class Quiet:
    """Keeps what a reporter is told."""

    def __init__(self):
        self.began, self.told, self.ended = [], [], []

    def stage(self, title, rollouts, done, cap):
        self.began.append((title, rollouts, done, cap))

    def progress(self, done, tokens):
        self.told.append((done, tokens))

    def stage_done(self, seconds, tokens):
        self.ended.append(tokens)

    def say(self, message):
        pass


class Stage:
    """The sweep of the small plan below `root`, with one policy for all tests."""

    def __init__(self, policy: LocalPolicy, own: Plan, root: Path) -> None:
        self.policy, self.plan, self.root = policy, own, root
        self.folder = root / "main" / "start" / "sweep"
        tokenizer = load_tokenizer(locate(own.model.base, HERE))
        self.ids = token_ids(tokenizer, own.model.tokens)
        self.prompts = Prompts(own, load_problems(locate(own.problems.training, HERE)), tokenizer)
        self.tokenizer = tokenizer
        self.items = stage_items(own, "main", "sweep", 0, plan_cells(own))
        self.info = StageInfo(
            plan_digest="d" * 64,
            family="main",
            arm="start",
            stage="sweep",
            update=0,
            adapter_sha256=policy.adapter_sha256(),
            think_open_id=self.ids.open,
            think_close_id=self.ids.close,
            end_ids=self.ids.end,
            max_tokens=CAP,
            sampling=own.sampling.model_dump(),
            engine={"name": "streaming"},
        )

    def sample(self, info: StageInfo | None = None) -> Quiet:
        """As the same command does, each time."""
        reporter, journal = Quiet(), Journal(self.root / "journal.jsonl", "d" * 64)
        try:
            StageSampler(
                self.plan, self.policy, self.prompts, self.tokenizer, self.ids, journal, self.root / "ledger.jsonl", reporter
            ).sample(self.folder, info or self.info, self.items, "main/start/sweep")
        finally:
            journal.close()
        return reporter

    @property
    def logs(self) -> list[Path]:
        return sorted((self.folder / "inflight").glob("*"))

    def bytes(self) -> dict[str, bytes]:
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in sorted(self.folder.rglob("*.*"))}


def make_policy(own: Plan, kind=Streaming) -> LocalPolicy:
    tokenizer = load_tokenizer(locate(own.model.base, HERE))
    ids = token_ids(tokenizer, own.model.tokens)
    return kind(own, locate(own.model.base, HERE), locate(own.model.start_adapter, HERE), ids.end, tokenizer.pad_token_id)
