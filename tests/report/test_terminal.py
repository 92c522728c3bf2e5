from __future__ import annotations

import io

import pytest
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ablation.report.terminal import Page, clean, plain_console, print_page

HOSTILE = "a\x1b[31mred\x1b]8;;http://x\x07link\x9b2Jb\u202ec\u2066d"


def printed(content, **options) -> str:
    out = io.StringIO()
    plain_console(file=out, width=40, **options).print(Page(content), end="")
    return out.getvalue()


def test_no_line_ends_in_blanks():
    table = Table("name", "number", box=None)
    table.add_row("x", "1")
    page = printed(Padding(table, (1, 0, 1, 2)))
    assert [line.strip() for line in page.splitlines()] == ["", "name  number", "x     1", ""]
    assert all(line == line.rstrip() for line in page.splitlines())


def test_colours_are_kept_and_blanks_before_their_end_are_not():
    page = printed(Text("late   ", style="bold red"), force_terminal=True, color_system="standard")
    assert page == "\x1b[1;31mlate\x1b[0m\n"


def test_nothing_in_foreign_text_reaches_the_terminal():
    page = printed(Text(HOSTILE))
    assert not any(ord(mark) < 0x20 or 0x7F <= ord(mark) < 0xA0 for mark in page.replace("\n", ""))
    assert "\u202e" not in page
    assert "\u2066" not in page
    assert printed(Text("\u200bhid\u2028den a\u200db")) == "�hid�den a�b\n"
    assert "red" in page


def test_clean_goes_into_lists_and_mappings():
    assert clean({"a\x00": ["b\x1b", ("c\u200e", 1, None, 2.5, True)]}) == {"a�": ["b�", ["c�", 1, None, 2.5, True]]}
    assert clean("می\u200cخواهم 👩\u200d🔬") == "می\u200cخواهم 👩\u200d🔬"  # joiners that are written, not hidden
    assert clean("tab\tand\nline, 汉字, é, −") == "tab\tand\nline, 汉字, é, −"


@pytest.mark.parametrize("no_color", [True, False])
def test_no_color_is_respected(monkeypatch, capsys, no_color):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    print_page(Text("x", style="red"))
    assert ("31m" in capsys.readouterr().out) is not no_color
