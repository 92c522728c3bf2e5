"""The runner on a real model: whole runs through the command line. `test_kill` kills and resumes them."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from ablation.files import sha256_file
from ablation.plan.lock import lock_plan
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import read_journal
from ablation.rollouts.store import stage_is_complete

from .mini import ablation, contents, mini_tree, write_plan

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A folder with a locked plan and its finished run, never interrupted."""
    folder = tmp_path_factory.mktemp("finished")
    plan = write_plan(folder, mini_tree())
    locked = ablation(folder, "plan", "lock", str(plan))
    assert locked.returncode == 0, locked.stderr
    done = ablation(folder, "run", "--all")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def locked(finished, tmp_path) -> Path:
    """A fresh folder with the same locked plan and nothing run."""
    shutil.copytree(finished / "plans", tmp_path / "plans")
    return tmp_path


def stage_rows(folder: Path, stage: str) -> list:
    from ablation.rollouts.store import read_stage

    return read_stage(folder / "runs" / "mini" / stage).rollouts()


def test_a_run_has_every_stage(finished):
    run = finished / "runs" / "mini"
    for stage in ("main/start/sweep", "main/C/readout", "main/XK/readout", "replication/C/readout", "replication/start/sweep"):
        assert len(stage_rows(finished, stage)) == 24, stage
    for arm in ("C", "XK"):
        sampled = [row for k in (1, 2) for row in stage_rows(finished, f"main/{arm}/update-{k}")]
        assert len({(row.cell.id, row.index) for row in sampled}) == len(sampled) == 24  # every cell once
        assert (run / "main" / arm / "update-2" / "checkpoint" / "adapter_model.safetensors").is_file()


def test_arms_of_a_family_share_cells_seeds_and_at_update_1_the_rollouts(finished):
    control, other = (stage_rows(finished, f"main/{arm}/update-1") for arm in ("C", "XK"))
    assert [(a.cell, a.seed, a.token_ids, a.logprobs) for a in control] == [
        (b.cell, b.seed, b.token_ids, b.logprobs) for b in other
    ]
    control, other = (stage_rows(finished, f"main/{arm}/update-2") for arm in ("C", "XK"))
    assert [(a.cell, a.seed) for a in control] == [(b.cell, b.seed) for b in other]
    sweep, readout = stage_rows(finished, "main/start/sweep"), stage_rows(finished, "main/C/readout")
    assert [(a.cell, a.seed) for a in sweep] == [(b.cell, b.seed) for b in readout]


def test_families_share_no_seed(finished):
    main, second = (stage_rows(finished, f"{family}/start/sweep") for family in ("main", "replication"))
    assert not {row.seed for row in main} & {row.seed for row in second}


def test_the_kl_anchor_weighs_nothing_at_update_1_and_something_later(finished):
    audits = [json.loads((finished / f"runs/mini/main/XK/update-{k}/audit.json").read_text()) for k in (1, 2)]
    assert audits[0]["weights"]["kl_share"] in (0.0, None)
    assert audits[1]["weights"]["kl_share"] > 0


def test_trainer_and_sampler_agree_at_every_update(finished):
    for path in (finished / "runs" / "mini").glob("*/*/update-*/audit.json"):
        assert json.loads(path.read_text())["step"]["mismatch"]["p99_absolute"] < 1e-3


def test_the_journal_is_whole_and_names_the_plan(finished):
    digest = json.loads((finished / "plans" / "mini.lock").read_text())["digest"]
    events = read_journal(finished / "runs" / "mini" / "journal.jsonl")
    assert {event["plan"] for event in events} == {digest}
    kinds = [event["event"] for event in events]
    assert kinds[0] == "runner_started" and kinds.count("arm_finished") >= 3
    saved = {(one["arm"], one["update"]): one["checkpoint_sha256"] for one in events if one["event"] == "checkpoint_saved"}
    run = finished / "runs" / "mini"
    assert saved["main/C", 2] == sha256_file(run / "main" / "C" / "update-2" / "checkpoint" / "complete.json")
    assert len(saved) == kinds.count("update_trained")
    loaded = next(event for event in events if event["event"] == "model_loaded")
    assert loaded["environment"]["packages"]["torch"]


def test_running_again_adds_nothing(finished):
    before = contents(finished / "runs" / "mini")
    again = ablation(finished, "run", "--all")
    assert again.returncode == 0 and "finished already" in again.stderr
    assert contents(finished / "runs" / "mini") == before


