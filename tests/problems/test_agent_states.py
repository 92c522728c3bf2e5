"""Agent states as they are read, and every fault by its place."""

import copy
import json
from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.problems.agent_states import load_states

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": {"path": "."}}}
MESSAGES = [
    {"role": "system", "content": "You are careful."},
    {"role": "user", "content": "Is there a test?"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "ls first", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "src tests"},
]
TOOL = {
    "name": "ls",
    "description": "List a folder.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
GOOD = {"id": "a-1", "task": "task-1", "messages": MESSAGES, "tools": [{"type": "function", "function": TOOL}]}


def load(tmp_path, *states):
    path = tmp_path / "states.jsonl"
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in states), encoding="utf-8")
    return load_states(path)


def changed(*path, to):
    """`GOOD` with another value at `path`; `...` takes it out."""
    made = copy.deepcopy(GOOD)
    place = made
    for step in path[:-1]:
        place = place[step]
    if to is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return made


def test_a_state_is_kept_in_the_form_that_templates_take(tmp_path):
    (state,) = load(tmp_path, "", GOOD).values()
    assert (state.id, state.task, state.effort, state.past_thinking, state.parallel_tool_calls) == (
        *("a-1", "task-1", None, "drop", True),
    )
    assert state.messages[:2] == tuple(MESSAGES[:2])
    assert state.messages[2]["tool_calls"] == [CALL]
    assert state.messages[3] == {"role": "tool", "tool_call_id": "c1", "content": "src tests", "name": "ls"}
    assert [tool.for_template() for tool in state.tools] == GOOD["tools"]
    problem = state.as_problem()
    assert (problem.id, problem.source) == ("a-1", "task-1")
    assert problem.prompt.splitlines() == [
        "system: You are careful.", "user: Is there a test?", "assistant: I look. ls {'path': '.'}", "tool: src tests",
    ]  # fmt: skip


def test_arguments_as_text_and_tools_without_a_wrapper_are_read_too(tmp_path):
    text = changed("messages", 2, "tool_calls", 0, "function", "arguments", to='{"path": "."}')
    text["tools"] = [TOOL]
    del text["messages"][3]["tool_call_id"]
    text["messages"][2]["content"] = None
    (state,) = load(tmp_path, text).values()
    assert state.messages[2]["tool_calls"][0]["function"]["arguments"] == {"path": "."}
    assert (state.messages[2]["content"], state.messages[3]["name"]) == ("", "ls")
    assert state.tools[0].name == "ls"


def test_several_calls_are_answered_by_id_or_in_order(tmp_path):
    two = [CALL, {"id": "c2", "function": {"name": "cat", "arguments": {}}}]
    state = changed("messages", 2, "tool_calls", to=two)
    state["messages"] = [
        *state["messages"][:3],
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {"role": "tool", "content": "1"},
    ]
    (read,) = load(tmp_path, state).values()
    assert [message["name"] for message in read.messages[3:]] == ["cat", "ls"]


