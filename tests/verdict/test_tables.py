"""Decision tables with unknown facts, against every completion of what is unknown."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.plan.tables import Condition, Row, rows_of
from ablation.verdict import tables
from ablation.verdict.tables import Facts, decide, holds, in_words, possible_labels

RULES, REASONS = ("a", "b", "c"), ("R1", "R2")
LABELS = {"read": ("PASSED", "FAILED"), "main": ("WIN", "TIE", "NO_WIN")}

atoms = st.one_of(
    st.sampled_from(RULES).map(lambda name: {"rule": name}),
    st.sampled_from(["all", "any"]).map(lambda word: {"rules": word}),
    st.sampled_from(REASONS).map(lambda name: {"reason": name}),
    st.sampled_from([(of, label) for of, labels in LABELS.items() for label in labels]).map(
        lambda pair: {"of": pair[0], "label": pair[1]}
    ),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.tuples(st.sampled_from(["all", "any", "none"]), st.lists(inner, min_size=1, max_size=3)).map(
        lambda pair: {pair[0]: pair[1]}
    ),
    max_leaves=8,
)
rows_of_labels = st.lists(st.tuples(st.sampled_from(["YES", "NO", "MAYBE"]), conditions), max_size=4).map(
    lambda rows: [Row(label=label, when=Condition.model_validate(when)) for label, when in rows] + [Row(label="REST")]
)
unknowns = st.tuples(
    st.fixed_dictionaries({name: st.sampled_from([True, False, None]) for name in RULES}),
    st.fixed_dictionaries({name: st.sampled_from([*labels, labels]) for name, labels in LABELS.items()}),
    st.fixed_dictionaries({name: st.sampled_from([True, False, None]) for name in REASONS}),
)


def truth(condition, rules, labels, reasons):
    """The condition with everything known, in plain Python."""
    if condition is None:
        return True
    if condition.all:
        return all(truth(one, rules, labels, reasons) for one in condition.all)
    if condition.any:
        return any(truth(one, rules, labels, reasons) for one in condition.any)
    if condition.none:
        return not any(truth(one, rules, labels, reasons) for one in condition.none)
    if condition.rules:
        return {"all": all, "any": any}[condition.rules](rules.values())
    if condition.rule:
        return rules[condition.rule]
    return reasons[condition.reason] if condition.reason else labels[condition.of] == condition.label


def completions(rules, labels, reasons):
    """Every way to fill in what is unknown."""
    choices = [(True, False) if one is None else (one,) for one in (*rules.values(), *reasons.values())]
    choices += [(one,) if isinstance(one, str) else one for one in labels.values()]
    for values in itertools.product(*choices):
        n, m = len(rules), len(rules) + len(reasons)
        yield (
            dict(zip(rules, values[:n], strict=True)),
            dict(zip(labels, values[m:], strict=True)),
            dict(zip(reasons, values[n:m], strict=True)),
        )


@settings(max_examples=400, deadline=None)
@given(rows_of_labels, unknowns)
def test_a_label_comes_out_exactly_if_every_completion_gives_it(rows, found):
    rules, labels, reasons = found
    wanted = set()
    for full in completions(rules, labels, reasons):
        wanted.add(next(row.label for row in rows if truth(row.when, *full)))
    decided = decide(rows, Facts(rules, labels, reasons))
    assert decided.label == (wanted.pop() if len(wanted) == 1 else "UNDECIDED")
    assert bool(decided.unknowns) == (decided.label == "UNDECIDED")
    if decided.row is not None:
        assert rows[decided.row].label == decided.label


@settings(max_examples=200, deadline=None)
@given(conditions, unknowns)
def test_a_condition_is_never_said_to_be_what_a_completion_denies(content, found):
    condition = Condition.model_validate(content)
    said = holds(condition, Facts(*found))
    assert said is None or {truth(condition, *full) for full in completions(*found)} == {said}


def study(section, **facts):
    return decide(rows_of(section, "study"), Facts(**facts))


@pytest.mark.parametrize(
    ("rules", "read", "label"),
    [
        ({"a": True, "b": True}, "PASSED", "WIN_VERIFIED"),
        ({"a": True, "b": True}, "FAILED", "WIN_UNVERIFIED"),
        ({"a": True, "b": True}, "NOT_RUN", "WIN_UNVERIFIED"),
        ({"a": True, "b": True}, ("PASSED", "FAILED"), "UNDECIDED"),
        ({"a": True, "b": None}, "PASSED", "UNDECIDED"),
        ({"a": False, "b": None}, ("PASSED", "FAILED"), "NO_WIN"),
    ],
)
def test_the_study_s_held_out_table(rules, read, label):
    assert study("held_out", rules=rules, labels={"blinded_read": read}).label == label


@pytest.mark.parametrize(
    ("guards", "main", "label"),
    [
        ({"g": True}, "WIN", "RELEASE"),
        ({"g": False}, ("WIN", "NO_WIN"), "NO_RELEASE"),
        ({"g": None}, "NO_WIN", "NO_RELEASE"),
        ({"g": True}, ("WIN", "NO_WIN"), "UNDECIDED"),
        ({"g": None}, "WIN", "UNDECIDED"),
    ],
)
def test_the_study_s_release_table(guards, main, label):
    assert study("release", rules=guards, labels={"main": main}).label == label


def test_what_is_open_is_named_and_the_row_that_decides_is_said():
    found = study("held_out", rules={"a": None, "b": True}, labels={"blinded_read": ("PASSED", "FAILED")})
    assert found.unknowns == ("rule a", "label of blinded_read")
    assert found.why == "open: rule a, label of blinded_read"
    found = study("release", rules={"g": False}, labels={"main": "WIN"})
    assert (found.row, found.why) == (0, "main is NO_WIN or not (all rules hold)")
    assert study("release", rules={"g": True}, labels={"main": "WIN"}).why == "otherwise"


def test_many_unknown_rules_are_no_reason_to_wait():
    rules = {f"r{i}": None for i in range(60)}
    rows = [Row(label="NO", when=Condition(none=[Condition(rules="all")])), Row(label="YES")]
    assert decide(rows, Facts(rules)).label == "UNDECIDED"
    same = [Row(label="YES", when=Condition(rules="all")), Row(label="YES")]
    assert decide(same, Facts(rules)).label == "YES"


def test_conditions_in_words():
    condition = Condition.model_validate(
        {"all": [{"rule": "a"}, {"any": [{"reason": "R1"}, {"none": [{"of": "m", "label": "WIN"}]}]}]}
    )
    assert in_words(condition) == "rule a holds and (R1 was found or not (m is WIN))"


def test_unknown_facts_that_are_each_asked_for_once_or_twice_are_seen_through():
    """Every completion gives WIN_VERIFIED, and there are 3^40 ways to leave the clauses open or not; what is left of them is few."""
    clauses = [{"any": [{"rule": f"a{i}"}, {"rule": f"b{i}"}]} for i in range(40)]
    rows = [
        Row.model_validate({"label": "WIN_VERIFIED", "when": {"all": clauses}}),
        Row.model_validate({"label": "WIN_VERIFIED", "when": {"none": [{"all": clauses}]}}),
        Row.model_validate({"label": "NO_WIN"}),
    ]
    facts = Facts(rules={f"{side}{i}": None for i in range(40) for side in "ab"})
    assert decide(rows, facts).label == "WIN_VERIFIED"
    assert possible_labels(rows, facts) == {"WIN_VERIFIED"}


def test_too_many_unknown_facts_are_undecided_in_a_moment_and_never_decided_by_chance(monkeypatch):
    """Every completion gives WIN_VERIFIED, but the sure things ask for every a before a clause, which leaves 2^40 rests."""
    monkeypatch.setattr(tables, "MOST_STEPS", 200)
    sure = [{"any": [{"rule": f"a{i}"}, {"none": [{"rule": f"a{i}"}]}]} for i in range(40)]
    clauses = [{"any": [{"rule": f"a{i}"}, {"rule": f"b{i}"}]} for i in range(40)]
    rows = [
        Row.model_validate({"label": "WIN_VERIFIED", "when": {"all": [{"all": sure}, {"all": clauses}]}}),
        Row.model_validate({"label": "WIN_VERIFIED", "when": {"none": [{"all": clauses}]}}),
        Row.model_validate({"label": "NO_WIN"}),
    ]
    facts = Facts(rules={f"{side}{i}": None for i in range(40) for side in "ab"})
    assert decide(rows, facts).label == "UNDECIDED"
    assert possible_labels(rows, facts) == {"WIN_VERIFIED", "NO_WIN", "UNDECIDED"}


@pytest.mark.parametrize("most", range(1, 12))
def test_steps_that_end_anywhere_never_leave_a_label_unseen(monkeypatch, most):
    """All but one of the completions give YES, and the one that does not is looked at last."""
    monkeypatch.setattr(tables, "MOST_STEPS", most)
    rules = {f"r{i}": None for i in range(4)}
    last = [Row(label="YES", when=Condition(any=[Condition(rule=name) for name in rules])), Row(label="NO")]
    assert decide(last, Facts(rules)).label == "UNDECIDED"
