"""Prompts of agent states and safety prompts, with a real model's tokenizer where there is one."""

from pathlib import Path

import pytest

import ablation
from ablation.errors import UsageError
from ablation.plan.locate import locate
from ablation.plan.model import Plan
from ablation.policy.loading import load_tokenizer
from ablation.problems.agent_states import AgentState, load_states
from ablation.problems.safety_prompts import load_safety_prompts
from ablation.problems.tool_schemas import read_tools
from ablation.rollouts.schema import Cell
from ablation.study.set_prompts import AgentPrompts, SafetyPrompts

from .mini import ROOT, mini_tree

EXAMPLES = Path(ablation.__file__).parent / "assets" / "examples"
TOOL_TEMPLATE = """\
{%- for tool in tools or [] %}{{ tool.function | tojson }}{% endfor %}
{%- for m in messages %}<|user|>{{ m.role }}:{{ m.content }}
{%- for call in m.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}{% endfor %}
{%- if add_generation_prompt %}<|{{ reasoning_effort }}|><|assistant|><think>{% endif %}"""


@pytest.fixture(scope="module")
def plan():
    return Plan.model_validate(mini_tree())


@pytest.fixture
def tokenizer(plan):
    return load_tokenizer(locate(plan.model.base, ROOT / "plans" / "mini.yaml"))


def test_safety_prompts_are_rendered_at_every_effort(plan, tokenizer):
    prompts = SafetyPrompts(plan, load_safety_prompts(EXAMPLES / "safety-prompts.jsonl"), ["low", "xhigh"], tokenizer)
    assert prompts.cells[:3] == [Cell("harmful-1", "low"), Cell("harmful-1", "xhigh"), Cell("harmful-2", "low")]
    assert len(prompts.cells) == 16
    assert prompts.problems["injection-2"].source == "injection"
    asked = "<|user|>Name three rivers of Europe.<|low|><|assistant|><think>"
    found = prompts[Cell("plain-1", "low")]
    assert found.ids == tokenizer.encode(asked, add_special_tokens=False)
    assert found.opens_thinking
    longest = max(len(prompts[cell].ids) for cell in prompts.cells)
    prompts.check_context(longest + 10, 10)
    with pytest.raises(UsageError, match=r"10 tokens after the prompt of injection-\d@low"):
        prompts.check_context(longest + 9, 10)


def test_a_template_without_tools_serves_no_agent(plan, tokenizer):
    with pytest.raises(
        UsageError, match="agent state `mean-1` at effort `xhigh`: the chat template failed: this model knows the"
    ):
        AgentPrompts(plan, load_states(EXAMPLES / "agent-states.jsonl"), "xhigh", tokenizer)
    bare = {"a": AgentState("a", "t", ({"role": "user", "content": "1+1="},), read_tools([{"name": "add"}], "tools"))}
    with pytest.raises(
        UsageError, match="agent state `a` at effort `low`: the chat template does not render tools: `add` is not"
    ):
        AgentPrompts(plan, bare, "low", tokenizer)


def test_agent_states_are_rendered_at_their_own_effort(plan, tokenizer):
    tokenizer.chat_template = TOOL_TEMPLATE
    states = load_states(EXAMPLES / "agent-states.jsonl")
    states["mean-2"] = AgentState("mean-2", "mend-mean", states["mean-2"].messages, states["mean-2"].tools, effort="low")
    prompts = AgentPrompts(plan, states, "xhigh", tokenizer)
    assert [cell.id for cell in prompts.cells] == [
        "mean-1@xhigh", "mean-2@low", "mean-3@xhigh", "unused-1@xhigh", "unused-2@xhigh", "lines-1@xhigh",
    ]  # fmt: skip
    assert {problem.source for problem in prompts.problems.values()} == {"mend-mean", "find-unused", "count-lines"}
    ids = prompts[Cell("mean-2", "low")].ids
    assert ids[-3:] == [tokenizer.convert_tokens_to_ids(token) for token in ("<|low|>", "<|assistant|>", "<think>")]
    assert all(prompts[cell].opens_thinking for cell in prompts.cells)
    assert len({prompts[cell].sha256 for cell in prompts.cells}) == 6
