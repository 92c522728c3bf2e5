"""A run that is changed or deleted while a page of it is made: one line that says so, never the page of a bug."""

from __future__ import annotations

import shutil

import pytest
from starlette.testclient import TestClient

from ablation.view.app import create_app
from ablation.view.library import Library
from tests.view.made import make, with_held_out

CELL = "family=main&arm=C&stage=readout&problem=p1&effort=low&index=0"
TABS = ("curves", "audit", "rules", "rollouts", "rollouts?text=thought", f"rollout?{CELL}", f"compare?{CELL}&with=N", "live")
PAGES = ("/", "/studies", "/read", "/read/1", "/study/small", *(f"/study/small/{tab}" for tab in TABS))


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """(run, a browser that has had every page of it)."""
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    run, locked = make(tmp_path)
    with_held_out(run, locked)
    library = Library(tmp_path / "runs")
    browser = TestClient(create_app(library), base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
    library.study("small").index.look(60)
    assert {browser.get(page).status_code for page in PAGES[:-1] if page != "/read/1"} == {200}
    return run, browser


def statuses(browser):
    found = {page: browser.get(page) for page in PAGES}
    assert not [page for page, answer in found.items() if "a bug of this program" in answer.text]
    return {page: answer.status_code for page, answer in found.items()}


@pytest.mark.parametrize("what", ["main/N", "main/C/readout/part-000.parquet", "replication", "evaluations", "problems.jsonl"])
def test_a_part_of_it(seen, what):
    run, browser = seen
    path = run.root / what
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    found = statuses(browser)
    assert set(found.values()) <= {200, 404, 409}
    assert found["/"] == found["/study/small"] == 200


def test_all_of_it(seen):
    run, browser = seen
    shutil.rmtree(run.root)
    found = statuses(browser)
    assert found["/"] == 200 and {found[f"/study/small/{tab}"] for tab in TABS} == {404}


def test_while_the_page_is_made(seen, monkeypatch):
    run, browser = seen
    study_of = Library.study

    def found_and_then_gone(self, name):
        found = study_of(self, name)
        assert found.locked
        shutil.rmtree(run.root, ignore_errors=True)
        return found

    monkeypatch.setattr(Library, "study", found_and_then_gone)
    assert set(statuses(browser).values()) <= {200, 404, 409}
