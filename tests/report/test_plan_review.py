"""Golden page: after a change on purpose `UPDATE_GOLDEN=1 python -m pytest tests/report`, and read the difference."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ablation.cli.plan_power import short_power
from ablation.plan.load import load_plan
from ablation.report.plan_page import plan_summary
from ablation.report.plan_review import review, share_of_rollouts
from ablation.report.plan_review_html import review_html
from ablation.report.plan_review_terminal import review_page
from ablation.report.terminal import Page, plain_console
from tests.plan.conftest import OWN_TABLE, RIGGED_TABLE, TEXT, with_table, write_plan

PLANS = Path(__file__).parents[2] / "plans"
GOLDEN = Path(__file__).parent / "golden" / "plan_review.txt"
NOTHING_PROVED = {"proofs": [], "journal": None, "deviations": [], "refused": None}
NOT_LOCKED = {"state": "not locked", "detail": None}
SIGNED = {"kind": "signature", "state": "proven", "says": "ann signed this lock", "limits": "when it was signed"}


def content(path: Path, lock=None, **proved) -> dict:
    loaded = load_plan(path)
    return review(loaded, plan_summary(loaded, lock or NOT_LOCKED), short_power(loaded), NOTHING_PROVED | proved)


def text_page(found: dict, width: int = 80) -> str:
    out = io.StringIO()
    plain_console(file=out, width=width, color_system=None).print(Page(review_page(found)), end="")
    return out.getvalue()


class Tags(HTMLParser):
    """Every tag with its attributes, the text, and whether tags that open also close in order."""

    VOID = ("meta", "br", "rect")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data


@pytest.fixture(scope="module")
def tessera():
    return content(PLANS / "tessera.yaml")


def test_an_arm_of_the_library_says_so_in_both_forms(tmp_path):
    text = TEXT.replace("N: {weighting: rollout}", "N: {library: GRPO, kl: null}")
    found = content(write_plan(tmp_path, text))
    for page in (text_page(found), Tags(review_html(found)).text):
        words = " ".join(page.split())
        assert "It is the library's GRPO, with its own kl." in words
        assert "c × A_i × s0 / L_i" in words and "clip.high" in words
        assert "c: 0 for a token that the clip leaves without gradient" in words


def test_golden_page(tmp_path, monkeypatch):
    """Kept in golden/plan_review.txt; read every change to it before you keep it."""
    write_plan(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = content(Path("small.yaml"))
    page = text_page(found).replace(found["digest"], "0" * 64)  # it changes with the plan language
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(page)
    assert page == GOLDEN.read_text()
    assert max(map(len, page.splitlines())) <= 80
    assert not re.search(r" $", page, flags=re.M)


@pytest.mark.parametrize("shown", ["terminal", "html"])
def test_a_first_time_reader_learns_what_makes_the_label(tessera, shown):
    page = text_page(tessera) if shown == "terminal" else Tags(review_html(tessera)).text
    page = " ".join(page.split())
    for part in (
        "REPLICATED comes out only if all four of these happen",
        "C is damaged in family main",
        "At least one other arm is stable in main. The first one in plan order is carried on: N, X, XP, XK",
        "C is damaged again in family replication, which has new seeds",
        "The arm that was carried on is stable again in replication",
        "ost 21 or more clean rollouts",
        "21 of 348 = 6.0%",
        "−21 is enough, −20 is not",
        "ained 20 or more truncated or looping rollouts",
        "20 of 348 = 5.7%",
        "ained 12 or more looping rollouts",
        "12 of 348 = 3.4%",
        "fell by 0.15 or more nats",
        "CONTROL_NOT_DAMAGED",
        "NO_STABLE_ARM",
        "NOT_STABLE_AGAIN",
        "STOPPED",
        "does not ask the stable arm to be better",
    ):
        assert part in page


@pytest.mark.parametrize("shown", ["terminal", "html"])
def test_every_rule_and_its_number_is_shown(tessera, shown):
    page = text_page(tessera, 120) if shown == "terminal" else Tags(review_html(tessera)).text
    verdict = load_plan(PLANS / "tessera.yaml").plan.verdict
    rules = [
        *verdict.damage,
        *verdict.held_out.rules,
        *verdict.never_used.rules,
        *verdict.release.main.rules,
        *verdict.release.guards,
    ]
    assert len(rules) == 27
    for rule in [*rules, *load_plan(PLANS / "tessera.yaml").plan.stop_rules]:
        assert rule.name in page
        assert f"{abs(rule.limit):g}" in page
    for part in ("8 of 144 = 5.6%", "54 of 144 = 37.5%", "103 of 144 = 71.5%", "10 of 12 = 83.3%", "54 is enough, 55 is not"):
        assert part in page


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("clean_lost", "21 of 348 = 6.0%"),
        ("logprob_lost", "a token 14% less probable (geometric mean)"),  # exp(-0.15) = 0.861
        ("mostly_unfinished", "44 of an update's 72 or 40 of an update's 66"),  # 0.6 x 72 = 43.2, 0.6 x 66 = 39.6
        ("fewer_tokens", "5% below the reference"),
        ("agent_turn", "25% above the reference"),
        ("not_finite", ""),
    ],
)
def test_a_limit_in_a_second_unit(name, share):
    plan = load_plan(PLANS / "tessera.yaml").plan
    rules = [*plan.verdict.damage, *plan.stop_rules, *plan.verdict.never_used.rules, *plan.verdict.release.guards]
    assert share_of_rollouts(next(rule for rule in rules if rule.name == name), plan, 348) == share


def test_a_share_that_a_whole_number_meets_exactly(tmp_path):
    rule = '{name: half, measure: truncated_or_looping_share, op: ">", limit: 0.5}'
    text = TEXT.replace("stop_rules:\n", f"stop_rules:\n  - {rule}\n")
    plan = load_plan(write_plan(tmp_path, text)).plan
    assert share_of_rollouts(plan.stop_rules[0], plan, None) == "37 of an update's 72 or 34 of an update's 66"


def test_arms_only_the_differences_are_marked(tessera):
    page = review_html(tessera)
    marked = re.findall(r"<mark>(.*?)</mark>", page)
    assert marked == ["rollout"] * 4 + ["apart"] * 3 + ["0.1", "0.05"]
    assert {row["name"]: row["formula"] for row in tessera["arms"]["rows"]}["C"] == "A_i × s0 / Lbar_g"


def test_the_page_needs_nothing_else_and_runs_nothing(tessera):
    page = review_html(tessera)
    found = Tags(page)
    assert page.startswith("<!doctype html>")
    assert {tag for tag, _ in found.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "form", "base"})
    for _, attributes in found.tags:
        assert not {name for name in attributes if name in ("src", "href", "style", "srcset") or name.startswith("on")}
    style = re.search(r"<style>(.*?)</style>", page, flags=re.S)[1]
    assert not re.search(r"url\(|@import|https?:|expression", style)
    assert "http:" not in page
    assert "https:" not in page
    policy = next(
        attributes["content"] for _, attributes in found.tags if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in policy
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style


HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(2)>\" ' & {{ 7 * 7 }}"


def test_foreign_text_is_shown_and_not_obeyed(tmp_path):
    note = HOSTILE.replace('"', '\\"')
    text = TEXT.replace("N: {weighting: rollout}", f'N: {{weighting: rollout, note: "{note}"}}')
    text = text.replace("question: Does it work?", f'question: "{note}"')
    deviation = {
        "number": 1,
        "reason": f"\x1b]0;x\x07{HOSTILE}",
        "time": "t\u202e",
        "by": HOSTILE,
        "seen": "nothing",
        "opens": [],
    }
    found = content(write_plan(tmp_path, text), refused=HOSTILE, deviations=[deviation], proofs=[SIGNED | {"says": HOSTILE}])
    page = review_html(found)
    parsed = Tags(page)
    assert {tag for tag, _ in parsed.tags}.isdisjoint({"script", "img"})
    assert parsed.text.count(HOSTILE) == 6
    assert "49" not in parsed.text.split(HOSTILE)[1][:40]
    for shown in (page, text_page(found)):
        assert not any(mark in shown for mark in "\x1b\x07\u202e")


BEFORE, FIRST, WHO = "That it was made before the training", "That it is the first lock", "Who made it"


@pytest.mark.parametrize(
    ("kinds", "doubts"),
    [
        ([], {BEFORE, FIRST, WHO}),
        (["git"], {BEFORE, FIRST, WHO}),  # a commit's date can be set at will
        (["signature"], {BEFORE, FIRST}),
        (["git", "tag"], {BEFORE, FIRST}),
        (["timestamp"], {WHO}),
        (["signature", "timestamp"], set()),
    ],
)
def test_what_the_lock_does_not_prove_depends_on_the_proofs(tmp_path, kinds, doubts):
    proofs = [SIGNED | {"kind": kind} for kind in kinds] + [SIGNED | {"kind": "timestamp", "state": "owed"}]
    found = content(write_plan(tmp_path), {"state": "locked", "detail": "now by ann"}, proofs=proofs)["not_proven"]
    assert {doubt for doubt in (BEFORE, FIRST, WHO) if any(line.startswith(doubt) for line in found)} == doubts
    assert len(found) == len(doubts) + 3
    assert any("commit's or tag's date" in line for line in found) is (BEFORE in doubts and "git" in kinds)


def test_a_plan_with_the_control_alone_can_never_replicate(tmp_path):
    text = re.sub(r"  N: .*\n  XK: .*\n", "", TEXT)
    page = " ".join(text_page(content(write_plan(tmp_path, text))).split())
    assert "The plan has no other arm, so this cannot happen." in page


def test_many_updates_are_one_box(tmp_path):
    found = content(write_plan(tmp_path, TEXT.replace("updates: 5", "updates: 29")))
    stages = found["schedule"]["families"][0]["runs"][1]["stages"]
    assert [(one["what"], one["rollouts"]) for one in stages] == [("updates 1 to 29", 348), ("readout", 348)]
    assert "updates 1 to 29 348 > readout 348" in text_page(found)


def test_an_extension_is_in_both_pages_with_its_own_rules(tmp_path):
    own = "[{name: few_looping, measure: looping, compare: value, op: '>', limit: 9}]"
    found = content(write_plan(tmp_path, TEXT + f"extension: {{updates: 15, checks: [8, 15], damage: {own}}}\n"))
    for page in (" ".join(text_page(found).split()), " ".join(Tags(review_html(found)).text.split())):
        for part in (
            "Extension (phase 2): more updates, only after REPLICATED",
            "after updates 8 and 15: 348 rollouts against the family's sweep",
            "Checks of the extension: the run pauses if any of these holds",
            "looping rollouts above 9",
            "10 is enough, 9 is not",
            "damage rules once, at the readout, and at 2 checks of the extension",
        ):
            assert part in page or part.replace("damage", "Damage") in page, part
    assert "Extension" not in text_page(content(write_plan(tmp_path)))


def words_of(found: dict, shown: str) -> str:
    return " ".join((text_page(found) if shown == "terminal" else Tags(review_html(found)).text).split())


@pytest.mark.parametrize("shown", ["terminal", "html"])
def test_a_table_of_the_plan_s_own_is_what_makes_the_label(tmp_path, shown):
    words = words_of(content(write_plan(tmp_path, with_table(OWN_TABLE))), shown)
    for part in (
        "If all four of these happen, no reason against it is found, and the label is REPLICATED:",
        "The plan's own table gives the label, by its first row that is true.",
        "INCONCLUSIVE if CONTROL_NOT_DAMAGED was found",
        "NOT_REPLICATED if NO_STABLE_ARM was found or NOT_STABLE_AGAIN was found or STOPPED was found",
        "REPLICATED if no row before it is true",
        "there is no damage to prevent. The label is then INCONCLUSIVE.",
        "The arm that was carried on is damaged in replication. Found alone, it makes the label NOT_REPLICATED; "
        "beside other reasons the label can be INCONCLUSIVE.",
    ):
        assert part in words
    assert "Otherwise the label is" not in words and "neither of the two" not in words and "refuse it" not in words


@pytest.mark.parametrize("shown", ["terminal", "html"])
def test_a_rigged_table_is_shown_as_one(tmp_path, shown):
    words = words_of(content(write_plan(tmp_path, with_table(RIGGED_TABLE))), shown)
    assert "REPLICATED always, whatever is found" in words
    assert "This table can say REPLICATED where nothing was replicated: `plan check` and `plan lock` refuse it." in words
    assert words.count("The label is then REPLICATED.") == 4
    assert "comes out only if" not in words and "If there were no difference at all, REPLICATED would come out, by luck" in words


@pytest.mark.parametrize("shown", ["terminal", "html"])
def test_reasons_are_not_under_a_label(tmp_path, shown):
    found = content(write_plan(tmp_path, with_table(OWN_TABLE)))
    assert [row["name"] for row in found["luck"]["labels"]] == ["REPLICATED", "INCONCLUSIVE", "NOT_REPLICATED"]
    words = words_of(found, shown)
    heading = "How often each label comes out" if shown == "html" else "label comes out in"
    labels, reasons = words.index(heading), words.index("can have several)")
    assert labels < reasons < words.index("C is not damaged in main", reasons)


@pytest.mark.parametrize("shown", ["terminal", "html"])
def test_a_deviation_says_what_it_opens(tmp_path, shown):
    one = {"number": 1, "reason": "X goes on", "time": "t", "by": "ann", "seen": "results", "opens": ["held-out", "release"]}
    found = content(write_plan(tmp_path), deviations=[one, one | {"number": 2, "opens": []}])
    words = words_of(found, shown)
    assert "results seen; opens held-out, release" in words and "results seen; opens nothing" in words
