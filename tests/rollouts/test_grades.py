import json

import pytest

from ablation.errors import IntegrityError
from ablation.files import json_bytes, sha256_file, write_bytes
from ablation.plan.model import Loops
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem
from ablation.rollouts.grades import grade_rows, grader_version, grades_of, grades_record, in_words, read_grades
from ablation.rollouts.outcomes import outcomes
from ablation.rollouts.store import finish_stage, read_stage, write_part

from .build import CAP, CLOSE, END, PROBLEMS, info, rollout

OF = info()
ROWS = (
    dict(ids=[21, CLOSE, 7, END], answer="7"),
    dict(ids=[21, CLOSE, 8, END], answer="8"),
    dict(ids=[21, CLOSE, END], answer=""),
    dict(ids=[21] * CAP),
)
EXPECTED = [Grade("correct", "7"), Grade("incorrect", "8", "wrong_answer"), Grade("no_answer", None, "empty"), None]


@pytest.fixture
def folder(tmp_path):
    write_part(tmp_path / "part-000.parquet", OF, [rollout(OF, index=i, **row) for i, row in enumerate(ROWS)])
    finish_stage(tmp_path, OF, ["part-000.parquet"])
    return tmp_path


def store(folder, stage, grades=None, problems=PROBLEMS):
    record = grades_record(folder, stage, grades or grade_rows(stage, problems), problems)
    write_bytes(folder / "grades.json", record)
    return record


def test_what_is_stored_is_read_back(folder):
    stage = read_stage(folder)
    grades = grades_of(folder, stage, PROBLEMS)  # without a file
    assert [one if one is None else (one.status, one.extracted) for one in grades] == [
        one if one is None else (one.status, one.extracted) for one in EXPECTED
    ]
    record = store(folder, stage)
    assert grades_of(folder, stage, PROBLEMS) == read_grades(folder, stage).grades == grades
    content = json.loads(record)
    assert record == json_bytes(content) == store(folder, stage)
    assert content["stage_sha256"] == sha256_file(folder / "stage.json")
    assert content["rollouts"][0] == {
        "problem": "p1", "effort": "low", "index": 0, "status": "correct", "extracted": "7", "reason": None
    }  # fmt: skip
    assert content["graders"] == {"integer": grader_version("integer")}
    assert outcomes(stage, PROBLEMS, Loops(), grades).correct.tolist() == [True, False, False, False]


def test_a_cheap_grader_must_say_what_is_stored(folder):
    stage = read_stage(folder)
    store(folder, stage, [EXPECTED[0], Grade("correct", "8"), *grade_rows(stage, PROBLEMS)[2:]])
    with pytest.raises(IntegrityError, match="rollout p1@low #1 is stored as correct .`8`., but grader `integer` says incorrect"):
        grades_of(folder, stage, PROBLEMS)
    assert grades_of(folder, stage, PROBLEMS, again=True)[1].status == "incorrect"


def test_a_slow_grader_is_not_asked(folder, monkeypatch):
    stage = read_stage(folder)
    problems = {"p1": Problem("p1", "sums", "3 + 4?", "math", "7")}
    stored = [Grade("correct", "7"), Grade("incorrect", "8", "wrong_answer"), Grade("no_answer", None, "no_box"), None]
    store(folder, stage, stored, problems)
    monkeypatch.setattr("ablation.problems.graders.math.grade_many", lambda pairs, workers: pytest.fail("asked"))
    assert grades_of(folder, stage, problems) == stored


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content | {"stage_sha256": "0" * 64}, "holds the grades of another stage"),
        (lambda content: content | {"grades_version": 2}, "has version 2, this program reads version 1"),
        (lambda content: content | {"rollouts": content["rollouts"][1:]}, "its rollouts are not those of the stage"),
        (lambda content: content | {"rollouts": [{}]}, "is not a file of grades .KeyError"),
        (
            lambda content: content | {"rollouts": [content["rollouts"][0] | {"status": "good"}, *content["rollouts"][1:]]},
            "`good` is no",
        ),
        (
            lambda content: content | {"rollouts": [*content["rollouts"][:3], content["rollouts"][3] | {"status": "correct"}]},
            "a grade, but no",
        ),
        (lambda content: [], "is not a file of grades"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(folder, change, message):
    stage = read_stage(folder)
    content = json.loads(store(folder, stage))
    write_bytes(folder / "grades.json", json_bytes(change(content)))
    with pytest.raises(IntegrityError, match=message):
        grades_of(folder, stage, PROBLEMS)


def test_only_what_failed_is_graded_again(folder):
    stage = read_stage(folder)
    kept = [Grade("incorrect", "kept"), Grade("grader_error", "8", "worker_died"), Grade("no_answer", None, "kept"), None]
    assert grade_rows(stage, PROBLEMS, kept) == [kept[0], grade_rows(stage, PROBLEMS)[1], kept[2], None]


def test_words():
    assert [in_words(one) for one in EXPECTED] == [
        "correct (`7`)", "incorrect (wrong_answer, `8`)", "no_answer (empty)", "nothing"
    ]  # fmt: skip
