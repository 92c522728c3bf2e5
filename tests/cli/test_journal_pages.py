"""What a journal says against its run folder stands on every page that shows a label."""

from datetime import datetime, timedelta

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.errors import AblationError
from tests.audit.faults import rechain
from tests.verdict.study import lock_small, start_run, tell, write_study

PAGES = (
    ("verdict", "--run", "runs/small"),
    ("plan", "verify", "plans/small.yaml", "--run", "runs/small"),
    ("status", "runs/small"),
    ("status", "runs/small", "--json"),
    ("report", "runs/small", "--no-figures"),
    ("audit", "runs/small"),
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A whole run whose control is damaged in both families."""
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked, {("main", "C"), ("replication", "C")})
    monkeypatch.chdir(tmp_path)
    return run, locked


def shown(page):
    """(exit code, all that was printed, on one line)."""
    done = CliRunner().invoke(app, page)
    code, said = done.exit_code, [done.stdout, done.stderr]
    if isinstance(done.exception, AblationError):
        code, said = int(done.exception.exit_code), [*said, *done.exception.lines()]
    return code, " ".join(" ".join(said).split())


def test_no_page_calls_an_arm_stable_that_the_journal_says_was_ended(run):
    run, locked = run
    assert shown(PAGES[0])[0] == 0
    place = run.journal.read_bytes().count(b"\n") + 1
    tell(run, locked, "arm_stopped", arm="main/N", rule="logprob_fell", update=2)
    for page in PAGES:
        code, text = shown(page)
        assert code == 3 and (page[0] == "audit" or f"journal.jsonl:{place}: a stop rule ended main/N there" in text), page
        assert "main/N/stopped.json, which is not there" in text or "main/N/stopped.json is not there" in text, page
    rechain(run.journal, lambda records: [records[-1], *records[:-1]])  # it was ended, and then went on
    for page in PAGES:
        code, text = shown(page)
        assert code == 3 and "goes on with it" in text, page


def test_every_page_says_that_a_clock_was_set_back(run):
    run, _ = run

    def three_days_back(records):
        for record in records[3:]:
            record["time"] = (datetime.fromisoformat(record["time"]) - timedelta(days=3)).isoformat()

    rechain(run.journal, three_days_back)
    for page in PAGES[:-1]:
        code, text = shown(page)
        if page[0] == "report":
            text += (run.root / "report" / "report.md").read_text() + (run.root / "report" / "report.html").read_text()
        assert code == 0 and "journal.jsonl: line 4 is 3 days, 0:00:00 earlier than a line before it" in text, page
        assert page[0] != "report" or text.count("is 3 days, 0:00:00 earlier than") >= 2, page
    assert "clock was set back" in shown(PAGES[-1])[1]


def test_every_page_says_that_a_journal_begins_before_its_plan_was_locked(run):
    run, _ = run

    def a_day_back(records):
        for record in records:
            record["time"] = (datetime.fromisoformat(record["time"]) - timedelta(days=1)).isoformat()

    rechain(run.journal, a_day_back)
    for page in PAGES:
        if page[0] == "plan":  # it says when the journal begins beside when the plan was locked
            continue
        code, text = shown(page)
        if page[0] == "report":
            text += (run.root / "report" / "report.md").read_text()
        assert code in (0, 3, 6) and "by its clock the journal begins" in text and "before the plan was locked" in text, page
