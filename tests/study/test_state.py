from ablation.files import write_folder, write_json
from ablation.plan.deviations import Deviation, pause_gate
from ablation.plan.model import Plan
from ablation.rollouts.folder import RunFolder, inflight_file, part_file, stage_file
from ablation.rollouts.inflight import append_rollouts
from ablation.rollouts.store import finish_stage, write_part
from ablation.study.journal import Journal
from ablation.study.state import run_state

from ..rollouts.build import END, info, rollout
from .mini import mini_tree


def state(tmp_path):
    return run_state(Plan.model_validate(mini_tree()), tmp_path)


def arm(found, family, name):
    return next(one for one in found.arms if (one.family, one.arm) == (family, name))


def test_a_run_that_has_not_begun(tmp_path):
    found = state(tmp_path / "none")
    assert found.sweeps == {"main": "no", "replication": "no"}
    assert [(one.family, one.arm, one.updates_done, one.readout) for one in found.arms] == [
        ("main", "C", 0, "no"),
        ("main", "XK", 0, "no"),
        ("replication", "C", 0, "no"),
    ]
    assert not any(one.finished for one in found.arms)


def test_an_extension_and_updates_without_a_step(tmp_path):
    tree = mini_tree() | {"extension": {"arms": ["XK"], "updates": 6, "checks": [4, 6]}}
    plan, run = Plan.model_validate(tree), RunFolder(tmp_path)

    def look(*deviations):
        return run_state(plan, tmp_path, deviations).extensions

    [one] = look()
    assert (one.family, one.arm, one.updates_done, one.updates, one.checks) == ("main", "XK", 2, 6, {4: "no", 6: "no"})
    for k in range(1, 5):
        write_folder(run.checkpoint("main", "XK", k), lambda folder: (folder / "weights").write_bytes(b"x"))
        write_json(run.audit("main", "XK", k), {"step": {"outcome": "no_signal" if k in (1, 3) else "stepped"}})
    write_json(stage_file(run.check("main", "XK", 4)), {})
    [one] = look()
    assert (one.updates_done, one.checks, one.paused_after, one.unstepped) == (4, {4: "yes", 6: "no"}, None, {3: "no_signal"})
    assert arm(run_state(plan, tmp_path), "main", "XK").unstepped == {1: "no_signal"}
    rules = [
        {"name": "clean_lost", "value": -4, "op": "<=", "limit": -2},
        {"name": "logprob_lost", "value": -0.00042, "op": "<=", "limit": -0.15},
        {"name": "longer", "value": None, "op": ">", "limit": 2.0},
    ]
    write_json(run.check_result("main", "XK", 4), {"label": "DAMAGED", "pauses": "clean_lost", "rules": rules})
    [one] = look()
    assert (one.checks[4], one.paused_after) == ("DAMAGED", 4)
    assert one.figures[4] == [
        "clean_lost -4 (fires at <= -2)",
        "logprob_lost +0.000 (fires at <= -0.15)",
        "longer no figure (fires at > 2.0)",
    ]

    def deviation(gate):
        return Deviation(1, "2026-01-01T00:00:00+00:00", "On past it.", "results", (gate,), "ann", None, "0" * 64)

    assert look(deviation(pause_gate("XK", 6)))[0].paused_after == 4
    assert look(deviation(pause_gate("XK", 4)))[0].paused_after is None
    run.update("main", "C", 3).mkdir(parents=True)  # under a deviation: the plan does not name it
    assert [one.arm for one in look()] == ["C", "XK"]
    write_json(run.extension_stopped("main", "C"), {"rule": "not_finite"})
    assert look()[0].stopped and not arm(run_state(plan, tmp_path), "main", "C").stopped


