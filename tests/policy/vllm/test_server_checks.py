"""What is found of a server before it samples anything."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ablation.errors import EngineFailed, UsageError
from tests.policy.vllm.middle import GENERATE, Answer, event, whole
from tests.policy.vllm.server_tools import NEEDS, once, sampled

pytestmark = pytest.mark.slow

SECRET = "sk-very-secret-0123"


def refused(connect, middle, ask=None, alter=None, **changes):
    """The error of a client that connects under these rules."""
    middle.ask = ask or middle.ask
    middle.alter = alter or middle.alter
    with pytest.raises(UsageError) as raised:
        connect(**changes)
    assert middle.address in raised.value.message
    return raised.value


@pytest.mark.parametrize("name", ["seed", "top_k", "top_p", "temperature", "max_tokens", "stop_token_ids"])
def test_a_value_that_is_dropped_in_silence_is_found(connect, middle, name):
    def ask(path, body):
        if path == GENERATE:
            values = body["sampling_params"]
            values.pop(name)
            if name == "seed":
                values["seed"] = 1  # as a proxy might that caches; without any, no two are alike

    said = "more came than the 12 tokens of `max_tokens`" if name == "max_tokens" else f"drops `{name}`"
    assert said in refused(connect, middle, ask).message


def test_a_server_without_seeds_is_used_and_reported(connect, middle):
    counter = iter(range(1, 1000))

    def ask(path, body):
        if path == GENERATE:
            body["sampling_params"]["seed"] = next(counter)

    middle.ask = ask
    assert connect().facts["seeds"] == "not honoured"
    middle.forget()
    assert connect().facts["seeds"] == "honoured"


def on(wanted, answer):
    return lambda path, body: answer() if path == wanted else None


@pytest.mark.parametrize(
    ("ask", "said", "hint"),
    [
        (on("/version", lambda: whole({"detail": "Not Found"}, 404)), "refuses: HTTP status 404: Not Found", "vllm serve FOLDER"),
        (on("/version", lambda: whole({})), "does not say which version of vLLM it is", "vllm serve FOLDER"),
        (on("/version", lambda: whole(b"<html>")), "not JSON: <html>", "vllm serve FOLDER"),
        (on("/v1/models", lambda: whole({"data": []})), "serves 0 models; one is needed", "vllm serve FOLDER"),
        (on("/v1/models", lambda: whole({"data": [{"id": "a", "root": "a"}, {"id": "b", "root": "b"}]})), "serves 2 models", "vllm"),
        (on("/v1/models", lambda: whole({"data": [{"id": "a", "root": "a"}]})), "how long a rollout of its model may be", "vllm"),
        (
            on("/v1/models", lambda: whole({"data": [{"id": "a", "root": "a", "max_model_len": 79}]})),
            "its model takes 79 tokens; the longest prompt and `sampling.max_tokens` need 80",
            "--max-model-len 80",
        ),
        (on("/v1/unload_lora_adapter", lambda: whole({"detail": "Not Found"}, 404)), "loads no adapters while it runs", "RUNTIME_LORA"),
        (
            on(GENERATE, lambda: whole({"error": {"message": "Scale-out endpoints are disabled. Restart with --enable-scale-out"}}, 403)),
            "Scale-out endpoints are disabled",
            "--enable-scale-out",
        ),
        (on(GENERATE, lambda: whole({"detail": "Not Found"}, 404)), "vLLM 0.32 or later is needed", "vllm serve"),
        (
            on(GENERATE, lambda: Answer(200, [event({"error": {"message": "logprobs of 21, greater than max allowed: 20", "code": 400}})], "text/event-stream")),
            "greater than max allowed: 20",
            "--max-logprobs 21",
        ),
    ],
)  # fmt: skip
def test_a_server_that_cannot_sample_the_plan_is_told_from_one_that_can(connect, middle, ask, said, hint):
    error = refused(connect, middle, ask)
    assert said in error.message
    assert hint in error.hint


def test_a_context_that_the_plan_names_must_be_there(connect, middle):
    error = refused(connect, middle, needs=replace(NEEDS, context=4096))
    assert "its model takes 512 tokens" in error.message
    assert "--max-model-len 4096" in error.hint


def test_a_token_that_the_trained_model_does_not_have_is_found(connect, middle):
    error = refused(connect, middle, needs=replace(NEEDS, vocabulary=6))
    assert re.search(r"sampled token \d+, and the model has 6: it is another model", error.message)


def test_the_key_goes_to_the_server_and_nowhere_else(connect, middle):
    client = connect(key=SECRET)
    assert {headers["Authorization"] for headers in middle.headers} == {f"Bearer {SECRET}"}
    assert SECRET not in str(client.facts)
    words = f"\x1b[31mno\x1b]0;title\x07 {SECRET} \r\n of Bearer abc.def \x07 " + "x" * 500
    middle.ask = once(lambda: whole({"error": {"message": words}}, 502), 99)
    with pytest.raises(EngineFailed) as raised:
        sampled(client, 1)
    said = "\n".join(raised.value.lines())
    assert "no ... of Bearer ... xxx" in said
    assert SECRET not in said
    assert "abc.def" not in said
    assert all(letter.isprintable() or letter == "\n" for letter in said)
    assert len(said) < 600


def test_a_key_that_is_missing_or_wrong_is_asked_for(connect, middle):
    def ask(path, body):
        return whole({"error": "Unauthorized"}, 401) if path.startswith("/v1") else None

    assert "wants a key: put it into ABLATION_VLLM_SERVER_KEY" in refused(connect, middle, ask).message
    error = refused(connect, middle, ask, key=SECRET)
    assert "refuses the key in ABLATION_VLLM_SERVER_KEY" in error.message
    assert SECRET not in error.message
