"""The tokenizer here is a real one, built word by word, so that every id can be checked by hand."""

import hashlib

import pytest

from ablation.errors import UsageError
from ablation.plan.resources import ThinkingTokens
from ablation.problems.problem import Problem
from ablation.problems.render import (
    Prompt,
    TokenIds,
    ends_inside_thinking,
    ids_sha256,
    one_start,
    refuse_equal_prompts,
    render_prompt,
    token_ids,
)
from ablation.rollouts.thinking import thinking_span

WORDS = ["<unk>", "<think>", "</think>", "<end>", "<stop>", "hi", "low", "xhigh", "again"]
TOKENS = ThinkingTokens(end=["<end>", "<stop>"])
PROBLEM = Problem("p", "s", "hi again", "exact", "x")
OPENS = "{{ messages[0]['content'] }} {{ reasoning_effort }}{% if add_generation_prompt %} <think>{% endif %}"


def tokenizer(template: str | None):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>")
    made.chat_template = template
    return made


def test_the_effort_reaches_the_template_and_the_digest_is_over_int32():
    prompt = render_prompt(tokenizer(OPENS), PROBLEM, "xhigh", TOKENS)
    raw = bytes([5, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0])
    assert prompt == Prompt([5, 8, 7, 1], hashlib.sha256(raw).hexdigest(), True)
    assert render_prompt(tokenizer(OPENS), PROBLEM, "low", TOKENS).ids == [5, 8, 6, 1]


@pytest.mark.parametrize(
    ("template", "opens"),
    [
        ("hi <think>", True),
        ("hi", False),
        ("hi <think> </think>", False),  # thinking switched off
        ("<think> again </think> hi <think>", True),
    ],
)
def test_whether_thinking_is_open_is_read_from_the_token_ids(template, opens):
    assert render_prompt(tokenizer(template), PROBLEM, "low", TOKENS).opens_thinking is opens


def test_ends_inside_thinking():
    tokens = TokenIds(open=1, close=2, end=(3,))
    assert [ends_inside_thinking(ids, tokens) for ids in ([], [1], [1, 5], [1, 2], [2, 1, 5], [2])] == [
        False, True, True, False, True, False,
    ]  # fmt: skip


def test_ids_sha256_of_nothing_and_of_large_ids():
    assert ids_sha256([]) == hashlib.sha256(b"").hexdigest()
    assert ids_sha256([256, 151936]) == hashlib.sha256(b"\x00\x01\x00\x00\x80\x51\x02\x00").hexdigest()


def test_token_ids():
    assert token_ids(tokenizer(None), TOKENS) == TokenIds(open=1, close=2, end=(3, 4))


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (ThinkingTokens(open="hi again", end=["<end>"]), "model.tokens.open: `hi again` is 2 tokens"),
        (ThinkingTokens(close="</thought>", end=["<end>"]), "model.tokens.close: `</thought>` is not in the vocabulary"),
        (ThinkingTokens(end=["<end>", "hi low xhigh"]), r"model.tokens.end\[1\]: `hi low xhigh` is 3 tokens"),
        (ThinkingTokens.model_construct(open="<think>", close="</think>", end=["</think>"]), "two of them are the same"),
    ],
)
def test_a_token_that_is_not_one_token_is_refused(tokens, said):
    with pytest.raises(UsageError, match=said):
        token_ids(tokenizer(None), tokens)


def test_a_missing_or_failing_template_is_one_clear_error():
    with pytest.raises(UsageError, match="no chat template"):
        render_prompt(tokenizer(None), PROBLEM, "low", TOKENS)
    with pytest.raises(UsageError, match="problem `p` at effort `medium`: the chat template failed: no medium here"):
        render_prompt(tokenizer("{{ raise_exception('no ' + reasoning_effort + ' here') }}"), PROBLEM, "medium", TOKENS)
    with pytest.raises(UsageError, match="problem `p` at effort `low`: the chat template failed: can only concatenate str"):
        render_prompt(tokenizer("{{ reasoning_effort + 1 }}"), PROBLEM, "low", TOKENS)
    with pytest.raises(UsageError, match="problem `p` at effort `low`: the chat template renders nothing"):
        render_prompt(tokenizer("{# #}"), PROBLEM, "low", TOKENS)


@pytest.mark.parametrize(
    ("template", "completion", "thinking", "visible"),
    [
        ("hi <think>", "hi again </think> low", 2, 1),  # the prompt opens the thinking; the closing tag does not count
        ("hi", "low", 0, 1),  # a template that knows no thinking
        ("hi <think> </think>", "low", 0, 1),  # thinking switched off in the template
        ("hi <think>", "hi low again", 3, 0),  # C02: never closed, whatever ended it
        ("hi", "<think> hi again </think> low", 2, 1),  # the model opens it
    ],
)
def test_thinking_tokens_are_counted_from_the_rendered_prompt(template, completion, thinking, visible):  # C01
    words = tokenizer(template)
    prompt, ids = render_prompt(words, PROBLEM, "low", TOKENS), words.encode(completion, add_special_tokens=False)
    span = thinking_span(ids, prompt_opens_thinking=prompt.opens_thinking, open_id=1, close_id=2)
    assert span.stop - span.start == thinking
    assert len(ids) - span.answer_start == visible


@pytest.mark.parametrize(
    ("ids", "kept"), [([9, 9, 5], [9, 5]), ([9, 9, 9], [9]), ([9, 5, 9, 9], [9, 5, 9, 9]), ([5], [5]), ([], [])]
)
def test_a_prompt_begins_with_one_start_token(ids, kept):
    assert one_start(ids, 9) == kept
    assert one_start(ids, None) == ids


def test_a_template_that_repeats_the_start_token_is_rendered_with_one():
    words = tokenizer("{{ bos_token }} <stop> hi")
    words.bos_token = "<stop>"
    assert render_prompt(words, PROBLEM, "low", TOKENS).ids == [4, 5]


def test_two_efforts_with_one_prompt_are_refused():
    def rendered(template, *efforts):
        return {("p", effort): render_prompt(tokenizer(template), PROBLEM, effort, TOKENS) for effort in efforts}

    refuse_equal_prompts(rendered(OPENS, "low", "xhigh"))
    refuse_equal_prompts(rendered("hi", "low"))
    refuse_equal_prompts(rendered("hi", "low") | {("q", "xhigh"): render_prompt(tokenizer("hi"), PROBLEM, "xhigh", TOKENS)})
    with pytest.raises(UsageError, match="problem `p`: efforts `low` and `xhigh` have the same prompt"):
        refuse_equal_prompts(rendered("hi", "low", "xhigh"))
    knows_one = "{% if reasoning_effort == 'low' %}low{% else %}again{% endif %}"
    with pytest.raises(UsageError, match="efforts `medium` and `xhigh` have the same prompt"):
        refuse_equal_prompts(rendered(knows_one, "low", "medium", "xhigh"))
