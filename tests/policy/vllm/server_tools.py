"""What the tests of a server's client share: what they ask for, and ways in which an answer is altered on its way."""

from __future__ import annotations

import threading

from ablation.policy.vllm.messages import Adapter, EngineSettings, Finished, Sample, SamplingValues
from ablation.policy.vllm.server_checks import Needs
from ablation.policy.vllm.server_http import Patience
from tests.policy.vllm.conftest import TINY
from tests.policy.vllm.middle import GENERATE, Cut, events_changed

PROMPT = (3, 4, 5, 6, 7)
NEEDS = Needs(rank=8, top_logprobs=20, context=None, tokens=80, prompt=PROMPT, vocabulary=40)
QUICK = Patience(connect=20, answer=200, load=300, idle=200, rollout=600, tries=3, first_pause=0.01)
VALUES = SamplingValues(1.0, 1.0, 0, 24, 20, ())
ADAPTER = Adapter("adapter-0123456789abcdef", 7, str(TINY / "start-adapter"))


def settings(sequences=8):
    return EngineSettings("base", "float32", 512, sequences, 2048, 1, 1, True, 1, 8, 20)


def rows(count, first=2**62):
    return [(10 + place, (*PROMPT, 8 + place % 5), first + place) for place in range(count)]


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


def _set_likely(choice, logprob):
    for one in choice["logprobs"]["content"][0]["top_logprobs"][1:]:
        one["logprob"] = logprob


def likely_beyond_all_floats(choice):
    _set_likely(choice, -(10**400))


def likely_beyond_float32(choice):
    _set_likely(choice, -1e300)


def all_certain(choice):
    _set_likely(choice, 0.0)


def for_a_reason_of_its_own(value):
    for choice in value["choices"]:
        if choice["finish_reason"] is not None:
            choice["finish_reason"] = "\x1b[2J" + "sk-of-the-server " * 10_000


def count_in_words(value):
    if value.get("usage"):
        value["usage"]["prompt_tokens"] = "sk-of-the-server"


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
    "a logprob of a likely token is none": first_choice(likely_beyond_all_floats),
    "logprob of a likely token is none": first_choice(likely_beyond_float32),
    "the probabilities of likely tokens add up to": first_choice(all_certain),
    "ended a rollout for a reason that is none": events_changed(for_a_reason_of_its_own),
    "the server counts `str` tokens of the prompt": events_changed(count_in_words),
}
