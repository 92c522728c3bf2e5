"""Golden pages. After a change on purpose: `UPDATE_GOLDEN=1 python -m pytest tests/report`, and read the difference."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from ablation.plan.rules import Rule
from ablation.report.verdict_tables import print_verdict, shown_number
from ablation.verdict.reported import judge_reported
from ablation.verdict.rules import COMPUTED, RuleResult
from ablation.verdict.run import judge_run
from tests.verdict.study import lock_small, start_run, write_stage, write_stop, write_study
from tests.verdict.test_reported import FILES, TESSERA

GOLDEN = Path(__file__).parent / "golden"


def page(verdict, width=80, **options):
    out = io.StringIO()
    journal = verdict.journal and verdict.journal | {"head": "0" * 64}  # it depends on the time
    print_verdict(replace(verdict, digest="0" * 64, journal=journal), Console(file=out, width=width, highlight=False, **options))
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def check(name, text):
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert max(map(len, text.splitlines())) <= 80


@pytest.fixture
def small(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "run", locked)
    write_study(run, locked, {("main", "C"), ("replication", "C")})
    return run, locked


def test_the_studys_page():
    check("study.txt", page(judge_reported(FILES / "study.yaml", TESSERA)))


def test_the_page_of_a_run_with_undefined_ratios_an_audit_and_a_stop(small):
    run, locked = small
    write_stage(run, locked, "main", "X", {"wrong": 24})
    for k in (1, 2):
        path = run.audit("main", "C", k)
        path.parent.mkdir()
        shares = {"negative_share": 0.5 + 0.1 * k, "net_share": -0.2 * k, "truncated_share": 0.2, "kl_share": 0.0}
        path.write_text(json.dumps({"weights": shares}))
    text = page(judge_run(run.root, locked))
    check("run.txt", text)
    folder = run.readout("main", "X")
    for file in folder.iterdir():
        file.unlink()
    stop = {"rule": "logprob_fell", "update": 2, "reason": "logprob against update 1 is -0.4, and the plan stops at <= -0.3"}
    write_stop(run, locked, "main", "X", stop)
    text = page(judge_run(run.root, locked))
    assert "main/X: stop rule `logprob_fell` ended the run after update 2, so it has no" in text
    assert "none fired" not in text


def test_an_unfinished_run_says_what_to_do(small):
    run, locked = small
    (run.readout("replication", "N") / "stage.json").unlink()
    text = page(judge_run(run.root, locked))
    assert "Verdict: INCOMPLETE" in text
    assert "  missing: replication/N: the readout is not there; ablation run --arm N" in text


def test_no_color_is_respected(monkeypatch):
    verdict = judge_reported(FILES / "study.yaml", TESSERA)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31mNOT_REPLICATED" in page(verdict, force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" not in page(verdict, force_terminal=True)


@pytest.mark.parametrize(
    ("value", "op", "limit", "compare", "measure", "shown"),
    [
        ("3.4976", "<", 3.5, "value", "logprob", "3.498"),
        ("3.49996", "<", 3.5, "value", "logprob", "3.49996"),  # case I05: 3.500 would be on the other side
        ("-0.15", "<=", -0.15, "change", "logprob", "-0.150"),
        ("-0.1499999", "<=", -0.15, "change", "logprob", "-0.1499999"),
        ("1.2499", "<=", 1.25, "ratio", "agent_turn", "1.2499"),
        ("-25", "<=", -21, "change", "clean", "-25"),
        ("108", ">=", 103, "value", "correct", "108"),
    ],
)
def test_a_printed_number_is_on_its_side_of_the_limit(value, op, limit, compare, measure, shown):
    rule = Rule(name="r", measure=measure, compare=compare, op=op, limit=limit)
    assert shown_number(RuleResult(rule, True, Fraction(value), COMPUTED)) == shown
