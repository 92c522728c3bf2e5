import enum
import json
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.problems.sandbox.values import MAX_DEPTH, NotPlain, decode, encode

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.just("$int"), inner)
        | st.sets(st.integers() | st.text())
        | st.frozensets(st.binary() | st.none() | st.tuples(st.integers()))
    ),
    max_leaves=20,
)


def kinds(value):
    """The value with the type of each part, NaN made equal to itself."""
    if isinstance(value, dict):
        return dict, [(kinds(key), kinds(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [kinds(item) for item in value]
    if isinstance(value, set | frozenset):
        return type(value), value
    return type(value), repr(value)


@given(PLAIN)
def test_what_is_read_is_what_was_written_also_through_json(value):
    assert kinds(decode(json.loads(json.dumps(encode(value), allow_nan=False)))) == kinds(value)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (True, True),
        (3, 3),
        (2**63, {"$int": "0x8000000000000000"}),
        (-(2**70), {"$int": "-0x400000000000000000"}),
        (1.5, 1.5),
        (math.inf, {"$float": "inf"}),
        (1 + 2j, {"$complex": [1.0, 2.0]}),
        (b"\x00\xff", {"$bytes": "00ff"}),
        ((1, [2]), {"$tuple": [1, [2]]}),
        ({3}, {"$set": [3]}),
        ({"a": 1}, {"a": 1}),
        ({1: "one"}, {"$dict": [[1, "one"]]}),
        ({"$int": "0x1"}, {"$dict": [["$int", "0x1"]]}),
        ({"$a": 1, "$b": 2}, {"$a": 1, "$b": 2}),
    ],
)
def test_forms(value, form):
    assert encode(value) == form
    assert decode(form) == value


def test_a_subclass_is_the_plain_value_that_it_holds():
    class Sly(int):
        def __index__(self):
            return 99

        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    pair = namedtuple("pair", "a b")
    colour = enum.IntEnum("colour", "RED")
    assert type(encode(Sly(5))) is int
    assert encode(Sly(5)) == 5
    assert encode([Counter("aab"), defaultdict(int, a=1), OrderedDict(b=2)]) == [{"a": 2, "b": 1}, {"a": 1}, {"b": 2}]
    assert encode([pair(1, 2), colour.RED, bytearray(b"a")]) == [{"$tuple": [1, 2]}, 1, {"$bytes": "61"}]


@pytest.mark.parametrize("value", [object(), int, len, range(3), iter([]), {1: object()}, [lambda: 1]])
def test_other_things_are_no_plain_values(value):
    with pytest.raises(NotPlain):
        encode(value)


def test_depth_is_limited():
    value = []
    for _ in range(MAX_DEPTH):
        value = [value]
    assert decode(encode(value)) == value
    for walk in (encode, decode):
        with pytest.raises(NotPlain, match="deeply"):
            walk([value])


@pytest.mark.parametrize(
    "form",
    [
        {"$eval": "1"},
        {"$int": 5},
        {"$int": "five"},
        {"$float": "1.5"},
        {"$bytes": "0"},
        {"$tuple": {"a": 1}},
        {"$set": [[1]]},
        {"$complex": [1]},
        {"$dict": [[1]]},
        {"$dict": [[[], 1]]},
    ],
)
def test_malformed_forms(form):
    with pytest.raises(NotPlain):
        decode(form)
