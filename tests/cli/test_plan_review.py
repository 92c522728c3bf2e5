from __future__ import annotations

import json

import pytest

from ablation.plan.load import load_plan
from tests.cli.test_plan import run
from tests.plan.conftest import TEXT, write_plan


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "plans").mkdir()
    return write_plan(tmp_path / "plans")


def test_before_locking(plan):
    found = run("review", plan)
    assert (found.code, found.err) == (0, "")
    assert found.out.startswith("Review of small\n\n1. The question\n  Does it work?\n")
    assert "Anything: the plan is not locked" in found.out


def test_json_and_html_together(plan, tmp_path):
    page = tmp_path / "review.html"
    found = run("review", plan, "--json", "--html", page)
    assert (found.code, found.err) == (0, f"{page} written\n")
    content = json.loads(found.out)
    assert content["digest"] == load_plan(plan).digest
    assert content["left_open"] == sum(item["state"] == "left open" for item in content["checklist"]) == 17
    assert content["digest"] in page.read_text(encoding="utf-8")
    alone = run("review", plan, "--html", page)
    assert (alone.code, alone.out) == (0, f"{page} written\n")


def test_luck_is_what_lock_prints(plan):
    reviewed = json.loads(run("review", plan, "--json").out)["luck"]
    locked = json.loads(run("lock", plan, "--json").out)["luck"]
    assert reviewed["studies"] == locked["studies"]
    assert reviewed["labels"][0]["share"] == locked["labels"]["REPLICATED"]["share"]


def test_locked_with_a_deviation_that_holds_escape_sequences(plan):
    assert run("lock", plan).code == 0
    assert run("deviate", plan, "--reason", "one arm\x1b[2J more than planned", "--seen", "nothing").code == 0
    found = run("review", plan)
    assert (found.code, found.err) == (0, "")
    assert "deviation 1" in found.out
    assert "one arm\N{REPLACEMENT CHARACTER}[2J more than planned" in found.out
    assert "\x1b" not in found.out
    assert "signature" in found.out
    assert "nothing has run there" in " ".join(found.out.split())
    assert "Who made it: the name in it is what somebody's machine said." in found.out


def test_a_changed_plan_is_shown_as_refused(plan, tmp_path):
    assert run("lock", plan).code == 0
    plan.write_text(TEXT.replace("limit: -21", "limit: -40"))
    page = tmp_path / "review.html"
    found = run("review", plan, "--html", page)
    assert found.code == 3
    assert found.err == f"{plan}: refused: see the page\n"
    assert "-21 -> -40" in page.read_text(encoding="utf-8").replace("&gt;", ">")
    text = run("review", plan)
    assert text.code == 3
    assert text.out.startswith("Review of small\n\nREFUSED. The page shows the file as it is now")
    as_json = run("review", plan, "--json")
    assert as_json.code == 3
    assert "was changed after it was locked" in json.loads(as_json.out)["refused"]


def test_a_file_of_the_plan_that_was_changed_is_refused(plan):
    assert run("lock", plan).code == 0
    plan.with_name("base.bin").write_bytes(b"other weights")
    found = run("review", plan)
    assert found.code == 3
    assert "model.base has changed since" in " ".join(found.out.split())


def test_a_signature_that_is_none_is_refused(plan):
    assert run("lock", plan).code == 0
    plan.with_suffix(".lock.sig").write_text("not a signature")
    found = run("review", plan)
    assert found.code == 3
    assert "is not a signature of this lock file" in " ".join(found.out.split())