def test_an_unlocked_or_touched_plan_does_not_run(locked):
    plan = locked / "plans" / "mini.yaml"
    text = plan.read_text()
    plan.write_text(text.replace("updates: 2", "updates: 1"))
    touched = ablation(locked, "run", "--arm", "C")
    assert touched.returncode == 3 and "training.updates" in touched.stderr
    plan.write_text(text)
    (locked / "plans" / "mini.lock").unlink()
    unlocked = ablation(locked, "run", "--arm", "C", "--plan", str(plan))
    assert unlocked.returncode == 3 and "not locked" in unlocked.stderr
    assert not (locked / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--arm", "Z"], 2, "there is no arm `Z`; its arms are C, XK"),
        (["--arm", "C", "--family", "third"], 2, "there is no family `third`"),
        ([], 2, "--arm NAME or --all"),
        (["--arm", "C", "--all"], 2, "--arm NAME or --all"),
        (["--arm", "XK", "--family", "replication"], 6, "main"),
        (["--all", "--continue-to", "3"], 2, "--continue-to goes with --arm"),
        (["--arm", "C", "--continue-to", "3"], 2, "the plan has no section `extension`"),
        (["--arm", "C", "--continue-to", "0"], 2, "--continue-to"),
    ],
)
def test_wrong_use(locked, arguments, code, message):
    refused = ablation(locked, "run", *arguments)
    assert refused.returncode == code, refused.stderr
    assert message in refused.stderr and "Traceback" not in refused.stderr


def test_the_run_folder_of_another_plan_is_refused(finished, tmp_path):
    tree = mini_tree() | {"question": "Another question?"}
    plan = write_plan(tmp_path, tree)
    assert ablation(tmp_path, "plan", "lock", str(plan)).returncode == 0
    before = contents(finished / "runs" / "mini")
    refused = ablation(tmp_path, "run", "--arm", "C", "--run", str(finished / "runs" / "mini"))
    assert refused.returncode == 3 and "another plan" in refused.stderr
    assert contents(finished / "runs" / "mini") == before


def test_a_stop_rule_ends_an_arm_with_5_and_the_study_goes_on(tmp_path):
    tree = mini_tree()
    tree["arms"] = {"C": tree["arms"]["C"], "N": {"weighting": "rollout"}}
    tree["stop_rules"] = [{"name": "any_unfinished", "measure": "truncated_or_looping_share", "op": ">", "limit": 0.0}]
    plan = write_plan(tmp_path, tree)
    assert ablation(tmp_path, "plan", "lock", str(plan)).returncode == 0
    stopped = ablation(tmp_path, "run", "--arm", "C")
    assert stopped.returncode == 5 and "any_unfinished" in stopped.stderr
    assert not (tmp_path / "runs/mini/main/C/update-2").exists()
    assert ablation(tmp_path, "run", "--arm", "C").returncode == 5  # still, and nothing is trained again
    rest = ablation(tmp_path, "run", "--all")
    assert rest.returncode == 0 and "main/N: stop rule" in rest.stderr


