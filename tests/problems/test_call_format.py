"""Templates that write calls in formats that are read, and in others."""

import pytest

from ablation.errors import UsageError
from ablation.plan.phase2 import Guard, Release
from ablation.plan.resources import ThinkingTokens
from ablation.problems.call_format import counts_calls, refuse_unread_calls
from ablation.problems.template import PlainTemplate
from ablation.problems.tool_schemas import read_tools

TOOLS = read_tools([{"name": "ls"}], "tools")
TOKENS = ThinkingTokens(end=["<end>"])
TURN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}CALL{% endfor %}<end>{% endfor %}"
CODER = "<function={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n</parameter>{% endfor %}</function>"


def check(call: str, generation="{% if add_generation_prompt %}<assistant>{% endif %}"):
    refuse_unread_calls(PlainTemplate(TURN.replace("CALL", call) + generation), TOOLS, "low", TOKENS, "agent state `a`")


@pytest.mark.parametrize(
    "call",
    [
        "<tool_call>\n{{ c.function | tojson }}\n</tool_call>",
        "<think>\n\n</think>\n\n<tool_call>{{ c.function | tojson }}</tool_call>",
        CODER,
        "<tool_call>" + CODER + "</tool_call>",
        '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}',
        "[TOOL_CALLS][{{ c.function | tojson }}]",
    ],
)
def test_formats_that_are_read(call):
    check(call)


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("<|call|>{{ c.function.name }}({{ c.function.arguments }})", "<|call|>ls({'some_name': 'some value'})"),
        ("<tool_call>{{ c.function.name }}</tool_call>", "<tool_call>ls</tool_call>"),
        ("<tool_call>{{ c.function | tojson }}", '<tool_call>{"name": "ls", "arguments": {"some_name": "some value"}}'),
        ("<function={{ c.function.name }}></function>", "<function=ls></function>"),  # without its arguments
        ("", ""),
    ],
)
def test_formats_that_are_not_read(call, shown):
    with pytest.raises(UsageError) as caught:
        check(call)
    assert caught.value.message == (
        f"agent state `a`: model.base's chat template writes calls in a way that is not read here: {shown}"
    )


def test_json_alone_is_looked_for_after_the_generation_prompt_of_the_turn():
    with pytest.raises(UsageError, match="not read here: <assistant>"):
        check("{{ c.function | tojson }}", generation="")


def test_only_guards_on_tool_calls_need_it():
    guard = {"name": "g", "compare": "change", "op": "<=", "limit": 1}
    assert not counts_calls(None)
    assert not counts_calls(Release(guards=[Guard(measure="agent_turn", **guard)]))
    assert counts_calls(Release(guards=[Guard(measure="agent_turn", **guard), Guard(measure="invalid_tool_call", **guard)]))
