"""Markdown and LaTeX: golden files of a small run, and foreign text that can become nothing in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.report.post import latex, markdown
from ablation.report.post.document import Cell, Column, Document, Label, Table, Trace
from ablation.report.post.markdown import code
from tests.report.post.made import report_of
from tests.verdict.study import lock_small, start_run, write_study

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    locked = lock_small(folder / "plans")
    run = start_run(folder / "runs" / "small", locked)
    write_study(run, locked, {("main", "C"), ("replication", "C")})
    return report_of(run.root, locked)


def check(name: str, text: str) -> None:
    """As in a golden file, but for digests, times and who locked it. `UPDATE_GOLDEN=1` writes it anew."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "0" * 64, text)
    text = re.sub(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+\+00:00( by .*?, by the clock)?", "TIME", text)
    text = re.sub(r"TIME to TIME: .*? s, pauses", "TIME to TIME: 1 s, pauses", text)
    text = re.sub(r"wall\\?_seconds`?: .*", "", text)
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_markdown_of_a_small_run(small):
    check("report.md", markdown.markdown(small))


def test_the_latex_tables_of_a_small_run(small):
    found = latex.latex_files(small)
    assert list(found) == ["runs.tex", "readouts-main.tex", "readouts-replication.tex", "damage.tex", "labels.tex", "all.tex"]
    check("report.tex", "\n".join(found.values()))


TEX = shutil.which("pdflatex") or shutil.which("tectonic")
needs_tex = pytest.mark.skipif(TEX is None, reason="no TeX here (pdflatex, or tectonic)")
CHARACTERS = "% & _ # $ { } ~ ^ \\ < > | \" ` ' \\input{x} $$ ^^5c -- [3pt] * ± × − ≤ ≥ – … \u00a0 中文字 한국 ру ελ \U0001f600 \x00 \x1b \u202e"
LETTERS = "".join(letter for code in range(0xA0, 0x250) if (letter := chr(code)).isalpha())


def compiled(document: Document, folder: Path) -> str:
    """The log of TeX. The log says of each box that is wider than the text by how much."""
    for name, content in latex.latex_files(document).items():
        (folder / name).write_text(content)
    options = ["-interaction=nonstopmode", "-halt-on-error"] if TEX and TEX.endswith("pdflatex") else ["--keep-logs"]
    done = subprocess.run(
        [str(TEX), *options, "all.tex"], cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (folder / "all.pdf").stat().st_size > 1000
    return (folder / "all.log").read_text(errors="replace")


def too_wide(log: str) -> list[float]:
    """Points by which tables are wider than the text."""
    return [float(one) for one in re.findall(r"Overfull \\hbox \(([0-9.]+)pt too wide\) in paragraph", log)]


@needs_tex
def test_the_tables_compile(small, tmp_path):
    assert too_wide(compiled(small, tmp_path)) == []


@needs_tex
def test_tables_of_hostile_texts_compile(tmp_path):
    cells = tuple(Cell(text, Trace((text,), text, text, text)) for text in (CHARACTERS, LETTERS, "[3cm]"))
    columns = tuple(Column(title) for title in (CHARACTERS, LETTERS[:40], "c"))
    hostile = Table("hostile", CHARACTERS, columns, (cells, cells[::-1]), (CHARACTERS, "* a note"), (1,))
    compiled(Document("", CHARACTERS, CHARACTERS + LETTERS, Label(CHARACTERS, "bad"), (hostile,), (), "0" * 64), tmp_path)


@needs_tex
def test_a_wide_table_is_shrunk_to_the_page(tmp_path):
    """Six columns of 40 letters are some 240 letters wide; a line of the page holds about 90."""
    cells = tuple(Cell("m" * 40) for _ in range(6))
    wide = Table("wide", "Wide.", tuple(Column("c") for _ in cells), (cells,))
    document = Document("", "t", "q", Label("STABLE", "good"), (wide,), (), "0" * 64)
    assert too_wide(compiled(document, tmp_path)) == []


def test_a_table_is_shrunk_only_where_it_is_too_wide():
    narrow = latex.latex_table(Table("t", "", (Column("a"),), ((Cell("1"),),)))
    assert r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" in narrow
    assert r"\usepackage{booktabs,graphicx}" in latex.latex_files(Document("", "", "", Label("", ""), (), (), ""))["all.tex"]


def balanced(text: str) -> bool:
    """Whether every brace and environment closes, escapes and comments aside."""
    bare = re.sub(r"\\[\\{}%&#_$]", "", re.sub(r"(?m)^%.*$", "", text))
    depth = 0
    for one in bare:
        depth += {"{": 1, "}": -1}.get(one, 0)
        if depth < 0:
            return False
    return depth == 0 and re.findall(r"\\begin\{(\w+)\}", bare) == re.findall(r"\\end\{(\w+)\}", bare)[::-1]


def test_braces_and_environments_close(small):
    assert all(balanced(text) for text in latex.latex_files(small).values())


HOSTILE = st.text(
    alphabet=st.characters(codec="utf-8") | st.sampled_from("\\{}$&#^_~%<>|`*[]()!-+.@:/\n\t\x1b\u202e中é"), max_size=60
)


@given(HOSTILE)
def test_no_text_can_be_a_command_of_tex(text):
    """Only the macros of the escaping itself stand in what comes out, and nothing that TeX would act on."""
    found = latex.escaped(text)
    rest = re.sub(
        r"\\(textbackslash|textasciicircum|textasciitilde|textless|textgreater|textbar|textquotedbl|ldots)\{\}", "", found
    )
    rest = re.sub(r"\\textasciigrave\{\}|\\[{}$&#%_]|\$(\\pm|\\times|\\leq|\\geq|-)\$", "", rest)
    assert not re.search(r"[\\{}$&#%_^]|(?<!\w)~(?=\s*~{2})", rest.replace("~", "") if "\u00a0" in text else rest)
    assert "\n" not in found and all(one.isascii() or one.isalpha() for one in found)


@given(HOSTILE)
def test_a_hostile_cell_stays_in_its_row_and_its_comment(text):
    cell = Cell(text, Trace((text,), text, text, text))
    table = Table("t", text, (Column(text), Column("b")), ((cell, Cell(text)),), (text,))
    found = latex.latex_table(table)
    assert balanced(found)
    rows = re.findall(r"(?m)^(.*)\\\\$", found)
    assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [1, 1]
    after = found.split(r"\end{table}")[1].strip().splitlines()
    assert all(line.startswith("% ") for line in after)


@pytest.mark.parametrize("text", ["[3cm]", "\U0001f600 first", "*", " [x"])
def test_a_cell_or_a_note_is_no_argument_of_the_line_break_before_it(text):
    table = Table("t", "", (Column(text), Column("b")), ((Cell(text), Cell("1")), (Cell(text), Cell("2"))), ("one", text))
    found = latex.latex_table(table)
    assert not re.search(r"(\\\\|\\(top|mid|bottom)rule|\\addlinespace)\s*[\[*]", found)
    assert balanced(found)


@given(HOSTILE)
def test_no_text_can_be_markdown_html_or_a_link(text):
    found = markdown.escaped(text)
    assert "\n" not in found and not re.search(r"[<>]", found)
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]|~$]", found)
    assert not re.search(r"://|\bwww\.|@", found, re.IGNORECASE)
    assert not re.match(r"\s*([-+]\s|#|\d+[.)]\s|>)", found)
    assert not re.search(r"&(?!(amp|lt|gt|#64|#58|#46);)", found)


@given(HOSTILE)
def test_a_code_span_ends_where_it_should(text):
    found = code(text)
    fence = re.match(r"`+", found)[0]
    inner = found[len(fence) : -len(fence)]
    assert found.endswith(fence) and "\n" not in found
    assert fence not in re.findall(r"`+", inner)


def test_a_markdown_table_keeps_its_columns(small):
    for block in markdown.markdown(small).split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 1
