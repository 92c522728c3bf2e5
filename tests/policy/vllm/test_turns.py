"""Who has the device, and what is told of it: with engines that do nothing, as nothing is sampled here."""

from __future__ import annotations

import pytest

from ablation.errors import EngineFailed
from ablation.policy.vllm.client import EngineRefused
from ablation.policy.vllm.messages import EngineSettings, Sleep, Wake
from ablation.policy.vllm.turns import Turns

SETTINGS = EngineSettings("base", "float32", 512, 64, 2048, 10**8, 1, True, 1, 8, 20)


class Trainer:
    def __init__(self, events):
        self.step_aside = lambda: events.append("aside")
        self.come_back = lambda: events.append("back")


class Engine:
    settings, copies = SETTINGS, 1

    def __init__(self, events, refuses=(), **facts):
        self.events, self.refuses, self.facts = events, refuses, {"pid": id(self), "context": 512} | facts
        events.append("start")

    def ask(self, request, told=None):
        if type(request) in self.refuses:
            raise EngineRefused("no")
        self.events.append(type(request).__name__.lower())

    def close(self):
        self.events.append("stop")


@pytest.fixture
def events():
    return []


def turns(events, mode, make=None, **options):
    return Turns(Trainer(events), make or (lambda: Engine(events)), mode, **options)


def test_together_the_engine_starts_once_and_nobody_moves(events):
    own = turns(events, "together")
    first = own.engine()
    own.trainer()
    assert own.engine() is first and own.count == 1
    assert events == ["start"]


def test_restart_ends_the_engine_before_the_trainer_comes_back_and_the_trainer_leaves_before_it_starts(events):
    told = []
    own = turns(events, "restart", tell=told.append)
    own.trainer()  # at the beginning the device is the trainer's
    own.engine()
    own.engine()
    own.trainer()
    own.trainer()
    own.engine()
    assert events == ["back", "aside", "start", "stop", "back", "back", "aside", "start"]
    assert own.count == 2, "each new engine holds no adapter"
    assert told[0] == "starting vLLM again"
    assert told[1].startswith("vLLM started again in 0.0 s")
    assert set(own.record()["seconds"]) == {"step_aside", "start", "stop", "come_back"}
    own.close()
    assert events[-1] == "stop"


def test_sleep_keeps_the_engine_and_counts_each_waking_as_a_loss_of_the_adapter(events):
    own = turns(events, "sleep")
    first = own.engine()
    own.trainer()
    own.trainer()
    assert own.engine() is first
    assert events == ["aside", "start", "sleep", "back", "back", "aside", "wake"]
    assert own.count == 2


def test_facts_are_known_while_the_engine_is_away(events):
    own = turns(events, "restart")
    assert own.facts["context"] == 512
    own.trainer()
    before = list(events)
    assert own.facts["context"] == 512 and own.settings == SETTINGS and own.copies == 1
    assert events == before, "nothing is started to know them"


def test_an_engine_that_comes_back_as_another_one_is_refused(events):
    made = iter([{"kv_tokens": 100}, {"kv_tokens": 90}])
    own = turns(events, "restart", lambda: Engine(events, **next(made)))
    own.engine()
    own.trainer()
    with pytest.raises(EngineFailed, match="vLLM started again with another kv_tokens than before"):
        own.engine()
    assert events[-1] == "stop"


def test_an_engine_that_will_not_sleep_is_an_error(events):
    own = turns(events, "sleep", lambda: Engine(events, refuses={Sleep}))
    own.engine()
    with pytest.raises(EngineFailed, match="vLLM's engine does not do `sleep`: no"):
        own.trainer()
    own = turns(events, "sleep", lambda: Engine(events, refuses={Wake}))
    own.engine()
    own.trainer()
    with pytest.raises(EngineFailed, match="`wake`"):
        own.engine()


def test_auto_goes_over_to_restarting_when_that_was_measured_to_be_quicker(events):
    told = []
    own = turns(events, "sleep", quickest=True, tell=told.append)
    own.engine()
    own.trainer()
    own.engine()
    own.seconds |= {"start": [5.0], "sleep": [4.0], "wake": [2.0]}
    own.trainer()
    assert own.mode == "restart" and events[-2:] == ["stop", "back"]
    assert told == ["vLLM is started again from now on (5.0 s): sleeping and waking took 6.0 s"]
    own = turns(events, "sleep", quickest=True)
    own.seconds |= {"start": [5.0], "sleep": [1.0], "wake": [2.0]}
    own.engine()
    own.trainer()
    assert own.mode == "sleep" and events[-2:] == ["sleep", "back"]
    asked_for = turns(events, "sleep")  # not auto: what was asked for is done
    asked_for.seconds |= {"start": [5.0], "sleep": [4.0], "wake": [2.0]}
    asked_for.engine()
    asked_for.trainer()
    assert asked_for.mode == "sleep"
