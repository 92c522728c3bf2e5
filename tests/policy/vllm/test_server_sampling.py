"""What a server, or something on the way to it, can do to a rollout: named, tried again with its own seed, never taken twice.

Each runs against a stand-in that speaks vLLM's protocol and, where vLLM is installed, against a real server behind the same proxy.
"""

from __future__ import annotations

import gzip
import os
import re
import signal
import threading
import time

import numpy as np
import pytest

from ablation.errors import EngineFailed
from ablation.policy.vllm.client import EngineRefused
from ablation.policy.vllm.messages import Alive, Finished, Sample, SamplingValues
from ablation.policy.vllm.server import ServerClient
from tests.policy.vllm.middle import GENERATE, Answer, Cut, Middle, event, whole
from tests.policy.vllm.server_tools import ALTERED, NEEDS, QUICK, VALUES, cut_after, once, raises, rows, sampled, settings, texts

pytestmark = pytest.mark.slow

KEY = 'sk-of-"this"-client'


def test_rollouts_come_whole_and_each_request_says_every_value(connect, middle):
    client = connect()
    middle.seen.clear()
    found = sampled(client, values=SamplingValues(0.7, 0.9, 12, 24, 20, (9,)))
    for one in found.values():
        assert one.logprobs.dtype == np.float32
        assert len(one.token_ids) == len(one.logprobs) == len(one.top_entropy) == len(one.top_mass) <= 24
        assert ((one.top_mass > 0.3) & (one.top_mass < 1.001)).all()
        assert ((one.top_entropy >= 0) & (one.top_entropy <= np.log(20) + 1e-6)).all()
        assert (one.finish_reason, one.stop_id) == (("stop", 9) if one.token_ids[-1] == 9 else ("length", None))
    bodies = middle.generated
    assert sorted(body["sampling_params"]["seed"] for body in bodies) == [2**62 + place for place in range(6)]
    assert {body["model"] for body in bodies} == {client.facts["model"]}
    for body in bodies:
        told = body["sampling_params"]
        assert {name: told[name] for name in ("n", "temperature", "top_p", "top_k", "min_p", "max_tokens", "min_tokens")} == {
            "n": 1, "temperature": 0.7, "top_p": 0.9, "top_k": 12, "min_p": 0.0, "max_tokens": 24, "min_tokens": 0
        }  # fmt: skip
        assert told["repetition_penalty"] == 1.0
        assert told["presence_penalty"] == told["frequency_penalty"] == 0.0
        assert told["stop_token_ids"] == [9]
        assert told["ignore_eos"] is True
        assert told["watermarking"] is False


def check_same(found, right, middle):
    """The same rollouts again: token by token from the stand-in; in a real engine's batches last bits decide now and then."""
    if not isinstance(middle.upstream, str):
        assert texts(found) == texts(right)
    assert [len(text) for text in texts(found)] == [24] * len(right)


def test_a_connection_that_is_cut_in_the_middle_is_one_more_try_with_the_same_seed(connect, middle):
    client = connect()
    right = sampled(client)
    middle.seen.clear()
    middle.alter = cut_after(1, 4)
    check_same(sampled(client), right, middle)
    seeds = [body["sampling_params"]["seed"] for body in middle.generated]
    assert len(seeds) == 10
    assert set(seeds) == {2**62 + place for place in range(6)}


def test_a_server_that_cuts_every_time_is_given_up_after_so_many_tries(connect, middle):
    client = connect()
    middle.seen.clear()
    middle.ask = once(raises(Cut()), 1000)
    with pytest.raises(EngineFailed, match=r"a rollout failed 3 times: ") as raised:
        sampled(client, 1)
    assert raised.value.exit_code == 6
    assert "the same command goes on from here" in raised.value.hint
    assert len(middle.generated) == 3
    assert not client.alive
    with pytest.raises(EngineFailed, match="closed"):
        sampled(client, 1)


