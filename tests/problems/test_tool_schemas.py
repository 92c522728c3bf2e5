"""Schemas that can be used, and those that are refused before a model is ever held against them."""

import json

import pytest

from ablation.errors import UsageError
from ablation.problems.tool_schemas import read_tools


def schema(**parts):
    return {"type": "object", **parts}


def tools(parameters):
    return read_tools([{"name": "f", "parameters": parameters}], "s.jsonl:1: tools")


def valid(parameters, arguments) -> bool:
    return tools(parameters)[0].validator.is_valid(arguments)


def test_a_function_without_parameters_takes_an_object():
    (tool,) = read_tools([{"name": "now"}], "tools")
    assert tool.parameters == {"type": "object", "properties": {}}
    assert tool.validator.is_valid({})


def test_references_into_the_schema_and_recursion_through_properties():
    tree = schema(properties={"child": {"$ref": "#"}, "name": {"$ref": "#/$defs/a~1b"}}, **{"$defs": {"a/b": {"type": "string"}}})
    assert valid(tree, {"child": {"child": {"name": "x"}}})
    assert not valid(tree, {"child": {"child": {"name": 3}}})


def test_the_draft_is_the_one_that_the_schema_names():
    old = schema(properties={"pair": {"type": "array", "items": [{"type": "string"}]}})
    assert valid(old | {"$schema": "http://json-schema.org/draft-07/schema#"}, {"pair": ["x", 1]})
    with pytest.raises(UsageError, match=r"parameters.properties.pair.items: not a JSON Schema"):
        tools(old)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"type": "array"}, "parameters: type: the arguments of a function are an object"),
        (schema(type="dict"), "parameters.type: not a JSON Schema: 'dict' is not valid under any of the given schemas"),
        (schema(properties={"a": {"type": 3}}), "parameters.properties.a.type: not a JSON Schema"),
        (schema(required="a"), "parameters.required: not a JSON Schema: 'a' is not of type 'array'"),
        (schema(**{"$schema": "http://example.org/mine"}), "parameters: $schema: found `http://example.org/mine`, no draft"),
        (schema(properties={"a": {"$ref": "http://example.org/x.json"}}),
         "parameters.properties.a: $ref: `http://example.org/x.json` is outside of this schema"),
        (schema(properties={"a": {"$ref": "file:///etc/passwd"}}), "$ref: `file:///etc/passwd` is outside of this schema"),
        (schema(properties={"a": {"$ref": "#/$defs/none"}}), "$ref: `#/$defs/none` names nothing in this schema"),
        (schema(properties={"a": {"$ref": "#/type"}}), "$ref: `#/type` is a text, no schema"),
        (schema(**{"$ref": "#"}), "parameters: the schema refers to itself without end"),
        (schema(properties={"a": {"anyOf": [{"type": "string"}, {"$ref": "#/properties/a"}]}}), "refers to itself without end"),
        (schema(properties={"a": {"$id": "http://example.org/a"}}), "parameters.properties.a: $id: is in the middle of a schema"),
        (schema(patternProperties={"^a": {}}), "parameters: patternProperties is not supported"),
        (schema(properties={"a": {"pattern": "("}}), "parameters.properties.a.pattern: not a JSON Schema: '(' is not a 'regex'"),
    ],
)  # fmt: skip
def test_schemas_that_are_refused(parameters, said):
    with pytest.raises(UsageError) as caught:
        tools(parameters)
    assert caught.value.message.startswith("s.jsonl:1: tools[0]: parameters")
    assert said in caught.value.message


def test_values_are_not_taken_for_schemas():
    assert valid(schema(properties={"a": {"enum": [{"$ref": "http://example.org"}], "default": {"pattern": "("}}}), {})
    assert valid(schema(properties={"$ref": {"type": "string"}, "pattern": {"type": "string"}}), {"$ref": "x"})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({}, "tools: found an object, not a list of functions"),
        (["f"], "tools[0]: found a text, not an object"),
        ([{"name": "f g"}], "tools[0]: name: `f g` is no function name"),
        ([{"type": "web", "function": {"name": "f"}}], "tools[0]: type: found `web`"),
        ([{"name": "f"}, {"name": "f"}], "tools[1]: name: `f` is there twice"),
        ([{"name": "f", "parameters": []}], "tools[0]: parameters: found a list, not an object"),
        ([{"type": "function", "function": {"name": "f", "schema": {}}}], "tools[0]: function: unknown field `schema`"),
    ],
)
def test_lists_that_are_refused(value, said):
    with pytest.raises(UsageError) as caught:
        read_tools(value, "tools")
    assert said in caught.value.message


def test_a_schema_that_is_nested_without_measure_is_refused():
    deep = json.loads('{"properties": {"a": ' * 400 + "{}" + "}}" * 400)
    with pytest.raises(UsageError, match="nested too deeply"):
        tools(schema() | deep)
