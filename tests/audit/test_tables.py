"""The audit's decision tables against the engine's, and by hand."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.audit import tables
from ablation.audit.tables import STUDY, UNDECIDED, decide, labels_of, possible
from ablation.errors import IncompleteError
from ablation.plan.tables import Row, rows_of
from ablation.verdict import tables as engine

READ = ("PASSED", "FAILED", "NOT_RUN")


def test_the_study_s_tables_are_those_of_the_library():
    for section, rows in STUDY.items():
        written = [Row.model_validate(row) for row in rows]
        assert written == rows_of(section, "study")


def test_the_study_by_hand():
    held_out = STUDY["held_out"]
    for read, label in (("PASSED", "WIN_VERIFIED"), ("FAILED", "WIN_UNVERIFIED"), ("NOT_RUN", "WIN_UNVERIFIED")):
        assert decide(held_out, {"a": True, "b": True}, {"blinded_read": [read]}) == label
        assert decide(held_out, {"a": True, "b": False}, {"blinded_read": [read]}) == "NO_WIN"
    assert decide(held_out, {"a": True}, {"blinded_read": READ}) == UNDECIDED
    assert decide(held_out, {"a": None, "b": False}, {"blinded_read": READ}) == "NO_WIN"  # whatever is open
    assert decide(STUDY["release"], {"a": None}, {"main": ["NO_WIN"]}) == "NO_RELEASE"
    assert decide(
        STUDY["replication"],
        reasons=dict.fromkeys(("CONTROL_NOT_DAMAGED", "NO_STABLE_ARM", "NOT_STABLE_AGAIN", "STOPPED"), False),
    ) == ("REPLICATED")
    assert labels_of("main", "study") == ["WIN", "NO_WIN"]
    assert possible(held_out, "blinded_read", "UNDECIDED", READ) == list(READ)
    assert possible(held_out, "blinded_read", "FAILED", READ) == ["FAILED"]


def test_many_facts_that_are_not_known(monkeypatch):
    """2^300 ways, and only what is left of the rules matters; where the diagram grows too large nothing is said."""
    many = {f"r{i}": None for i in range(300)}
    assert decide(STUDY["held_out"], many, {"blinded_read": ["PASSED"]}) == UNDECIDED
    assert decide(STUDY["held_out"], many | {"r7": False}, {"blinded_read": READ}) == "NO_WIN"
    sure = [{"label": "SURE", "when": {"all": [{"any": [{"rule": one}, {"none": [{"rule": one}]}]} for one in many]}}]
    assert decide([*sure, {"label": "NEVER"}], many) == "SURE"
    monkeypatch.setattr(tables, "MOST_BRANCHES", 5000)
    pairs = {"all": [{"any": [{"rule": f"r{i}"}, {"rule": f"r{i + 40}"}]} for i in range(40)]}
    hard = {"any": [{"all": [{"any": [{"rule": f"r{i}"} for i in range(80)]}, pairs]}, {"none": [pairs]}]}
    with pytest.raises(IncompleteError, match="too many unknown facts"):
        decide([{"label": "SURE", "when": hard}, {"label": "NEVER"}], many)


leaf = st.one_of(
    st.sampled_from(["a", "b", "c"]).map(lambda name: {"rule": name}),
    st.sampled_from(["all", "any"]).map(lambda how: {"rules": how}),
    st.sampled_from(READ[:2]).map(lambda label: {"of": "blinded_read", "label": label}),
)
condition = st.recursive(
    leaf,
    lambda inner: st.tuples(st.sampled_from(["all", "any", "none"]), st.lists(inner, min_size=1, max_size=3)).map(
        lambda pair: {pair[0]: pair[1]}
    ),
    max_leaves=6,
)
rows_of_labels = st.lists(st.tuples(st.sampled_from(["ONE", "TWO", "THREE"]), condition), max_size=3).map(
    lambda rows: [*({"label": label, "when": when} for label, when in rows), {"label": "LAST", "when": None}]
)


@settings(max_examples=150, deadline=None)
@given(
    rows_of_labels,
    st.tuples(*[st.sampled_from([True, False, None])] * 3),
    st.sampled_from([*itertools.combinations(READ, 1), READ, None]),
)
def test_as_the_engine_decides(rows, holds, read):
    rules = dict(zip("abc", holds, strict=True))
    labels = {} if read is None else {"blinded_read": read}
    known = {name: one[0] if len(one) == 1 else one for name, one in labels.items()}
    theirs = engine.decide([Row.model_validate(row) for row in rows], engine.Facts(rules, known))
    assert decide(rows, rules, labels) == theirs.label