def test_a_run_never_goes_on_under_another_engine(finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "runs" / "mini"
    (run / "verdict.json").unlink(missing_ok=True)
    shutil.rmtree(run / "main" / "XK" / "readout")
    before = contents(run)
    refused = ablation(tmp_path, "run", "--arm", "XK", more={"ATEN_CPU_CAPABILITY": "default"})
    assert refused.returncode == 3, refused.stderr
    assert "this run began with another engine: cpu_capability" in refused.stderr and "Traceback" not in refused.stderr
    assert "`ablation plan deviate plans/mini.yaml --opens engine --seen results --reason ...`" in refused.stderr
    assert contents(run) == before
    again = ablation(tmp_path, "run", "--arm", "XK")
    assert again.returncode == 0, again.stderr
    assert contents(run) == contents(finished / "runs" / "mini")


def test_another_engine_is_a_deviation_that_journal_and_labels_tell_of(finished, tmp_path):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "runs" / "mini"
    (run / "verdict.json").unlink(missing_ok=True)
    shutil.rmtree(run / "main" / "XK" / "readout")
    why = ["--seen", "results", "--reason", "The first machine is gone.", "--opens", "engine"]
    assert ablation(tmp_path, "plan", "deviate", "plans/mini.yaml", *why).returncode == 0
    done = ablation(tmp_path, "run", "--arm", "XK", more={"ATEN_CPU_CAPABILITY": "default"})
    assert done.returncode == 0, done.stderr
    assert "goes on with another engine (cpu_capability" in done.stderr and "under deviation 1" in done.stderr
    [changed] = [event for event in read_journal(run / "journal.jsonl") if event["event"] == "engine_changed"]
    assert changed["began"]["cpu_capability"] != changed["now"]["cpu_capability"] and changed["deviation"] == 1
    verdict = json.loads(ablation(tmp_path, "verdict", "--json").stdout)
    assert verdict["label"].endswith(" (deviation 1; redone: main/XK)")  # the readout was sampled again, by another engine
    assert any("main/XK: the engine changed between sweep and readout: cpu_capability" in note for note in verdict["notes"])


def test_updates_without_a_signal_are_named_and_leave_adapter_and_optimizer_as_they_were(tmp_path):
    """Cut after four tokens, every rollout earns 0: no group says anything."""
    tree = mini_tree()
    tree["sampling"] |= {"max_tokens": 4}
    write_plan(tmp_path, tree)
    lock_plan(tmp_path / "plans" / "mini.yaml")
    done = ablation(tmp_path, "run", "--arm", "C")
    assert done.returncode == 0, done.stderr
    assert "main/C: update 1: no_signal: no step: the rewards of every group are all equal" in done.stderr
    run = tmp_path / "runs" / "mini"
    audit = json.loads((run / "main/C/update-2/audit.json").read_text())
    assert (audit["step"]["outcome"], audit["step"]["stepped"], audit["step"]["loss"]) == ("no_signal", False, 0.0)
    assert len(audit["weights"]["no_signal_cells"]) == 4 and audit["metrics"]["mismatch_mean"] is None
    [event] = [one for one in read_journal(run / "journal.jsonl") if one["event"] == "update_trained" and one["update"] == 2]
    assert event["outcome"] == "no_signal"
    sweep, readout = (json.loads((run / f"main/{stage}/stage.json").read_text()) for stage in ("start/sweep", "C/readout"))
    assert sweep["info"]["adapter_sha256"] == readout["info"]["adapter_sha256"]
    shown = ablation(tmp_path, "status").stdout
    assert "arm      main/C: 2 of 2 updates, readout: yes; update 1: no_signal; update 2: no_signal\n" in shown


def test_a_pause_and_the_way_on_through_the_command_line(finished, tmp_path):
    """The same study with an extension whose check fires as soon as anything is clean: REPLICATED is not needed under a deviation."""
    tree = mini_tree()
    own = [{"name": "any_clean", "measure": "clean", "compare": "value", "op": ">", "limit": 0}]
    tree["extension"] = {"arms": ["XK"], "updates": 4, "checks": [3, 4], "damage": own}
    write_plan(tmp_path, tree)
    lock_plan(tmp_path / "plans" / "mini.yaml")
    assert ablation(tmp_path, "run", "--arm", "XK").returncode == 0
    refused = ablation(tmp_path, "run", "--arm", "XK", "--continue-to", "4")
    assert refused.returncode == 4 and "needs REPLICATED; the verdict on this run is INCOMPLETE" in refused.stderr
    deviate = ("plan", "deviate", "plans/mini.yaml", "--seen", "results", "--reason", "To see how it goes on.", "--opens")
    assert ablation(tmp_path, *deviate, "extension").returncode == 0
    for _ in range(2):
        paused = ablation(tmp_path, "run", "--arm", "XK", "--continue-to", "4")
        assert paused.returncode == 5, paused.stderr
        assert "main/XK: the check after update 3 pauses the extension: any_clean: clean rollouts above 0" in paused.stderr
    assert "--opens extension-pause:XK@3 --seen results" in paused.stderr
    assert "loading" not in paused.stderr  # the second time there is nothing to sample before it says so
    shown = ablation(tmp_path, "status").stdout
    assert "extend   main/XK: update 3 of 4, checks: 3 DAMAGED, 4 no; paused by the check after update 3\n" in shown
    assert ablation(tmp_path, *deviate, "extension-pause:XK@3").returncode == 0
    assert "next     ablation run --arm XK --continue-to 4" not in shown
    on = ablation(tmp_path, "run", "--arm", "XK", "--continue-to", "4")
    assert on.returncode == 5 and "the check after update 4 pauses the extension" in on.stderr
    run = tmp_path / "runs" / "mini"
    for k in (1, 2, 3, 4):
        state = load_file(run / f"main/XK/update-{k}/checkpoint/optimizer.safetensors")
        steps = {int(value) for name, value in state.items() if name.startswith("step/")}
        assert steps == {k}  # the moments of update 3 are those of update 2, carried on
    updates = [[row.cell for row in stage_rows(tmp_path, f"main/XK/update-{k}")] for k in (1, 2, 3, 4)]
    assert set(updates[2] + updates[3]) == set(updates[0] + updates[1]) and updates[2:] != updates[:2]
    finished_run = contents(finished / "runs" / "mini")
    same = [name for name in finished_run if name.startswith("main/XK/update-") and name.endswith((".json", ".safetensors"))]
    found = contents(run)
    bound = ("stage.json", "grades.json")  # they name the plan, which is another one here
    assert same and [name for name in same if not name.endswith(bound) and found[name] != finished_run[name]] == []


def test_what_a_claim_about_the_recipe_needs_runs_in_every_family(tmp_path):
    tree = mini_tree()
    tree["families"]["third"] = {"seed": 7}
    claim = {"subjects": ["XK"], "reference": "C", "measure": "clean", "side": "greater", "method": "welch"}
    tree["verdict"]["claims"] = {"cleaner": claim | {"families": ["main", "third"]}}
    tree["training"] |= {"updates": 1}
    assert ablation(tmp_path, "plan", "lock", str(write_plan(tmp_path, tree))).returncode == 0
    assert ablation(tmp_path, "run", "--all").returncode == 0
    run = RunFolder(tmp_path / "runs" / "mini")
    assert all(stage_is_complete(run.readout(family, arm)) for family in ("main", "third") for arm in ("C", "XK"))
    found = json.loads(ablation(tmp_path, "verdict", "--json").stdout)
    [claim] = found["claims"]
    assert claim["families"] == ["main", "third"] and claim["subjects"][0]["subject"] == "XK"
