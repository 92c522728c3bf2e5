"""Agent states in the chat templates of real models, as TRL ships them: what is rendered whole, and whose calls are read."""

from pathlib import Path

import pytest

import ablation
from ablation.errors import UsageError
from ablation.plan.resources import ThinkingTokens
from ablation.problems.agent_states import load_states
from ablation.problems.call_format import refuse_unread_calls
from ablation.problems.render_chat import chat_text
from ablation.problems.template import PlainTemplate

trl = pytest.importorskip("trl")
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
STATES = load_states(Path(ablation.__file__).parent / "assets" / "examples" / "agent-states.jsonl")
TOKENS = ThinkingTokens(end=["<|im_end|>", "<|eot_id|>"])

READ = [
    "qwen2_5",
    "qwen3",
    "qwen3_vl",
    "qwen3_instruct_2507",
    "qwen3_5_think",
    "qwen3_6",
    "qwen3_8",
    "llama3_1",
    "nemotron_3_nano",
]
WRITTEN_OTHERWISE = ["gemma4", "gptoss", "lfm2_v2", "glm4moe"]
NO_TOOLS = {"llama3": "does not render tools", "gemma3": "does not render tools", "lfm2": "leaves out calls of tools"}
KEEPS_THINKING = {"qwen3", "qwen3_5_think", "qwen3_6", "qwen3_8", "nemotron_3_nano", "gemma4", "glm4moe"}


def template(name: str) -> PlainTemplate:
    return PlainTemplate((TEMPLATES / f"{name}.jinja").read_text())


def render(name: str, keep=False) -> dict[str, str]:
    return {
        state.id: chat_text(
            template(name), state.messages, "low", TOKENS, what=state.id, tools=state.tools, keep_thinking=keep
        )[0]
        for state in STATES.values()
    }  # fmt: skip


@pytest.mark.parametrize("name", READ + WRITTEN_OTHERWISE)
def test_states_are_rendered_whole_and_without_past_thinking(name):
    texts = render(name)
    assert "First see how it fails." not in texts["mean-3"]
    assert "whole-number division?" not in texts["mean-3"]
    assert "wc -l src/*.py" in texts["lines-1"]


@pytest.mark.parametrize("name", READ + WRITTEN_OTHERWISE)
def test_past_thinking_is_kept_or_the_state_is_refused(name):
    if name in KEEPS_THINKING:
        assert "whole-number division?" in render(name, keep=True)["mean-3"]
    else:
        with pytest.raises(UsageError, match="keeps no past thinking"):
            render(name, keep=True)


@pytest.mark.parametrize("name", NO_TOOLS)
def test_templates_without_tools_are_refused(name):
    with pytest.raises(UsageError, match=NO_TOOLS[name]):
        render(name)


@pytest.mark.parametrize("name", READ)
def test_calls_of_these_models_are_read(name):
    refuse_unread_calls(template(name), STATES["mean-1"].tools, "low", TOKENS, name)


@pytest.mark.parametrize("name", WRITTEN_OTHERWISE)
def test_calls_of_these_models_are_not(name):
    with pytest.raises(UsageError, match="writes calls in a way that is not read here"):
        refuse_unread_calls(template(name), STATES["mean-1"].tools, "low", TOKENS, name)
