"""Every page in a real browser: what it shows, what it asks for, by keyboard, on a phone, in the dark, and what axe says of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.blind.made import SUBJECT, start
from tests.verdict.study import tell
from tests.view import made
from tests.view.browser import CHROMIUM, FLAGS, Watch, needs_browser, server, settle

pytestmark = [needs_browser(), pytest.mark.slow]
RECORD = Path(__file__).parents[2] / "runs" / "records" / "smollm2"
KEY = "family=main&arm=C&stage=readout&problem=p0&effort=low&index=0"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
PATIENCE = 60_000
"""Milliseconds."""
HEAVIEST = 1_500_000
"""Bytes of a page with all that it loads."""


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """Runs to look at: a record of a real one, a made one, one whose plan was changed, one without a journal, and no run."""
    root = tmp_path_factory.mktemp("browser")
    shutil.copytree(RECORD, root / "runs" / "smollm2")
    made.make(root)
    made.make(root, "tampered")[0].plan.write_text("ablation: 1\n")
    unfinished, locked = made.make(root, "unfinished")
    made.write(unfinished, locked, "main", "N", unfinished.update("main", "N", 1), whole=False, stage="update", update=1)
    part = unfinished.readout("main", "C") / "part-000.parquet"
    part.write_bytes(part.read_bytes()[:-9])
    (root / "runs" / "notes").mkdir()
    return root


@pytest.fixture(scope="module")
def address(shelf):
    with server(shelf / "runs", cache=shelf / "cache") as found:
        yield found.rstrip("/")


def context_of(chromium, **options):
    """A browser of its own. Its patience is for machines that do other work, too."""
    context = chromium.new_context(**options)
    context.set_default_timeout(PATIENCE)
    return context


@pytest.fixture
def page(chromium):
    context = context_of(chromium, viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


def pages(study):
    base = f"/study/{study}"
    key = KEY if study == "small" else "family=main&arm=C&stage=update-3&problem=simple_equations-1&effort=xhigh&index=1"
    return [
        base,
        *(f"{base}/{tab}" for tab in ("curves", "audit", "rules", "rollouts")),
        f"{base}/rollout?{key}",
        f"{base}/compare?{key}",
    ]


def unfold(page):
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")


def some_rollout(page, address):
    """An address of a rollout of an update of the record."""
    page.goto(f"{address}/study/smollm2/rollouts?arm=C&stage=update-1&sort=tokens")
    settle(page)
    return page.locator("table.rollouts tbody a").first.get_attribute("href")


def test_every_page_says_nothing_to_the_console_asks_nobody_else_and_is_light(page, address):
    watch = Watch(page)
    rollout = some_rollout(page, address)
    places = [
        "/",
        "/read",
        *pages("small"),
        *pages("smollm2")[:5],
        rollout,
        rollout + "&by=weight",
        rollout.replace("/rollout?", "/compare?"),
    ]
    for place in places:
        watch.clear()
        page.goto(address + place)
        settle(page)
        assert watch.said == [], place
        assert {urlsplit(one).netloc for one in watch.asked} == {urlsplit(address).netloc}, place
        assert set(watch.statuses) == {200}, place
        watch.clear()
        page.reload()
        page.wait_for_load_state("networkidle")
        weight = max(watch.bytes, len(page.content().encode()))  # the browser does not keep every answer's body for long
        assert 500 < weight < HEAVIEST, (place, weight)
        assert page.locator("h1").count() == 1 and page.title(), place


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (360, "light")])
def test_axe_finds_nothing_and_no_page_is_wider_than_its_screen(chromium, address, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    context = context_of(chromium, viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    rollout = some_rollout(page, address)
    loops = "/study/small/rollouts?differs=looping&arm=C&without=N&family=main"
    wrong = ["/study/tampered", "/study/unfinished", "/study/nothing", "/nothing"]
    more = [rollout, rollout + "&by=weight", loops, *wrong]
    for place in ["/", "/read", *pages("small"), *pages("smollm2")[:5], *more]:
        page.goto(address + place)
        settle(page)
        unfold(page)
        found = Axe().run(page, options={"runOnly": {"type": "tag", "values": RULES}})
        told = [(one["id"], one["nodes"][0]["html"][:120]) for one in found.response["violations"]]
        assert told == [], (place, told)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, place
    context.close()


def test_a_reader_finds_the_longest_loop_that_c_has_and_n_has_not(page, address):
    page.goto(address)
    page.get_by_role("link", name="small", exact=True).click()
    page.get_by_role("navigation", name="Study").get_by_role("link", name="Rollouts").click()
    settle(page)
    form = page.get_by_role("form", name="What one arm does and another does not")
    assert [form.locator(f"[name={one}]").input_value() for one in ("differs", "arm", "without")] == ["looping", "C", "N"]
    form.locator("[name=family]").select_option("main")
    form.get_by_role("button").click()
    assert "2 rollouts that are looping in C and not in N" in page.get_by_role("status").last.inner_text()
    names = page.locator("table.rollouts tbody th").all_inner_texts()
    assert names == ["p2@medium #1", "p1@low #0"]
    page.get_by_role("link", name="p2@medium #1").click()
    left, right = page.get_by_role("article").all()
    assert "57 (54 of thinking)" in left.inner_text() and "54 tokens: 9.0 times a unit of 6" in left.inner_text()
    assert left.locator("i.r").count() == 54 and right.locator("i.r").count() == 0
    assert page.get_by_text("the same seed").is_visible()


def test_filters_and_pages(page, address):
    page.goto(f"{address}/study/small/rollouts")
    settle(page)
    assert "144 rollouts" in page.get_by_role("status").inner_text()
    page.get_by_role("link", name="Next").click()
    page.get_by_role("link", name="Next").click()
    assert page.locator("table.rollouts tbody tr").count() == 44
    assert page.get_by_role("link", name="Next").count() == 0
    page.get_by_role("link", name="Previous").click()
    assert page.locator("table.rollouts tbody tr").count() == 50
    form = page.get_by_role("form", name="Filter")
    for name, value in (("arm", "C"), ("looping", "yes"), ("sort", "tokens"), ("dir", "up")):
        form.locator(f"[name={name}]").select_option(value)
    form.get_by_role("button", name="Show").click()
    tokens = [int(one) for one in page.locator("table.rollouts tbody td[data-l=Tokens]").all_inner_texts()]
    assert tokens == [39, 39, 51, 51, 57, 57]  # 6, 8 and 9 units of 6 tokens, and 3 more, in both families
    assert page.get_by_role("form", name="Filter").locator("[name=looping]").input_value() == "yes"
    page.get_by_role("link", name="Clear").click()
    page.get_by_role("form", name="Filter").locator("[name=text]").fill("<script>")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=*")
    assert "2 rollouts" in page.get_by_role("status").inner_text()


def test_a_hostile_text_is_text(page, address):
    watch = Watch(page)
    for place in (f"rollout?{KEY}", f"compare?{KEY}", "rollouts?text=%3Cscript%3E&arm=C"):
        page.goto(f"{address}/study/small/{place}")
        settle(page)
        unfold(page)
        page.wait_for_timeout(200)
        assert "owned" not in page.title() and watch.said == []
        assert {urlsplit(one).netloc for one in watch.asked} == {urlsplit(address).netloc}
    page.goto(f"{address}/study/small/rollout?{KEY}")
    page.locator("details > summary", has_text="Thinking").click()
    text = page.locator("pre.plain", has_text="script").inner_text()
    assert text.startswith("<script>document.title='owned'</script><img src=x onerror=") and "{{ 7 * 7 }}" in text
    assert "\ufffd[31mred\ufffd" in text and "\ufffdright to left \ufffdend" in text
    assert page.locator("main a", has_text="a link").count() == 0 and page.locator("main img").count() == 0
    assert page.evaluate("[...document.body.innerText].every(c => c >= ' ' || '\\n\\t'.includes(c))")


def test_keys(page, address):
    page.goto(f"{address}/study/small/rollouts?arm=C&family=main")
    settle(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == page.locator("table.rollouts tbody a").nth(1).inner_text()
    page.keyboard.press("k")
    name = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "text"
    page.keyboard.type("jk/")
    assert page.evaluate("document.activeElement.value") == "jk/"
    page.keyboard.press("Shift+Tab")
    page.locator("main").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rollout?*")
    assert page.locator("h1").inner_text() == name


def test_tokens_have_their_text_colours_and_weights(page, address):
    """Of a real rollout: the record's base model is not here, so its tokens are ids; their number and shades are the stored ones."""
    place = some_rollout(page, address)
    page.goto(address + place)
    unfold(page)
    shown = page.locator("div.tokens i")
    total = int(page.locator("dl.facts dd").first.inner_text().split(" ")[0].replace(",", ""))
    assert total - 2 <= shown.count() <= total  # all but the tags
    assert "nats, entropy" in (shown.first.get_attribute("title") or "")
    page.get_by_role("link", name="weight in training").click()
    weighed = page.locator(", ".join(f"div.tokens i.{one}{step}" for one in "pn" for step in (1, 2, 3)))
    page.goto(f"{address}/study/smollm2/rollouts?arm=C&stage=update-1&family=main")
    links = [one.get_attribute("href") for one in page.locator("table.rollouts tbody a").all()[:24:3]]
    counts = []
    for link in links:  # a cell whose rewards are all equal has no weights
        page.goto(f"{address}{link}&by=weight")
        counts.append(weighed.count())
    assert any(counts)
    page.goto(f"{address}/study/small/rollout?{KEY}&by=weight")
    assert page.get_by_text("Only the rollouts of an update were trained on").is_visible()


