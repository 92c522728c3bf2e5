import hashlib
from collections import Counter

import pytest
import yaml

from ablation.plan.model import Plan
from ablation.rollouts.schema import Cell
from ablation.study.schedule import all_seeds, cells_of_update, deal_cells, plan_cells, rollout_seed


@pytest.fixture(scope="module")
def plan(quickstart_tree):
    return Plan.model_validate(quickstart_tree)


@pytest.fixture(scope="module")
def quickstart_tree():
    from pathlib import Path

    return yaml.safe_load((Path(__file__).parents[2] / "plans" / "quickstart.yaml").read_text())


def test_58_cells_over_5_updates_are_11_or_12_each_and_none_twice(plan):
    cells = plan_cells(plan)
    assert len(cells) == 58
    dealt = deal_cells(cells, 5, plan.families["main"].seed)
    assert sorted(map(len, dealt)) == [11, 11, 12, 12, 12]
    assert Counter(cell for update in dealt for cell in update) == Counter(cells)


def test_families_deal_differently_and_listing_order_does_not_matter(plan):
    cells = plan_cells(plan)
    assert deal_cells(cells, 5, 1) != deal_cells(cells, 5, 2)
    assert deal_cells(cells, 5, 1) == deal_cells(cells[::-1], 5, 1)


def test_an_extension_deals_all_cells_again_in_another_order_each_time(plan):
    seed = plan.families["main"].seed
    passes = [[cells_of_update(plan, "main", 5 * passed + place) for place in range(1, 6)] for passed in range(3)]
    assert passes[0] == deal_cells(plan_cells(plan), 5, seed)
    for dealt in passes:
        assert sorted(map(len, dealt)) == [11, 11, 12, 12, 12]
        assert Counter(cell for update in dealt for cell in update) == Counter(plan_cells(plan))
    assert passes[0] != passes[1] != passes[2] != passes[0]
    assert passes[1] != deal_cells(plan_cells(plan), 5, plan.families["replication"].seed, 1)


def test_data_order_is_a_function_of_the_seed_alone(plan):
    """By hand: cells in the order of the hash of (family seed, "shuffle", how often all were dealt before, cell)."""

    def key(*parts):
        text = "".join(f"{len(str(part))}:{part}" for part in parts)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

    order = sorted((f"{problem}@{effort}" for problem, effort in plan.cells), key=lambda cell: key(20261001, "shuffle", 2, cell))
    assert [cell.id for cell in cells_of_update(plan, "main", 13)] == order[2::5]
    order = sorted(order, key=lambda cell: key(20261001, "shuffle", cell))
    assert [cell.id for cell in cells_of_update(plan, "main", 3)] == order[2::5]


def test_the_seeds_of_an_extension_are_among_those_that_a_check_compares(quickstart_tree):
    plan = Plan.model_validate(quickstart_tree | {"extension": {"updates": 12, "checks": [12], "family": "replication"}})
    seeds = all_seeds(plan)
    # Updates 6 to 10 take every cell once, 11 and 12 take 12 each.
    assert len(seeds) == 2 * (5 + 1) * 58 * 6 + (58 + 24) * 6
    assert len(set(seeds.values())) == len(seeds)
    assert {name for name, stage, _, _ in seeds if stage == "update-12"} == {"replication"}


def test_no_two_unpaired_rollouts_share_a_seed(plan):
    seeds = all_seeds(plan)
    assert len(seeds) == 2 * (5 + 1) * 58 * 6
    assert len(set(seeds.values())) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds.values())


def test_a_readout_has_the_seeds_of_its_sweep_and_updates_have_their_own():
    cell = Cell("p", "low")
    assert rollout_seed(7, "sweep", 0, cell, 3) == rollout_seed(7, "readout", 5, cell, 3)
    assert rollout_seed(7, "sweep", 0, cell, 3) == rollout_seed(7, "check", 8, cell, 3)
    assert rollout_seed(7, "update", 1, cell, 3) != rollout_seed(7, "update", 2, cell, 3)


def test_a_seed_is_this_number_for_ever():
    """A change here would silently break the pairing of runs made before and after it."""
    assert rollout_seed(20261001, "sweep", 0, Cell("p", "low"), 0) == 6992274902107735622