def test_what_a_state_may_say_besides(tmp_path):
    (state,) = load(tmp_path, GOOD | {"effort": "low", "past_thinking": "keep", "parallel_tool_calls": False}).values()
    assert (state.effort, state.past_thinking, state.parallel_tool_calls) == ("low", "keep", False)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ([], ":1: found a list, not an object"),
        ("{", ":1: not JSON"),
        (GOOD | {"model": "x"}, ":1: unknown field `model`"),
        (changed("task", to=...), ":1: task: is missing"),
        (changed("task", to=3), ":1: task: found a number, not a text"),
        (changed("id", to="a b"), ":1: id: `a b` is not an id"),
        (GOOD | {"effort": "very high"}, ":1: effort: `very high` is not an id"),
        (GOOD | {"past_thinking": True}, ":1: past_thinking: found true or false, not a text"),
        (GOOD | {"past_thinking": "cut"}, ":1: past_thinking: found `cut`"),
        (changed("messages", to=[]), ":1: messages: found an empty list, not a list of messages"),
        (changed("messages", 1, to="hi"), ":1: messages[1]: found a text, not an object"),
        (changed("messages", 1, "role", to=...), ":1: messages[1]: role: is missing"),
        (changed("messages", 1, "role", to="human"), ":1: messages[1]: role: unknown role 'human'"),
        (changed("messages", 1, "role", to=["user"]), ":1: messages[1]: role: unknown role ['user']"),
        (changed("messages", 1, "role", to="system"), ":1: messages[1]: role: `system` after the first message"),
        (changed("messages", 1, "content", to=" "), ":1: messages[1]: content: is empty"),
        (changed("messages", 1, "content", to=["a"]), ":1: messages[1]: content: found a list, not a text"),
        (changed("messages", 1, "content", to="\ud800"), ":1: messages[1]: content: holds half of a character"),
        (changed("messages", 1, "tool_calls", to=[CALL]), ":1: messages[1]: unknown field `tool_calls`"),
        (changed("messages", 3, "tool_call_id", to="c9"), ":1: messages[3]: tool_call_id: no call `c9` is waiting"),
        (changed("messages", 3, "name", to="cat"), ":1: messages[3]: name: found `cat`, but it answers the call of `ls`"),
        (changed("messages", 2, to={"role": "assistant", "content": "I look."}), ":1: messages[3]: is a result without a call"),
        (changed("messages", 2, to={"role": "assistant", "content": ""}), ":1: messages[2]: neither content nor tool_calls"),
        (changed("messages", 2, "tool_calls", to=[]), ":1: messages[2]: tool_calls: found an empty list"),
        (changed("messages", 2, "tool_calls", to=[CALL, CALL]), ":1: messages[2]: tool_calls[1]: id: `c1` was used before"),
        (changed("messages", 2, "tool_calls", 0, "type", to="code"), ":1: messages[2]: tool_calls[0]: type: found `code`"),
        (changed("messages", 2, "tool_calls", 0, "function", "name", to=...), ":1: messages[2]: tool_calls[0]: function: name: is missing"),
        (changed("messages", 2, "tool_calls", 0, "function", "arguments", to="[1]"),
         ":1: messages[2]: tool_calls[0]: function: arguments: found a list, not an object"),
        (changed("messages", 2, "tool_calls", 0, "function", "arguments", to="{"), ":1: messages[2]: tool_calls[0]: arguments: not JSON"),
        (changed("messages", 3, to={"role": "user", "content": "?"}), ":1: messages[3]: user speaks before the call of `ls` has a result"),
        (changed("messages", 3, to=...), ":1: messages: the call of `ls` has no result"),
        (changed("messages", to=[*MESSAGES, {"role": "assistant", "content": "Yes."}]), ":1: messages: the last message is of role `assistant`"),
        (changed("messages", to=MESSAGES[2:]), ":1: messages: no message is of role `user`"),
        (changed("tools", to=[]), ":1: tools: found an empty list, not a list of functions"),
    ],
)  # fmt: skip
def test_every_fault_is_named_by_its_place(tmp_path, state, said):
    with pytest.raises(UsageError) as caught:
        load(tmp_path, state)
    assert said in caught.value.message
    assert caught.value.hint


def test_ids_and_whole_states_come_once(tmp_path):
    with pytest.raises(UsageError, match="states.jsonl:3: id: `a-1` was used before, in line 1"):
        load(tmp_path, GOOD, "", GOOD | {"task": "other"})
    with pytest.raises(UsageError, match="states.jsonl:2: `a-2` is `a-1` under another id"):
        load(tmp_path, GOOD, GOOD | {"id": "a-2"})
    assert len(load(tmp_path, GOOD, GOOD | {"id": "a-2", "effort": "low"})) == 2


def test_a_file_without_states_and_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="there is no agent state in this file"):
        load(tmp_path, "")
    with pytest.raises(UsageError, match="could not be read: No such file"):
        load_states(tmp_path / "none.jsonl")


def test_the_example_of_the_reference_can_be_read(tmp_path):
    page = (Path(__file__).parents[2] / "plans" / "README.md").read_text()
    (state,) = load(tmp_path, json.loads(page.split("#### Agent states")[1].split("```json\n")[1].split("```")[0])).values()
    assert (state.id, state.task, [message["role"] for message in state.messages]) == (
        *("mean-2", "mend-mean"), ["system", "user", "assistant", "tool"],
    )  # fmt: skip
