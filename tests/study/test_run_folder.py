from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ablation.errors import IntegrityError
from ablation.imports.stage import import_stage, make_request
from ablation.study.run_folder import own_plan, refuse_odd_files
from ablation.study.workspace import open_run
from tests.imports.made import IDS, given_rows, write_rows
from tests.study.mini import ablation
from tests.verdict.study import lock_small, start_run, write_stage

RECORD = Path(__file__).parents[2] / "runs" / "records" / "smollm2"


def test_a_run_whose_lock_is_gone_is_not_to_be_locked_again(tmp_path):
    for name in ("plan.yaml", "plan.lock"):
        shutil.copy(RECORD / name, tmp_path / name)
    assert own_plan(tmp_path).plan.name == "smollm2"
    (tmp_path / "plan.lock").unlink()
    with pytest.raises(IntegrityError, match="plan.lock: the lock that this run began with is gone") as raised:
        own_plan(tmp_path)
    assert "plan lock" not in raised.value.hint


def test_a_link_that_leads_out_of_the_run_is_refused_by_all_that_reads_or_writes_it(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run, elsewhere = start_run(tmp_path / "runs" / "small", locked), tmp_path / "elsewhere"
    write_stage(run, locked, "main", "start")
    (run.root / "main").rename(elsewhere)
    (run.root / "main").symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    rows = write_rows(tmp_path / "r.jsonl", given_rows(locked))
    plan = ["--plan", str(locked.path)]
    for command in (
        ["import", "--stage", "readout", "--arm", "C", "--ids", IDS, *plan, str(rows)],
        ["status", *plan],
        ["status", str(run.root)],
        ["audit", str(run.root)],
        ["verdict", *plan],
        ["grade", *plan],
    ):
        found = ablation(tmp_path, *command)
        assert (found.returncode, found.stdout) == (3, ""), command
        assert f"{run.root}/main:isalinkto{elsewhere},outsideoftherun" in "".join(found.stderr.split()), command
    for write in (lambda: open_run(run.root, locked), lambda: refuse_odd_files(run.root)):
        with pytest.raises(IntegrityError, match="main: is a link to "):
            write()
    assert sorted(elsewhere.rglob("*")) == before
    whole = tmp_path / "link"
    whole.symlink_to(run.root)  # the folder as a whole may lie anywhere, and a link within it leads nowhere else
    (run.root / "main").unlink()
    elsewhere.rename(run.root / "main")
    (run.root / "latest").symlink_to(run.root / "main")
    assert open_run(whole, locked).root == whole


def test_an_import_into_a_folder_that_is_no_run_yet_does_not_write_through_a_link(tmp_path):
    locked = lock_small(tmp_path / "plans")
    root, elsewhere = tmp_path / "runs" / "small", tmp_path / "elsewhere"
    elsewhere.mkdir()
    root.mkdir(parents=True)
    (root / "main").symlink_to(elsewhere)
    path = write_rows(tmp_path / "r.jsonl", given_rows(locked))
    with pytest.raises(IntegrityError, match="main: is a link to "):
        import_stage(locked, root, make_request(locked, "sweep", None, None, None, files=[path], ids=IDS))
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("plan.yaml", "268,435,456"),
        ("plan.lock", "268,435,456"),
        ("journal.jsonl", "268,435,456"),
        ("main/C/readout/grades.json", "268,435,456"),
        ("main/C/readout/part-000.parquet", "68,719,476,736"),
    ],
)
def test_a_file_that_fills_the_memory_or_takes_hours_is_not_read(tmp_path, name, most):
    run = start_run(tmp_path / "runs" / "small", lock_small(tmp_path / "plans"))
    path = run.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(100 << 30)  # a hole: it takes no disk
    with pytest.raises(IntegrityError, match=f"has 107,374,182,400 bytes; such a file of a run has {most} at most"):
        own_plan(run.root)
