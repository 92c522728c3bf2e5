"""Work in a thread: everything that was put is done, in order, and what fails is said to whoever puts."""

import threading
import time

import pytest

from ablation.study import background
from ablation.study.background import Background


def test_all_that_was_put_is_done_in_order_and_several_at_a_time():
    done, sizes, go = [], [], threading.Event()

    def work(pieces):
        go.wait(5)
        done.extend(pieces)
        sizes.append(len(pieces))

    with Background(work) as disk:
        for piece in range(500):
            disk.put(piece)
        go.set()
    assert done == list(range(500))
    assert max(sizes) == background.AT_ONCE
    assert len(sizes) < 20


def test_who_puts_does_not_wait_for_slow_work():
    with Background(lambda pieces: time.sleep(1)) as disk:
        started = time.monotonic()
        for piece in range(100):
            disk.put(piece)
        assert time.monotonic() - started < 0.9


def test_who_is_far_ahead_waits(monkeypatch):
    monkeypatch.setattr(background, "FAR_BEHIND", 5)
    done = []

    def work(pieces):
        time.sleep(0.01)
        done.extend(pieces)

    ahead = 0
    with Background(work) as disk:
        for piece in range(300):
            disk.put(piece)
            ahead = max(ahead, piece - len(done))
    assert done == list(range(300))
    assert ahead <= 5 + background.AT_ONCE + 1


def test_a_failure_is_raised_by_the_next_put_and_nothing_more_is_done():
    done = []

    def work(pieces):
        done.extend(pieces)
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"), Background(work) as disk:
        disk.put(1)
        for _ in range(1000):
            time.sleep(0.005)
            disk.put(2)
    assert done[0] == 1
    assert len(done) < 10


def test_a_failure_in_the_last_piece_is_raised_at_the_end():
    def work(pieces):
        time.sleep(0.05)
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"), Background(work) as disk:
        disk.put(1)


def test_after_an_error_outside_what_was_put_is_done_and_that_error_goes_first():
    done = []

    def work(pieces):
        time.sleep(0.02)
        done.extend(pieces)

    with pytest.raises(ZeroDivisionError), Background(work) as disk:
        disk.put(1)
        disk.put(2)
        raise ZeroDivisionError
    assert done == [1, 2]


def test_a_failure_while_far_behind_ends_the_waiting(monkeypatch):
    monkeypatch.setattr(background, "FAR_BEHIND", 2)

    def work(pieces):
        time.sleep(0.1)
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"), Background(work) as disk:
        for piece in range(1000):
            disk.put(piece)