@pytest.mark.parametrize("status", [429, 503, 502, 500])
def test_a_server_that_has_too_much_to_do_is_asked_again(connect, middle, status):
    client = connect()
    right = sampled(client)
    middle.ask = once(lambda: whole({"error": {"message": "later", "code": status}}, status), 2)
    check_same(sampled(client), right, middle)


def test_it_is_asked_again_when_it_said_to(connect, middle):
    client = connect()
    middle.ask = once(lambda: whole(b"", 503, **{"Retry-After": "1"}))
    started = time.monotonic()
    sampled(client, 1)
    assert time.monotonic() - started >= 1


def test_at_most_so_many_requests_as_the_plan_has_sequences_are_under_way(connect, middle):
    def slow(path, answer):
        if path == GENERATE:
            time.sleep(0.1)
        return answer

    client = connect(sequences=3)
    middle.most_at_once = 0
    middle.alter = slow
    sampled(client, 12)
    assert middle.most_at_once == 3


def test_connections_are_used_again(connect, middle):
    client = connect(sequences=2)
    middle.connections = 0
    sampled(client, 12)
    assert middle.connections <= 4


@pytest.mark.parametrize("said", ALTERED)
def test_a_rollout_with_something_wrong_in_it_is_never_taken(connect, middle, said):
    client = connect(tries=2)
    middle.alter = ALTERED[said]
    told = []
    with pytest.raises(EngineFailed, match="a rollout failed 2 times") as raised:
        client.ask(Sample(rows(1), VALUES, None), told.append)
    if said == "tokens came with logprobs of no":
        assert re.search(r"tokens came with logprobs of (no|0)", raised.value.message)
    else:
        assert said in raised.value.message
    assert "sk-of-the-server" not in raised.value.message and len(raised.value.message) < 600
    assert not [message for message in told if isinstance(message, Finished)]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(200, [b"data: " + b"x" * 290 + KEY.encode() + b"\n\n"], "text/event-stream"), "is not JSON: xxx"),
        (whole({"error": {"message": ["x" * 40, KEY]}}, 500), "HTTP status 500"),
        (Answer(200, [b"data: \xff\xff\n\n"], "text/event-stream; charset=utf-16"), "UTF-16"),
        (Answer(200, [gzip.compress(b"0" * 2**20)], "text/event-stream", {"Content-Encoding": "gzip"}), "compressed (gzip)"),
        (whole(b"no", 503, **{"Content-Encoding": "gzip, gzip"}), "compressed (gzip, gzip)"),
        (whole({"error": "busy"}, 500, **{"Retry-After": "nan"}), "busy"),
    ],
    ids=["cut", "escaped", "charset", "gzip", "gzip_of_gzip", "retry"],
)
def test_words_that_cannot_be_read_end_in_one_line_without_the_key(connect, middle, answer, said):
    client = connect(tries=2, key=KEY)
    middle.ask = lambda path, body: answer if path == GENERATE else None
    with pytest.raises(EngineFailed, match="a rollout failed 2 times") as raised:
        client.ask(Sample(rows(1), VALUES, None))
    assert said in raised.value.message
    assert "sk-of" not in raised.value.message


def test_a_stream_that_ends_early_but_politely_is_not_taken_for_a_rollout(connect, middle):
    def alter(path, answer):
        if path == GENERATE:
            answer.pieces = [next(iter(answer.pieces)), event(b"[DONE]")]
        return answer

    client = connect(tries=2)
    middle.alter = alter
    with pytest.raises(EngineFailed, match=r"the answer broke off after \d+ token"):
        sampled(client, 1)


