"""Run folders as they are found, with what others may have done to them."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ablation.chain import chained_line
from ablation.files import json_bytes, sha256_bytes
from ablation.view import figures, tables
from ablation.view.app import create_app
from ablation.view.library import Library
from ablation.view.render import page
from tests.audit.build import make_run
from tests.view import made

RECORD = Path(__file__).parents[2] / "runs" / "records" / "smollm2"
HERE = "http://127.0.0.1:8412"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("library")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATION_CACHE", str(root / "cache"))
        made.make(root)
        yield root / "runs"


def browser(place):
    return TestClient(create_app(Library(place)), base_url=HERE, follow_redirects=False)


@pytest.fixture
def judged(runs):
    """The run with the verdict that `ablation verdict` writes of it; its path."""
    study = Library(runs).study("small")
    study.run.verdict.write_bytes(json_bytes(tables.verdict_page(study)["json"]))
    yield study.run.verdict
    study.run.verdict.unlink(missing_ok=True)


def pages(runs):
    """The list of studies and the overview of one, with all that is computed for them."""
    client, found = browser(runs), []
    for address in ("/studies", "/study/small"):
        for _ in range(200):
            answer = client.get(address)
            assert answer.status_code == 200
            if "is being computed" not in answer.text:
                break
            time.sleep(0.05)
        found.append(answer.text)
    return found


@pytest.mark.parametrize(
    "change",
    [
        {"label": "REPLICATED"},
        {"labels": None},
        {"labels": {"replication": "REPLICATED"}},
        {"arms": "abc"},
        {"arms": [{"family": "main", "arm": "N", "label": "STABLE"}]},
        {"label": 3},
        {"sections": {"held_out": {"label": "WIN", "subject": None, "others": [3]}}},
        {"stable_arm": "<b>X</b>"},
        None,
    ],
)
def test_the_labels_on_the_overview_are_those_of_the_rollouts_whatever_the_file_says(runs, judged, change):
    content = json.loads(judged.read_bytes())
    own = content["label"]
    judged.write_text("{" if change is None else json.dumps(content | change))
    for text in pages(runs):
        refused = "is not a verdict with the head of its journal" in text
        assert "small/verdict.json: " in text and (f">{own}<" in text or refused)
        assert refused == (change is None) and ">REPLICATED<" not in text and "<b>X</b>" not in text
        assert str(runs) not in text.replace(f"<code>{runs}</code>", "")  # the list says what it is a list of


def test_an_overview_has_no_label_without_a_verdict_and_none_without_its_journal(runs, judged):
    own = json.loads(judged.read_bytes())["label"]
    assert all(f">{own}<" in text and "notice bad" not in text for text in pages(runs))
    journal = judged.with_name("journal.jsonl")
    kept = journal.read_bytes()
    journal.unlink()
    try:
        for text in pages(runs):
            assert f">{own}<" not in text and "no label" in text and "the journal was cut" in text
    finally:
        journal.write_bytes(kept)
    judged.unlink()
    assert all("no verdict written" in text for text in pages(runs))


def test_a_stored_verdict_that_says_something_else_is_told_on_the_page_of_rules(runs):
    study = Library(runs).study("small")
    own = tables.verdict_page(study)
    assert own["stored_differs"] == ""
    study.run.verdict.write_text(json.dumps(own["json"] | {"stable_arm": "<b>X</b>"}))
    try:
        found = rules_page(study, tables.verdict_page(study))
    finally:
        study.run.verdict.unlink()
    assert "small/verdict.json: /stable_arm says &#34;&lt;b&gt;X&lt;/b&gt;&#34;, and the rollouts give " in found
    assert str(runs) not in found


def test_names_of_folders_that_an_address_would_cut(runs, tmp_path):
    place = tmp_path / "a#b?c"
    shutil.copytree(runs / "small", place)
    found = browser(place).get("/")
    assert found.status_code == 303
    assert browser(place).get(found.headers["location"]).status_code == 200


def test_a_folder_whose_name_is_no_text_hides_no_other(runs, tmp_path):
    shutil.copytree(runs / "small", tmp_path / "small")
    try:
        os.mkdir(os.fsencode(tmp_path) + b"/bad\xff")
    except OSError:
        pytest.skip("names are text on this file system")
    with open(os.fsencode(tmp_path) + b"/bad\xff/plan.yaml", "w") as file:
        file.write("name: bad\n")
    answer = browser(tmp_path).get("/studies")
    assert answer.status_code == 200 and "/study/small" in answer.text and "bad?" in answer.text


@pytest.mark.parametrize("fields", [{"time": "2026-11-30T00:00:00"}, {"event": None}, {"event": "part_written", "rollouts": [1]}])
def test_a_journal_with_a_field_that_no_event_can_have_is_said_on_the_page(runs, tmp_path, fields):
    shutil.copytree(runs / "small", tmp_path / "small")
    journal = tmp_path / "small" / "journal.jsonl"
    lines = journal.read_bytes().splitlines()
    event = {"seq": len(lines), "time": "2026-11-30T00:00:00+00:00", "event": "x", "plan": json.loads(lines[0])["plan"]}
    with journal.open("ab") as file:
        file.write(chained_line(event | fields, sha256_bytes(lines[-1])) + b"\n")
    odd = list(fields)[-1]
    for address in ("/study/small", "/study/small/live"):
        answer = browser(tmp_path).get(address)
        assert answer.status_code == 200 and f"journal.jsonl:{len(lines) + 1}: `{odd}` is" in answer.text, address
    assert browser(tmp_path).get("/studies").status_code == 200


def test_what_is_the_same_in_both_families_is_said_once():
    """In the record of SmolLM2 the control was not damaged in either family."""
    study = Library(RECORD.parent).study("smollm2")
    found = tables.verdict_page(study)
    data = [one for one in found["json"]["reasons"] if one["code"] == "CONTROL_NOT_DAMAGED"]
    assert [one["family"] for one in data] == ["main", "replication"]  # in the data each is by itself
    said = re.findall(r"<code>CONTROL_NOT_DAMAGED</code>: ([^<]*)", rules_page(study, found))
    assert said == ["The control C was not damaged in main and replication: no damage rule fired."]


def rules_page(study, found):
    values = {"study": study.name, "tab": "rules", "title": study.name, "many": False, "found": found}
    return page("rules", **values).replace("<code>C</code>", "C").replace(" In those", "<In those")


def test_a_comparison_says_how_many_rollouts_it_has_and_no_more_of_its_read_than_is_so(tmp_path):
    run, locked = made.make(tmp_path)
    made.with_held_out(run, locked)
    (stage,) = run.root.glob("evaluations/held-out/*/subject/stage.json")
    wanted = sum(part["rows"] for part in json.loads(stage.read_text())["parts"])
    client = browser(tmp_path / "runs")
    live = client.get("/study/small/live").text
    row = re.search(r"<tr><td>held-out</td>(.*?)</tr>", live, re.S)[1]
    assert f'<td class="n">{wanted}</td>' in row and "<td>not read</td>" in row
    assert wanted == 24 and "<td>sampled</td>" in row and "<td>yes</td>" not in row


def test_measures_that_are_not_those_of_their_rollouts_are_named_and_not_drawn(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    shutil.copytree(RECORD, tmp_path / "smollm2")
    study = Library(tmp_path).study("smollm2")
    rows = figures.measured(study)
    assert len(rows) == 2 * (1 + 2 * 6) and figures.edited(study, rows) == []  # a sweep, and 5 updates and a readout of 2 arms
    path = tmp_path / "smollm2" / "main" / "N" / "update-3" / "measures.json"
    content = json.loads(path.read_text())
    for field, value in (("logprob", content["logprob"] + 0.01), ("truncated_or_looping", content["truncated_or_looping"] - 1)):
        path.write_text(json.dumps(content | {field: value}))
        assert figures.edited(study, figures.measured(study)) == ["main/N/update-3"]
    path.write_text(json.dumps(content))
    assert figures.edited(study, figures.measured(study)) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reward_mean", {"a": 1}),
        ("step", {"outcome": ["x"]}),
        ("weights", {"net_share": "x"}),
        ("metrics", {"mismatch_mean": [1]}),
    ],
)
def test_figures_of_an_audit_that_are_of_another_type_are_not_shown(tmp_path, field, value):
    run = make_run(tmp_path).run
    path = run.audit("main", "N", 1)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {field: value}))
    answer = browser(run.root.parent).get("/study/small/audit")
    assert answer.status_code == 200 and "main/N/update-1: audit.json cannot be read." in answer.text
