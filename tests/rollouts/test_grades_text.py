import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.files import json_bytes
from ablation.problems.outcome import Grade
from ablation.rollouts.columns import Coded
from ablation.rollouts.grades_text import record_bytes, rest_if_equal
from ablation.rollouts.store import stage_of

from .build import END, info, rollout

REST = {"grades_version": 1, "stage_sha256": "a" * 64, "graders": {"integer": {"packages": {}, "source_sha256": "b"}}}
NAMES = st.sampled_from(["p1", 'p"2', "é\\n", "\u2028", "p10"])
TEXTS = st.one_of(st.none(), st.sampled_from(["7", 'a"b', "\\", "\n  ]", "é\U0001f600", '"rollouts": []']))
GRADES = st.one_of(st.none(), st.builds(Grade, st.sampled_from(["correct", "incorrect"]), TEXTS, TEXTS))
ROWS = st.lists(st.tuples(NAMES, NAMES, GRADES), min_size=1, max_size=8)


def stage_with(rows):
    return stage_of(info(), [rollout(info(), [END], problem=p, effort=e, index=i) for i, (p, e, _) in enumerate(rows)])


@settings(max_examples=60)
@given(ROWS, st.sampled_from([1, 2, 3, 4096]))
def test_the_bytes_are_those_of_json(rows, together):
    stage, grades = stage_with(rows), [grade for *_, grade in rows]
    expected = [
        {"problem": problem, "effort": effort, "index": index}
        | {name: getattr(grade, name, None) for name in ("status", "extracted", "reason")}
        for index, (problem, effort, grade) in enumerate(rows)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablation.rollouts.grades_text._TOGETHER", together)
        data = record_bytes(stage, Coded.of(grades, key=id), REST)
    assert data == json_bytes(REST | {"rollouts": expected})
    assert rest_if_equal(data, stage, Coded.of(grades)) == REST | {"rollouts": []}


@settings(max_examples=60)
@given(ROWS, ROWS)
def test_other_grades_are_not_equal(rows, others):
    others = [(p, e, other) for (p, e, _), (*_, other) in zip(rows, [*others, *rows], strict=False)]
    stage = stage_with(rows)
    one, two = (Coded.of([grade for *_, grade in some]) for some in (rows, others))
    found = rest_if_equal(record_bytes(stage, two, REST), stage, one)
    assert (found is not None) == (one == two)


def test_what_is_no_such_file_is_not_equal():
    rows = [("p1", "low", Grade("correct", "7"))]
    stage, grades = stage_with(rows), Coded.of([rows[0][2]])
    data = record_bytes(stage, grades, REST)
    for broken in (b"", b"[]", data[:-3], data[1:], data.replace(b'"low"', b'"low" '), data.replace(b"\n  ]", b",\n    {}\n  ]")):
        assert rest_if_equal(broken, stage, grades) is None
