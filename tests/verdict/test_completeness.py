"""Whole and paired, against references that compare rollout by rollout."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.errors import IntegrityError
from ablation.rollouts.store import stage_of
from ablation.verdict.completeness import check_pairing, missing_of

from ..rollouts.build import CLOSE, END, info, rollout

HERE = Path("here")
CELLS = [("p1", "low"), ("p10", "low"), ("p1", "high")]
KEYS = [(*cell, index) for cell in CELLS for index in range(3)]
OTHERS = [("p1", "medium", 0), ("p2", "low", 0), ("p1", "low", -1), ("p1", "low", 3), ("p10", "high", 1)]


def stage_with(keys, seeds=None, prompts=None):
    of, rows = info(), []
    for place, (problem, effort, index) in enumerate(keys):
        one = rollout(of, [5, CLOSE, 7, END], problem=problem, effort=effort, index=index, seed=seeds[place] if seeds else None)
        one.prompt_sha256 = (prompts or {}).get((problem, effort, index), f"{problem}{effort}")
        rows.append(one)
    return stage_of(of, rows)


@settings(max_examples=200)
@given(st.permutations(KEYS), st.integers(0, 9), st.lists(st.sampled_from(OTHERS), unique=True, max_size=2))
def test_what_is_missing_is_what_the_sets_say(order, there, more):
    keys = [*order[:there], *more]
    if not keys:
        return
    extra, gone = sorted(set(keys) - set(KEYS)), sorted(set(KEYS) - set(keys))
    if extra:
        problem, effort, index = extra[0]
        with pytest.raises(IntegrityError, match=f"rollout {problem}@{effort} #{index} is not in the plan"):
            missing_of(stage_with(keys), CELLS, 3, "it", HERE)
        return
    found = missing_of(stage_with(keys), CELLS, 3, "it", HERE)
    if not gone:
        assert found is None
        return
    problem, effort, index = gone[0]
    assert found == f"it lacks {len(gone)} of 9 rollouts, for instance {problem}@{effort} #{index}"


@settings(max_examples=100)
@given(
    st.permutations(KEYS),
    st.permutations(KEYS),
    st.sets(st.sampled_from(KEYS), max_size=2),
    st.sets(st.sampled_from(KEYS), max_size=2),
)
def test_partners_have_one_seed_and_one_prompt(order, others, seeds_differ, prompts_differ):
    """The first one, in the order of keys, that has not is named; seeds before prompts."""
    sweep = stage_with(order, [KEYS.index(key) for key in order])
    seeds = [KEYS.index(key) + 100 * (key in seeds_differ) for key in others]
    readout = stage_with(others, seeds, dict.fromkeys(prompts_differ, "another"))
    for name, wrong in (("seed", seeds_differ), ("prompt_sha256", prompts_differ)):
        if wrong:
            problem, effort, index = min(wrong)
            with pytest.raises(IntegrityError, match=f"{problem}@{effort} #{index} has another {name} than"):
                check_pairing(sweep, readout, HERE)
            return
    assert check_pairing(sweep, readout, HERE) == []
