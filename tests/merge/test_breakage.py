"""What rollouts are counted as, with a model that says what a test tells it to; real models are in `test_run` and `test_check`."""

from dataclasses import replace

import numpy as np
import pytest

from ablation.merge.breakage import (
    CHECKS,
    FAIL,
    NEITHER,
    NOT_ASKED,
    PASS,
    STATE,
    Look,
    failed_in_words,
    judge,
    look_at,
    make_prompts,
)
from ablation.plan.load import load_plan
from ablation.policy.base import SampledTokens
from ablation.problems.problem import load_problems
from tests.study.mini import ROOT

TINY = ROOT / "ablation" / "assets" / "tiny-reasoner"
WITH_TOOLS = """
{%- for tool in tools or [] %}<tool>{{ tool.function.name }}</tool>{% endfor -%}
{%- for message in messages -%}
<|user|>{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{{ reasoning_effort }}<think>{% endif -%}
"""


class Words:
    """A tokenizer of single characters; tags are one token each."""

    TAGS = ("<think>", "</think>", "<|end|>")
    unk_token_id = bos_token_id = pad_token_id = None

    def __init__(self, template: str) -> None:
        self.chat_template = template

    def encode(self, text, *, add_special_tokens=False):
        ids = []
        while text:
            tag = next((place for place, one in enumerate(self.TAGS) if text.startswith(one)), None)
            ids.append(ord(text[0]) + 3 if tag is None else tag)
            text = text[1:] if tag is None else text[len(self.TAGS[tag]) :]
        return ids

    def decode(self, ids, **_):
        return "".join(self.TAGS[one] if one < 3 else chr(one - 3) for one in ids)

    def apply_chat_template(self, messages, *, tokenize=True, return_dict=False, **values):
        from jinja2 import Environment

        text = Environment().from_string(self.chat_template).render(messages=messages, **values)
        return self.encode(text) if tokenize else text


class Scripted:
    """Says `plain` after every prompt of a problem and `tool` after that of the tool."""

    def __init__(self, prompts, tokenizer, plain: str, tool: str = "", logprob: float = -1.0) -> None:
        self.tool_prompts = {tuple(one.prompt.ids) for one in prompts.asked if one.tool}
        self.texts, self.tokenizer, self.logprob = (plain, tool), tokenizer, logprob

    def score(self, rows):
        return [np.full(len(row.token_ids), self.logprob) for row in rows]

    def sample(self, requests, decoding):
        assert len({one.seed for one in requests}) == len(requests)
        return [self._one(self.texts[one.prompt_ids in self.tool_prompts]) for one in requests]

    def _one(self, text):
        ids = np.array(self.tokenizer.encode(text), dtype=np.int64)
        numbers = np.full(len(ids), self.logprob)
        return SampledTokens(ids, numbers, numbers, numbers, "stop" if text.endswith("<|end|>") else "length")


@pytest.fixture(scope="module")
def plan():
    return load_plan(ROOT / "plans" / "quickstart.yaml").plan


@pytest.fixture(scope="module")
def problems():
    return load_problems(TINY / "problems.jsonl")


CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
WHOLE = "some thinking</think>The answer is 7.<|end|>"


def looked(plan, problems, plain=WHOLE, tool=f"ok</think>{CALL}<|end|>", template=WITH_TOOLS, made_of=None, **options):
    tokenizer = Words(template)
    prompts = make_prompts(plan, problems, tokenizer, 1, 4096)
    return look_at(Scripted(prompts, tokenizer, plain, tool, **options), prompts, tokenizer, plan, made_of)


def held(found) -> dict[str, tuple[int, int]]:
    return {name: (one["holds"], one["of"]) for name, one in found.counts.items()}


def test_prompts_of_each_effort_and_a_tool_where_the_template_takes_one(plan, problems):
    prompts = make_prompts(plan, problems, Words(WITH_TOOLS), 1, 50)
    assert [one.effort for one in prompts.asked] == ["low"] * 3 + ["medium"] * 3 + ["xhigh"] * 3
    assert [one.name for one in prompts.asked if one.tool] == ["weather@low", "weather@medium", "weather@xhigh"]
    assert prompts.without_tools is None and prompts.decoding.max_tokens == 50
    text = Words("").decode(next(one.prompt.ids for one in prompts.asked if one.tool))
    assert STATE.tools[0].name in text and text.endswith("low<think>")
    again, other = (make_prompts(plan, problems, Words(WITH_TOOLS), seed, 50) for seed in (1, 2))
    assert [one.name for one in again.asked] == [one.name for one in prompts.asked] != [one.name for one in other.asked]


