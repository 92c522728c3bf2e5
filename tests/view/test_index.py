"""The table of rollouts as a run grows, is graded, is damaged, and is opened again."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import duckdb
import pytest

from ablation.files import sha256_file
from ablation.rollouts.folder import stage_file
from ablation.view import cache, rows
from ablation.view.index import Index
from tests.view import made


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ablation.view.index.LOOK_AGAIN", 0.0)
    return made.make(tmp_path)


def tree(root):
    return {path: (path.stat().st_mtime_ns, sha256_file(path)) for path in sorted(root.rglob("*")) if path.is_file()}


def count(index):
    return index.sql("SELECT count(*) FROM rollouts")[0][0]


def test_parts_of_a_stage_that_is_being_sampled_are_shown_and_then_the_stage(run):
    folder, locked = run
    index = Index(folder.root, locked.plan)
    index.look(60)
    before = count(index)
    update = folder.update("main", "C", 1)
    made.write(folder, locked, "main", "C", update, whole=False, stage="update", update=1)
    index.look(60)
    live = index.sql("SELECT stage, pair, correct, part_row FROM rollouts WHERE folder = 'main/C/update-1' ORDER BY part_row")
    assert count(index) == before + 24
    assert live[0] == ("update-1", "update-1", True, 0)  # a cheap grader is asked
    made.write(folder, locked, "main", "C", update, stage="update", update=1)
    index.look(60)
    assert count(index) == before + 24  # once, not twice


def test_nothing_in_the_run_is_touched_and_the_second_time_is_from_the_cache(run, monkeypatch):
    folder, locked = run
    before = tree(folder.root)
    first = Index(folder.root, locked.plan)
    first.look(60)
    assert tree(folder.root) == before and len(list(cache.folder().glob("*.rows"))) == 6
    monkeypatch.setattr(rows, "stage_rows", lambda *_: pytest.fail("these rows were made before"))
    again = Index(folder.root, locked.plan)
    again.look(60)
    order = "SELECT * EXCLUDE (id) FROM rollouts ORDER BY folder, part, part_row"
    assert again.sql(order) == first.sql(order)


def test_a_part_that_was_changed_is_named_and_not_shown_whatever_was_kept(run):
    folder, locked = run
    Index(folder.root, locked.plan).look(60)
    part = folder.readout("main", "C") / "part-000.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(bytes(data))
    index = Index(folder.root, locked.plan)
    index.look(60)
    assert "changed after it was sampled" in index.progress.damaged["main/C/readout"]
    assert count(index) == 5 * 24 and index.progress.whole


def test_a_stage_file_that_is_none_is_named_and_the_others_are_shown(run):
    folder, locked = run
    stage_file(folder.readout("main", "N")).write_text("[]")
    index = Index(folder.root, locked.plan)
    index.look(60)
    assert list(index.progress.damaged) == ["main/N/readout"] and count(index) == 5 * 24


def test_what_only_a_slow_grader_could_grade_is_not_graded_and_not_wrong(run):
    folder, locked = run
    problems = [json.loads(line) for line in folder.problems.read_text().splitlines()]
    folder.problems.write_text("".join(json.dumps(one | {"grader": "math"}) + "\n" for one in problems))
    index = Index(folder.root, locked.plan)
    index.look(60)
    assert index.sql("SELECT DISTINCT status, correct FROM rollouts") == [(rows.UNGRADED, None)]


def test_loops_and_marks_are_the_programs_own(run):
    from ablation.problems.problem import load_problems
    from ablation.rollouts.outcomes import outcomes
    from ablation.rollouts.store import read_stage

    folder, locked = run
    index = Index(folder.root, locked.plan)
    index.look(60)
    stage = read_stage(folder.readout("main", "C"))
    own = outcomes(stage, load_problems(folder.problems), locked.plan.loops)
    found = index.sql(
        "SELECT looping, periodic, strong, loop_start, loop_period, loop_length, correct, thinking FROM rollouts "
        "WHERE folder = 'main/C/readout' ORDER BY part_row"
    )
    fields = ("looping", "periodic", "strong", "loop_start", "loop_period", "loop_length", "correct", "thinking_length")
    assert found == list(zip(*(getattr(own, name).tolist() for name in fields), strict=True))
    assert sum(one[0] for one in found) == 3


def test_a_comparison_pairs_its_own_two_models(run):
    folder, locked = run
    made.with_held_out(folder, locked)
    index = Index(folder.root, locked.plan)
    index.look(60)
    found = index.sql("SELECT arm, stage, pair, count(*) FROM rollouts WHERE stage LIKE 'held-out%' GROUP BY ALL ORDER BY arm")
    assert found == [("N", "held-out/N@2", "held-out/N@2", 24), ("start", "held-out/N@2", "held-out/N@2", 24)]


def test_rows_that_nobody_reads_any_more_are_removed(run):
    folder, locked = run
    Index(folder.root, locked.plan).look(60)
    cache.forget(time.time() + (cache.KEPT_DAYS - 1) * 86400)
    assert len(list(cache.folder().glob("*.rows"))) == 6
    cache.forget(time.time() + (cache.KEPT_DAYS + 1) * 86400)
    assert not list(cache.folder().iterdir())


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_kept_rows_with_a_changed_bit_are_made_again(run, place):
    """Parquet itself gives another number for many of them."""
    folder, locked = run
    first = Index(folder.root, locked.plan)
    first.look(60)
    order = "SELECT * EXCLUDE (id) FROM rollouts ORDER BY folder, part, part_row"
    for path in cache.folder().iterdir():
        data = bytearray(path.read_bytes())
        for bit in range(8):
            data[int(place * (len(data) - 1)) - bit] ^= 1 << bit
        path.write_bytes(bytes(data))
        assert cache.read(path.stem, folder.readout("main", "C")) is None
    again = Index(folder.root, locked.plan)
    again.look(60)
    assert again.sql(order) == first.sql(order) and not again.progress.damaged


@pytest.mark.parametrize("odd", ["a file", "a link to nowhere", "full"])
def test_a_cache_that_takes_nothing_is_no_error(run, odd, monkeypatch):
    folder, locked = run
    place = cache.folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    if odd == "a file":
        place.write_text("")
    elif odd == "full":
        monkeypatch.setattr(cache.os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    else:
        place.symlink_to(place.with_name("nowhere"))
    index = Index(folder.root, locked.plan)
    index.look(60)
    assert count(index) == 6 * 24 and not index.progress.damaged
    cache.forget(0.0)
    assert odd != "full" or not list(place.iterdir())  # nothing half written stays


def test_other_loop_settings_are_other_rows(run):
    folder, locked = run
    stage = folder.readout("main", "C")
    other = locked.plan.model_copy(update={"loops": locked.plan.loops.model_copy(update={"min_tokens": 60})})
    assert cache.stage_key(stage, locked.plan, "p") != cache.stage_key(stage, other, "p")
    assert replace(rows.Place.of("main/C/update-3"), folder="") == rows.Place("", "update-3", "update-3")


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_an_odd_file_that_appears_later_is_named_and_stops_nothing(run, kind):
    folder, locked = run
    index = Index(folder.root, locked.plan)
    index.look(60)
    update = folder.update("main", "C", 1)
    update.mkdir(parents=True)
    odd = update / "part-000.parquet"
    {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda path: os.symlink("nowhere", path)}[kind](odd)
    made.write(folder, locked, "main", "N", folder.update("main", "N", 1), stage="update", update=1)
    index.look(20)
    assert index.progress.whole and count(index) == 7 * 24
    assert list(index.progress.damaged) == ["main/C/update-1"]
    assert f"{odd}: is no file" in index.progress.damaged["main/C/update-1"]
    (odd.rmdir if kind == "folder" else odd.unlink)()
    made.write(folder, locked, "main", "C", update, stage="update", update=1)
    index.look(60)
    assert index.progress.damaged == {} and count(index) == 8 * 24


@pytest.mark.parametrize("error", [duckdb.OutOfMemoryException("no room"), PermissionError(13, "Permission denied")])
def test_a_stage_that_fails_in_reading_is_named_and_the_others_are_shown(run, monkeypatch, error):
    folder, locked = run
    Index(folder.root, locked.plan).look(60)  # all rows are kept, so they come all at once
    insert, touched, bad = Index._insert, cache.touched, "main/N/readout"

    def failing(self, table):
        if isinstance(error, duckdb.Error) and bad in table.column("folder").to_pylist():
            raise error
        insert(self, table)

    def refusing(stage):
        if isinstance(error, OSError) and stage.as_posix().endswith(bad):
            raise error
        return touched(stage)

    monkeypatch.setattr(Index, "_insert", failing)
    monkeypatch.setattr(cache, "touched", refusing)
    index = Index(folder.root, locked.plan)
    index.look(60)
    assert index.progress.whole and count(index) == 5 * 24
    assert list(index.progress.damaged) == [bad] and str(error) in index.progress.damaged[bad]


def test_a_run_that_cannot_be_looked_through_is_said_and_looked_at_again(run, monkeypatch):
    folder, locked = run
    index = Index(folder.root, locked.plan)
    with monkeypatch.context() as patch:
        patch.setattr(Index, "_wanted", lambda self: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        index.look(60)
    assert index.progress.whole and "Input/output error" in index.progress.damaged["."]
    index.look(60)
    assert index.progress.damaged == {} and count(index) == 6 * 24


def test_nothing_is_whole_before_the_folder_was_looked_through(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    run, locked = made.make(tmp_path)
    index = Index(run.root, locked.plan)
    assert (index.progress.done, index.progress.units, index.progress.whole) == (0, 0, False)
    assert index.look(60).whole and index.progress.units == 6
    empty = Index(tmp_path / "runs" / "none", locked.plan)
    assert not empty.progress.whole and empty.look(60).whole and empty.progress.units == 0


def test_what_a_look_found_is_not_what_was_read_since(run):
    """A page asks the table after the look and is shown later: by then all may be there, but not on the page."""
    folder, locked = run
    index = Index(folder.root, locked.plan)
    first = index.look()
    assert not first.whole
    assert index.look(60).whole
    assert not first.whole and first.done == 0
