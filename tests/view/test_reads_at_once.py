"""Blinded reads when several write at once, the disk is full, or the run is damaged or gone: nothing is lost, nothing is told."""

from __future__ import annotations

import shutil
import threading

import pytest
import typer
from typer.testing import CliRunner

from ablation.blind import ratings
from ablation.cli import blind_rate
from ablation.cli.blind import app as blind_app
from ablation.files import DiskError
from ablation.rollouts import journal_chain
from ablation.rollouts.journal_chain import check_journal
from ablation.study.blind_run import find_comparison
from ablation.view.reads import Reads
from tests.blind.made import SUBJECT, start

from .test_reads import ablation, begin, browser, rate, state


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    made = start(tmp_path, {"raters": 4})
    monkeypatch.chdir(tmp_path)
    ablation("pairs", "--subject", SUBJECT)
    return made


def test_one_rater_in_two_tabs_at_one_instant_is_led_on_and_rates_each_pair_once(read, monkeypatch):
    clients = [browser(read[0]) for _ in range(2)]
    pages = [begin(client) for client in clients]
    both, check = threading.Barrier(2, timeout=20), Reads._check

    def together(self, *arguments):
        check(self, *arguments)
        both.wait()

    monkeypatch.setattr(Reads, "_check", together)
    answers = [None, None]

    def send(at):
        answers[at] = rate(clients[at], pages[at])

    threads = [threading.Thread(target=send, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(one.status_code, "Pair 2 " in one.text) for one in answers] == [(200, True)] * 2
    assert [one.item for one in state(read).ratings["ann"].replies] == [1]


@pytest.mark.parametrize("raters", [("ann", "bob", "cy", "dee")])
def test_raters_at_one_instant_lose_nothing_and_see_no_error(read, raters):
    seen = []

    def read_all(name):
        client = browser(read[0])
        page = begin(client, name)
        for _ in range(4):
            seen.append(page.status_code)
            page = rate(client, page)
        seen.append(page.status_code)
        assert "All 4 are rated" in page.text

    threads = [threading.Thread(target=read_all, args=(name,)) for name in raters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [200] * 20
    assert {name: len(one.replies) for name, one in state(read).ratings.items()} == dict.fromkeys(raters, 4)


def rated_behind_the_first_look(run, monkeypatch):
    """The read of `run`; somebody rates its first pair right after its journal is read for the first time."""
    found, once, chain_of = find_comparison("held-out", SUBJECT, None, run.root), [], journal_chain.read_journal_chain

    def and_then_somebody_rates(path):
        chain = chain_of(path)
        if not once:
            once.append(1)
            found.add("ann")([ratings.Reply(1, dict.fromkeys(found.state().batch.item(1).fields, True), "person")])
        return chain

    monkeypatch.setattr(journal_chain, "read_journal_chain", and_then_somebody_rates)
    return found


@pytest.mark.parametrize("check", [False, True])
def test_a_rating_that_is_written_while_the_read_is_looked_at_is_no_damage(read, monkeypatch, check):
    run, _, _ = read
    found = rated_behind_the_first_look(run, monkeypatch)
    assert len(found.state(check=check).ratings["ann"].replies) == 1


def test_a_rating_that_is_written_while_a_run_is_checked_is_no_damage(read, monkeypatch):
    run, locked, _ = read
    rated_behind_the_first_look(run, monkeypatch)
    assert any(event["event"] == "blind_rated" for event in check_journal(run.root, locked.digest).events)


@pytest.mark.parametrize("error", [DiskError("/runs/small/held-out/N@2: could not be written"), OSError(28, "No space left")])
def test_on_a_full_disk_the_answers_stay_on_the_page_and_can_be_sent_again(read, monkeypatch, error):
    client = browser(read[0])
    page = begin(client)
    with monkeypatch.context() as full:

        def refuse(*arguments):
            raise error

        full.setattr(ratings, "write_bytes", refuse)
        answer = rate(client, page, note="seen twice")
        assert answer.status_code == 503 and "seen twice" in answer.text and SUBJECT not in answer.text
        assert answer.text.count(" checked") == 4
    assert "Pair 2 " in rate(client, answer).text
    assert [one.item for one in state(read).ratings["ann"].replies] == [1]


@pytest.mark.parametrize("name", ["form", "batch", "page"])
def test_a_changed_file_of_a_read_is_told_of_in_the_terminal_alone(read, capsys, name):
    """`form.json` among them: its name is in the error's text."""
    run, _, folder = read
    client = browser(run)
    begin(client)
    path = getattr(folder, name)
    path.write_bytes(path.read_bytes() + b" ")
    page = client.get("/read/1")
    assert page.status_code == 409 and "cannot be shown now" in page.text
    for word in (SUBJECT, "held-out", path.name, "journal"):
        assert word not in page.text
    assert path.name in capsys.readouterr().err


@pytest.mark.parametrize("gone", ["run", "comparison", "journal"])
def test_a_run_that_goes_while_it_is_rated_tells_nothing(read, gone, monkeypatch):
    run, _, folder = read
    client = browser(run)
    page = begin(client)
    find = Reads._find

    def found_and_then_gone(self, request):
        found = find(self, request)
        shutil.rmtree({"run": run.root, "comparison": folder.root.parent, "journal": run.journal}[gone], ignore_errors=True)
        run.journal.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Reads, "_find", found_and_then_gone)
    for answer in (rate(client, page), client.get("/read/1")):
        assert answer.status_code in (404, 409) and "bug" not in answer.text
        for word in (SUBJECT, "held-out", str(run.root)):
            assert word not in answer.text


@pytest.mark.parametrize("meanwhile", [(1, 2), (1, 2, 3, 4)])
def test_one_rater_in_the_terminal_and_in_a_browser_at_once(read, monkeypatch, meanwhile):
    """Pair 1 is on the screen of both: the one that was kept first counts, and the terminal goes on with what is open."""
    client = browser(read[0])
    asked = []

    def and_meanwhile(item):
        if not asked:
            page = begin(client)
            for _ in meanwhile:
                page = rate(client, page)
        asked.append(item.number)
        return dict.fromkeys(item.fields, True)

    monkeypatch.setattr(blind_rate, "_answers", and_meanwhile)
    app = typer.Typer()
    app.add_typer(blind_app, name="blind")
    done = CliRunner().invoke(app, ["blind", "rate", "--subject", SUBJECT, "--rater", "ann"], input="y\n")
    assert done.exit_code == 0, done.output
    assert asked == [1, *(one for one in (2, 3, 4) if one not in meanwhile)]
    assert "item 1 was rated by `ann` before: that rating counts" in done.stderr
    said = state(read).ratings["ann"].replies
    assert sorted(one.item for one in said) == [1, 2, 3, 4]
    assert next(one for one in said if one.item == 1).values["x_missing_checks"] is False  # the browser's
