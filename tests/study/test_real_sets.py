"""Agent states and safety prompts sampled from a real language model (SmolLM2-135M), stored, read again and measured."""

import numpy as np
import pytest

from ablation.files import folder_is_complete
from ablation.measures.agent import agent_comparison, agent_measures
from ablation.measures.safety import safety_measures
from ablation.plan.load import load_plan
from ablation.plan.locate import locate
from ablation.policy.loading import load_tokenizer
from ablation.problems.agent_states import load_states
from ablation.problems.render import token_ids
from ablation.problems.safety_prompts import load_safety_prompts
from ablation.problems.tool_calls import REASONS
from ablation.rollouts.schema import StageInfo
from ablation.rollouts.store import read_stage
from ablation.study.journal import Journal
from ablation.study.sampler import Item, StageSampler
from ablation.study.schedule import rollout_seed
from ablation.study.set_prompts import AgentPrompts, SafetyPrompts

from .mini import ROOT
from .test_set_prompts import EXAMPLES

PLAN = ROOT / "plans" / "smollm2.yaml"
TEMPLATE = """\
{{- '<|im_start|>system\\n' -}}{%- if messages[0].role == 'system' -%}{{ messages[0].content + '\\n' }}{%- endif -%}
{%- if tools -%}{{- 'You may call these functions, as <tool_call>{"name": ..., "arguments": {...}}</tool_call>:\\n' -}}
{%- for tool in tools -%}{{ tool | tojson + '\\n' }}{%- endfor -%}{%- endif -%}{{- '<|im_end|>\\n' -}}
{%- for m in messages -%}{%- if m.role != 'system' -%}
{{- '<|im_start|>' + m.role + '\\n' + m.content -}}
{%- for call in m.tool_calls or [] -%}{{- '<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' -}}{%- endfor -%}
{%- if loop.last and add_generation_prompt -%}{{- '\\neffort: ' + reasoning_effort -}}{%- endif -%}
{{- '<|im_end|>\\n' -}}{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""
"""Like SmolLM2's own, with tools, and without opening the thinking: the model may think or call at once."""


class Silent:
    def stage(self, *_):
        pass

    progress = stage_done = say = stage


@pytest.fixture(scope="module")
def real():
    plan = load_plan(PLAN).plan
    base, adapter = locate(plan.model.base, PLAN), locate(plan.model.start_adapter, PLAN)
    if not (folder_is_complete(base) and folder_is_complete(adapter)):
        pytest.skip("not made yet: ablation prepare plans/smollm2.yaml")
    from ablation.policy.local import LocalPolicy

    tree = plan.model_dump()
    tree["sampling"] |= {"max_tokens": 48, "batch_rollouts": 12}
    plan = type(plan).model_validate(tree)
    tokenizer = load_tokenizer(base)
    tokenizer.chat_template = TEMPLATE
    ids = token_ids(tokenizer, plan.model.tokens)
    return plan, tokenizer, ids, LocalPolicy(plan, base, adapter, ids.end, ids.end[0])


def sampled(real, prompts, folder, arm, name, per_cell):
    plan, tokenizer, ids, policy = real
    journal = Journal(folder / "journal.jsonl", "d" * 64)
    sampler = StageSampler(plan, policy, prompts, tokenizer, ids, journal, folder / "ledger.jsonl", Silent())
    info = StageInfo("d" * 64, "main", arm, name, 0, policy.adapter_sha256(), ids.open, ids.close, ids.end, 48)
    items = [
        Item(cell, index, rollout_seed(7, name, 0, cell, index)) for cell in prompts.cells for index in range(per_cell)
    ]  # in both models' stages the same
    sampler.sample(folder / arm, info, items, f"{name}/{arm}")
    return read_stage(folder / arm)


@pytest.mark.slow
def test_agent_turns_of_two_real_models(real, tmp_path):
    plan, tokenizer, _, policy = real
    states = load_states(EXAMPLES / "agent-states.jsonl")
    prompts = AgentPrompts(plan, states, "low", tokenizer)
    reference = sampled(real, prompts, tmp_path, "start", "agent", 2)
    start = {name: weight.detach().clone() for name, weight in policy.trainable.items()}
    try:
        policy.set_weights({name: weight * 0.7 for name, weight in start.items()})
        subject = sampled(real, prompts, tmp_path, "N", "agent", 2)
    finally:
        policy.set_weights(start)
    assert subject.seed.tolist() == reference.seed.tolist()
    assert set(subject.source) == {"mend-mean", "find-unused", "count-lines"}
    assert subject.token_ids.tolist() != reference.token_ids.tolist()
    settings = plan.statistics.model_copy(update={"min_clusters": 3})
    own, other, ratios = agent_measures(subject, reference, states, settings, plan.loops)
    for stage, measured in ((subject, own), (reference, other)):
        assert measured["valid_tool_call"] + measured["invalid_tool_call"] + measured["no_tool_call"] == 12
        assert sum(measured["reasons"].values()) == 12 - measured["valid_tool_call"]
        assert set(measured["reasons"]) <= set(REASONS)
        # the thinking, counted from the text of each rollout and not from its ids
        counted = [len(tokenizer.encode(text, add_special_tokens=False)) for text in stage.thinking_text]
        assert measured["agent_tokens"] == pytest.approx(sum(counted), rel=0.1, abs=4)
        assert measured["total_tokens"] == len(stage.token_ids) <= 12 * 48
    assert ratios["agent_turn"].value > 0 and np.isfinite(float(ratios["agent_turn"].value))
    found = agent_comparison(subject, reference, states)
    assert sum(found["pairs"][name] for name in ("both_short", "subject_long", "reference_long", "both_long")) == 12


@pytest.mark.slow
def test_safety_answers_of_a_real_model(real, tmp_path):
    plan, tokenizer, _, _ = real
    asked = load_safety_prompts(EXAMPLES / "safety-prompts.jsonl")
    stage = sampled(real, SafetyPrompts(plan, asked, ["low", "xhigh"], tokenizer), tmp_path, "start", "safety", 1)
    found = safety_measures(stage, asked, None, plan.loops)
    empty = [not text.strip() for text in stage.answer_text]
    assert (found["rollouts"], found["prompts"], found["missing_answer"]) == (16, 8, sum(empty))
    labels = [
        (name, asked[name].category, effort, "missing_answer" if gone else asked[name].labels[0])
        for name, effort, gone in zip(stage.problem, stage.effort, empty, strict=True)
    ]
    judged = safety_measures(stage, asked, labels, plan.loops)
    assert (judged["full_compliance"], judged["over_refusal"], judged["bad_plain"], judged["unparsed"]) == (0, 0, 0, 0)
    answers = [text for name, text in zip(stage.problem, stage.answer_text, strict=True) if name.startswith("injection")]
    assert judged["injection_repeat"] == sum("address book" in text or "closed for good" in text for text in answers)
