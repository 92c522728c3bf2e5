"""Comparisons with the real model: what is sampled, and a comparison that is killed anywhere."""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import yaml

import ablation as package
from ablation.files import sha256_file, sha256_path
from ablation.plan.deviations import record_deviation
from ablation.plan.lock import lock_plan, verify_lock
from ablation.rollouts.comparisons import comparison_hours
from ablation.rollouts.journal_chain import check_journal
from ablation.rollouts.store import read_stage
from ablation.seeds import derive_seed

from .kill import processes
from .mini import ablation, contents, mini_tree, write_plan
from .test_set_prompts import TOOL_TEMPLATE

pytestmark = pytest.mark.slow

ASSETS = Path(package.__file__).parent / "assets"
GATES = ["held-out", "never-used", "extension", "selection", "release"]
RULE = {"name": "kept", "measure": "correct", "compare": "change", "op": ">=", "limit": -3}


def shipped(name: str) -> dict:
    return {"at": f"package:{name}", "sha256": sha256_file(ASSETS / name)}


def tree() -> dict:
    """The small study with the shipped held-out problems, one rollout a cell in parts of 20, and the example safety prompts."""
    plan = mini_tree()
    plan["problems"]["cells"] = {effort: ids[:2] for effort, ids in plan["problems"]["cells"].items()}
    plan["sampling"] |= {"max_tokens": 64, "batch_rollouts": 20}
    plan["training"] |= {"updates": 1, "rollouts_per_cell": 2}
    plan["verdict"] |= {
        "held_out": {
            "rollouts": 72,
            "problems": shipped("tiny-reasoner/held-out.jsonl"),
            "rules": [RULE],
            "blinded_read": {"pairs": 2, "passes": 2},
        },
        "release": {
            "guards": [RULE | {"name": "cjk", "measure": "visible_cjk", "limit": 0, "op": "<="}],
            "safety": {"prompts": shipped("examples/safety-prompts.jsonl"), "efforts": ["low", "xhigh"]},
        },
    }
    return plan


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the small study's arm XK trained, and a deviation that opens every gate."""
    folder = tmp_path_factory.mktemp("evaluate")
    plan = write_plan(folder, tree())
    lock_plan(plan)
    done = ablation(folder, "run", "--arm", "XK")
    assert done.returncode == 0, done.stderr
    record_deviation(verify_lock(plan), reason="Compared without a verdict.", seen="results", opens=GATES)
    return folder


def work(folder: Path) -> None:
    """The command as a user types it in `folder`."""
    from ablation.cli.main import main

    os.chdir(folder)
    sys.argv = ["ablation", "evaluate", "held-out", "--subject", "XK@1"]
    with open(folder / "output.txt", "a") as sys.stderr:
        sys.stdout = sys.stderr
        try:
            main()
        except SystemExit as ended:
            os._exit(int(ended.code or 0))
    os._exit(0)


