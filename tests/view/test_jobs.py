"""What is computed for a page: never from before it was asked for, and shown though the run goes on faster than it is computed."""

from __future__ import annotations

import threading
import time

import pytest

from ablation.errors import IntegrityError
from ablation.view.jobs import _KEPT, Jobs, state_of


@pytest.fixture
def jobs():
    made = Jobs()
    yield made
    made.close()


def test_a_result_is_computed_once_for_a_state(jobs):
    calls = []
    assert [jobs.get("a", 1, lambda: calls.append(1) or len(calls), wait=20) for _ in range(3)] == [1, 1, 1]
    assert jobs.get("a", 2, lambda: calls.append(1) or len(calls), wait=20) == 2
    assert jobs.get("a", 1, lambda: calls.append(1) or len(calls), wait=20) == 3


def test_of_a_run_that_changes_all_the_time_something_is_shown(jobs):
    """A page that loads itself again finds another state each time, as of a run that writes an event a second."""
    begun, shown = [], None
    for state in range(200):
        shown = jobs.get("verdict", state, lambda state=state: (begun.append(state), time.sleep(0.3), state)[2], wait=0.01)
        if shown is not None:
            break
        time.sleep(0.02)
    assert shown == 0 and begun == [0]  # begun when the page first asked


def test_who_comes_later_gets_nothing_from_before(jobs):
    """As where a run was changed since: what was computed of it as it was is not shown again."""
    held = threading.Event()
    assert jobs.get("verdict", 1, held.wait, wait=0.01) is None
    held.set()
    assert jobs.get("verdict", 2, lambda: "new", wait=20) is True  # what the first was told to come again for
    assert jobs.get("verdict", 2, lambda: "new", wait=20) == "new"


def test_what_fails_is_tried_again(jobs):
    def fail():
        raise FileNotFoundError("part-000.parquet")

    with pytest.raises(IntegrityError, match="part-000"):
        jobs.get("a", 1, fail, wait=20)
    assert jobs.get("a", 1, lambda: "there", wait=20) == "there"


def test_more_runs_than_are_kept_are_no_error(jobs):
    held = threading.Event()
    threads = [threading.Thread(target=jobs.get, args=(at, 0, held.wait, 5.0)) for at in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert all(jobs.get(10 + at, 0, held.wait, wait=0.0) is None for at in range(_KEPT))
    held.set()
    for thread in threads:
        thread.join()
    assert jobs.get("last", 0, lambda: 7, wait=20) == 7


def test_a_folder_that_goes_while_it_is_looked_through_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "main" / "C" / "sweep").mkdir(parents=True)
    (tmp_path / "main" / "C" / "sweep" / "stage.json").write_text("{}")
    before = state_of(tmp_path)

    def gone(self, pattern):
        raise FileNotFoundError(2, "No such file or directory")
        yield

    monkeypatch.setattr(type(tmp_path), "glob", gone)
    assert state_of(tmp_path) != before
