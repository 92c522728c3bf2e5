from __future__ import annotations

import json

import numpy as np
import pytest

from ablation.errors import IncompleteError, UsageError
from ablation.measures.measure import measure
from ablation.plan.load import load_plan
from ablation.power.kinds import COUNTS_OF_KINDS, KINDS, MEMBERS
from ablation.power.pilot import kinds, read_pilot
from ablation.problems.problem import load_problems
from ablation.rollouts.outcomes import outcomes
from ablation.rollouts.store import read_stage
from tests.verdict.study import lock_small, plan_dict, start_run, write_stage


@pytest.fixture
def pilot(tmp_path):
    """12 cells of 2 rollouts in this order: 12 clean, 4 cut, 3 looping but right, 5 wrong."""
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    folder = write_stage(run, locked, "main", "start", {"clean": 12, "cut": 4, "loop": 3}, logprob=-0.5)
    return folder, load_plan(locked.path), run, locked


def test_every_rollout_is_the_kind_that_the_measures_count(pilot):
    folder, loaded, run, _ = pilot
    own = outcomes(read_stage(folder), load_problems(run.problems), loaded.plan.loops)
    counts = np.bincount(kinds(own), minlength=KINDS) @ COUNTS_OF_KINDS
    measured = measure(own)
    assert dict(zip(MEMBERS, counts.tolist(), strict=True)) == {name: measured[name] for name in MEMBERS}
    assert measured["clean"], measured["looping"] == (12, 3)


def test_rates_of_a_pilot(pilot):
    folder, loaded, _, _ = pilot
    rates, notes = read_pilot(folder, loaded, None)
    assert notes == []
    assert rates.total == 24
    assert rates.source == f"pilot sweep {folder} (24 rollouts)"
    assert rates.expected()["clean"] == pytest.approx(0.5, abs=0.03)
    assert rates.expected_KC[0, 0] > 0.9  # both of its rollouts are clean
    assert rates.means["logprob"].level == pytest.approx(-0.5)
    assert rates.means["logprob"].within == pytest.approx(0, abs=1e-9)
    assert read_pilot(folder, loaded, 1e9)[0].expected_KC[0, 0] == pytest.approx(rates.pooled_C[0], abs=0.03)


def test_spread_of_a_pilots_logprob(pilot):
    """Cell means are -0.5 and -0.7 in turn, rollouts 0.1 to either side: within^2 = 2 * 0.1^2, between^2 = var - within^2 / 2."""
    folder, loaded, run, _ = pilot
    from ablation.power.pilot import _spread

    own = outcomes(read_stage(folder), load_problems(run.problems), loaded.plan.loops).sorted()
    cell = np.repeat(np.arange(12), 2)
    values = np.where(cell % 2, -0.7, -0.5) + np.tile([0.1, -0.1], 12)
    found = _spread(own, values)
    assert found.level == pytest.approx(-0.6)
    assert found.within**2 == pytest.approx(0.02)
    assert found.between**2 == pytest.approx(0.01 * 12 / 11 - 0.01)
    assert _spread(own, np.where(np.arange(24) % 2, np.nan, values)) is None


def test_cells_that_a_pilot_does_not_have(pilot, tmp_path):
    folder, loaded, _, _ = pilot
    more = plan_dict()
    more["problems"]["cells"]["xhigh"] = ["p0", "p1", "p2"]
    more["sampling"]["max_tokens"] = 100
    other = loaded.path.with_name("other.yaml")
    other.write_text(json.dumps(more))
    rates, notes = read_pilot(folder, load_plan(other), None)
    assert len(rates.parameters_KC) == 15
    assert rates.expected_KC[12] == pytest.approx(rates.expected_KC[14])
    assert notes[0] == "3 of 15 cells are not in the pilot: they get its average rates."
    assert "The pilot's cap is 64 tokens and the plan's is 100" in notes[1]
    more["problems"]["cells"] = {"xhigh": ["p0", "p1", "p2"]}
    other.write_text(json.dumps(more))
    with pytest.raises(UsageError, match="has none of the 3 cells"):
        read_pilot(folder, load_plan(other), None)


def test_folders_that_are_no_pilot(pilot, tmp_path):
    folder, loaded, run, locked = pilot
    with pytest.raises(UsageError) as caught:
        read_pilot(run.root, loaded, None)
    assert caught.value.hint == f"There is {folder}."
    with pytest.raises(UsageError, match="there is no finished sweep"):
        read_pilot(tmp_path / "none", loaded, None)
    readout = write_stage(run, locked, "main", "N")
    with pytest.raises(UsageError, match="is the readout of main/N, not a sweep"):
        read_pilot(readout, loaded, None)
    (folder / "stage.json").unlink()
    with pytest.raises((UsageError, IncompleteError)):
        read_pilot(folder, loaded, None)
