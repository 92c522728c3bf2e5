"""Efforts are the plan's own names: a model whose template knows `low`, `high` and `max_think` is run, imported and judged."""

import json
import shutil

import pytest

from ablation.files import sha256_path
from ablation.plan.load import parse_plan
from ablation.plan.phase2 import doubtful_efforts
from tests.study.mini import ROOT, ablation, mini_tree, write_plan

EFFORTS = ("high", "low", "max_think")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The quickstart's model with another template. The order of the efforts is that of the plan, not of the alphabet."""
    folder = tmp_path_factory.mktemp("efforts")
    base = folder / "plans" / "base"
    shutil.copytree(ROOT / "ablation" / "assets" / "tiny-reasoner" / "base", base)
    template = base / "chat_template.jinja"
    names = "{%- set own = {'low': 'low', 'high': 'medium', 'max_think': 'xhigh'} -%}"
    text = template.read_text().replace("effort not in ['low', 'medium', 'xhigh']", "effort not in own")
    template.write_text(names + text.replace("'<|' + effort + '|>", "'<|' + own[effort] + '|>"))
    tree = mini_tree()
    tree["model"]["base"] = {"at": "base", "sha256": sha256_path(base)}
    ids = list(tree["problems"]["cells"].values())
    tree["problems"]["cells"] = dict(zip(("low", "high", "max_think"), ids, strict=True))
    path = write_plan(folder, tree)
    return folder, path, tree


def test_a_study_at_efforts_of_its_own(study):
    folder, path, tree = study
    done = ablation(folder, "plan", "lock", str(path))
    assert done.returncode == 0, done.stderr
    done = ablation(folder, "run", "--all")
    assert done.returncode == 0, done.stderr
    assert ablation(folder, "verdict").returncode == 0
    done = ablation(folder, "audit", "runs/mini")
    assert done.returncode == 0, done.stdout[-2000:]
    measures = json.loads((folder / "runs/mini/main/start/sweep/measures.json").read_bytes())
    assert set(measures["by_effort"]) == set(EFFORTS)
    problem = tree["problems"]["cells"]["max_think"][0]
    assert ablation(folder, "show", f"main/C/readout/{problem}@max_think#0").returncode == 0
    assert "3 low, 3 high, 2 max_think" in ablation(folder, "plan", "show", str(path)).stdout


def test_rows_at_these_efforts_are_imported(study):
    folder, _, tree = study
    wanted = ablation(folder, "import", "--stage", "sweep", "--list", "--run", "runs/taken")
    rows = [json.loads(line) for line in wanted.stdout.splitlines()]
    assert list(dict.fromkeys(row["effort"] for row in rows)) == list(tree["problems"]["cells"])
    for row in rows:
        row |= {"thinking": "1+1=2", "answer": "2", "finish_reason": "stop"}
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = ablation(folder, "import", "--stage", "sweep", "--run", "runs/taken", "rows.jsonl")
    assert done.returncode == 0, done.stderr
    rows[0]["effort"] = "xhigh"
    (folder / "wrong.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = ablation(folder, "import", "--stage", "sweep", "--run", "runs/other", "wrong.jsonl")
    assert done.returncode == 2 and "effort: found `xhigh`; the plan's are low, high, max_think" in done.stderr


def test_an_effort_that_the_template_refuses_is_found_before_the_run(study, tmp_path):
    folder, _, tree = study
    shutil.copytree(folder / "plans" / "base", tmp_path / "plans" / "base")
    cells = dict(tree["problems"]["cells"])
    cells["hihg"] = cells.pop("high")
    wrong = tree | {"problems": tree["problems"] | {"cells": cells}}
    done = ablation(tmp_path, "plan", "check", str(write_plan(tmp_path, wrong)))
    assert done.returncode == 2 and "problems.cells.hihg: the model's chat template refuses effort `hihg`" in done.stderr


def test_a_slip_of_the_pen_in_a_set_is_told_of(tmp_path):
    text = (ROOT / "plans" / "phase2.yaml").read_text()
    text = text.replace("  held_out: ", "  held_out:\n    efforts: [low, xhihg, high, none] ", 1)
    found = doubtful_efforts(parse_plan(tmp_path / "plan.yaml", text.encode()).plan)
    said = "is nowhere else in the plan; did you mean `xhigh`?"
    field = "verdict.held_out.problems"
    assert found == [(field, f"its effort `high` {said}"), (field, f"its effort `xhihg` {said}")]
