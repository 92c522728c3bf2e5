"""Events that TensorBoard itself reads back."""

import shutil
from pathlib import Path

import pytest

from ablation.plan.lock import verify_lock
from ablation.trackers.follow import Follower
from ablation.trackers.points import open_source

from .test_points import RECORD, SERIES

pytest.importorskip("tensorboard")


def follower(root: Path, folder: Path) -> Follower:
    from ablation.trackers.to_tensorboard import open_tracker

    locked = verify_lock(RECORD / "plan.yaml")
    return Follower(open_source(locked.plan, root), locked.digest, open_tracker(str(folder), locked.plan.name))


def scalars(folder: Path, series: str) -> dict[str, list[tuple[int, float]]]:
    """Tag -> its (step, value) pairs, by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / series), size_guidance={"tensors": 0, "scalars": 0})
    found.Reload()
    told = {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    for tag in found.Tags()["tensors"]:
        told[tag] = [(one.step, float(one.tensor_proto.float_val[0])) for one in found.Tensors(tag)]
    return told


def test_every_number_comes_back_once(tmp_path):
    one = follower(RECORD, tmp_path)
    assert one.catch_up() == 28
    one.pause()
    locked = verify_lock(RECORD / "plan.yaml")
    source = open_source(locked.plan, RECORD)
    source.events.read()
    points = list(source.points())
    for series in SERIES:
        wanted: dict[str, list[tuple[int, float]]] = {}
        for point in (point for point in points if point.series == series):
            for name, value in point.values.items():
                wanted.setdefault(name, []).append((point.step, pytest.approx(value, rel=1e-6, abs=1e-12)))
        assert scalars(tmp_path, series) == wanted


def test_nothing_is_sent_twice_and_what_is_new_is_sent(tmp_path):
    run, board = tmp_path / "run", tmp_path / "board"
    shutil.copytree(RECORD, run)
    shutil.move(run / "main/N", tmp_path / "N")
    assert follower(run, board).catch_up() == 21
    before = {series: scalars(board, series) for series in SERIES if series != "main/N"}
    assert follower(run, board).catch_up() == 0
    shutil.move(tmp_path / "N", run / "main/N")
    assert follower(run, board).catch_up() == 7
    assert {series: scalars(board, series) for series in SERIES if series != "main/N"} == before
    assert [step for step, _ in scalars(board, "main/N")["update/logprob"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("cut", [1, 40])
def test_half_a_record_of_a_killed_writer_is_written_again(tmp_path, cut):
    whole = follower(RECORD, tmp_path / "whole")
    whole.catch_up()
    follower(RECORD, tmp_path / "cut").catch_up()
    (path,) = (tmp_path / "cut" / "main/N").iterdir()
    path.write_bytes(path.read_bytes()[:-cut])
    assert follower(RECORD, tmp_path / "cut").catch_up() == 1
    assert scalars(tmp_path / "cut", "main/N") == scalars(tmp_path / "whole", "main/N")


def test_files_name_no_machine(tmp_path):
    import platform

    follower(RECORD, tmp_path).catch_up()
    (path,) = (tmp_path / "main/N").iterdir()
    assert platform.node() not in path.name
