"""A blinded read from the first pair to the last, by requests as a browser sends them, and what of it could tell a rater."""

from __future__ import annotations

import html
import json
import re
import shutil

import pytest
import typer
from starlette.testclient import TestClient
from typer.testing import CliRunner

from ablation.blind.batch import PAIR_QUESTIONS, read_batch
from ablation.blind.state import read_state
from ablation.cli.blind import app as blind
from ablation.files import sha256_file
from ablation.rollouts.journal_chain import check_journal, read_journal
from ablation.rollouts.store import read_stage
from ablation.study.runlock import exclusive
from ablation.view.app import create_app
from ablation.view.library import Library
from tests.blind.made import SUBJECT, held_out_rows, safety_rows, start, write_evaluation

HERE = "http://127.0.0.1:8412"
ORIGIN = {"origin": HERE, "sec-fetch-site": "same-origin"}


def ablation(*arguments):
    app = typer.Typer()
    app.add_typer(blind, name="blind")
    result = CliRunner().invoke(app, ["blind", *map(str, arguments)])
    if isinstance(result.exception, Exception):
        raise result.exception
    return result


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    run, locked, folder = start(tmp_path)
    monkeypatch.chdir(tmp_path)
    ablation("pairs", "--subject", SUBJECT)
    return run, locked, folder


def browser(run, **options):
    return TestClient(create_app(Library(run.root.parent), **options), base_url=HERE, headers=ORIGIN, follow_redirects=True)


def fields(page):
    """Hidden fields of the first form."""
    form = page.text[page.text.index("<form") : page.text.index("</form>")]
    return {name: html.unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)}


def begin(client, rater="ann", number=1, **more):
    page = client.get(f"/read/{number}")
    return client.post(f"/read/{number}", data=fields(page) | {"rater": rater, "blinded": "yes"} | more)


def rate(client, page, number=1, **values):
    said = {"same_answer": "yes", "same_method": "no", "x_missing_checks": "no", "y_missing_checks": "yes"} | values
    return client.post(f"/read/{number}", data=fields(page) | said)


def state(read):
    run, locked, folder = read
    return read_state(folder, locked.plan, check_journal(run.root, locked.digest).events)


def test_from_the_first_pair_to_sealed_ratings(read):
    run, _, folder = read
    client = browser(run)
    page = begin(client)
    items = read_batch(folder.batch).items
    for item in items:
        assert f"Pair {item.number} " in page.text
        for texts in item.texts.values():
            assert all(
                html.escape(text, quote=False) in html.unescape(page.text).replace("<", "&lt;").replace(">", "&gt;")
                for text in texts.values()
            )
        page = rate(client, page, same_method="yes" if item.number == 2 else "no")
    assert "All 4 are rated" in page.text
    ratings = state(read).ratings["ann"]
    assert ratings.by == "person" and [one.item for one in ratings.replies] == [1, 2, 3, 4]
    assert [one.values["same_method"] for one in ratings.replies] == [False, True, False, False]
    assert {one.values["y_missing_checks"] for one in ratings.replies} == {True}
    assert "NOT" not in page.text and not state(read).missing
    assert json.loads(ablation("unseal", "--subject", SUBJECT, "--json").stdout.splitlines()[-1])["label"] == "FAILED"
    closed = client.get("/read/1")
    assert "closed" in closed.text and "<form" not in closed.text
    assert "Read 1" in client.get("/read").text and 'href="/read/1"' not in client.get("/read").text


def test_it_goes_on_where_it_stopped_also_after_a_restart_and_in_the_terminal(read):
    run, _, _ = read
    client = browser(run)
    rate(client, begin(client))
    assert "Your name" in browser(run).get("/read/1").text  # another browser, or another server
    client = browser(run)
    page = begin(client)
    assert "Pair 2 " in page.text and "1 of 4 rated" in page.text
    rate(client, page)
    answered = CliRunner().invoke(blind, ["rate", "--subject", SUBJECT, "--rater", "ann"], input="y\n" + "y\ny\nn\nn\n" * 2)
    assert answered.exit_code == 0 and "All 4" in client.get("/read/1").text


def test_a_form_that_is_sent_twice_counts_once(read):
    client = browser(read[0])
    page = begin(client)
    rate(client, page)
    again = rate(client, page, same_answer="no")
    assert "Pair 2 " in again.text
    assert [one.values["same_answer"] for one in state(read).ratings["ann"].replies] == [True]


def test_what_is_not_answered_is_asked_again_with_the_answers_so_far(read):
    client = browser(read[0])
    page = begin(client)
    short = client.post("/read/1", data=fields(page) | {"same_answer": "no", "note": "a <b>note</b>"})
    assert short.status_code == 400 and "3 of 4 questions have no answer yet" in short.text
    assert re.search(r'name="same_answer" value="no" required checked', short.text) and "a &lt;b&gt;note" in short.text
    odd = rate(client, short, same_answer="maybe")
    assert odd.status_code == 400 and not state(read).ratings
    rate(client, odd, note="why")
    assert state(read).ratings["ann"].replies[0].note == "why"


