"""Threads that take turns."""

import threading
import time

import pytest

from ablation.study.cluster.turns import Turns


def test_one_works_and_those_that_wait_let_others():
    turns, log, meet = Turns(), [], threading.Barrier(2, timeout=10)

    def task(name):
        def do():
            log.append((name, "begins"))
            with turns.aside():
                meet.wait()  # both are here at one time, so neither holds the turn
            time.sleep(0.05)
            log.append((name, "goes on"))
            return name

        return do

    assert turns.together([task("a"), task("b")], lambda: None) == ["a", "b"]
    assert sorted(log[:2]) == [("a", "begins"), ("b", "begins")] and len(log) == 4


def test_the_first_error_ends_all_that_wait():
    turns, cancelled = Turns(), threading.Event()

    def waits():
        with turns.aside():
            assert cancelled.wait(10)
        raise AssertionError("went on")

    def fails():
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        turns.together([waits, fails], cancelled.set)
    assert turns.together([lambda: "again"], lambda: None) == ["again"]  # nobody of before is left


def test_together_within_together():
    turns = Turns()

    def outer(name):
        return lambda: turns.together([lambda: name + "1", lambda: name + "2"], lambda: None)

    assert turns.together([outer("a"), outer("b")], lambda: None) == [["a1", "a2"], ["b1", "b2"]]