def test_an_error_in_the_middle_of_a_stream_is_one(connect, middle):
    client = connect(tries=2)
    middle.ask = once(
        lambda: Answer(200, [event({"error": {"message": "EngineCore died", "code": 500}})], "text/event-stream"), 9
    )
    with pytest.raises(EngineFailed, match="HTTP status 500: EngineCore died"):
        sampled(client, 1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda: Answer(200, [event(b"{not json")], "text/event-stream"), "the answer is not JSON: {not json"),
        (lambda: Answer(200, [event(b"[" * 100_000)], "text/event-stream"), "the answer is not JSON"),
        (lambda: Answer(200, [event([1])], "text/event-stream"), "an event without choices"),
        (lambda: whole(b"<html>welcome"), "no stream of events came"),
        (lambda: whole(b"", 302, Location="http://127.0.0.1:9/"), "HTTP status 302"),
        (lambda: Answer(200, [b"data: " + b"x" * 2**20] * 20, "text/event-stream"), "exceeded the 16777216 byte limit"),
    ],
)
def test_what_is_no_answer_of_vllm_is_named(connect, middle, answer, said):
    client = connect(tries=1)
    middle.ask = once(answer)
    with pytest.raises((EngineFailed, EngineRefused), match=re.escape(said)):
        sampled(client, 1)


def test_a_server_that_sends_bytes_for_ever_and_no_token_is_left(connect, middle):
    def drip():
        while True:
            time.sleep(0.05)
            yield b": still here\n\n"

    client = connect(tries=2, idle=0.5)
    middle.ask = once(lambda: Answer(200, drip(), "text/event-stream"), 9)
    started = time.monotonic()
    with pytest.raises(EngineFailed, match=r"no new token within 0.5 s"):
        sampled(client, 1)
    assert time.monotonic() - started < 30


def test_a_server_that_sends_tokens_for_ever_is_left(connect, middle):
    def slow(pieces):
        yield next(pieces := iter(pieces))
        while True:
            time.sleep(0.05)
            yield event({"choices": [{"index": 0, "token_ids": []}]})

    def alter(path, answer):
        if path == GENERATE:
            answer.pieces = slow(answer.pieces)
        return answer

    client = connect(tries=1, rollout=1.0)
    middle.alter = alter
    with pytest.raises(EngineFailed, match=r"not at its end after 1 s"):
        sampled(client, 1)


def test_one_that_hangs_for_one_rollout_does_not_lose_it(connect, middle):
    client = connect(idle=4.0)
    right = sampled(client)
    middle.ask = once(lambda: time.sleep(30))
    check_same(sampled(client), right, middle)


def test_it_tells_how_far_it_is_and_never_goes_back(connect, middle):
    def slow(path, answer):
        if path == GENERATE:
            time.sleep(0.7)
        return answer

    client = connect(sequences=2)
    middle.alter = slow
    told = []
    client.ask(Sample(rows(4), VALUES, None), told.append)
    assert any(isinstance(message, Alive) for message in told)
    counts = [(message.finished, message.tokens) for message in told]
    assert counts == sorted(counts)
    assert counts[-1] == (4, 96)


def test_what_is_raised_while_it_tells_ends_the_request(connect, middle):
    def told(message):
        if isinstance(message, Finished):
            raise EngineFailed("not to come")

    client = connect(sequences=1)
    middle.seen.clear()
    with pytest.raises(EngineFailed, match="not to come"):
        client.ask(Sample(rows(5), VALUES, None), told)
    assert len(middle.generated) <= 2
    assert not client.alive


def test_ctrl_c_ends_a_request_at_once(connect, middle):
    def slow(path, answer):
        if path == GENERATE:
            time.sleep(20)
        return answer

    client = connect()
    middle.alter = slow
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sampled(client)
    assert time.monotonic() - started < 10
    assert not client.alive


def test_a_server_that_is_gone_is_tried_again_and_then_named(upstream):
    middle = Middle(upstream.upstream)
    client = ServerClient(middle.address, settings(), NEEDS, patience=QUICK)
    middle.close()
    middle.ask = once(raises(Cut()), 9)  # connections that were open already
    with pytest.raises(EngineFailed, match="a rollout failed 3 times: .*(connect|disconnect)") as raised:
        sampled(client, 1)
    assert raised.value.exit_code == 6
