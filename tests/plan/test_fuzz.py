"""Mutated plans: the answer is a plan or an expected error, never a traceback, and never a silently changed value."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.errors import AblationError
from ablation.plan.canonical import canonical_tree
from ablation.plan.load import parse_plan
from ablation.plan.resolved import resolved_yaml
from tests.plan.conftest import TEXT

STUDY = (Path(__file__).parents[2] / "plans" / "tessera.yaml").read_text()
TOKENS = [
    *("1e-5", "-1", "0", ".nan", ".inf", "1e999", "null", "~", "", "no", "true", "'1'", '"x"', "TODO", "[]", "{}", "[[1]]"),
    *("{{ x }}", "&a x", "*a", "!!int 1", "<<: *a", "\t", "---", "...", "# c", "|", ">-", "x: y", "? ", "- ", "%YAML 1.1", "@"),
    *(
        "0x10",
        "0o7",
        "1_0",
        "99999999999999999999999999",
        "\u2028",
        "\x00",
        "\ud83d",
        "思",
        "é",
        "\r",
        "\r\n",
        "low",
        "C",
        "clean",
    ),
]


@st.composite
def mutated(draw) -> bytes:
    lines = draw(st.sampled_from([TEXT, STUDY])).split("\n")
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["delete", "repeat", "swap", "value", "key", "insert", "cut", "byte"]))
        line = lines[index]
        if kind == "delete":
            lines[index : index + 1] = [] if len(lines) > 1 else [line]
        elif kind == "repeat":
            lines.insert(index, line)
        elif kind == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[index], lines[other] = lines[other], lines[index]
        elif kind == "value":
            lines[index] = line.split(": ", 1)[0] + ": " + draw(st.sampled_from(TOKENS))
        elif kind == "key":
            lines[index] = line.replace(line.strip().split(":")[0] or "x", draw(st.sampled_from(TOKENS)), 1)
        elif kind == "cut":
            lines[index] = line[: draw(st.integers(0, len(line)))]
        else:
            at = draw(st.integers(0, len(line)))
            new = draw(st.sampled_from(TOKENS)) if kind == "insert" else draw(st.characters(max_codepoint=0x2FFF))
            lines[index] = line[:at] + new + line[at:]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


@pytest.mark.slow
@given(mutated())
@settings(max_examples=2000, deadline=None)
def test_a_mutated_plan_is_read_or_refused(data):
    try:
        loaded = parse_plan(Path("x.yaml"), data)
    except AblationError as error:
        assert error.exit_code == 2
        assert error.lines()
        assert all(line.startswith("x.yaml:") for line in error.lines())
        return
    again = parse_plan(Path("x.yaml"), resolved_yaml(loaded.plan).encode())
    assert again.digest == loaded.digest
    assert canonical_tree(again.plan) == canonical_tree(loaded.plan)
