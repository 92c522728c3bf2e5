"""Real processes and a real store: one that stops is missed by the others, and none that is only slow or was away itself."""

import multiprocessing
import os
import signal
import sys
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest

from tests.policy.test_lasting import stop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")

SECONDS, COUNT = 1.5, 3


def hold_store(link: Connection) -> None:
    """As torchrun does."""
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    link.send(store.port)
    link.recv()


def live(rank: int, port: int, link: Connection) -> None:
    import torch.distributed as dist

    from ablation.policy.sharded.pulse import Pulses

    def lost(why: str) -> None:
        link.send(why)
        os._exit(1)

    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=30))
    pulses = Pulses(store, rank, COUNT, lost, seconds=SECONDS)
    link.send("lives")
    link.recv()
    pulses.over()
    link.send("done")


def started(work, *arguments) -> SimpleNamespace:
    """A process forked from one that has torch: see `conftest`."""
    context = multiprocessing.get_context("forkserver")
    link, theirs = context.Pipe()
    process = context.Process(target=work, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    return SimpleNamespace(process=process, pid=process.pid, link=link)


def said(one: SimpleNamespace) -> str:
    assert one.link.poll(30), "nothing in 30 s"
    return one.link.recv()


@pytest.fixture
def group():
    """A store, and three processes that watch each other."""
    store = started(hold_store)
    port = said(store)
    three = [started(live, rank, port) for rank in range(COUNT)]
    try:
        assert [said(one) for one in three] == ["lives"] * COUNT
        yield store, three
    finally:
        for one in (store, *three):
            one.process.kill()
            one.process.join()


def test_one_that_stops_is_missed_by_all_others_and_one_that_goes_on_misses_nobody(group):
    _, three = group
    time.sleep(SECONDS + 0.5)  # all of them give signs
    for one in three:
        stop(one.pid)
    time.sleep(SECONDS + 0.5)
    for one in three:
        os.kill(one.pid, signal.SIGCONT)  # as after Ctrl-Z and `fg`
    time.sleep(0.5)
    assert [one.link.poll() for one in three] == [False] * COUNT
    stop(three[1].pid)
    for text in [said(one) for one in (three[0], three[2])]:
        assert text == (
            f"process 1 of 3 ({os.uname().nodename}:{three[1].pid}) gave no sign of life for 2 s "
            "(it is stopped or frozen, or its machine is gone)"
        )


def test_all_end_with_a_store_that_stops(group):
    store, three = group
    stop(store.pid)
    for one in three:
        assert said(one) == "torchrun's store gave no answer for 2 s (it is stopped or gone)"


def test_all_end_with_a_store_that_is_gone(group):
    store, three = group
    store.process.kill()
    for one in three:
        assert said(one).startswith("torchrun's store is gone")


def test_those_that_are_done_miss_nobody(group):
    _, three = group
    for one in three:
        one.link.send("end")
        assert said(one) == "done"
    assert not any(one.process.join(10) or one.process.exitcode for one in three)
