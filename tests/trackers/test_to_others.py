"""trackio and W&B without a network, read back as far as they can be. Skipped where they are not installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.study.mini import environment

from .test_points import RECORD, SERIES


def track(folder: Path, to: str, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ablation", "track", str(RECORD), "--to", to],
        cwd=folder,
        env=environment() | more,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_trackio_holds_every_point_once(tmp_path):
    pytest.importorskip("trackio")
    home = {"TRACKIO_DIR": str(tmp_path / "trackio")}
    assert track(tmp_path, "trackio=mine", **home) == "trackio: 28 points sent; trackio show --project mine\n"
    again = track(tmp_path, "trackio=mine", **home)
    assert again == "trackio: 0 points sent (all were there already); trackio show --project mine\n"
    script = """
import json, trackio
from trackio.sqlite_storage import SQLiteStorage as store
rows = {run.name: [(row["step"], len(row)) for row in store.get_logs("mine", run=run.name)] for run in trackio.Api().runs("mine")}
print(json.dumps(rows))
"""
    read = subprocess.run([sys.executable, "-c", script], env=os.environ | home, capture_output=True, text=True, check=True)
    rows = json.loads(read.stdout.splitlines()[-1])
    assert {name.split()[0] for name in rows} == set(SERIES)
    assert all(sorted(step for step, _ in told) == [0, 1, 2, 3, 4, 5, 5] for told in rows.values())


@pytest.mark.parametrize("odd", ["a file", "a link to nowhere", "a data base that is none"])
def test_what_trackio_lost_is_no_success(tmp_path, odd):
    """The package itself says nothing of a folder that it cannot write."""
    pytest.importorskip("trackio")
    home = tmp_path / "trackio"
    if odd == "a file":
        home.write_text("")
    elif odd == "a link to nowhere":
        home.symlink_to(tmp_path / "nowhere" / "else")
    else:
        home.mkdir()
        (home / "mine.db").write_bytes(b"rubbish" * 1000)
    done = subprocess.run(
        [sys.executable, "-m", "ablation", "track", str(RECORD), "--to", "trackio=mine"],
        cwd=tmp_path,
        env=environment() | {"TRACKIO_DIR": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    kept = subprocess.run(
        [sys.executable, "-c", "import trackio; print(len(trackio.Api().runs('mine')))"],
        env=os.environ | {"TRACKIO_DIR": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        assert kept.stdout.split()[-1:] == [str(len(SERIES))]
    else:
        assert done.returncode == 2 and "\n--to trackio: " in f"\n{done.stderr}" and "Traceback" not in done.stderr


def test_wandb_offline_holds_every_point_once_and_no_machine(tmp_path):
    pytest.importorskip("wandb")
    offline = {"WANDB_MODE": "offline"}
    said = track(tmp_path, "wandb=mine", **offline)
    assert said == "wandb: 28 points sent; W&B, project mine, offline: `wandb sync --sync-all` sends it\n"
    folders = list((tmp_path / "wandb").glob("offline-run-*"))
    assert len(folders) == len(SERIES)
    assert not [path for folder in folders for path in (folder / "files").iterdir()]
    for folder in folders:
        (data,) = [path.read_bytes() for path in folder.glob("*.wandb")]
        assert data.count(b"cells/clean_share") >= 2 and data.count(b"update/grad_norm") >= 5
        for private in (str(tmp_path).encode(), b"requirements.txt", b'"host"', b"executable"):
            assert private not in data
    assert "0 points sent" in track(tmp_path, "wandb=mine", **offline)
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == len(SERIES)


def test_wandb_without_a_key_is_an_error_of_one_line(tmp_path):
    pytest.importorskip("wandb")
    done = subprocess.run(
        [sys.executable, "-m", "ablation", "track", str(RECORD), "--to", "wandb"],
        cwd=tmp_path,
        env={name: value for name, value in environment().items() if not name.startswith("WANDB")} | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no API key: run `wandb login`, or set WANDB_MODE=offline" in done.stderr
