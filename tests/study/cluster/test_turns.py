from __future__ import annotations

import threading
import time

import pytest

from ablation.study.cluster import turns as module
from ablation.study.cluster.turns import Turns


def test_the_error_of_a_task_comes_out_however_long_its_ending_takes():
    """A task within a task fails; ending what the others wait for takes longer than the outermost thread's look."""
    turns = Turns()

    def fails() -> None:
        raise ValueError("the reason")

    def waits() -> None:
        with turns.aside():
            time.sleep(2.0)

    def slow() -> None:
        time.sleep(1.5)

    with pytest.raises(ValueError, match="the reason"):
        turns.together([lambda: turns.together([waits, fails], slow)], lambda: None)
    assert turns.together([lambda: 1, lambda: 2], lambda: None) == [1, 2]


def test_of_two_arms_the_reason_is_told_and_not_that_the_other_ended():
    turns = Turns()

    def waits() -> None:
        with turns.aside():
            time.sleep(0.2)

    def inner() -> None:
        def fails() -> None:
            raise ValueError("the reason")

        turns.together([fails], lambda: time.sleep(1.5))

    with pytest.raises(ValueError, match="the reason"):
        turns.together([waits, inner], lambda: None)


def test_why_all_of_them_end_is_told_and_not_what_comes_of_it():
    """As when a cluster's head is gone: the tasks wait in vain, and break when they are cancelled."""
    turns, cancelled = Turns(), threading.Event()

    def waits() -> None:
        with turns.aside():
            cancelled.wait(10)
        raise ValueError("what comes of it")

    threading.Timer(0.1, turns.end, [LookupError("the reason")]).start()
    with pytest.raises(LookupError, match="the reason"):
        turns.together([waits, lambda: turns.together([waits], cancelled.set)], cancelled.set)
    with pytest.raises(LookupError, match="the reason"):
        turns.together([lambda: 1], lambda: None)


def test_a_task_that_waits_for_ever_does_not_hold_up_the_reason(monkeypatch):
    """It has the turn, too; and so has what was to end it."""
    monkeypatch.setattr(module, "ABANDONED", 0.3)
    turns, for_ever = Turns(), threading.Event()
    threading.Timer(0.1, turns.end, [LookupError("the reason")]).start()
    began = time.monotonic()
    with pytest.raises(LookupError, match="the reason"):
        turns.together([for_ever.wait, lambda: turns.together([for_ever.wait], for_ever.wait)], for_ever.wait)
    assert time.monotonic() - began < 3
    for_ever.set()
