from ablation.files import write_folder, write_json
from ablation.plan.model import Plan
from ablation.rollouts.folder import RunFolder, stage_file
from ablation.study.state import run_state

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
