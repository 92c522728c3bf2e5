"""A stage sampled with vLLM, from the first request to its mark on disk, against the engine's own time for the same requests.

The rollouts are a mix of some that end at once and some that run to the cap, the long tail of a stage. The engine is one and the
same, of the tiny model; the two sides take turns, and each counts its best one. For comparison the same stage batch by batch, where
each batch waits for its longest rollout. It needs vLLM: `make bench-vllm`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ablation.plan.load import load_plan
from ablation.plan.locate import locate
from ablation.plan.model import Plan

from .row import Row

PLAN = Path(__file__).parents[2] / "plans" / "quickstart.yaml"
WHAT = "a stage with vLLM, tiny model, long tail: "
MOST, TURNS = 1.1, 3
CAP, PER_CELL, SIZE, SEQUENCES = 192, 6, 32, 32


class Silent:
    def stage(self, *_):
        pass

    progress = stage_done = say = stage


def small_plan() -> Plan:
    """The quickstart's cells at a temperature at which many rollouts never find their end."""
    tree = load_plan(PLAN).plan.model_dump(mode="json")
    tree["sampling"] |= {"max_tokens": CAP, "temperature": 1.6, "batch_rollouts": SIZE}
    settings = {"kv_cache_gb": 0.05, "eager": True, "sequences": SEQUENCES, "batch_tokens": 2048}
    tree["policy"] = {"backend": "vllm", "threads": 1, "vllm": settings}
    tree["training"]["rollouts_per_cell"] = PER_CELL
    return Plan.model_validate(tree)


class Sides:
    """The stage as a run samples it, the bare engine, and the stage batch by batch."""

    def __init__(self, folder: Path) -> None:
        from ablation.policy.loading import load_tokenizer
        from ablation.policy.local import LocalPolicy
        from ablation.policy.vllm.client import EngineClient
        from ablation.policy.vllm.policy import VllmPolicy, engine_settings
        from ablation.problems.problem import load_problems
        from ablation.problems.render import token_ids
        from ablation.study.sampler import Prompts, stage_items
        from ablation.study.schedule import plan_cells

        self.folder, self.plan, self.count = folder, small_plan(), 0
        base, adapter = (locate(one, PLAN) for one in (self.plan.model.base, self.plan.model.start_adapter))
        self.tokenizer = load_tokenizer(base)
        self.ids = token_ids(self.tokenizer, self.plan.model.tokens)
        self.prompts = Prompts(self.plan, load_problems(locate(self.plan.problems.training, PLAN)), self.tokenizer)
        self.items = stage_items(self.plan, "main", "sweep", 0, plan_cells(self.plan))
        trainer = LocalPolicy(self.plan, base, adapter, self.ids.end, self.tokenizer.pad_token_id)
        engine = EngineClient(engine_settings(self.plan, base))
        self.policy = VllmPolicy(
            self.plan, trainer, engine, self.ids.end, [self.prompts[cell].ids for cell in self.prompts.cells]
        )
        self.adapter = self.policy.hand_over()

    def bare(self) -> float:
        """Seconds of the engine for the requests, whose rollouts are dropped."""
        from ablation.policy.vllm.messages import Sample

        rows = [(place, tuple(self.prompts[item.cell].ids), item.seed) for place, item in enumerate(self.items)]
        started = time.perf_counter()
        self.policy.engine.ask(Sample(rows, self.policy.values, self.adapter), lambda message: None)
        return time.perf_counter() - started

    def stage(self) -> float:
        """Seconds of the stage, its mark on disk included."""
        from ablation.rollouts.schema import StageInfo
        from ablation.study.journal import Journal
        from ablation.study.sampler import StageSampler

        self.count += 1
        self.last = self.folder / str(self.count) / "sweep"
        journal = Journal(self.folder / f"{self.count}.jsonl", "d" * 64)
        ids, policy = self.ids, self.policy
        info = StageInfo("d" * 64, "main", "start", "sweep", 0, policy.adapter_sha256(), ids.open, ids.close, ids.end, CAP)
        ledger = self.folder / "ledger.jsonl"
        sampler = StageSampler(self.plan, policy, self.prompts, self.tokenizer, ids, journal, ledger, Silent())
        started = time.perf_counter()
        sampler.sample(self.last, info, self.items, f"{self.count}/start/sweep")
        seconds = time.perf_counter() - started
        journal.close()
        return seconds

    def by_batch(self) -> float:
        self.policy.streams = False
        try:
            return self.stage()
        finally:
            self.policy.streams = True


def best(*sides: Callable[[], float]) -> list[float]:
    times = [[side() for side in sides] for _ in range(TURNS)]
    return [min(own) for own in zip(*times, strict=True)]


def rows() -> list[Row]:
    if find_spec("vllm") is None:
        missing = "not measured: vLLM is not installed here; `make bench-vllm` measures it in an environment of its own"
        return [Row(WHAT + "wall time against the engine's own", missing, f"<= {MOST}x", False)]
    from ablation.rollouts.store import read_stage

    with tempfile.TemporaryDirectory(prefix="ablation-bench-") as folder:
        sides = Sides(Path(folder))
        sides.bare()  # warms up
        try:
            bare, stage, by_batch = best(sides.bare, sides.stage, sides.by_batch)
        finally:
            sides.policy.close()
        lengths = read_stage(sides.last).lengths
    mix = f"{len(lengths)} rollouts: {np.mean(lengths == CAP):.0%} at the cap of {CAP}, the shortest tenth up to "
    mix += f"{np.quantile(lengths, 0.1):.0f} tokens, median {np.median(lengths):.0f}"
    return [
        Row(
            WHAT + "wall time against the engine's own",
            f"{stage / bare:.2f}x ({stage:.1f} s, {bare:.1f} s)",
            f"<= {MOST}x",
            stage <= MOST * bare,
        ),
        Row(
            "... batch by batch, as an engine would be used that is asked for one batch at a time",
            f"{by_batch / bare:.2f}x",
            "printed",
            True,
        ),
        Row("... " + mix, "", "printed", True),
    ]
