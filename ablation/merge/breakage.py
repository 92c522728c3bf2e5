"""Whether a model folder is broken: a few rollouts at each effort, and beside them the same of models that are known to be whole.

It finds broken files, not worse models. What the references do not do either cannot break: a base that closes no thinking
or calls no tool fails nothing. Of what the best reference does in at least half of its rollouts a whole model does more than half
as often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.policy.base import SampledTokens, SampleRequest, ScoreRow
from ablation.policy.decoding import Decoding
from ablation.problems.agent_states import AgentState
from ablation.problems.call_format import refuse_unread_calls
from ablation.problems.problem import Problem
from ablation.problems.render import Prompt, TokenIds, render_prompt, token_ids
from ablation.problems.render_chat import render_chat
from ablation.problems.tool_calls import judge_turn
from ablation.problems.tool_schemas import Tool
from ablation.rollouts.cjk import cjk_share, visible_cjk
from ablation.rollouts.loops import find_loops
from ablation.rollouts.thinking import thinking_span
from ablation.seeds import derive_seed

CHECKS = {
    "closes": "thinking that was opened is closed",
    "answers": "there is a visible answer",
    "script": "no CJK letter in the answer to a prompt without one",
    "no_loop": "no repetition loop",
    "tool_call": "the tool is called, and the call fits its schema",
    "finite": "every logprob is finite",
    "alike": "rollouts of the model that it was made of are as likely to it",
}
PASS, FAIL, NEITHER, NOT_ASKED = "pass", "FAIL", "the others do not either", "not asked"
BROKEN = "merge_broken"
APART = 1.0
"""Nats per token by which a rollout may be less likely to a model than to the one that it was made of: a coarse quantisation
costs a tenth of that, a broken matrix several times as much."""
PROBLEMS, SAMPLES = 2, 2
"""Problems at each effort, and rollouts of each prompt."""
_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
    "required": ["city"],
    "additionalProperties": False,
}
STATE = AgentState(
    id="weather",
    task="weather",
    messages=({"role": "user", "content": "What is the weather in Paris now? Use the tool, and call it once."},),
    tools=(Tool("get_weather", "The weather in a city at this moment.", _SCHEMA),),
)


class Samples(Protocol):
    """A model that can be sampled from, and scores given tokens."""

    def score(self, rows: Sequence[ScoreRow]) -> list[np.ndarray]: ...

    def sample(self, requests: list[SampleRequest], decoding: Decoding) -> list[SampledTokens]: ...


@dataclass(frozen=True)
class OnePrompt:
    """One prompt of the check."""

    name: str
    effort: str
    prompt: Prompt
    tool: bool
    cjk: bool
    """Whether the prompt itself has a CJK letter."""


@dataclass(frozen=True)
class Prompts:
    """Every prompt, and why no tool is asked for, if none is."""

    asked: tuple[OnePrompt, ...]
    without_tools: str | None
    ids: TokenIds
    seed: int
    decoding: Decoding

    def requests(self) -> list[SampleRequest]:
        return [
            SampleRequest(tuple(one.prompt.ids), derive_seed(self.seed, "breakage", one.name, number))
            for one in self.asked
            for number in range(SAMPLES)
        ]

    def record(self) -> dict[str, Any]:
        return {
            "prompts": [one.name for one in self.asked],
            "samples": SAMPLES,
            "seed": self.seed,
            "max_tokens": self.decoding.max_tokens,
            "temperature": self.decoding.temperature,
            "top_p": self.decoding.top_p,
            "top_k": self.decoding.top_k,
            "without_tools": self.without_tools,
        }


def make_prompts(plan: Plan, problems: Mapping[str, Problem], tokenizer: Any, seed: int, longest: int) -> Prompts:
    """At each effort `PROBLEMS` training problems, chosen by `seed`, and a chat with a tool where the template takes one.

    `longest`: tokens of a rollout at most; the plan's cap where that is lower.
    """
    tokens, sampling = plan.model.tokens, plan.sampling
    ids = token_ids(tokenizer, tokens)
    asked, without = [], None
    for effort, names in plan.problems.cells.items():
        for name in sorted(names, key=lambda one: derive_seed(seed, "breakage", effort, one))[:PROBLEMS]:
            prompt = render_prompt(tokenizer, problems[name], effort, tokens)
            asked.append(OnePrompt(f"{name}@{effort}", effort, prompt, False, bool(visible_cjk([problems[name].prompt])[0])))
        if without is None:
            try:
                what = f"tool `{STATE.tools[0].name}`"
                prompt = render_chat(tokenizer, STATE.messages, effort, tokens, what=what, tools=STATE.tools)
                refuse_unread_calls(tokenizer, STATE.tools, effort, tokens, what)
                asked.append(OnePrompt(f"{STATE.id}@{effort}", effort, prompt, True, False))
            except UsageError as error:
                without = error.message
    pad = tokenizer.pad_token_id
    decoding = Decoding(
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        min(sampling.max_tokens, longest),
        sampling.top_logprobs,
        ids.end,
        ids.end[0] if pad is None else pad,
    )
    return Prompts(tuple(asked), without, ids, seed, decoding)


@dataclass(frozen=True)
class Look:
    """What a model did."""

    counts: dict[str, dict[str, int]]
    """Check -> `holds` of how many (`of`) rollouts."""
    like: dict[str, Any]
    """What the rollouts were like."""
    rows: list[ScoreRow]
    logprobs: list[np.ndarray]
    """Of each rollout, raw, as they were sampled."""


def look_at(model: Samples, prompts: Prompts, tokenizer: Any, plan: Plan, made_of: Look | None = None) -> Look:
    """Sample every prompt, and count of how many rollouts each check holds. `made_of`: the same of the model that this one should
    be: its rollouts are scored, too."""
    requests = prompts.requests()
    sampled = model.sample(requests, prompts.decoding)
    counts = {name: [0, 0] for name in CHECKS}

    def count(name: str, holds: bool) -> None:
        counts[name][0] += bool(holds)
        counts[name][1] += 1

    offsets = np.concatenate([[0], np.cumsum([len(one.token_ids) for one in sampled])])
    thinking, lengths, rows = [], [], [one for one in prompts.asked for _ in range(SAMPLES)]
    texts = [_texts(one, asked.prompt, prompts.ids, tokenizer) for asked, one in zip(rows, sampled, strict=True)]
    ids = np.concatenate([one.token_ids for one in sampled]).astype(np.int64)
    loops = find_loops(ids, offsets, plan.loops, [f"{thought} {answer}" for thought, answer, _ in texts])
    for place, (asked, one, (thought, answer, span)) in enumerate(zip(rows, sampled, texts, strict=True)):
        if span.opened:
            count("closes", span.closed)
            thinking.append(thought)
        count("answers", bool(answer.strip()))
        if answer.strip() and not asked.cjk:
            count("script", not visible_cjk([answer])[0])
        count("no_loop", not (loops.periodic[place] or loops.strong[place]))
        if asked.tool:
            count("tool_call", judge_turn(answer, STATE).verdict == "valid")
        count("finite", bool(np.isfinite(one.logprobs).all()))
        lengths.append(len(one.token_ids))
    apart = None
    if made_of is not None:
        told = [float((theirs - own).mean()) for theirs, own in zip(made_of.logprobs, model.score(made_of.rows), strict=True)]
        for one in told:
            count("alike", one <= APART)
        apart = float(np.mean(told)) if np.isfinite(told).all() else None
    return Look(
        {name: {"holds": holds, "of": of} for name, (holds, of) in counts.items()},
        {
            "thinking_cjk_share": float(np.median(cjk_share(thinking))) if thinking else None,
            "mean_tokens": float(np.mean(lengths)),
            "truncated": sum(one.finish_reason == "length" for one in sampled),
            "less_likely": apart,
        },
        [ScoreRow(request.prompt_ids, one.token_ids) for request, one in zip(requests, sampled, strict=True)],
        [one.logprobs.astype(np.float64) for one in sampled],
    )


def _texts(one: SampledTokens, prompt: Prompt, ids: TokenIds, tokenizer: Any) -> tuple[str, str, Any]:
    """(thinking, visible answer, span) of one rollout, split by token ids."""
    tokens = one.token_ids.tolist()
    span = thinking_span(tokens, prompt_opens_thinking=prompt.opens_thinking, open_id=ids.open, close_id=ids.close)
    answer = tokens[span.answer_start :] if span.closed or not span.opened else []
    parts = (tokens[span.start : span.stop], answer)
    kept = [part[:-1] if part and part[-1] in ids.end else part for part in parts]
    texts = [tokenizer.decode(part, skip_special_tokens=False, clean_up_tokenization_spaces=False) for part in kept]
    return texts[0], texts[1], span


def judge(
    own: Mapping[str, Any], references: Mapping[str, Mapping[str, Any]], *, same_prompts: bool | None = True
) -> dict[str, Any]:
    """Each check with its outcome; `passed` unless one of them fails.

    `same_prompts`: see `prompts_alike`; None where the folder has no tokenizer of its own.
    """
    found: dict[str, Any] = {}
    for name, words in CHECKS.items():
        count = own.counts[name]
        others = {one: look.counts[name] for one, look in references.items()}
        found[name] = {"words": words, "own": count, "references": others, "result": _result(name, count, others)}
    found["prompts"] = {
        "words": "tokenizer and chat template give the same prompt ids",
        "own": None,
        "references": {},
        "result": NOT_ASKED if same_prompts is None else PASS if same_prompts else FAIL,
    }
    failed = [name for name, one in found.items() if one["result"] == FAIL]
    looks = {who: look.like for who, look in {"own": own, **references}.items()}
    return {"checks": found, "looks": looks, "failed": failed, "passed": not failed}


def _result(name: str, own: Mapping[str, int], others: Mapping[str, Mapping[str, int]]) -> str:
    if name == "finite":
        return PASS if own["holds"] == own["of"] else FAIL
    if name == "alike":  # the others are not made of each other
        return NOT_ASKED if not own["of"] else PASS if 2 * own["holds"] > own["of"] else FAIL
    if not own["of"] and (name == "script" or not any(one["of"] for one in others.values())):
        return NOT_ASKED  # of answers that are not there `answers` tells
    able = [one["holds"] / one["of"] for one in others.values() if one["of"] and 2 * one["holds"] >= one["of"]]
    share = own["holds"] / own["of"] if own["of"] else 0.0
    if not able:
        return PASS if 2 * share >= 1 else NEITHER
    return PASS if 2 * share > max(able) else FAIL


def prompts_alike(plan: Plan, problems: Mapping[str, Problem], prompts: Prompts, tokenizer: Any) -> bool:
    """Whether another folder's tokenizer renders the same ids for every prompt of the check."""
    try:
        other = make_prompts(plan, problems, tokenizer, prompts.seed, prompts.decoding.max_tokens)
    except UsageError:
        return False
    return [one.prompt.sha256 for one in other.asked] == [one.prompt.sha256 for one in prompts.asked]


def failed_in_words(found: Mapping[str, Any]) -> str:
    """For an error: what does not hold, with its numbers."""
    parts = []
    for name in found["failed"]:
        one = found["checks"][name]
        own = one["own"]
        others = ", ".join(f"{who} {count['holds']} of {count['of']}" for who, count in one["references"].items())
        parts.append(one["words"] + (f": {own['holds']} of {own['of']} rollouts ({others})" if own else ": not so"))
    return "; ".join(parts)
