"""One way to name a run for every command that reads one: RUN, --run, --plan, or the folder that it is called in."""

import re
import shutil

import pytest

from tests.study.mini import ROOT, ablation


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder without plans, with a run in it."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(ROOT / "runs" / "records" / "everywhere" / "local", folder / "runs" / "everywhere")
    return folder


def said(found):
    """Exit code and page, without the folder's own name and times of the process."""
    page = re.sub(r"(?:/[^\s`'\"]*)?runs/everywhere", "RUN", found.stdout)
    return found.returncode, re.sub(r'"seconds": [0-9.]+', "", page)


@pytest.mark.parametrize("words", ["verdict", "audit", "journal head", "audit weights --arm C", "status"])
def test_every_way_leads_to_the_same_run(place, words):
    run = place / "runs" / "everywhere"
    first = said(ablation(place, *words.split(), "runs/everywhere"))
    assert first[0] in (0, 6) and len(first[1]) > 50
    assert said(ablation(place, *words.split(), "--run", "runs/everywhere")) == first
    inside = ablation(run / "main" / "C", *words.split())
    assert inside.returncode == first[0], inside.stderr
    key = re.search(r"Verdict: \w+|AGREES[^,]*,[0-9]*|^\d+:\w+|update|digest|locked \S+", first[1])
    assert key is not None and key[0] in said(inside)[1]
    named = ablation(place, *words.split(), "runs/everywhere", "--run", "runs/everywhere")
    assert named.returncode == 2 and "the run folder is named twice" in named.stderr


@pytest.mark.parametrize("words", ["report --no-figures --out out", "grade", "show main/C/readout"])
def test_commands_that_are_called_in_a_run_find_it(place, words, tmp_path):
    run = tmp_path / "everywhere"
    shutil.copytree(place / "runs" / "everywhere", run)
    done = ablation(run / "main", *words.split())
    assert done.returncode == 0, done.stderr


def test_a_folder_that_is_no_run_leads_to_the_plans(place):
    done = ablation(place / "runs", "verdict")
    assert done.returncode == 2 and "there is no plan in plans/" in done.stderr