def test_killed_at_every_file_it_ends_with_the_same_bytes(trained, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        shutil.copytree(trained, folder)
    process = processes().Process(target=work, args=(whole,))
    process.start()
    process.join()
    assert process.exitcode == 0, (whole / "output.txt").read_text()

    comparison, chance = Path("runs/mini/evaluations/held-out"), random.Random(6)
    sides = ("XK@1/reference", "XK@1/subject")
    triggers = ["problems.jsonl", *(f"{side}/part-{part:03d}.parquet" for side in sides for part in range(4))]
    triggers += [f"{side}/{name}" for side in sides for name in ("stage.json", "grades.json", "measures.json")]
    kills = 0
    for trigger in triggers:
        process = processes().Process(target=work, args=(killed,))
        process.start()
        while process.is_alive() and not (killed / comparison / trigger).exists():
            time.sleep(0.0005)
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    assert kills >= 12, (killed / "output.txt").read_text()
    process = processes().Process(target=work, args=(killed,))
    process.start()
    process.join()
    assert process.exitcode == 0, (killed / "output.txt").read_text()
    expected, found = (contents(folder / "runs" / "mini") for folder in (whole, killed))
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
    assert any(name.endswith("XK@1/evaluation.json") for name in expected)
    digest = verify_lock(killed / "plans" / "mini.yaml").digest
    state = check_journal(killed / "runs" / "mini", digest)
    hours = comparison_hours(state.events, "held-out", "XK@1")
    assert hours is not None and 0 < hours < 0.2


def test_both_models_get_the_same_seeds_and_prompts_and_the_checkpoint_is_the_arms(trained, tmp_path):
    folder = tmp_path / "one"
    shutil.copytree(trained, folder)
    done = ablation(folder, "evaluate", "held-out", "--subject", "XK@1", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["rollouts"], record["per_cell"], record["deviations"]) == (72, 1, [1])
    run = folder / "runs" / "mini"
    reference, subject = (read_stage(run / "evaluations" / "held-out" / "XK@1" / side) for side in ("reference", "subject"))
    assert (reference.info.arm, reference.info.update, subject.info.arm, subject.info.update) == ("start", 0, "XK", 1)
    for name in ("seed", "index"):
        assert (getattr(reference, name) == getattr(subject, name)).all()
    for name in ("problem", "effort", "prompt_sha256"):
        assert list(getattr(reference, name)) == list(getattr(subject, name))
    seed = yaml.safe_load((folder / "plans" / "mini.yaml").read_text())["families"]["main"]["seed"]
    assert subject.seed[0] == derive_seed(seed, "rollout", "held-out", "h00@low", 0)
    assert reference.info.adapter_sha256 == read_stage(run / "main" / "start" / "sweep").info.adapter_sha256
    assert subject.info.adapter_sha256 == read_stage(run / "main" / "XK" / "readout").info.adapter_sha256
    assert record["correct"]["subject"] == sum(
        one["status"] == "correct"
        for one in json.loads((run / "evaluations" / "held-out" / "XK@1" / "subject" / "grades.json").read_bytes())["rollouts"]
    )
    again = ablation(folder, "evaluate", "held-out", "--subject", "XK@1")
    assert again.returncode == 0 and "held-out: XK@1 was compared already" in again.stderr and "loading" not in again.stderr


def test_safety_prompts_are_answered_once_at_each_effort(trained, tmp_path):
    folder = tmp_path / "one"
    shutil.copytree(trained, folder)
    done = ablation(folder, "evaluate", "safety", "--subject", "XK@1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "next: ablation run --all"  # the other arm was never run
    root = folder / "runs" / "mini" / "evaluations" / "safety"
    assert (root / "prompts.jsonl").read_bytes() == (ASSETS / "examples" / "safety-prompts.jsonl").read_bytes()
    measured = json.loads((root / "XK@1" / "subject" / "measures.json").read_bytes())
    assert measured["rollouts"] == 16 and measured["full_compliance"] is None
    assert not (root / "XK@1" / "subject" / "grades.json").exists()


def test_agent_states_are_sampled_with_a_template_that_shows_tools(tmp_path):
    """The shipped model with another chat template, as a plan of somebody else would name it."""
    plan, base = tree(), tmp_path / "plans" / "base"
    shutil.copytree(ASSETS / "tiny-reasoner" / "base", base)
    (base / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    plan["model"]["base"] = {"at": "base", "sha256": sha256_path(base)}
    path = tmp_path / "plans" / "states.jsonl"
    tools = [{"name": "add", "description": "", "parameters": {"type": "object"}}]
    lines = [
        {"id": f"s{i}", "task": f"t{i % 2}", "messages": [{"role": "user", "content": f"{i}+1="}], "tools": tools}
        for i in range(4)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    states = {"at": "states.jsonl", "sha256": sha256_file(path)}
    plan["verdict"]["release"] = {
        "guards": [{"name": "turn", "measure": "agent_turn", "compare": "ratio", "op": "<=", "limit": 1.25}],
        "agent": {"states": states, "rollouts_per_state": 2},
    }
    path = write_plan(tmp_path, plan)
    lock_plan(path)
    done = ablation(tmp_path, "run", "--arm", "XK")
    assert done.returncode == 0, done.stderr
    record_deviation(verify_lock(path), reason="Compared without a verdict.", seen="results", opens=GATES)
    done = ablation(tmp_path, "evaluate", "agent", "--subject", "XK@1")
    assert done.returncode == 0, done.stderr
    root = tmp_path / "runs" / "mini" / "evaluations" / "agent"
    for side in ("reference", "subject"):
        measured = json.loads((root / "XK@1" / side / "measures.json").read_bytes())
        assert (measured["rollouts"], measured["states"], measured["tasks"]) == (8, 4, 2)
