"""A command of a report stands in a block of code, whatever the run folder is called."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ablation.report.post import markdown
from ablation.report.post.document import Command


@given(st.text("`~\n x", max_size=30))
def test_a_command_ends_where_it_should(text):
    """As a run folder's name can hold a line end and backquotes: nothing of it is outside the block."""
    first, *inner, last, end = markdown._block(Command(text), {})
    fence = re.fullmatch(r"(`{3,})sh", first)[1]
    assert last == fence and end == ""
    assert not any(re.match(rf" {{0,3}}{fence}`*\s*$", line) for line in inner)
    assert not any("\n" in line for line in inner)
