"""Foreign text on its way to a terminal, a page or a file."""

from __future__ import annotations

import json

import pytest

from ablation.report.safe import clean


@pytest.mark.parametrize("half", ["\ud800", "\udbff", "\udc00", "\udfff"])
def test_half_a_surrogate_pair_can_be_written(half):
    text = json.loads(f'"a\\u{ord(half):04x}b"')
    assert clean(text) == "a\ufffdb"
    assert clean([{text: text}]) == [{"a\ufffdb": "a\ufffdb"}]


def test_what_can_be_shown_stays_as_it_is():
    text = "tab\tline\n\u00e9 \u4e2d \U0001f600 \ud7ff \ue000"
    assert clean(text) == text


@pytest.mark.parametrize("sign", ["\x1b", "\x9b", "\x00", "\r", "\x7f", "\u202e", "\u2066"])
def test_what_a_terminal_or_an_eye_would_obey_is_a_mark(sign):
    assert clean(f"a{sign}b") == "a\ufffdb"