@pytest.mark.parametrize("change", [{"form": ""}, {"form": "0" * 32}])
def test_a_form_without_this_browsers_key_is_refused(read, change):
    client = browser(read[0])
    page = begin(client)
    data = fields(page) | dict.fromkeys(PAIR_QUESTIONS, "yes") | change
    answer = client.post("/read/1", data=data)
    assert answer.status_code == 409 and not state(read).ratings
    other = browser(read[0])
    assert other.post("/read/1", data=fields(page) | dict.fromkeys(PAIR_QUESTIONS, "yes")).status_code == 409


def test_a_rater_cannot_be_made_up_by_a_cookie(read):
    client = browser(read[0])
    client.cookies.set("ablation_rater_1", "bo.0000", path="/read/1")
    assert "Your name" in client.get("/read/1").text


@pytest.mark.parametrize(
    ("rater", "blinded", "words"),
    [("a b", "yes", "no name for a rater"), ("../x", "yes", "no name"), ("ann", "", "tick the box")],
)
def test_who_cannot_begin(read, rater, blinded, words):
    client = browser(read[0])
    page = begin(client, rater, blinded=blinded)
    assert page.status_code == 400 and words in html.unescape(page.text) and "Pair 1 " not in client.get("/read/1").text


def test_another_rater_than_the_plan_asks_for_is_refused_without_a_word_of_whose_it_is(read, capsys):
    run = read[0]
    first = browser(run)
    rate(first, begin(first))
    second = browser(run)
    page = begin(second, "bo")
    assert page.status_code == 400 and "cannot rate this read" in page.text and SUBJECT not in page.text
    assert "`ann` has begun" in capsys.readouterr().err


def test_while_a_runner_is_at_work_nothing_is_lost_and_it_is_said(read, monkeypatch):
    from ablation.study import blind_run

    monkeypatch.setattr(blind_run, "_WAIT", 0.001)
    run = read[0]
    client = browser(run)
    page = begin(client)
    with exclusive(run.root):
        busy = rate(client, page, note="kept in the form")
        assert busy.status_code == 503 and "kept in the form" in busy.text
        assert re.search(r'name="y_missing_checks" value="yes" required checked', busy.text)
    assert "Pair 2 " in rate(client, busy).text


def test_a_batch_that_was_changed_is_not_shown(read, capsys):
    run, _, folder = read
    client = browser(run)
    begin(client)
    folder.batch.write_bytes(folder.batch.read_bytes().replace(b"gives", b"gave "))
    page = client.get("/read/1")
    assert page.status_code == 409 and "gave" not in page.text and SUBJECT not in page.text and "pairs.json" not in page.text
    assert "pairs.json" in capsys.readouterr().err


def test_nothing_that_a_rater_gets_says_whose_an_answer_is(read):
    """Addresses, headers and pages of a whole read, against every name, seed and digest that could tell."""
    run, locked, folder = read
    client, seen = browser(run, only_reads=True), []
    client.event_hooks["response"].append(lambda answer: seen.append((str(answer.request.url), dict(answer.headers), answer)))
    client.get("/")
    page = begin(client)
    for _ in range(4):
        page = rate(client, page)
    client.get("/read")
    assert len(seen) > 12
    stages = [
        read_stage(folder.run.evaluated("held-out", SUBJECT)),
        read_stage(folder.run.evaluated_reference("held-out", SUBJECT)),
    ]
    words = {
        SUBJECT,
        "held-out",
        "held_out",
        "subject",
        "reference",
        "start",
        "readout",
        "sum-",
        "medium",
        locked.plan.name,
        "parquet",
    }
    words |= {str(seed) for stage in stages for seed in stage.seed.tolist()} | {str(run.root)}
    digests = {
        locked.digest,
        *(event.get(name) for event in read_journal(run.journal) for name in ("batch_sha256", "key_sha256", "page_sha256")),
    }
    digests |= {
        sha256_file(folder.batch),
        *(one for stage in stages for one in (*stage.prompt_sha256, stage.info.adapter_sha256)),
    }
    words |= {one[:12] for one in digests if one}
    texts = [
        text for item in read_batch(folder.batch).items for side in item.texts.values() for text in (*side.values(), item.prompt)
    ]
    for url, headers, answer in seen:
        body = html.unescape(answer.read().decode())
        for text in texts:
            body = body.replace(text, "")
        for word in words:
            assert word not in url and word not in json.dumps(headers), (word, url)
            assert not re.search(rf"(?<![A-Za-z]){re.escape(word)}", body), (word, url)
        assert not {"date", "server", "etag", "last-modified"} & {name.lower() for name in headers}
    assert {url for url, _, _ in seen} == {f"{HERE}/", f"{HERE}/read", f"{HERE}/read/1"}  # not even which item


def test_with_only_reads_there_is_no_way_to_the_rollouts(read):
    client = browser(read[0], only_reads=True)
    for path in ("/studies", "/study/small", "/study/small/rollouts", "/study/small/rules"):
        assert client.get(path).status_code == 404, path
    assert "/study" not in client.get("/read").text


