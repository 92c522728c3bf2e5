"""Every number of a report is the verdict's, the audit's or the report's own, at the place that its trace names."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.cli.pointer import value_at
from ablation.plan.lock import verify_lock
from ablation.report.audit_tables import audit_content
from tests.audit.build_phase2 import make_phase2
from tests.report.post.made import differ, numbers_of, report_of, study_of
from tests.verdict.study import lock_small, start_run, write_study

ROOT = Path(__file__).parents[3]
RECORD = ROOT / "runs" / "records" / "smollm2"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A made-up run with every section that a report can have."""
    folder = tmp_path_factory.mktemp("whole")
    made = make_phase2(folder)
    return folder, made.run.root, made.locked


@pytest.fixture(scope="module")
def record():
    """A run that was made for real, kept without its checkpoints."""
    return ROOT, RECORD, verify_lock(RECORD / "plan.yaml")


@pytest.mark.parametrize("which", ["whole", "record"])
def test_every_traced_number_stands_where_its_trace_says(which, request):
    _, root, locked = request.getfixturevalue(which)
    study = study_of(root, locked)
    contents = {
        "ablation verdict": study.content,
        "ablation audit weights": audit_content(study.audit, locked.plan, str(root)),
        "ablation report": json.loads(json.dumps(study.data())),
    }
    traces, seen = report_of(root, locked).traces(), set()
    for where, cell in traces:
        command, *places = re.split(r" --at ", cell.trace.command)
        name = " ".join(word for word in command.split() if word in ("ablation", "verdict", "audit", "weights", "report"))
        values = [value_at(contents[name], shlex.split(place)[0]) for place in places]
        assert values, where
        if cell.text not in values:  # a label or words are there as they are, a number with all of its digits
            assert numbers_of(cell.text), (where, cell, values)
            assert differ(cell.text, values, cell.trace.how) == [], (where, cell)
        seen.add(name)
    assert seen == set(contents)
    assert len(traces) > 100


def test_no_number_of_a_table_is_without_a_trace(whole):
    """But for what is no measurement: limits of rules, numbers of updates, and the simulation, which has its own command."""
    _, root, locked = whole
    free = {"limit", "update", "rollouts each", "share of simulated studies or runs"}
    for block in report_of(root, locked).blocks():
        table = getattr(block, "data", block)
        for row in getattr(table, "rows", ()) if hasattr(table, "columns") else ():
            for column, cell in zip(table.columns, row, strict=True):
                if column.numeric and column.title not in free and re.search(r"[0-9]", cell.text):
                    assert cell.trace is not None or cell.text.startswith("0 of"), (table.key, column.title, cell.text)


def test_a_sample_of_the_commands_prints_its_number(whole, monkeypatch):
    folder, root, locked = whole
    monkeypatch.chdir(folder)
    traces = [(where, cell) for where, cell in report_of(root, locked).traces() if numbers_of(cell.text)]
    by_kind = {}
    for where, cell in traces:
        words = shlex.split(cell.trace.command)
        by_kind.setdefault((words[1], words[-1].split("/")[1]), []).append((where, cell))
    assert {kind for kind, _ in by_kind} == {"verdict", "audit", "report"}
    for number, found in enumerate(by_kind.values()):
        where, cell = found[(7 * number) % len(found)]
        result = CliRunner().invoke(app, shlex.split(cell.trace.command)[1:])
        assert result.exit_code == 0, (where, result.output)
        values = [json.loads(line) for line in result.stdout.splitlines()]
        assert differ(cell.text, values, cell.trace.how) == [], (where, cell)


def test_the_files_of_a_trace_are_there(whole):
    _, root, locked = whole
    for where, cell in report_of(root, locked).traces():
        for pattern in cell.trace.files:
            if pattern not in ("all that follow", "see the table of that set"):
                assert list(root.glob(pattern.rstrip("/"))), (where, pattern)


def test_a_changed_number_would_be_noticed(tmp_path):
    """The comparison above can fail: by one rollout, and by one in the last digit."""
    assert differ("0.74x (0.69-0.79)", [{"value": 0.7399, "low": 0.688, "high": 0.793}], "") == []
    assert differ("0.75x (0.69-0.79)", [{"value": 0.7399, "low": 0.688, "high": 0.793}], "") != []
    assert differ("+20", [244, 224], "first minus second") == [] != differ("+21", [244, 224], "first minus second")
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked, {("main", "C"), ("replication", "C")})
    table = next(one for one in report_of(run.root, locked).tables() if one.key == "readouts-main")
    # C of main lost 5 of 12 clean rollouts, N has one more; both have the start's 2 truncated ones
    assert [[cell.text for cell in row[:4]] for row in table.rows[:3]] == [
        ["start", "12", "", "2"],
        ["C", "7", "-5", "2"],
        ["N", "13", "+1", "2"],
    ]
