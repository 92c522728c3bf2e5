"""The page of one rollout: what of its thinking is marked as repeated, and what the marks are said to mean."""

from __future__ import annotations

import json
import re
import time

import pytest
from starlette.testclient import TestClient

from ablation.files import sha256_path
from ablation.problems import template, tokenizer
from ablation.problems.workers import Limits
from ablation.view.app import create_app
from ablation.view.library import Library
from tests.verdict import study
from tests.view import made

STRONG = (list(range(30, 51)) * 3)[:61]
"""A block of 21 tokens, 2.9 times, which is no periodic loop. It has 54 windows of 8 tokens; those from place 21 on occurred before."""
KEY = "family=main&arm=C&stage=readout&problem=p2&effort=medium&index=1"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    root = tmp_path_factory.mktemp("rollout")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABLATION_CACHE", str(root / "cache"))
        patch.setitem(made.LOOPS, "C", {("p2", "medium", 1): STRONG, ("p1", "low", 0): 6})
        made.make(root)
        yield TestClient(create_app(Library(root / "runs")), base_url="http://127.0.0.1:8412")


def wait(browser, address):
    for _ in range(200):
        page = browser.get(address).text
        if "data-reload" not in page and "still being read" not in page:
            return page
    raise AssertionError("never read")


def test_the_windows_of_a_strong_loop_are_marked_and_explained(browser):
    wait(browser, "/study/small/rollouts")
    page = wait(browser, f"/study/small/rollout?{KEY}")
    thinking = page[page.index("<summary>Thinking") : page.index("Answer")]
    marks = re.findall(r'<i class="l\d( [rs])?"', thinking)
    assert len(marks) == len(STRONG)
    assert [at for at, mark in enumerate(marks) if mark == " s"] == list(range(21, 61))
    assert " r" not in marks
    said = "at least 60% of the windows of 8 tokens occurred before in the same thinking, which has 32 of them or more"
    assert f'<span class="tag loop" title="{said}">strong loop</span>' in page
    assert "61.1% of windows of 8 tokens occurred before (60% or more are a strong loop)" in page  # 33 of 54
    assert '<i class="s">occurred before (strong loop)</i>' in page and '<i class="r">' not in page
    assert "Looping is periodic: one block of tokens at least 3 times in a row" in page


def test_the_list_says_which_kind_of_loop_and_what_it_means(browser):
    page = wait(browser, "/study/small/rollouts?arm=C&family=main&looping=yes")
    marks = re.findall(r'<span class="tag loop" title="([^"]*)">([^<]*)</span>', page)
    assert sorted(marks) == [
        ("61.1% of windows occurred before.", "strong loop 61.1%"),
        ("A periodic loop of 36 tokens.", "loop 36"),
    ]
    assert "strong: at least 60% of the windows of 8 tokens occurred before" in page


def test_a_periodic_loop_keeps_its_own_mark(browser):
    page = wait(browser, f"/study/small/rollout?{KEY.replace('p2', 'p1').replace('medium', 'low').replace('index=1', 'index=0')}")
    thinking = page[page.index("<summary>Thinking") : page.index("Answer")]
    marks = re.findall(r'<i class="l\d( [rs])?"', thinking)
    assert marks == [" r"] * 36  # 6 times a unit of 6, and nothing else
    assert '<i class="r">periodic loop</i>' in page


TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
WITHOUT_END = (
    TEMPLATE
    + "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
)


def with_base(root, template):
    """(a browser of a run whose base model lies in the plan's folder, that model)."""
    base = root / "plans" / "model"
    base.mkdir(parents=True)
    (base / "chat_template.jinja").write_text(template)
    words = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {f"w{at}": at for at in range(200)}, "unk_token": "w0"}}
    (base / "tokenizer.json").write_text(json.dumps(words))
    model = study.plan_dict()["model"] | {"base": {"at": "model", "sha256": sha256_path(base)}}
    locked = study.lock_small(root / "plans", model=model)
    study.write_study(study.start_run(root / "runs" / "small", locked), locked)
    return TestClient(create_app(Library(root / "runs")), base_url="http://127.0.0.1:8412"), base


PAGE = "/study/small/rollout?family=main&arm=C&stage=readout&problem=p2&effort=medium&index=1"


def test_a_template_without_end_holds_up_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tokenizer, "LIMITS", Limits(seconds=2, memory=2 << 30))
    monkeypatch.setattr(template, "LIMITS", Limits(seconds=2, memory=2 << 30))
    browser, _ = with_base(tmp_path, WITHOUT_END)
    began = time.monotonic()
    wait(browser, "/study/small/rollouts")
    for _ in range(2):
        page = wait(browser, PAGE)
        assert ">2?<" in re.sub(r"\s+", "", page)  # the problem's own text
    assert time.monotonic() - began < 60


def test_a_base_that_is_not_the_plans_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    browser, base = with_base(tmp_path, TEMPLATE)
    wait(browser, "/study/small/rollouts")
    assert "The tokenizer on this machine does not give the text that was stored" in wait(browser, PAGE)
    (base / "chat_template.jinja").write_text("owned")
    page = wait(browser, PAGE)
    assert "The base model on this machine is not the plan&#39;s (its digest differs)" in page and "owned" not in page
