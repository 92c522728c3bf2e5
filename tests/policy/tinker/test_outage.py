"""A server that is away for a while, or that was started again: rollouts and updates are those of a quiet day."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

from ablation.errors import EngineFailed, IntegrityError, UsageError
from ablation.files import write_json
from ablation.policy.base import SampleRequest, TrainRow
from ablation.policy.tinker.policy import STATE_FILE
from ablation.policy.tinker.service import Service
from tests.policy.tinker.fixtures import PROMPT
from tests.policy.tinker.server import free_port

pytestmark = pytest.mark.slow

REQUESTS = [SampleRequest((*PROMPT, 9 + number % 4), number) for number in range(40)]


@pytest.fixture
def policy(proven):
    proven.reset()
    return proven


def tokens(sampled) -> list[list[int]]:
    return [one.token_ids.tolist() for one in sampled]


def rows_of(policy) -> list[TrainRow]:
    random = np.random.default_rng(3)
    return [
        TrainRow(request.prompt_ids, one.token_ids, one.logprobs, random.normal(size=len(one.token_ids)))
        for request, one in zip(REQUESTS[:4], policy.sample(REQUESTS[:4]), strict=True)
    ]


def test_a_server_that_stands_still_for_a_while_costs_time_alone(policy, served):
    expected = tokens(policy.sample(REQUESTS))
    timer = threading.Timer(1.0, lambda: served.server.signal(signal.SIGSTOP))
    back = threading.Timer(20.0, lambda: served.server.signal(signal.SIGCONT))
    timer.start()
    back.start()
    found = []
    while back.is_alive():
        found = tokens(policy.sample(REQUESTS))
    assert found == expected


def test_a_server_that_is_killed_and_started_again_while_it_samples(policy, served):
    expected = tokens(policy.sample(REQUESTS))
    taken = {}
    killed = threading.Event()

    def take(place, one):
        assert place not in taken
        taken[place] = one
        if not killed.is_set():
            killed.set()
            served.server.kill()
            threading.Timer(3.0, served.server.start).start()

    policy.in_flight, before = 8, policy.in_flight
    try:
        policy.sample(REQUESTS, None, take)
    finally:
        policy.in_flight = before
    assert killed.is_set()
    assert tokens(taken[place] for place in range(len(REQUESTS))) == expected


def test_a_server_that_is_started_again_in_the_middle_of_an_update(policy, served):
    rows = rows_of(policy)
    policy.update(rows, 1e-3)
    policy.update(rows, 1e-3)
    expected = policy.adapter_sha256()
    policy.reset()
    policy.update(rows, 1e-3)
    step = policy._step

    def killed(trainer, learning_rate):
        policy._step = step
        served.server.kill()  # after the gradient was computed there, before the step
        served.server.start()
        return step(trainer, learning_rate)

    policy._step = killed
    assert policy.update(rows, 1e-3).stepped
    assert policy.adapter_sha256() == expected


def test_a_server_that_is_nowhere_ends_the_command_with_what_to_do():
    service = Service(f"http://127.0.0.1:{free_port()}", lambda words: None, patience=2.0)
    assert not service.there()
    began = time.monotonic()
    with pytest.raises(
        EngineFailed, match="no success in 0 minutes while asking for its models: no answer from http://127"
    ) as found:
        service.models()
    assert "the same command goes on from here" in found.value.hint
    assert time.monotonic() - began < 30


def test_no_key_is_said_before_anything_is_asked(monkeypatch):
    monkeypatch.delenv("TINKER_API_KEY")
    with pytest.raises(UsageError, match="needs a key in the environment variable TINKER_API_KEY"):
        Service(None, print)


def test_a_state_that_is_gone_at_the_service_is_an_error_that_says_so(policy, tmp_path):
    policy.save(tmp_path)
    stored = {"state": policy.start.path + "0", "optimizer": "fresh", "adapter_sha256": policy.adapter_sha256()}
    write_json(tmp_path / STATE_FILE, stored)
    before = policy.at
    with pytest.raises(IntegrityError, match="it has no state tinker://.*: Checkpoint not found"):
        policy.load(tmp_path)
    assert policy.at is before
