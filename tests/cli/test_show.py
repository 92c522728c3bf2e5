"""`ablation show` on the SmolLM2 record, as a user types it."""

import json
import os
import pty
import re
import subprocess

import pytest

from tests.rollouts.test_address import RECORD
from tests.study.mini import ROOT, ablation, command, environment

RUN = ("--run", str(RECORD))
CUT = "main/N/readout/leg_counting-4@medium#2"


def test_one_rollout():
    shown = ablation(ROOT, "show", CUT, *RUN)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0] == CUT
    assert lines[2] == "ended    cut at the cap"
    assert "160: 160 thinking" in lines[3]
    assert any("⟦" in line for line in lines) and any("⟧" in line for line in lines)
    assert max(map(len, lines)) <= 80
    data = json.loads(ablation(ROOT, "show", CUT, *RUN, "--json").stdout)
    assert data["rollout"] == CUT and data["total_tokens"] == 160 and data["looping"] is True
    begin, end = data["loop"]["characters"]
    assert 0 <= begin < end <= len(data["thinking"]["text"])
    assert data["loop"]["start"] + data["loop"]["length"] <= 160


def test_tokens_and_beside():
    told = json.loads(ablation(ROOT, "show", CUT, *RUN, "--tokens", "--json").stdout)
    lines = ablation(ROOT, "show", CUT, *RUN, "--tokens").stdout.splitlines()
    rows = lines[lines.index("Tokens") + 2 :]
    assert len(rows) == len(told["tokens"]) == 160
    assert [int(row.split()[1]) for row in rows] == [token["id"] for token in told["tokens"]]
    both = json.loads(ablation(ROOT, "show", CUT, *RUN, "--beside", "C", "--json").stdout)
    assert both["beside"]["rollout"] == CUT.replace("/N/", "/C/") and both["beside"]["seed"] == both["seed"]
    page = ablation(ROOT, "show", CUT, *RUN, "--beside", "C").stdout
    assert page.startswith("The same cell and index, one seed: ") and CUT.replace("/N/", "/C/") in page


def test_a_stage_is_listed_by_length_and_kind():
    data = json.loads(ablation(ROOT, "show", "main/N/readout", *RUN, "--only", "looping", "--json").stdout)
    measures = json.loads((RECORD / "main/N/readout/measures.json").read_text())
    assert len(data["rollouts"]) == measures["looping"]
    lengths = [row["tokens"] for row in data["rollouts"]]
    assert lengths == sorted(lengths, reverse=True)
    page = ablation(ROOT, "show", "main/N/readout", *RUN).stdout.splitlines()
    assert page[-1] == f"20 of {measures['rollouts']} rollouts; --all lists them"
    assert "60% of the windows of 8 tokens occurred before" in " ".join(page)
    every = ablation(ROOT, "show", "main/N/readout", *RUN, "--all").stdout.splitlines()
    assert sum("@" in line for line in every) == measures["rollouts"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("main/N/readot", *RUN), f"there is no stage `main/N/readot` in {RECORD}"),
        (("main/N/readout", "--tokens", *RUN), "--beside, --tokens and --full go with one rollout"),
        ((CUT, "--only", "looping", *RUN), "--only and --all go with a stage, and a rollout is named"),
        (("main/N/readout", "--only", "loping", *RUN), "--only: there is no kind `loping`; did you mean `looping`?"),
    ],
)
def test_what_cannot_be_shown(arguments, message):
    done = ablation(ROOT, "show", *arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == message


def on_a_terminal(*arguments: str, **more: str) -> str:
    """What the command prints to a terminal of 80 columns."""
    outer, inner = pty.openpty()
    given = {name: value for name, value in environment().items() if name != "NO_COLOR"} | {"TERM": "xterm-256color"} | more
    process = subprocess.Popen(command(*arguments), cwd=ROOT, env=given, stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)
    data = b""
    while True:
        try:
            chunk = os.read(outer, 65536)
        except OSError:
            break
        if not chunk:
            break
        data += chunk
    process.wait()
    os.close(outer)
    return data.decode()


def test_colours_are_for_terminals_that_want_them():
    arguments = ("show", CUT, *RUN, "--tokens")
    assert "\x1b[33m" in on_a_terminal(*arguments) or "\x1b[31m" in on_a_terminal(*arguments)
    plain = on_a_terminal(*arguments, NO_COLOR="1")
    assert "\x1b[3" not in plain
    assert "\x1b" not in on_a_terminal(*arguments, TERM="dumb")
    assert "\x1b[3" not in on_a_terminal("--no-color", *arguments)


def test_notes_of_a_verdict_are_cut_between_words_on_a_terminal():
    """The note of fields that are newer than the lock is longer than a line."""
    page = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_a_terminal("verdict", "--run", str(RECORD))).replace("\r\n", "\n")
    lines = page.splitlines()
    note = next(
        at for at, line in enumerate(lines) if line.startswith("note: fields that did not exist when the plan was locked")
    )
    assert max(map(len, lines[note:])) <= 80 and lines[note + 1].startswith("  ")