def test_what_is_there_is_counted(tmp_path):
    run = RunFolder(tmp_path)
    write_json(stage_file(run.sweep("main")), {})
    write_folder(run.checkpoint("main", "C", 1), lambda folder: (folder / "weights").write_bytes(b"x"))
    (run.readout("main", "C")).mkdir(parents=True)
    (run.readout("main", "C") / "part-000.parquet").write_bytes(b"")
    write_json(run.stopped("main", "XK"), {"rule": "not_finite"})
    write_json(stage_file(run.readout("replication", "XK")), {})
    found = state(tmp_path)
    assert found.sweeps == {"main": "yes", "replication": "no"}
    assert (arm(found, "main", "C").updates_done, arm(found, "main", "C").readout) == (1, "partly")
    assert arm(found, "main", "XK").finished and arm(found, "main", "XK").stopped
    assert arm(found, "replication", "XK").finished


def test_a_command_that_failed_is_told_until_its_update_is_trained(tmp_path):
    tree = mini_tree()
    tree["arms"]["E"] = {"external": {"command": ["true"], "each": "update"}}
    plan, run = Plan.model_validate(tree), RunFolder(tmp_path)
    journal = Journal(run.journal, "d" * 64)

    def tell(event, **fields) -> str | None:
        journal.append(event, arm="main/E", update=1, **fields)
        return arm(run_state(plan, tmp_path), "main", "E").failed

    assert tell("command_started", log="l-1") is None
    assert tell("command_ended", log="l-1", exit_code=3, ended="ended with exit code 3 after 2 s") == (
        "update 1: the command ended with exit code 3 after 2 s (see l-1)"
    )
    assert arm(run_state(plan, tmp_path), "main", "C").failed is None
    assert tell("command_started", log="l-2") is None
    assert tell("command_ended", log="l-2", exit_code=0, ended="ended with exit code 0 after 2 s") == (
        "update 1: the command ended well, but what it left could not be taken (see l-2)"
    )
    assert tell("update_trained") is None
    journal.close()


def test_rollouts_of_stages_that_are_not_complete_are_counted_in_parts_and_in_flight(tmp_path):
    run, sweep, update = RunFolder(tmp_path), info(), info(arm="XK", stage="update", update=1)
    folder = run.sweep("main")
    write_part(part_file(folder, 0), sweep, [rollout(sweep, [5, END], index=index) for index in range(3)])
    append_rollouts(inflight_file(folder, 1), sweep, [rollout(sweep, [5, END], index=3)])
    append_rollouts(inflight_file(folder, 1), sweep, [rollout(sweep, [5, END], index=4)])
    append_rollouts(inflight_file(run.update("main", "XK", 1), 0), update, [rollout(update, [5, END])])
    found = state(tmp_path)
    assert found.begun == {"main/XK/update-1": 1, "main/start/sweep": 5}
    assert found.sweeps == {"main": "partly", "replication": "no"}
    log = inflight_file(folder, 1)
    log.write_bytes(log.read_bytes() + b'{"family":"ma')  # a runner is at work on it
    assert state(tmp_path).begun["main/start/sweep"] == 5
    write_part(part_file(folder, 1), sweep, [rollout(sweep, [5, END], index=index) for index in (3, 4)])
    assert state(tmp_path).begun["main/start/sweep"] == 5  # the log is a part by now
    log.unlink()
    log.parent.rmdir()
    finish_stage(folder, sweep, ["part-000.parquet", "part-001.parquet"])
    assert state(tmp_path).begun == {"main/XK/update-1": 1}


def test_updates_of_a_record_without_checkpoints(tmp_path):
    """A readout that was sampled here follows the last update, so what was audited was trained; without one nothing says so."""
    plan, run = Plan.model_validate(mini_tree()), RunFolder(tmp_path)
    for k in (1, 2):
        write_json(run.audit("main", "C", k), {"step": {"outcome": "stepped"}})
    one = arm(run_state(plan, tmp_path), "main", "C")
    assert (one.updates_done, one.without_checkpoint) == (0, 0)
    write_json(stage_file(run.readout("main", "C")), {})
    one = arm(run_state(plan, tmp_path), "main", "C")
    assert (one.updates_done, one.without_checkpoint, one.readout) == (2, 2, "yes")
