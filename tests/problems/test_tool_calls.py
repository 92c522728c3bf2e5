"""Answers of three formats, each worked out by hand, and texts that were made to break a reader."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.problems.agent_states import AgentState
from ablation.problems.tool_calls import REASONS, Call, Turn, judge_turn
from ablation.problems.tool_schemas import read_tools

TOOLS = read_tools(
    [
        {
            "name": "read_file",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1},
                    "lines": {"type": "integer", "minimum": 1},
                    "follow": {"type": "boolean"},
                    "mode": {"enum": ["text", "bytes"]},
                    "ranges": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                    "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                },
                "required": ["path"],
                "additionalProperties": False,
            },
        },
        {"name": "now"},
        {"name": "tree", "parameters": {"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}},
                                        "$defs": {"node": {"type": "object", "properties": {"child": {"$ref": "#/$defs/node"}}}}}},
    ],
    "tools",
)  # fmt: skip
STATE = AgentState("s", "t", (), TOOLS)


def hermes(name="read_file", **arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def coder(name="read_file", **parameters) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def test_a_call_in_each_format():
    wanted = Turn((Call("read_file", {"path": "a.py", "lines": 3}),), "valid", None)
    plain = {"name": "read_file", "arguments": {"path": "a.py", "lines": 3}}
    for answer in (
        hermes(path="a.py", lines=3),
        "I look at it first.\n\n" + hermes(path="a.py", lines=3),
        coder(path="a.py", lines="3"),
        "First:\n" + coder(path="a.py", lines="3").removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"),
        json.dumps(plain),
        json.dumps([plain], indent=2),
        f"```json\n{json.dumps(plain)}\n```",
        "[TOOL_CALLS]" + json.dumps([plain]),
        '<|python_tag|>{"name": "read_file", "parameters": {"path": "a.py", "lines": 3}}',
    ):
        assert judge_turn(answer, STATE) == wanted, answer


def test_parameters_of_the_xml_format_take_the_type_that_their_schema_has():
    answer = coder(path="3", lines="12", follow="True", ranges="[[1, 2]]", limit="None", mode="text")
    (call,) = judge_turn(answer, STATE).calls
    assert call.arguments == {"path": "3", "lines": 12, "follow": True, "ranges": [[1, 2]], "limit": None, "mode": "text"}
    code = "def f():\n    return '</tool_call>'\n"
    (call,) = judge_turn(coder(path=code), STATE).calls
    assert call.arguments == {"path": code}  # one line end at each side is the format's own
    assert judge_turn("<function=now>\n</function>", STATE).verdict == "valid"


def test_a_closing_tag_inside_of_a_text_ends_no_call():
    turn = judge_turn(hermes(path="grep '</tool_call>' a.txt"), STATE)
    assert turn.calls == (Call("read_file", {"path": "grep '</tool_call>' a.txt"}),)


@pytest.mark.parametrize(
    ("answer", "verdict", "reason", "detail"),
    [
        ("", "none", "no_answer", ""),
        (" \n", "none", "no_answer", ""),
        ("The file is fine.", "none", "text_only", ""),
        ('{"name": "Bob", "age": 3}', "none", "text_only", ""),
        ("[]", "none", "text_only", ""),
        ('Here: {"name": "now", "arguments": {}}', "none", "text_only", ""),
        ('<tool_call>{"name": "now", "arguments": {}', "invalid", "unclosed", '{"name": "now", "arguments": {}'),
        ('<tool_call>{"name": "now", "arguments": {}}', "invalid", "unclosed", '{"name": "now", "arguments": {}}'),
        ("<tool_call><function=now>", "invalid", "unclosed", "no </function>"),
        ("<function=read_file><parameter=path>a", "invalid", "unclosed", "<parameter=path>"),
        ("<tool_call>now()</tool_call>", "invalid", "malformed", "not JSON: Expecting value: line 1 column 12 (char 11)"),
        ('<tool_call>[{"name": "now"}]</tool_call>', "invalid", "malformed", "not an object"),
        ('<tool_call>{"arguments": {}}</tool_call>', "invalid", "malformed", "no name"),
        ('<tool_call>{"name": "now"}</tool_call>', "invalid", "malformed", "arguments are not an object"),
        ('<tool_call>{"name": "now", "arguments": "{}"}</tool_call>', "invalid", "malformed", "arguments are not an object"),
        ('<tool_call>{"name": "now", "name": "now", "arguments": {}}</tool_call>', "invalid", "malformed",
         "not JSON: a field is there twice"),
        ('<tool_call>{"name": "now", "arguments": {}} and</tool_call>', "invalid", "malformed", "after the object: and</tool_call>"),
        ("<function=now>soon</function>", "invalid", "malformed", "before </function>: soon</function>"),
        ('{"name": "now", "arguments": {}', "invalid", "malformed", "not JSON: Expecting ',' delimiter: line 1 column 32 (char 31)"),
        (hermes("rm"), "invalid", "unknown_tool", "rm"),
        (hermes(lines=1), "invalid", "missing_required", "'path' is a required property"),
        (hermes(path="a", depth=1), "invalid", "unknown_argument",
         "Additional properties are not allowed ('depth' was unexpected)"),
        (hermes(path=3), "invalid", "wrong_type", "path: 3 is not of type 'string'"),
        (coder(path="a", lines="many"), "invalid", "wrong_type", "lines: 'many' is not of type 'integer'"),
        (hermes(path="a", limit="x"), "invalid", "wrong_type", "limit: 'x' is not valid under any of the given schemas"),
        (hermes(path="a", ranges=[[1], ["2"]]), "invalid", "wrong_type", "ranges[1][0]: '2' is not of type 'integer'"),
        (hermes(path="a", lines=0), "invalid", "wrong_value", "lines: 0 is less than the minimum of 1"),
        (hermes(path="a", mode="audio"), "invalid", "wrong_value", "mode: 'audio' is not one of ['text', 'bytes']"),
        (hermes(path=3, depth=1), "invalid", "unknown_argument",
         "Additional properties are not allowed ('depth' was unexpected)"),
    ],
)  # fmt: skip
def test_every_fault_has_a_reason(answer, verdict, reason, detail):
    turn = judge_turn(answer, STATE)
    assert (turn.verdict, turn.reason, turn.detail) == (verdict, reason, detail)


def test_several_calls_are_valid_if_all_are_and_the_state_allows_several():
    both = hermes(path="a") + "\n" + hermes("now")
    assert judge_turn(both, STATE) == Turn((Call("read_file", {"path": "a"}), Call("now", {})), "valid", None)
    alone = AgentState("s", "t", (), TOOLS, parallel_tool_calls=False)
    turn = judge_turn(both, alone)
    assert (turn.verdict, turn.reason, turn.detail) == ("invalid", "several_calls", "2 calls")
    assert judge_turn(hermes("now"), alone).verdict == "valid"
    turn = judge_turn(hermes("now") + hermes("rm") + hermes(path="a") + "<tool_call>{</tool_call>" + hermes(path="a"), STATE)
    assert [call.reason for call in turn.calls] == [None, "unknown_tool", None, "malformed"]  # nothing is read after that
    assert (turn.verdict, turn.reason) == ("invalid", "unknown_tool")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("[" * 100_000, "too_deep"),
        ('{"root": ' + '{"child": ' * 60 + "{}" + "}" * 61, "too_deep"),
        ('{"root": ' + '{"child": ' * 40 + "3" + "}" * 41, "wrong_type"),
        ('{"root": 1e999}', "malformed"),
        ('{"root": ' + "9" * 5000 + "}", "malformed"),
        ('{"root": ' + "9" * 400 + "}", "malformed"),
        ('{"root": NaN}', "malformed"),
        ('{"root": "\\ud800"}', "malformed"),
    ],
)
def test_hostile_arguments_have_a_reason_too(arguments, reason):
    turn = judge_turn(f'<tool_call>{{"name": "tree", "arguments": {arguments}}}</tool_call>', STATE)
    assert (turn.verdict, turn.reason) == ("invalid", reason)
    assert len(turn.detail) <= 160
    turn.detail.encode()


def test_a_name_of_half_a_character_can_be_written_down():
    turn = judge_turn('<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>', STATE)
    assert (turn.reason, turn.detail) == ("unknown_tool", "\\ud800")


@pytest.mark.parametrize(
    "text",
    ["<tool_call>", '<tool_call>{"</tool_call>', "<function=now>", "<function=read_file><parameter=path>", "```json\n", '{"name": "arguments"',
     "<tool_call></tool_call>", "<function=read_file><parameter=path>x</parameter>"],
)  # fmt: skip
def test_long_answers_take_no_long_time(text):
    started = time.perf_counter()
    judge_turn(text * 20_000, STATE)
    assert time.perf_counter() - started < 5  # a quadratic reader takes minutes


def test_a_pattern_that_never_ends_is_cut_off_and_unique_items_are_compared_in_linear_time():
    tool = {"name": "f", "parameters": {"type": "object", "properties": {
        "word": {"type": "string", "pattern": "^(a|aa)+$"}, "many": {"type": "array", "uniqueItems": True}}}}  # fmt: skip
    state = AgentState("s", "t", (), read_tools([tool], "tools"))
    assert judge_turn(hermes("f", word="a" * 50), state).verdict == "valid"
    assert judge_turn(hermes("f", word="b"), state).reason == "wrong_value"
    started = time.perf_counter()
    turn = judge_turn(hermes("f", word="a" * 80 + "b"), state)  # 2^80 steps
    assert (turn.reason, turn.detail[:10]) == ("wrong_value", "word: 'aaa")
    assert judge_turn(hermes("f", many=[{"a": one} for one in range(20_000)]), state).verdict == "valid"
    assert time.perf_counter() - started < 20
    assert judge_turn(hermes("f", many=[1, 1.0]), state).reason == "wrong_value"
    assert judge_turn(hermes("f", many=[1, True, "1"]), state).verdict == "valid"


FRAGMENTS = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<function=now>", "</function>", "<parameter=path>", "</parameter>", '{"name": "now"', ', "arguments": {}}',
     "[", "]", "{", "}", '"', "\n", " ", "x", "\\", "\ud800", "```json\n", "```", "[TOOL_CALLS]"]
)  # fmt: skip


@given(st.lists(FRAGMENTS | st.text(max_size=5), max_size=25).map("".join))
def test_no_text_raises_and_every_turn_is_one_of_three(answer):
    turn = judge_turn(answer, STATE)
    assert turn.verdict in ("valid", "invalid", "none")
    assert (turn.reason is None) == (turn.verdict == "valid")
    assert turn.reason is None or turn.reason in REASONS
    assert (turn.verdict == "none") == (not turn.calls)


@given(
    st.dictionaries(st.sampled_from(["path", "mode"]), st.text(alphabet=st.characters(codec="utf-8"), max_size=30), min_size=1)
)
def test_what_is_written_in_hermes_format_is_read_back(arguments):
    wanted = {"path": "p", **arguments, "mode": "text"}
    wanted["path"] = wanted["path"] or "p"
    (call,) = judge_turn(hermes(**wanted), STATE).calls
    assert call == Call("read_file", wanted)
