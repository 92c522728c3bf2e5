from __future__ import annotations

import pytest

from ablation.cli.pointer import value_at
from ablation.errors import UsageError

CONTENT = {"arms": [{"name": "C", "rules": []}, {"name": "N"}], "audits": {"main/C": {"a~b": 1}}, "empty": None, "": 2}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("", CONTENT),
        ("/arms/1/name", "N"),
        ("/audits/main~1C/a~0b", 1),
        ("/empty", None),
        ("/", 2),  # the member whose name is empty (RFC 6901, section 5)
    ],
)
def test_a_place_is_found(place, value):
    assert value_at(CONTENT, place) == value


@pytest.mark.parametrize(
    ("place", "message", "hint"),
    [
        ("arms", "a place begins with `/`, as /arms does", None),
        ("/arm", "there is no `arm`; did you mean `arms`?", "There are: arms, audits, empty, ."),
        ("/arms/2", "there is no `2`", "There is a list of 2, counted from 0."),
        ("/arms/-1", "there is no `-1`", "There is a list of 2, counted from 0."),
        ("/arms/0/name/x", "there is no `x`", "There is nothing below it."),
        ("/audits/main/C", "there is no `main`", "There are: main/C."),
    ],
)
def test_a_place_that_is_not_there_is_named(place, message, hint):
    with pytest.raises(UsageError) as error:
        value_at(CONTENT, place)
    assert message in error.value.message
    assert error.value.hint == hint
