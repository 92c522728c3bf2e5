from __future__ import annotations

from ablation.plan.diff import added_only, diff_trees


def test_lines():
    old = {"a": 1, "b": {"c": "x", "d": [1, 2]}, "gone": None}
    new = {"a": 1.0, "b": {"c": "y", "d": [1, 3, 4]}, "new": True}
    assert diff_trees(old, new) == [
        '  b.c: "x" -> "y"',
        "  b.d[1]: 2 -> 3",
        "  b.d[2]: (not there) -> 4",
        "  new: (not there) -> true",
        "  gone: null -> (not there)",
    ]
    assert diff_trees({"a": True}, {"a": 1}) == ["  a: true -> 1"]


def test_added_only():
    assert added_only({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3})
    assert not added_only({"a": {"b": 1}}, {"a": {"b": 2, "c": 2}})
    assert not added_only({"a": 1}, {})
    assert not added_only({"a": [1]}, {"a": [1, 2]})
