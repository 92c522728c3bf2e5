"""What a server, or something on the way to it, can do to a rollout: named, tried again with its own seed, never taken twice.

Each runs against a stand-in that speaks vLLM's protocol and, where vLLM is installed, against a real server behind the same proxy.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

import numpy as np
import pytest

from ablation.errors import EngineFailed, UsageError
from ablation.policy.vllm.client import EngineRefused
from ablation.policy.vllm.messages import Adapter, Alive, EngineSettings, Finished, Load, Sample, SamplingValues
from ablation.policy.vllm.server import ServerClient
from ablation.policy.vllm.server_checks import Needs
from ablation.policy.vllm.server_http import Patience
from tests.policy.vllm.conftest import ROOT, TINY
from tests.policy.vllm.middle import GENERATE, Answer, Cut, Middle, event, events_changed, whole
from tests.policy.vllm.stand_in import StandIn

pytestmark = pytest.mark.slow
PROMPT = (3, 4, 5, 6, 7)
NEEDS = Needs(rank=8, top_logprobs=20, context=None, tokens=80, prompt=PROMPT)
QUICK = Patience(connect=5, answer=30, load=60, idle=30, rollout=60, tries=3, first_pause=0.01)
VALUES = SamplingValues(1.0, 1.0, 0, 24, 20, ())
ADAPTER = Adapter("adapter-0123456789abcdef", 7, str(TINY / "start-adapter"))


def settings(sequences=8):
    return EngineSettings("base", "float32", 512, sequences, 2048, 1, 1, True, 1, 8, 20)


def rows(count, first=2**62):
    return [(10 + place, (*PROMPT, 8 + place % 5), first + place) for place in range(count)]


@pytest.fixture(scope="module", params=["stand-in", "vllm"])
def upstream(request):
    """One proxy before one server."""
    if request.param == "stand-in":
        found = StandIn()
    elif find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    else:
        found = request.getfixturevalue("server_engine")
    middle = Middle(found)
    yield middle
    middle.close()


@pytest.fixture
def middle(upstream):
    upstream.forget()
    yield upstream
    upstream.forget()


@pytest.fixture
def connect(middle):
    clients = []

    def connect(sequences=8, needs=NEEDS, key=None, folder=None, **patience):
        found = ServerClient(
            middle.address,
            settings(sequences),
            needs,
            folder=folder,
            key=key,
            patience=Patience(**{**QUICK.__dict__, **patience}),
        )
        clients.append(found)
        return found

    yield connect
    middle.forget()
    for client in clients:
        client.close()


def sampled(client, count=6, adapter=None, values=VALUES):
    """{key: Finished}; a rollout that is told of twice fails the test."""
    found = {}

    def told(message):
        if isinstance(message, Finished):
            assert message.key not in found
            found[message.key] = message

    client.ask(Sample(rows(count), values, adapter), told)
    assert sorted(found) == [row[0] for row in rows(count)]
    return found


def texts(found):
    return [found[key].token_ids.tolist() for key in sorted(found)]


def once(rule, number=1):
    """`rule` for the first `number` rollouts that are asked for."""
    left, lock = [number], threading.Lock()

    def ask(path, body):
        if path != GENERATE:
            return None
        with lock:
            left[0] -= 1
            mine = left[0] >= 0
        return rule() if mine else None

    return ask


def raises(error):
    def rule():
        raise error

    return rule


def cut_after(events, number):
    """The first `number` streams end after `events` events."""
    left, lock = [number], threading.Lock()

    def pieces_of(pieces):
        for place, piece in enumerate(pieces):
            if place == events:
                raise Cut
            yield piece

    def alter(path, answer):
        if path == GENERATE:
            with lock:
                left[0] -= 1
                mine = left[0] >= 0
            if mine:
                answer.pieces = pieces_of(answer.pieces)
        return answer

    return alter


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


def test_a_connection_that_is_cut_in_the_middle_is_one_more_try_with_the_same_seed(connect, middle):
    client = connect()
    right = texts(sampled(client))
    middle.seen.clear()
    middle.alter = cut_after(1, 4)
    assert texts(sampled(client)) == right
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
    right = texts(sampled(client))
    middle.ask = once(lambda: whole({"error": {"message": "later", "code": status}}, status), 2)
    assert texts(sampled(client)) == right


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


def first_choice(change):
    def each(value):
        if value["choices"] and value["choices"][0]["token_ids"]:
            change(value["choices"][0])

    return events_changed(each)


def drop_a_logprob(choice):
    choice["logprobs"]["content"].pop()


def drop_a_top_logprob(choice):
    choice["logprobs"]["content"][0]["top_logprobs"].pop()


def other_token(choice):
    choice["token_ids"][0] += 1


def other_token_everywhere(choice):
    choice["token_ids"][0] += 1
    choice["logprobs"]["content"][0]["token_id"] += 1


def no_logprob(choice):
    choice["logprobs"]["content"][0]["logprob"] = -9999.0


def logprob_above_0(choice):
    choice["logprobs"]["content"][0]["logprob"] = 0.5


def text_for_a_token(choice):
    choice["token_ids"][0] = "a"


def no_logprobs(choice):
    choice["logprobs"] = None


def one_token_less(choice):
    choice["token_ids"].pop()
    choice["logprobs"]["content"].pop()


def two_choices(value):
    value["choices"] *= 2


def no_usage(value):
    value.pop("usage", None)


def other_prompt(value):
    if "prompt_token_ids" in value:
        value["prompt_token_ids"] = [1, *value["prompt_token_ids"]]


def no_prompt(value):
    value.pop("prompt_token_ids", None)


ALTERED = {
    "tokens came with logprobs of": first_choice(drop_a_logprob),
    "20 logprobs of likely ones; 21 were asked for": first_choice(drop_a_top_logprob),
    "the logprobs are of other tokens than those that were sampled": first_choice(other_token),
    "leave out the sampled one": first_choice(other_token_everywhere),
    "a sampled token came with -9999.0 as its logprob": first_choice(no_logprob),
    "a sampled token came with 0.5 as its logprob": first_choice(logprob_above_0),
    "a token id that is none": first_choice(text_for_a_token),
    "tokens came with logprobs of no": first_choice(no_logprobs),
    "24 sampled ones; it was given 6 and sent 2": first_choice(one_token_less),
    "other than the one rollout that was asked for": events_changed(
        lambda value: two_choices(value) if value["choices"] else None
    ),
    "left out the prompt's token ids or its count": events_changed(no_usage),
    "sampled after another prompt": events_changed(other_prompt),
    "left out the prompt's token ids": events_changed(no_prompt),
}


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
    assert not [message for message in told if isinstance(message, Finished)]


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
    assert time.monotonic() - started < 10


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
    client = connect(idle=1.0)
    right = texts(sampled(client))
    middle.ask = once(lambda: time.sleep(3))
    assert texts(sampled(client)) == right


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


def test_an_adapter_is_loaded_under_a_name_of_its_own_and_the_one_before_unloaded(connect, middle, tmp_path):
    client = connect(folder=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o755
    other = Adapter("adapter-ffff456789abcdef", 8, ADAPTER.folder)
    middle.seen.clear()
    client.ask(Load(ADAPTER))
    client.ask(Load(other))
    asked = [(path, body) for path, body in middle.seen if "lora" in path]
    assert [path for path, _ in asked] == ["/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/load_lora_adapter"]
    names = [body["lora_name"] for _, body in asked]
    assert names[0] == names[1]
    assert names[0].startswith("adapter-0123456789abcdef-")
    assert names[2].startswith("adapter-ffff456789abcdef-")
    assert sorted(os.listdir(asked[2][1]["lora_path"])) == sorted(os.listdir(ADAPTER.folder))
    assert not os.path.exists(asked[0][1]["lora_path"])
    middle.seen.clear()
    sampled(client, 1, other)
    assert middle.generated[0]["model"] == names[2]
    assert names[2] not in middle.generated[0]["cache_salt"]
    with pytest.raises(EngineRefused, match="adapter-0123456789abcdef is not loaded"):
        sampled(client, 1, ADAPTER)
    client.close()
    assert [(path, body["lora_name"]) for path, body in middle.seen if "lora" in path][-1] == (
        "/v1/unload_lora_adapter", names[2]
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_cached_prompts_are_shared_with_no_other_adapter_base_or_client(connect, middle):
    salts = []
    for _ in range(2):
        client = connect()
        middle.seen.clear()
        client.ask(Load(ADAPTER))
        sampled(client, 2, ADAPTER)
        sampled(client, 1)
        salts += [body["cache_salt"] for body in middle.generated]
        client.close()
    assert salts[0] == salts[1]
    assert len(set(salts)) == 4


def test_an_adapter_that_is_gone_in_the_middle_ends_the_run_in_words(connect, middle):
    client = connect()
    client.ask(Load(ADAPTER))

    def unload(path, body):
        if path == GENERATE:
            body["model"] = "adapter-that-is-gone"

    middle.ask = unload
    with pytest.raises(EngineFailed, match="the adapter is gone from the server .* it was restarted, or somebody unloaded it"):
        sampled(client, 1, ADAPTER)


def test_a_server_that_was_started_again_holds_no_proof(connect, middle):
    def later(path, answer):
        if path == "/metrics":
            text = b"".join(answer.pieces)
            answer.pieces = [re.sub(rb"(?m)^process_start_time_seconds .*$", b"process_start_time_seconds 1.9e9", text)]
        return answer

    client = connect()
    middle.alter = later
    with pytest.raises(EngineFailed, match="the server was started again"):
        client.ask(Load(ADAPTER))


def test_another_version_in_the_middle_ends_the_run(connect, middle):
    client = connect()
    middle.ask = lambda path, body: whole({"version": "0.33.1"}) if path == "/version" else None
    with pytest.raises(EngineFailed, match=r"the server was vLLM 0\.32\.0 and is 0\.33\.1 now"):
        client.ask(Load(ADAPTER))


def test_a_load_that_is_cut_is_tried_again_under_another_name(connect, middle):
    client, cut = connect(), []

    def ask(path, body):
        if path == "/v1/load_lora_adapter" and not cut:
            cut.append(body["lora_name"])
            raise Cut

    middle.ask = ask
    client.ask(Load(ADAPTER))
    middle.seen.clear()
    sampled(client, 1, ADAPTER)
    assert middle.generated[0]["model"] not in cut


def test_a_load_that_the_server_only_says_it_did_is_found(connect, middle):
    client = connect(tries=1)
    middle.ask = lambda path, body: whole(b"Success") if path == "/v1/load_lora_adapter" else None
    with pytest.raises(EngineFailed, match="says that it loaded the adapter, and does not list it"):
        client.ask(Load(ADAPTER))


def test_an_adapter_that_the_server_refuses_is_refused_in_its_words(connect, middle):
    client = connect()
    words = "Call to add_lora method failed: LoRA rank 9 is greater than max_lora_rank 8."
    middle.ask = lambda path, body: whole({"error": {"message": words, "code": 500}}, 500) if "load_lora" in path else None
    with pytest.raises(EngineRefused, match="LoRA rank 9 is greater than max_lora_rank 8"):
        client.ask(Load(ADAPTER))
    assert client.alive


def test_a_folder_that_the_server_does_not_see_is_named(connect, middle):
    client = connect()

    def ask(path, body):
        if path == "/v1/load_lora_adapter":
            said = f"Loading lora a failed: No adapter found for {body['lora_path']}"
            return whole({"error": {"message": said, "type": "NotFoundError", "code": 404}}, 404)

    middle.ask = ask
    with pytest.raises(UsageError, match="does not see an adapter in /") as raised:
        client.ask(Load(ADAPTER))
    assert "--server-folder" in raised.value.hint


def test_a_folder_that_is_gone_before_the_server_looks_is_named_by_its_own_word(connect, middle):
    client = connect()

    def ask(path, body):
        if path == "/v1/load_lora_adapter":
            shutil.rmtree(body["lora_path"])

    middle.ask = ask
    with pytest.raises(UsageError, match="does not see an adapter in /"):
        client.ask(Load(ADAPTER))
    middle.forget()
    client.ask(Load(ADAPTER))


def test_ctrl_c_ends_a_request_at_once(connect, middle):
    def slow(path, answer):
        if path == GENERATE:
            time.sleep(2)
        return answer

    client = connect()
    middle.alter = slow
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sampled(client)
    assert time.monotonic() - started < 1.8
    assert not client.alive


def test_a_server_that_is_gone_is_tried_again_and_then_named(upstream):
    middle = Middle(upstream.upstream)
    client = ServerClient(middle.address, settings(), NEEDS, patience=QUICK)
    middle.close()
    middle.ask = lambda path, body: sys.exit()  # connections that were open already
    with pytest.raises(EngineFailed, match="a rollout failed 3 times: .*(connect|disconnect)") as raised:
        sampled(client, 1)
    assert raised.value.exit_code == 6


ENDS = """
from tests.policy.vllm.test_server_faults import *
client = ServerClient(sys.argv[1], settings(), NEEDS, patience=QUICK)
client.ask(Load(ADAPTER))
print(client._left.folder)
"""


def test_a_program_that_ends_leaves_nothing_on_the_server_or_on_disk(middle):
    ended = subprocess.run([sys.executable, "-c", ENDS, middle.address], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.strip()
    assert not os.path.exists(ended.stdout.strip())
    asked = [path for path, _ in middle.seen if "lora" in path]
    assert asked == ["/v1/unload_lora_adapter", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"]  # the first one is a check


# What is found before anything is sampled.

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
        (on("/version", lambda: whole({"detail": "Not Found"}, 404)), "refuses: HTTP status 404: Not Found", "vllm serve BASE"),
        (on("/version", lambda: whole({})), "does not say which version of vLLM it is", "vllm serve BASE"),
        (on("/version", lambda: whole(b"<html>")), "not JSON: <html>", "vllm serve BASE"),
        (on("/v1/models", lambda: whole({"data": []})), "serves 0 models; one is needed", "vllm serve BASE"),
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
    error = refused(connect, middle, needs=Needs(8, 20, 4096, 80, PROMPT))
    assert "its model takes 512 tokens" in error.message
    assert "--max-model-len 4096" in error.hint


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