def test_a_run_that_goes_on_is_shown_without_loading_the_page_again(chromium, tmp_path):
    run, locked = made.make(tmp_path)
    context = context_of(chromium)
    with server(run.root, cache=tmp_path / "cache") as address:
        page = context.new_page()
        page.goto(address)
        assert urlsplit(page.url).path == "/study/small"
        page.evaluate("window.same = true; document.querySelector('[data-live]').dataset.pause = '200'")
        assert "6 events" in page.locator("[data-live]").inner_text()
        tell(run, locked, "part_written", stage="main/N/update-1", part="part-000.parquet", rollouts=6, part_sha256="0" * 64)
        made.write(run, locked, "main", "N", run.update("main", "N", 1), whole=False, stage="update", update=1)
        page.get_by_text("7 events").wait_for()
        assert "6 of 12 rollouts" in page.locator("[data-live]").inner_text()  # an update has half of 12 cells, 2 rollouts each
        assert page.evaluate("window.same")
    context.close()


def test_what_is_damaged_has_a_page_that_says_so_and_the_rest_is_shown(page, address):
    page.goto(address)
    assert page.locator(".cards h2").all_inner_texts() == ["small", "smollm2", "tampered", "unfinished"]
    assert page.locator(".card .notice.bad").count() == 1
    answer = page.goto(f"{address}/study/tampered")
    assert answer.status == 409 and "plan.yaml" in page.locator("main").inner_text()
    answer = page.goto(f"{address}/study/unfinished/rollouts")
    settle(page)
    assert answer.status == 200 and "main/C/readout/part-000.parquet" in page.locator(".notice.bad").inner_text()
    assert page.locator("table.rollouts tbody tr").count() == 50
    page.goto(f"{address}/study/unfinished/rules")
    settle(page)
    assert "part-000.parquet" in page.locator("main").inner_text() or "Missing" in page.locator("main").inner_text()
    assert page.goto(f"{address}/study/notes").status == 404


