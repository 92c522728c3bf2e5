"""Each rollout is a request of its own with a seed of its own, for all of a plan (F01, F02)."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec

import pytest

from ablation.plan.load import load_plan
from ablation.policy.vllm.messages import SamplingValues
from ablation.study.sampler import stage_items
from ablation.study.schedule import all_seeds, cells_of_update, plan_cells
from tests.study.mini import ROOT


def stages(plan, family):
    """Every stage of a family as (name, items), readouts once: arms share them."""
    cells = plan_cells(plan)
    yield "sweep", stage_items(plan, family, "sweep", 0, cells)
    yield "readout", stage_items(plan, family, "readout", plan.training.updates, cells)
    for k in range(1, plan.training.updates + 1):
        yield f"update-{k}", stage_items(plan, family, "update", k, cells_of_update(plan, family, k))


@pytest.mark.parametrize("name", ["smollm2-vllm", "quickstart", "tessera"])
def test_no_two_rollouts_of_a_plan_that_are_not_paired_are_given_one_seed(name):
    plan = load_plan(ROOT / "plans" / f"{name}.yaml").plan
    given: dict[int, set] = {}
    for family in plan.families:
        for stage, items in stages(plan, family):
            seeds = [item.seed for item in items]
            assert max(Counter(seeds).values()) == 1, (family, stage)
            assert len(items) == len({(item.cell, item.index) for item in items})
            for item in items:
                # The plan pairs the sweep with the readouts of its family, and nothing else.
                pair = "evaluation" if stage in ("sweep", "readout") else stage
                given.setdefault(item.seed, set()).add((family, pair, item.cell.id, item.index))
    assert max(map(len, given.values())) == 1
    assert given.keys() <= set(all_seeds(plan).values())
    assert all(0 <= seed < 2**63 for seed in given)  # as vLLM takes them


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_a_request_is_one_rollout_with_its_whole_seed_and_every_value_said():
    from ablation.policy.vllm.engine_process import Engine

    values = SamplingValues(0.7, 0.9, 20, 128, 20, (6, 7))
    for seed in (0, 100, 101, 2**62 + 1, 2**63 - 1):
        params = Engine._sampling_params(values, seed)
        assert (params.n, params.seed) == (1, seed)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.7, 0.9, 20, 0.0)
    assert (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) == (1.0, 0.0, 0.0)
    assert (params.max_tokens, params.min_tokens, params.ignore_eos) == (128, 0, True)
    assert sorted(params.stop_token_ids) == [6, 7]
    assert not params.stop
