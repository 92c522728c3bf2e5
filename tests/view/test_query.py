"""Filters against the same question asked of the rollouts in plain Python."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from ablation.errors import UsageError
from ablation.rollouts.store import read_stage
from ablation.view.index import Index
from ablation.view.query import PAGE, Filter, choices, find
from tests.view import made


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("query")
        patch.setenv("ABLATION_CACHE", str(root / "cache"))
        run, locked = made.make(root)
        found = Index(run.root, locked.plan)
        assert found.look(60).whole and not found.progress.damaged
        yield found


def keys(page):
    return [(one["problem"], one["effort"], one["idx"]) for one in page.rows]


def everything(index, **asked):
    """All pages, forward."""
    query, rows = {name: str(value) for name, value in asked.items()}, []
    while True:
        page = find(index, Filter.of(query), [])
        rows += page.rows
        if page.next is None:
            assert len(rows) == page.count
            return rows
        query = dict(parse_qsl(page.next))


def test_every_rollout_is_there_once_with_its_own_length_and_logprob(index):
    rows = everything(index)
    assert len(rows) == 6 * 24 == len({one["id"] for one in rows})
    stage = read_stage(index.run.readout("main", "C"))
    own = {(one["problem"], one["effort"], one["idx"]): one for one in rows if (one["family"], one["arm"]) == ("main", "C")}
    for row in range(len(stage)):
        one = own[stage.problem[row], stage.effort[row], int(stage.index[row])]
        ids = stage.token_ids[stage.offsets[row] : stage.offsets[row + 1]].tolist()
        values = stage.logprobs[stage.offsets[row] : stage.offsets[row + 1]][: ids.index(made.CLOSE)]
        assert one["tokens"] == len(ids) and one["seed"] == stage.seed[row]
        assert one["logprob"] == pytest.approx(sum(values) / len(values), abs=1e-12)
        assert one["correct"] is True and one["truncated"] is False  # every answer is the problem's own number


def test_the_longest_loop_that_one_arm_has_and_another_has_not_comes_first(index):
    page = find(index, Filter.of({"differs": "looping", "arm": "C", "without": "N", "family": "main"}), [])
    assert keys(page) == [made.LONGEST, ("p1", "low", 0)]  # p4@low #0 loops in both
    assert [one["tokens"] for one in page.rows] == [9 * 6 + 3, 6 * 6 + 3]
    assert [one["b_looping"] for one in page.rows] == [False, False]
    assert {one["b_arm"] for one in page.rows} == {"N"} and all(one["seed"] == one["b_seed"] for one in page.rows)
    assert find(index, Filter.of({"differs": "looping", "arm": "N", "without": "C"}), []).count == 0
    against_start = find(index, Filter.of({"differs": "looping", "arm": "C", "without": "start", "stage": "readout"}), [])
    assert against_start.count == 2 * 3  # in both families; the start loops nowhere


@pytest.mark.parametrize("sort", ["order", "tokens", "logprob", "loop_length", "entropy", "repeated", "thinking"])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_pages_hold_everything_in_order_and_lead_back(index, sort, direction):
    rows = everything(index, sort=sort, dir=direction)
    assert len({one["id"] for one in rows}) == len(rows) == 144
    values = [one["id" if sort == "order" else sort] for one in rows]
    assert values == sorted(values, reverse=direction == "down")
    first = find(index, Filter.of({"sort": sort, "dir": direction}), [])
    second = find(index, Filter.of(dict(parse_qsl(first.next))), [])
    back = find(index, Filter.of(dict(parse_qsl(second.previous))), [])
    assert first.previous is None and len(first.rows) == PAGE
    assert [one["id"] for one in back.rows] == [one["id"] for one in first.rows] == [one["id"] for one in rows[:PAGE]]
    assert back.previous is None and back.next is not None


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({"text": "<SCRIPT>"}, {("p0", "low", 0)}),
        (
            {"text": "thought of by C", "within": "thinking", "problem": "p3"},
            {("p3", e, i) for e in ("low", "medium") for i in (0, 1)},
        ),
        ({"text": "thought of by C", "within": "answer"}, set()),
        ({"text": "nowhere at all"}, set()),
        ({"looping": "yes", "effort": "medium"}, {made.LONGEST}),
        ({"correct": "no"}, set()),
        ({"least": "57", "most": "57"}, {made.LONGEST}),
        ({"text": "p5 at medium", "looping": "no", "stage": "readout"}, {("p5", "medium", 0), ("p5", "medium", 1)}),
    ],
)
def test_filters(index, asked, wanted):
    page = find(index, Filter.of({"family": "main", "arm": "C"} | asked), [])
    assert set(keys(page)) == wanted and page.count == len(wanted)


def test_text_is_no_pattern_and_no_sql(index):
    for text in ("%", "_", "' OR 1=1 --", "\\", '"'):
        assert find(index, Filter.of({"text": text, "arm": "start"}), []).count == 0


@pytest.mark.parametrize("name", ["thinking_text=1", "filename=x", "a[1]*?", "it's"])
def test_no_name_of_a_folder_above_changes_what_is_found(tmp_path, monkeypatch, name):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    run, locked = made.make(tmp_path / name)
    own = Index(run.root, locked.plan)
    assert own.look(60).whole
    found = find(own, Filter.of({"text": "thought of by n"}), [])
    assert found.count == len(found.rows) and {one["arm"] for one in found.rows} == {"N"}


def test_a_sealed_folder_is_as_if_it_were_not_there(index):
    assert find(index, Filter.of({}), ["main/C/readout"]).count == 144 - 24


def test_a_sealed_partner_is_as_if_it_were_not_there(index):
    asked = Filter.of({"differs": "looping", "arm": "C", "without": "N", "family": "main"})
    assert find(index, asked, ["main/N/readout"]).count == 0 and find(index, asked, ["main/start/sweep"]).count == 2


@pytest.mark.parametrize(
    "query",
    [
        {"sort": "seed; DROP TABLE rollouts"},
        {"differs": "tokens"},
        {"least": "many"},
        {"after": "x_y"},
        {"after": "1_" + "9" * 40},
        {"least": "9" * 30},
        {"least": "0" * 20 + "9" * 40},
        {"most": "0" * 30 + "9" * 5000},
    ],
)
def test_what_is_no_filter_is_refused(query):
    with pytest.raises(UsageError):
        Filter.of(query)


def test_a_filter_is_the_same_again_from_its_address():
    asked = {"arm": "C", "looping": "yes", "correct": "no", "least": "3", "text": "a&b=c", "sort": "logprob", "dir": "down"}
    found = Filter.of(asked)
    assert Filter.of(dict(parse_qsl(found.query()))) == found
    assert Filter.of({"correct": "none"}).graded == "none"


def test_choices_are_in_the_plans_order(index):
    assert choices(index)["arm"] == ["start", "C", "N"]
    assert choices(index)["stage"] == ["sweep", "readout"]