def test_with_a_token_a_browser_is_let_in_by_its_address_alone(chromium, shelf):
    with server(shelf / "runs" / "small", "--token", cache=shelf / "cache") as found:
        where, _, token = found.partition("?")
        stranger = context_of(chromium).new_page()
        assert stranger.goto(where).status == 403 and "small" not in stranger.content()
        page = context_of(chromium).new_page()
        watch = Watch(page)
        page.goto(found)
        assert page.locator("h1").inner_text() and token not in page.url
        page.get_by_role("link", name="Rollouts").click()
        settle(page)
        assert page.evaluate("document.cookie") == "" and 200 in watch.statuses and 403 not in watch.statuses
        assert token.partition("=")[2] not in page.content()


def test_a_blinded_read_by_keyboard_alone_from_the_first_pair_to_sealed_ratings(chromium, tmp_path, monkeypatch):
    from axe_playwright_python.sync_playwright import Axe
    from typer.testing import CliRunner

    from ablation.blind.batch import read_batch
    from ablation.blind.state import read_state
    from ablation.cli.blind import app as blind
    from ablation.rollouts.journal_chain import read_journal

    run, locked, folder = start(tmp_path, words=" <script>document.title='owned'</script>")
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(blind, ["pairs", "--subject", SUBJECT]).exit_code == 0
    context = context_of(chromium, viewport={"width": 360, "height": 740})
    page = context.new_page()
    watch = Watch(page)
    with server(run.root, "--only-reads", cache=tmp_path / "cache") as address:
        page.goto(address)
        page.get_by_role("link", name="Read 1").focus()
        page.keyboard.press("Enter")
        page.get_by_label("Your name as a rater").focus()
        page.keyboard.type("ann")
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        for item in read_batch(folder.batch).items:
            page.get_by_role("heading", name=f"Pair {item.number} of 4").wait_for()
            assert Axe().run(page).response["violations"] == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            shown = page.locator("article pre").all_inner_texts()
            assert shown == [text for texts in item.texts.values() for text in texts.values()]
            for key in ("y", "y", "n", "n") if item.number != 3 else ("y", "n", "n", "y"):
                page.keyboard.press(key)
            assert page.evaluate("document.activeElement.tagName") == "BUTTON"
            page.keyboard.press("Enter")
        page.get_by_role("heading", name="All 4 are rated").wait_for()
        assert "owned" not in page.title() and watch.said == []
        assert {urlsplit(one).path for one in watch.asked} <= {
            "/",
            "/read",
            "/read/1",
            "/static/view.css",
            "/static/read.js",
            "/static/icon.svg",
        }
        page.reload()
        page.get_by_role("heading", name="All 4 are rated").wait_for()
    context.close()
    ratings = read_state(folder, locked.plan, read_journal(run.journal)).ratings["ann"]
    assert [one.values["same_method"] for one in ratings.replies] == [True, True, False, True]
    assert [one.values["y_missing_checks"] for one in ratings.replies] == [False, False, True, False]
    unsealed = CliRunner().invoke(blind, ["unseal", "--subject", SUBJECT])
    assert unsealed.exit_code == 0 and "PASSED" in unsealed.output  # 3 of 4 pass


def test_without_script_pages_still_work(chromium, address):
    context = context_of(chromium, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/study/small/rollouts?arm=C")
    page.get_by_role("form", name="Filter").locator("[name=looping]").select_option("yes")
    page.get_by_role("form", name="Filter").get_by_role("button", name="Show").click()
    assert page.locator("table.rollouts tbody tr").count() == 6
    context.close()


@pytest.mark.skipif("ABLATION_SCREENSHOTS" not in os.environ, reason="ABLATION_SCREENSHOTS=FOLDER keeps pictures to look at")
def test_pictures_to_look_at(chromium, address):
    folder = Path(os.environ["ABLATION_SCREENSHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    for width, scheme in ((1280, "light"), (1280, "dark"), (360, "light")):
        page = context_of(chromium, viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
        rollout = some_rollout(page, address)
        places = {"studies": "/", "rollout": rollout + "&by=weight"} | {
            place.rpartition("/")[2].partition("?")[0]: place for place in pages("smollm2")[:5]
        }
        for name, place in places.items():
            page.goto(address + place)
            settle(page)
            page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
