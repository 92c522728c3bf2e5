"""The page: it closes its tags, loads nothing, runs nothing, and foreign text is text in it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from ablation.report.post import document as model
from ablation.report.post.build import document
from ablation.report.post.draw import Drawer
from ablation.report.post.html import html
from ablation.report.post.pretty import pretty
from tests.audit.build import make_run
from tests.report.post.made import Page, report_of, study_of
from tests.verdict.study import lock_small, start_run, write_study

HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(2)> </style></svg> javascript:alert(3) "
    '{{ 7*7 }} &lt;b&gt; " onmouseover="alert(4) \' \x1b[31m \u202egnp.exe'
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A made-up run with updates, drawn."""
    made = make_run(tmp_path_factory.mktemp("drawn"))
    with Drawer() as drawer:
        found = document(study_of(made.run.root, made.locked), made.locked, drawer)
    return found, html(found)


def parsed(text: str) -> Page:
    page = Page()
    page.feed(text)
    assert page.open == []
    return page


def test_the_page_loads_nothing_and_runs_nothing(drawn):
    _, text = drawn
    page = parsed(text)
    allowed = {"href": re.compile(r"#[a-z0-9-]+")}
    for tag, attributes in page.tags:
        assert tag not in (
            "script",
            "link",
            "iframe",
            "object",
            "img",
            "form",
            "base",
            "use",
            "image",
            "foreignobject",
            "animate",
        )
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("style", "src", "srcset", "xlink:href", "action", "background")
            if name == "href":
                assert allowed["href"].fullmatch(value or ""), value
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)
    meta = [one for tag, one in page.tags if tag == "meta" and one.get("http-equiv") == "Content-Security-Policy"]
    css = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert [one["content"] for one in meta] == [
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    ]


def test_ids_are_unique_links_lead_somewhere_and_headings_do_not_skip(drawn):
    _, text = drawn
    page = parsed(text)
    ids = Counter(one["id"] for _, one in page.tags if "id" in one)
    assert set(ids.values()) == {1}
    assert {one["href"][1:] for tag, one in page.tags if tag == "a"} <= set(ids)
    named = [one for _, attributes in page.tags for one in (attributes.get("aria-labelledby") or "").split()]
    assert named and set(named) <= set(ids)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_figures_are_drawn_inside_and_have_a_text_and_a_table(drawn):
    found, text = drawn
    keys = [one.key for one in found.figures()]
    assert keys == ["flow", "drift", "weights-updates"]
    assert text.count("<svg ") == text.count('role="img"') == len(keys)
    for one in found.figures():
        assert f'<title id="figure-{one.key}-title">' in text and one.data.rows and one.alternative
        assert one.png[:8] == b"\x89PNG\r\n\x1a\n" and one.svg.startswith("<svg")
    inside = re.search(r'id="figure-drift".*?</svg>', text, re.DOTALL)[0]
    assert "var(--series-0)" in inside and 'fill="white"' not in inside and "#0067a5" not in inside


def test_every_table_has_a_caption_and_heads(drawn):
    found, text = drawn
    page = parsed(text)
    tags = Counter(tag for tag, _ in page.tags)
    assert tags["caption"] == len(found.tables()) + len(found.figures())
    assert all(one.get("scope") in ("col", "row") for tag, one in page.tags if tag == "th")
    for table in found.tables():
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_foreign_text_stays_text(tmp_path):
    locked = lock_small(tmp_path / "plans", question=HOSTILE.replace("\x1b", "").replace("\u202e", ""))
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked)
    found = report_of(run.root, locked)
    found = replace(
        found,
        title=HOSTILE,
        label=model.Label(HOSTILE, "bad"),
        opening=[
            model.text(HOSTILE, model.Code(HOSTILE), model.Strong(HOSTILE), model.Label(HOSTILE, "bad")),
            model.Command(HOSTILE),
            model.Items(((HOSTILE,),)),
            model.Facts(((HOSTILE, (HOSTILE,)),)),
            model.Table(
                "hostile",
                HOSTILE,
                (model.Column(HOSTILE),),
                ((model.Cell(HOSTILE, model.Trace((HOSTILE,), HOSTILE, HOSTILE)),),),
                (HOSTILE,),
            ),
            model.Figure("h", HOSTILE, HOSTILE, model.Table("d", HOSTILE, (model.Column(HOSTILE),), ()), "<svg></svg>", b""),
        ],
    )
    plain = parsed(html(report_of(run.root, locked)))
    page = parsed(html(found))
    names = {tag for tag, _ in page.tags}
    assert names - {tag for tag, _ in plain.tags} <= {"svg", "desc", "pre", "ul", "li", "code", "b", "strong", "div"}
    assert not names & {"script", "img"}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    text = "".join(page.text)
    assert text.count("<script>alert(1)</script>") >= 12 and "{{ 7*7 }}" in text
    assert "\x1b" not in text and "\u202e" not in text


@pytest.mark.parametrize(
    ("written", "set_"),
    [
        ("0.74x (0.69-0.79)", "0.74× (0.69–0.79)"),
        ("-7", "−7"),
        ("<= -21", "≤ −21"),
        ("+0.0031 (-0.0010 to +0.0070)", "+0.0031 (−0.0010 to +0.0070)"),
        ("-17 to -2", "−17 to −2"),
        ("-", "–"),
        ("5 of 5", "5 of 5"),
    ],
)
def test_numbers_are_set_as_numbers(written, set_):
    assert pretty(written) == set_