def test_a_template_without_tools_is_said(plan, problems):
    template = "{% for one in messages %}{{ one.content }}{% endfor %}{{ reasoning_effort }}<think>"
    prompts = make_prompts(plan, problems, Words(template), 1, 50)
    assert len(prompts.asked) == 6 and "the chat template" in prompts.without_tools
    found = looked(plan, problems, template=template)
    assert held(found)["tool_call"] == (0, 0)
    assert judge(found, {"base": found})["checks"]["tool_call"]["result"] == NOT_ASKED


def test_a_whole_model(plan, problems):
    found = looked(plan, problems)
    assert held(found) == {
        "closes": (18, 18),
        "answers": (18, 18),
        "script": (18, 18),
        "no_loop": (18, 18),
        "tool_call": (6, 6),
        "finite": (18, 18),
        "alike": (0, 0),
    }
    assert judge(found, {"base": found})["passed"]


@pytest.mark.parametrize(
    ("plain", "tool", "failed"),
    [
        ("some thinking without an end", "the same", {"closes", "answers", "tool_call"}),
        ("hm</think><|end|>", f"ok</think>{CALL}<|end|>", {"answers"}),
        ("hm</think>答案是七<|end|>", f"ok</think>{CALL}<|end|>", {"script"}),
        ("again and " * 60, f"ok</think>{CALL}<|end|>", {"closes", "answers", "no_loop"}),
        (WHOLE, "ok</think>I would call get_weather.<|end|>", {"tool_call"}),
        (WHOLE, f"ok</think>{CALL.replace('city', 'town')}<|end|>", {"tool_call"}),
        (WHOLE, f"ok</think>{CALL[:-5]}<|end|>", {"tool_call"}),
    ],
)
def test_what_breaks(plan, problems, plain, tool, failed):
    own, whole = looked(plan, problems, plain, tool), looked(plan, problems)
    found = judge(own, {"base": whole})
    assert set(found["failed"]) == failed and not found["passed"]
    words = failed_in_words(found)
    assert all(CHECKS[name] in words for name in failed) and "base" in words


def test_what_the_base_does_not_either_is_no_failure(plan, problems):
    own = looked(plan, problems, tool="ok</think>I cannot.<|end|>")
    found = judge(own, {"base": own})
    assert found["checks"]["tool_call"]["result"] == NEITHER and found["passed"]
    # but the adapter does, so the merged model has to
    assert judge(own, {"base": own, "adapter": looked(plan, problems)})["failed"] == ["tool_call"]


def test_a_logprob_that_is_not_finite_fails_whatever_the_others_do(plan, problems):
    own = looked(plan, problems, logprob=float("nan"))
    assert judge(own, {"base": own})["failed"] == ["finite"]


@pytest.mark.parametrize(("holds", "best", "result"), [(12, 12, PASS), (7, 12, PASS), (6, 12, FAIL), (4, 6, PASS), (3, 6, FAIL)])
def test_more_than_half_as_often_as_the_best_reference(plan, problems, holds, best, result):
    whole = looked(plan, problems)

    def with_count(count: int) -> Look:
        return replace(whole, counts=whole.counts | {"no_loop": {"holds": count, "of": 12}})

    found = judge(with_count(holds), {"base": with_count(best), "adapter": with_count(1)})
    assert found["checks"]["no_loop"]["result"] == result


@pytest.mark.parametrize(("same", "result"), [(True, PASS), (False, FAIL), (None, NOT_ASKED)])
def test_another_tokenizer(plan, problems, same, result):
    found = looked(plan, problems)
    assert judge(found, {"base": found}, same_prompts=same)["checks"]["prompts"]["result"] == result


@pytest.mark.parametrize(("logprob", "result"), [(-1.0, PASS), (-1.9, PASS), (-2.1, FAIL), (float("nan"), FAIL)])
def test_rollouts_of_the_model_that_it_was_made_of(plan, problems, logprob, result):
    whole = looked(plan, problems)
    own = looked(plan, problems, made_of=whole, logprob=logprob)
    found = judge(own, {"base": whole, "adapter": whole})
    assert found["checks"]["alike"]["result"] == result
    assert found["checks"]["alike"]["own"] == {"holds": 18 if result == PASS else 0, "of": 18}
    less = found["looks"]["own"]["less_likely"]
    assert less is None if np.isnan(logprob) else less == pytest.approx(-1 - logprob)
