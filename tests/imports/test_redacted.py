"""A run of Inspect logs in which the thinking of two rollouts is not known: what can be said of it, and what cannot."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.errors import IntegrityError, UsageError
from ablation.imports.inspect_log import _read
from ablation.imports.stage import grade_imported, import_stage, make_request
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.imported import OF_THINKING
from ablation.rollouts.store import read_stage, write_part
from ablation.training.scale import fixed_scale, sweep_reference
from ablation.verdict.run import judge_run
from tests.imports.made import given_rows, write_rows, write_tokenizer
from tests.verdict.study import lock_small, plan_dict

LOGS = Path(__file__).parent / "inspect"
CLOSED, CUT = "p0_epoch_1.json", "p5_epoch_2.json"
"""Of `low`: a right answer, and a rollout that was cut inside its thinking. Both are redacted."""
DAMAGE = [
    {"name": "truncated_gained", "measure": "truncated", "compare": "change", "op": ">=", "limit": 3},
    {"name": "dearer", "measure": "tokens_per_correct", "compare": "ratio", "op": ">=", "limit": 2},
    {"name": "longer", "measure": "clean_length", "compare": "ratio_low", "op": ">=", "limit": 2},
    {"name": "often_looping", "measure": "looping", "compare": "rate", "op": ">=", "limit": 0.9},
]
CLAIM = {"subjects": ["N"], "reference": "start", "measure": "clean", "side": "less", "method": "sign"}


def redacted_log(folder: Path) -> Path:
    path = folder / "low.eval"
    folder.mkdir(parents=True, exist_ok=True)
    with (LOGS / "low.eval").open("rb") as file, zipfile.ZipFile(file) as log, zipfile.ZipFile(path, "w") as out:
        for entry in log.infolist():
            content = _read(log, entry)
            if entry.filename in (f"samples/{CLOSED}", f"samples/{CUT}"):
                for message in (content["output"]["choices"][0]["message"], content["messages"][-1]):
                    message["content"][0] |= {"reasoning": "gAAAAABo" * 90, "summary": "It adds.", "redacted": True}
            out.writestr(entry.filename, json.dumps(content))
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("redacted")
    verdict = plan_dict()["verdict"]
    verdict |= {"damage": [*verdict["damage"], *DAMAGE], "claims": {"cleaner": CLAIM}}
    locked = lock_small(folder / "plans", verdict=verdict)
    run, tokenizer = folder / "runs" / "small", write_tokenizer(folder / "tokenizer")
    low = redacted_log(folder / "logs")
    for family, arms in (("main", "CNX"), ("replication", "C")):
        for arm in (None, *arms):
            first = low if arm in (None, "X") and family == "main" else LOGS / "low.eval"
            files = {"files": [first, LOGS / "medium.eval"], "tokenizer": tokenizer, "opens": False}
            request = make_request(locked, "readout" if arm else "sweep", arm, family, None, **files)
            done = import_stage(locked, run, request)
            assert grade_imported(locked, run, done.folder) == []
    return locked, run


def call(*arguments, code=0):
    result = CliRunner().invoke(app, list(map(str, arguments)), terminal_width=200)
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_the_row_has_its_answer_and_no_thinking(study):
    stage = read_stage(RunFolder(study[1]).sweep("main"))
    names = [stage.name(row) for row in range(len(stage))]
    closed, cut = names.index("p0@low #0"), names.index("p5@low #1")
    assert stage.redacted.nonzero()[0].tolist() == [closed, cut]
    rows = stage.rollouts()
    assert (rows[closed].thinking_text, rows[closed].answer_text, rows[closed].finish_reason) == (None, "0", "stop")
    assert rows[closed].token_ids == [1, 2, 10, 3]  # <think> </think> 0 <|end|>: nothing of the ciphertext, nor of the summary
    assert (rows[cut].thinking_text, rows[cut].answer_text, rows[cut].token_ids) == (None, "", [1])
    assert stage.info.engine["redacted"] == 2


def test_measures_that_need_the_thinking_are_null_where_a_row_lacks_it_and_there_alone(study):
    """24 rollouts: problems 0 to 4 are right and p5 is cut, twice at each effort."""
    content = json.loads((RunFolder(study[1]).sweep("main") / "measures.json").read_bytes())
    assert [name for name, value in content.items() if value is None] == [one for one in content if one in OF_THINKING]
    known = {name: content[name] for name in ("rollouts", "correct", "truncated", "no_answer", "finished", "stopped_in_thinking")}
    assert known == {
        "rollouts": 24, "correct": 20, "truncated": 4, "no_answer": 4, "finished": 20, "stopped_in_thinking": 0,
    }  # fmt: skip
    medium, low = content["by_effort"]["medium"], content["by_effort"]["low"]
    assert (medium["clean"], medium["looping"], medium["thinking_tokens"]) == (10, 2, 2 * (4 * 7 + 3 + 63))
    assert (low["clean"], low["looping"], low["thinking_tokens"], low["correct"]) == (None, None, None, 10)


def test_rules_and_claims_that_need_it_say_that_it_is_missing(study):
    locked, root = study
    found = judge_run(root, locked)
    assert [one.label for one in found.arms[:3]] == ["UNDECIDED"] * 3
    why = "main/start/sweep was imported without the thinking of some rollouts (2)"
    rules = {one.rule.name: (one.holds, one.reason) for one in found.arms[0].rules}
    assert rules.pop("truncated_gained") == (False, None)
    assert rules.pop("often_looping") == (False, None)  # of the arm alone, whose thinking is known: 4 of 24
    assert rules.pop("logprob_lost") == (None, "main/C/readout was imported without logprobs")
    assert rules == dict.fromkeys(["clean_lost", "unfinished_gained", "looping_gained", "dearer", "longer"], (None, why))
    other = next(one for one in found.arms[2].rules if one.rule.name == "often_looping")
    assert (found.arms[2].arm, other.holds, other.reason) == (
        "X", None, "main/X/readout was imported without the thinking of some rollouts (2)",
    )  # fmt: skip
    content = found.as_json()
    assert set(content["arms"][0]["ratios"]) == set() and content["arms"][0]["measures"]["clean"] == 20
    (claim,) = content["claims"][0]["subjects"]
    assert (claim["label"], claim["reason"]) == ("UNDECIDED", "The thinking of some rollouts is not known.")
    assert any("the thinking of some rollouts (2) is not known" in note for note in found.notes)


def test_the_audit_agrees_by_its_own_reading(study, monkeypatch):
    monkeypatch.chdir(study[1].parents[1])
    output = call("audit", study[1])
    assert "AGREES" in output


def test_every_page_lives_with_such_a_row(study, tmp_path, monkeypatch):
    root = study[1]
    monkeypatch.chdir(root.parents[1])
    assert "not known: it was redacted" in call("show", "main/start/sweep/p0@low #0", "--run", root)
    one = json.loads(call("show", "main/start/sweep/p5@low #1", "--run", root, "--json"))
    shown = {name: one[name] for name in ("total_tokens", "logprob", "looping", "strong_loop")}
    assert shown == dict.fromkeys(shown) and one["thinking"] == {"opened": True, "closed": False, "tokens": None, "text": None}
    listed = json.loads(call("show", "main/start/sweep", "--run", root, "--json"))["rollouts"]
    assert [row["loop"] for row in listed if row["tokens"] is None] == [None, None]
    call("show", "main/start/sweep", "--run", root)
    assert "UNDECIDED" in call("verdict", "--run", root, code=6)
    call("report", "--run", root)
    with pytest.raises(UsageError, match="the thinking of p0@low #0 was redacted where it was sampled"):
        call("measure", RunFolder(root).sweep("main"), "--rollout", "p0@low #0")


def test_nothing_is_scaled_or_planned_by_lengths_that_nobody_knows(study):
    from ablation.plan.load import load_plan
    from ablation.power.pilot import read_pilot
    from ablation.problems.problem import load_problems
    from ablation.rollouts.outcomes import outcomes

    locked, root = study
    own = outcomes(read_stage(RunFolder(root).sweep("main")), load_problems(RunFolder(root).problems), locked.plan.loops)
    for measured in (lambda: fixed_scale(locked.plan.training, lambda: own), lambda: sweep_reference(own)):
        with pytest.raises(IntegrityError, match="without the thinking of some rollouts"):
            measured()
    with pytest.raises(UsageError, match="--pilot .*: the thinking of some of its rollouts is not known"):
        read_pilot(RunFolder(root).sweep("main"), load_plan(locked.path), None)


def test_a_stage_says_how_many_of_its_rows_lack_their_thinking(study, tmp_path):
    stage = read_stage(RunFolder(study[1]).sweep("main"))
    stage.info.engine["redacted"] = 1
    with pytest.raises(IntegrityError, match="2 rollouts have no `thinking_text`, but the stage's settings say 1"):
        write_part(tmp_path / "part-000.parquet", stage.info, stage.rollouts())


@pytest.mark.parametrize("column", ["thinking", "completion", "token_ids"])
def test_a_row_that_shows_its_thinking_is_not_redacted(tmp_path, column):
    locked = lock_small(tmp_path / "plans")
    rows = given_rows(locked)
    for row in rows:
        shown = {"completion": "<think>so</think>1"} | row
        for name in {"thinking", "completion", "token_ids", "logprobs", "top_entropy", "top_mass", "answer"} - {column, "answer"}:
            row.pop(name, None)
        row[column] = shown[column]
    rows[3]["thinking_redacted"] = True
    path = write_rows(tmp_path / "r.jsonl", rows)
    request = make_request(locked, "sweep", None, None, None, files=[path], tokenizer=write_tokenizer(tmp_path / "tokenizer"))
    with pytest.raises(UsageError, match=f"{column}: is .*, but thinking_redacted says True"):
        import_stage(locked, tmp_path / "runs" / "small", request)


def test_the_browser_says_of_such_a_row_that_its_thinking_is_not_known(study, tmp_path, monkeypatch):
    from starlette.testclient import TestClient

    from ablation.view.app import create_app
    from ablation.view.figures import edited, measured
    from ablation.view.library import Library
    from tests.view.test_rollout import wait

    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    library = Library(study[1].parent)
    browser = TestClient(create_app(library), base_url="http://127.0.0.1:8412")
    listed = wait(browser, "/study/small/rollouts?arm=start&family=main&effort=low")
    assert listed.count(">redacted</span>") == 2
    key = "family=main&arm=start&stage=sweep&effort=low&problem=p0&index=0"
    page = wait(browser, f"/study/small/rollout?{key}")
    assert "not known: it was redacted where this was sampled" in page and "<dt>Loop</dt><dd>not known</dd>" in page
    assert "<summary>Thinking" not in page
    wait(browser, f"/study/small/compare?{key}&with=C:readout")
    assert wait(browser, "/study/small/rollouts?arm=start&family=main&looping=no").count(">redacted</span>") == 0
    rows = measured(library.study("small"))
    assert rows[0]["truncated_or_looping"] is None and rows[0]["correct"] == pytest.approx(100 * 20 / 24)
    assert edited(library.study("small"), rows) == []
