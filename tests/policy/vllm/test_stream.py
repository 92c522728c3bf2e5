"""A stage streamed from the real engine: what lands on disk, and that disk and engine refuse in words and are gone on from."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from ablation.errors import EngineFailed
from ablation.files import DiskError
from ablation.plan.model import Plan
from ablation.policy.loading import load_tokenizer
from ablation.policy.vllm.messages import Finished, SamplingValues
from ablation.problems.problem import load_problems
from ablation.problems.render import token_ids
from ablation.rollouts.inflight import rollouts_on_disk
from ablation.rollouts.schema import StageInfo
from ablation.rollouts.store import read_stage
from ablation.rollouts.values import NEUTRAL
from ablation.study.journal import Journal
from ablation.study.sampler import Prompts, StageSampler, stage_items
from ablation.study.schedule import plan_cells
from tests.study.streamed import Quiet

from .conftest import END, TINY

pytestmark = pytest.mark.slow


class Stage:
    """The sweep of a small plan: 24 rollouts in parts of 5."""

    def __init__(self, policy, own: Plan, root):
        self.policy, self.plan, self.root, self.folder = policy, own, root, root / "sweep"
        self.tokenizer = load_tokenizer(TINY / "base")
        self.ids = token_ids(self.tokenizer, own.model.tokens)
        self.prompts = Prompts(own, load_problems(TINY / "problems.jsonl"), self.tokenizer)
        self.items = stage_items(own, "main", "sweep", 0, plan_cells(own))
        sampling = own.sampling
        ids = self.ids
        self.info = StageInfo("d" * 64, "main", "start", "sweep", 0, policy.adapter_sha256(), ids.open, ids.close, ids.end, 64)
        self.info = replace(self.info, sampling=sampling.model_dump(), engine={"name": "vllm"})

    def sample(self):
        reporter, journal = Quiet(), Journal(self.root / "journal.jsonl", "d" * 64)
        sampler = StageSampler(
            self.plan, self.policy, self.prompts, self.tokenizer, self.ids, journal, self.root / "ledger.jsonl", reporter
        )
        try:
            sampler.sample(self.folder, self.info, self.items, "main/start/sweep")
        finally:
            journal.close()
        return reporter

    def seeds_in_flight(self):
        logs = (self.folder / "inflight").glob("*.jsonl")
        return {json.loads(line)["seed"] for log in logs for line in log.read_bytes().splitlines()[1:] if line.endswith(b"}")}


@pytest.fixture
def own(tree):
    cells = {effort: ids[:2] for effort, ids in tree["problems"]["cells"].items()}
    small = tree | {"problems": tree["problems"] | {"cells": cells}, "sampling": tree["sampling"] | {"batch_rollouts": 5}}
    return Plan.model_validate(small | {"training": tree["training"] | {"rollouts_per_cell": 4}})


@pytest.fixture
def stage(make_policy, own, tmp_path):
    return Stage(make_policy(plan=own), own, tmp_path)


@pytest.fixture
def long_stage(make_policy, own, tmp_path):
    """240 rollouts: the engine is still at work when the first ones are on disk."""
    many = own.model_copy(update={"training": own.training.model_copy(update={"rollouts_per_cell": 40})})
    return Stage(make_policy(plan=many), many, tmp_path)


@contextmanager
def no_file_longer_than(size: int):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_every_row_says_how_it_was_sampled_and_where_it_stopped(stage):
    told = stage.sample()
    found = read_stage(stage.folder)
    assert told.began == [("main/start/sweep", 24, 0, 64)]
    assert told.told[-1] == (24, int(found.offsets[-1]))
    assert [row.seed for row in found.rollouts()] == [item.seed for item in stage.items]
    (values,) = map(json.loads, found.sampling.values)
    assert values == NEUTRAL | {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 64, "end_ids": [END]}
    assert values == stage.policy.trainer.sampling_values  # base, merged, local and vLLM rows can be compared
    assert {row.stop_id for row in found.rollouts()} <= {END, None}
    for row in found.rollouts():
        assert row.stop_id == (row.token_ids[-1] if row.finish_reason == "stop" else None)
        assert row.logprob_kind == "raw"
    assert not (stage.folder / "inflight").exists()


def test_a_disk_that_fills_up_is_a_clear_error_and_what_had_ended_is_not_sampled_again(long_stage, make_policy):
    long_stage.policy.hand_over()  # writes the adapter
    with (
        no_file_longer_than(5_000),
        pytest.raises(DiskError, match=r"part-0\d\d\.(jsonl|parquet): could not be written: .*File too large"),
    ):
        long_stage.sample()
    kept, there = long_stage.seeds_in_flight(), rollouts_on_disk(long_stage.folder)
    assert 0 < there < 240
    assert not long_stage.policy.engine.alive  # what it would still send belongs to nothing
    long_stage.policy = make_policy(plan=long_stage.plan)
    told = long_stage.sample()
    assert told.began[0][2] == there
    assert kept <= {row.seed for row in read_stage(long_stage.folder).rollouts()}


def finished(ids, reason="stop", stop_id=END):
    floats = np.zeros(len(ids), dtype=np.float32)
    return Finished(0, np.array(ids), floats, floats, floats, reason, stop_id, len(ids), 1)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (finished([5, END], stop_id=None), "the stop id None for a rollout that ended with token 6"),
        (finished([5, END], stop_id=7), "the stop id 7 for a rollout that ended with token 6"),
        (finished([5] * 8, "length", stop_id=END), "the stop id 6 for a rollout that ended with token 5"),
        (finished([5, 5]), "a rollout that stopped without one of the plan's end tokens"),
        (finished([5, 5], "length", None), "a rollout cut off at 2 of 8 tokens"),
        (finished([END, 5, END]), "a rollout that went on after an end token"),
    ],
)
def test_a_rollout_that_is_not_what_was_asked_for_is_the_engines_fault(one, said):
    from ablation.policy.vllm.policy import _checked

    with pytest.raises(EngineFailed, match=said):
        _checked(one, SamplingValues(1.0, 1.0, 0, 8, 20, (END,)))


def test_an_engine_that_is_killed_in_a_stage_leaves_what_had_ended(long_stage):
    long_stage.policy.hand_over()
    pid = long_stage.policy.engine.pid

    def kill():
        while rollouts_on_disk(long_stage.folder) < 3:
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(EngineFailed, match="was killed by SIGKILL"):
        long_stage.sample()
    assert 3 <= rollouts_on_disk(long_stage.folder) < 240
