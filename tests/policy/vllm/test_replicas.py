"""What a group of engines does when one of them is not like the others; two real ones are in test_engines.py."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import ClassVar

import pytest

from ablation.errors import EngineFailed, UsageError
from ablation.policy.vllm import replicas
from ablation.policy.vllm.client import EngineRefused
from ablation.policy.vllm.messages import Adapter, Alive, EngineSettings, Finished, Load, Sample, SamplingValues

SETTINGS = EngineSettings("base", "float32", 512, 64, 2048, 10**8, 1, True, 1, 8, 20)
VALUES = SamplingValues(1.0, 1.0, 0, 4, 20, (1,))


class Client:
    """An engine of which each test says what it does, by its place."""

    made: ClassVar[dict] = {}
    starts: ClassVar[dict] = {}
    answers: ClassVar[dict] = {}

    def __init__(self, settings, given_up):
        self.settings, self.number = settings, settings.seed
        self.alive, self.struck, self.pid, self.facts = True, threading.Event(), self.number, {"pid": self.number, "context": 512}
        self.starts.get(self.number, lambda client, given_up: None)(self, given_up)
        self.made[self.number] = self

    def ask(self, request, told=None):
        return self.answers.get(self.number, lambda client, request, told: None)(self, request, told)

    def strike(self):
        self.struck.set()

    def kill(self):
        self.alive = False

    close = kill


@pytest.fixture(autouse=True)
def clients(monkeypatch):
    Client.made, Client.starts, Client.answers = {}, {}, {}
    monkeypatch.setattr(replicas, "EngineClient", Client)
    return Client


def group(count=3):
    return replicas.EngineGroup([replace(SETTINGS, seed=number) for number in range(count)])


def test_one_that_does_not_start_ends_those_that_did_and_those_that_still_try(clients):
    def refuses(client, given_up):
        raise UsageError("no such model")

    def waits(client, given_up):
        assert given_up.wait(30), "it is told that another one did not start"
        raise EngineFailed("ended while starting")

    clients.starts = {1: refuses, 2: waits}
    with pytest.raises(UsageError, match="no such model"):
        group()
    assert [client.alive for client in clients.made.values()] == [False]


def test_engines_that_came_up_unlike_are_ended(clients):
    clients.starts = {1: lambda client, given_up: client.facts.update(context=256)}
    with pytest.raises(EngineFailed, match=r"not alike: \{'context': 512\} and \{'context': 256\}"):
        group(2)
    assert not any(client.alive for client in clients.made.values())


def test_a_refusal_leaves_all_alive_and_a_failure_none(clients):
    def refuse(client, request, told):
        raise EngineRefused("rank 9 is too high")

    clients.answers = {1: refuse}
    own = group()
    with pytest.raises(EngineRefused, match="rank 9"):
        own.ask(Load(Adapter("a", 1, "folder")))
    assert own.alive

    def die(client, request, told):
        raise EngineFailed("was killed by SIGKILL")

    def work(client, request, told):
        assert client.struck.wait(30), "the others are ended, not waited for"
        raise EngineFailed("was struck")

    clients.answers = {0: work, 1: die, 2: work}
    with pytest.raises(EngineFailed, match="was killed by SIGKILL"):
        own.ask(Sample([(0, (1, 2), 3)], VALUES, None))
    assert not any(client.alive for client in clients.made.values())


def test_counts_of_all_engines_are_added_and_rows_are_dealt_by_place(clients):
    asked, threads = {}, set()

    def answer(client, request, told):
        asked[client.number] = [key for key, _, _ in request.rows]
        told(Alive(0, 5))
        for done, key in enumerate(asked[client.number], start=1):
            told(Finished(key, None, None, None, None, "stop", 1, tokens=10 * done, finished=done))
        return client.number

    clients.answers = dict.fromkeys(range(3), answer)
    told = []
    group().ask(
        Sample([(key, (1,), key) for key in range(7)], VALUES, None),
        lambda one: (told.append(one), threads.add(threading.get_ident())),
    )
    assert asked == {0: [0, 3, 6], 1: [1, 4], 2: [2, 5]}
    assert sorted(one.key for one in told if isinstance(one, Finished)) == list(range(7))
    assert (told[-1].finished, told[-1].tokens) == (7, 30 + 20 + 20)
    assert [one.tokens for one in told] == sorted(one.tokens for one in told)
    assert threads == {threading.get_ident()}, "what is told is written to disk: in the caller's thread alone"


def test_an_error_in_what_is_told_ends_all(clients):
    def answer(client, request, told):
        told(Alive(0, 1))
        assert client.struck.wait(30)
        raise EngineFailed("was struck")

    clients.answers = dict.fromkeys(range(2), answer)
    own = group(2)

    def full(message):
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        own.ask(Sample([(0, (1,), 3)], VALUES, None), full)
    assert not own.alive