def test_what_is_to_be_read_blind_is_not_among_the_rollouts_until_the_key_is_opened(read):
    run = read[0]
    client = browser(run)
    place = "/study/small/rollout?family=main&arm=N&stage=held-out%2FN%402&problem=sum-0&effort=low&index=1"
    for _ in range(40):
        page = client.get("/study/small/rollouts")
        if "data-reload" not in page.text:
            break
    assert "not shown before its blinded read is opened" in page.text and "sum-0@" not in page.text
    assert "sum-" not in client.get("/study/small/rollouts?text=gives").text.replace('value="sum-', "")
    refused = client.get(place)
    assert refused.status_code == 404 and "blinded read" in refused.text and "gives" not in refused.text
    page = begin(client)
    for _ in range(4):
        page = rate(client, page)
    ablation("unseal", "--subject", SUBJECT)
    assert client.get(place).status_code == 200
    assert "sum-0@" in client.get("/study/small/rollouts").text


def test_the_opened_read_of_one_comparison_opens_no_other(read):
    run, locked, _ = read
    write_evaluation(run, locked, "held-out", held_out_rows(), "C@2")
    library = Library(run.root.parent)
    client = TestClient(create_app(library), base_url=HERE, headers=ORIGIN, follow_redirects=True)
    page = begin(client)
    for _ in range(4):
        page = rate(client, page)
    ablation("unseal", "--subject", SUBJECT)
    assert library.study("small").index.look(60).whole
    page = client.get("/study/small/rollouts")
    assert "on held-out of <b>C@2</b>" in page.text and "on held-out of <b>N@2</b>" not in page.text
    assert 'data-l="Stage">held-out/N@2<' in page.text and 'data-l="Stage">held-out/C@2<' not in page.text
    cell = "family=main&problem=sum-0&effort=low&index=1"
    own = client.get(f"/study/small/rollout?arm=N&stage=held-out%2FN%402&{cell}")
    assert own.status_code == 200 and "C@2" not in own.text and "with=start" not in own.text
    assert client.get(f"/study/small/rollout?arm=C&stage=held-out%2FC%402&{cell}").status_code == 404
    # the start's answers are one side of the other read's pairs
    assert client.get(f"/study/small/rollout?arm=start&stage=held-out%2FN%402&{cell}").status_code == 404
    compared = client.get(f"/study/small/compare?arm=N&stage=held-out%2FN%402&{cell}&with=start%3Aheld-out%2FN%402")
    assert compared.status_code == 404 and "Let me see again" not in compared.text
    found = client.get("/study/small/rollouts?arm=N&without=start&differs=correct")
    assert found.status_code == 200 and "sum-" not in found.text.replace('value="sum-', "")


def test_answers_to_safety_prompts_are_labelled(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    run, locked, _ = start(tmp_path)
    monkeypatch.chdir(tmp_path)
    folder = write_evaluation(run, locked, "safety", safety_rows())
    ablation("pairs", "safety", "--subject", SUBJECT)
    client = browser(run)
    page = begin(client)
    for item in read_batch(folder.batch).items:
        assert "Request" in page.text and f"Answer {item.number} " in page.text
        assert rate(client, page, label="no such label").status_code == 400
        page = rate(client, page, label=item.labels[0])
    assert "All 5 are rated" in page.text
    assert len(read_state(folder, locked.plan, read_journal(run.journal)).ratings["ann"].replies) == 5


def test_a_form_that_is_too_long_is_refused(read):
    client = browser(read[0])
    page = begin(client)
    assert rate(client, page, note="x" * 200_000).status_code == 404 and not state(read).ratings
    long = rate(client, page, note="x" * 20_000)
    assert long.status_code == 400 and "too long" in long.text


def test_a_read_that_takes_anothers_number_gets_none_of_its_ratings(read):
    run = read[0]
    client = browser(run)
    page = begin(client)
    earlier = run.root.with_name("a-copied-run")
    shutil.copytree(run.root, earlier)
    answer = rate(client, page)  # number 1 is the other run's now
    assert "Your name as a rater" in answer.text
    assert not state(read).ratings
    assert not list(earlier.rglob("ratings*/*")) and not [one for one in earlier.rglob("*ann*") if one.is_file()]


@pytest.mark.parametrize(
    "sent", [b"form=%C3%A9&what=rate", b"form=%FF", b"&".join(b"a%d=1" % one for one in range(60)), b"item=" + b"9" * 5000]
)
def test_a_form_that_no_page_of_ours_makes_is_refused(read, sent):
    client = browser(read[0])
    answer = client.post("/read/1", content=sent, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code in (404, 409) and "bug" not in answer.text
    page = begin(client)
    answer = rate(client, page, item="9" * 5000)
    assert answer.status_code == 200 and not state(read).ratings


def test_a_number_that_is_too_long_and_cookies_that_are_none_of_ours(read):
    client = browser(read[0])
    assert client.get("/read/" + "9" * 5000).status_code == 404
    for cookie in ("ablation_rater_1=ann.\xe9", 'ablation_rater_1="\xe9.\xe9"'):
        answer = client.get("/read/1", headers={"cookie": cookie.encode("latin-1")})
        assert answer.status_code == 200 and "Your name as a rater" in answer.text
