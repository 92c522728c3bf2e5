"""Run folders as they are found, with what others may have done to them."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from starlette.testclient import TestClient

from ablation.view.app import create_app
from ablation.view.library import Library
from tests.view import made

HERE = "http://127.0.0.1:8412"
WHOLE = {
    "label": "REPLICATED",
    "labels": {"replication": "REPLICATED"},
    "arms": [{"family": "main", "arm": "N", "label": "STABLE"}],
    "sections": {},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("library")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATION_CACHE", str(root / "cache"))
        made.make(root)
        yield root / "runs"


def browser(place):
    return TestClient(create_app(Library(place)), base_url=HERE, follow_redirects=False)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": None},
        {"labels": ["a"]},
        {"labels": {"replication": 3}},
        {"arms": None},
        {"arms": "abc"},
        {"arms": [3]},
        {"arms": [{"family": "main", "arm": "N"}]},
        {"label": 3},
        {"sections": None},
        {"sections": {"held_out": 3}},
        {"sections": {"held_out": {"label": 3, "subject": None, "others": []}}},
        {"sections": {"held_out": {"label": "WIN", "subject": None, "others": [3]}}},
    ],
)
def test_a_verdict_that_is_none_is_not_shown_and_hides_nothing_else(runs, change):
    path = runs / "small" / "verdict.json"
    path.write_text(json.dumps(WHOLE | change))
    try:
        assert Library(runs).study("small").verdict() is None
        for address in ("/studies", "/study/small"):
            answer = browser(runs).get(address)
            assert answer.status_code == 200 and "REPLICATED" not in answer.text, address
    finally:
        path.unlink()


def test_foreign_words_in_a_verdict_are_text(runs):
    path = runs / "small" / "verdict.json"
    path.write_text(json.dumps(WHOLE | {"label": "<i>\ud800"}))
    try:
        for address in ("/studies", "/study/small"):
            answer = browser(runs).get(address)
            assert answer.status_code == 200 and "&lt;i&gt;\ufffd" in answer.text and "<i>\ufffd" not in answer.text
    finally:
        path.unlink()


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
