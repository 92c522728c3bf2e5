from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.cli.plan import app
from ablation.errors import AblationError
from ablation.plan.load import load_plan
from tests.plan.conftest import TEXT, write_plan

PLANS = Path(__file__).parents[2] / "plans"


class Outcome:
    """Exit code, stdout and stderr of a command, with expected errors handled as the program's entry point does."""

    def __init__(self, result) -> None:
        self.out, self.err, self.code = result.stdout, result.stderr, result.exit_code
        if isinstance(result.exception, AblationError):
            self.code = int(result.exception.exit_code)
            self.err += "\n".join(result.exception.lines())
        elif result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception


def run(*arguments) -> Outcome:
    return Outcome(CliRunner().invoke(app, [str(argument) for argument in arguments]))


@pytest.fixture
def plan(tmp_path) -> Path:
    return write_plan(tmp_path)


def test_new_check_fill_in_lock(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = run("new", "my-study")
    assert (made.code, made.err) == (0, "")
    path = Path("plans/my-study.yaml")
    text = path.read_text()
    lines = [line.split("#")[0] for line in text.split("\n")]
    places = [(number, found.start() + 1) for number, line in enumerate(lines, 1) for found in re.finditer("TODO", line)]
    for command in ("check", "lock"):
        refused = run(command, path)
        assert refused.code == 2
        assert [tuple(map(int, line.split(":")[1:3])) for line in refused.err.split("\n")] == places
        assert refused.err.count("still the placeholder") == len(places) == 24
    assert not Path("plans/my-study.lock").exists()
    again = run("new", "my-study")
    assert again.code == 2
    assert path.read_text() == text

    write_plan(tmp_path / "plans")  # the files that the small plan names
    filled = load_plan(tmp_path / "plans" / "small.yaml").plan
    base, adapter, problems = filled.model.base, filled.model.start_adapter, filled.problems.training
    for value in (
        "Does it work?",
        *(base.at, base.sha256, adapter.at, adapter.sha256, 8, 8, '"<|end|>"', 1000000, 4, 128, 40, 200),
        *(problems.at, problems.sha256, "p00", "p00", "p00, p01, p02", 2e-5, 1, 2, -5, 5, 5),
    ):
        text = re.sub(r"^([^#\n]*?)\bTODO", rf"\g<1>{value}", text, count=1, flags=re.M)
    path.write_text(text)
    assert run("check", path).code == 0
    assert run("lock", path).code == 0
    assert run("verify", path).code == 0


@pytest.mark.parametrize("name", ["a/b", "../x", "", "-x", "x" * 41, "TODO x"])
def test_new_refuses_names_that_are_no_names(tmp_path, name):
    assert run("new", "--folder", tmp_path, "--", name).code == 2
    assert not list(tmp_path.iterdir())


def test_check(plan):
    good = run("check", plan)
    assert (good.code, good.err) == (0, "")
    assert good.out == f"{plan}: valid, digest {load_plan(plan).digest}\n"
    plan.write_text(TEXT.replace("learning_rate: 2e-5", 'learning_rate: "2e-5"').replace("seed: 2}", "seed: 1}"))
    bad = run("check", plan)
    assert (bad.code, bad.out) == (2, "")
    assert f'{plan}:23:18: training.learning_rate: found the text "2e-5"; allowed: a number; remove the quotes' in bad.err
    refused = run("check", plan, "--json")
    assert (refused.code, refused.err) == (2, bad.err + "\n")
    as_json = json.loads(refused.out)
    assert as_json["ok"] is False
    assert as_json["problems"][0] == {
        "line": 23,
        "column": 18,
        "field": "training.learning_rate",
        "problem": 'found the text "2e-5"; allowed: a number; remove the quotes',
    }


def test_check_names_the_line_of_a_problem_that_is_not_in_the_file(plan):
    plan.write_text(TEXT.replace("xhigh: [p00, p01", "xhigh: [p00, p0l"))
    bad = run("check", plan)
    assert bad.code == 2
    assert f"{plan}:19:18: problems.cells.xhigh[1]: there is no problem `p0l` in the file; did you mean" in bad.err
    assert run("lock", plan).code == 2
    assert not plan.with_suffix(".lock").exists()


def test_check_and_lock_refuse_other_bytes_than_the_plan_names(plan):
    plan.with_name("problems.jsonl").write_text("{}")
    for command in ("check", "lock"):
        bad = run(command, plan)
        assert bad.code == 2
        assert "problems.training.sha256: found" in bad.err


def test_check_refuses_a_gold_that_is_not_correct_against_itself(tmp_path):
    import hashlib

    path = write_plan(tmp_path)
    problems = (tmp_path / "problems.jsonl").read_text()
    broken = problems.replace('"gold": "1"', '"gold": "one"', 1)
    (tmp_path / "problems.jsonl").write_text(broken)
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (problems, broken)]
    path.write_text(TEXT.replace(*digests))
    bad = run("check", path)
    assert bad.code == 2
    assert "problems.training: " in bad.err
    assert "p00" in bad.err


def test_held_out_problems_must_not_be_trained_on(tmp_path):
    path = write_plan(tmp_path)
    digest = load_plan(path).plan.problems.training.sha256
    rule = '{name: r, measure: correct, compare: change, op: ">=", limit: -8}'
    path.write_text(
        TEXT + f"  never_used: {{rollouts: 144, problems: {{at: problems.jsonl, sha256: {digest}}}, rules: [{rule}]}}\n"
    )
    bad = run("check", path)
    assert bad.code == 2
    assert "verdict.never_used.problems: 20 of these problems are trained on: p00, p01, p02, p03, p04" in bad.err


def test_lock_verify_tamper(plan):
    locked = run("lock", plan, "--json")
    digest = load_plan(plan).digest
    assert json.loads(locked.out)["digest"] == digest
    assert locked.code == 0
    assert digest in run("verify", plan).out
    assert run("lock", plan).code == 3
    plan.write_text(TEXT + "# comment\n")
    cosmetic = run("verify", plan)
    assert cosmetic.code == 3
    assert "cosmetic" in cosmetic.err
    plan.write_text(TEXT.replace("limit: -21", "limit: -20"))
    tampered = run("verify", plan)
    assert tampered.code == 3
    assert "verdict.damage[0].limit: -21 -> -20" in tampered.err
    assert run("restore", plan).code == 0
    assert plan.read_text() == TEXT
    plan.with_name("base.bin").write_bytes(b"x")
    assert run("verify", plan).code == 3
    plan.with_suffix(".lock").unlink()
    assert run("verify", plan).code == 3


def test_verify_finds_the_only_locked_plan(plan, monkeypatch):
    (plan.parent / "plans").mkdir()
    monkeypatch.chdir(plan.parent)
    assert run("verify").code == 2
    path = write_plan(plan.parent / "plans")
    run("lock", path)
    found = run("verify", "--json")
    assert json.loads(found.out)["plan"] == "plans/small.yaml"


def test_the_study_plan_can_be_checked_and_locked_here(tmp_path):
    path = tmp_path / "tessera.yaml"
    path.write_bytes((PLANS / "tessera.yaml").read_bytes())
    checked = run("check", path)
    assert checked.code == 0
    assert checked.err.count("not at hand: ") == 5
    locked = run("lock", path)
    assert locked.code == 0
    assert "owed, so this plan cannot run yet: model.start_adapter" in locked.err
    assert run("verify", path).code == 0


def test_show(plan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run("show", plan)
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert max(map(len, shown.out.split("\n"))) <= 80
    assert "lock  not locked" in shown.out
    data = json.loads(run("show", plan, "--json").out)
    assert data["digest"] == load_plan(plan).digest
    assert data["arms"] == {
        "C": {
            "weighting": "token",
            "truncated": "keep",
            "finish_push": 0.0,
            "advantages": "all",
            "learning_rate": None,
            "kl.beta": None,
            "kl.damp_only": False,
        },
        "N": {"weighting": "rollout"},
        "XK": {"weighting": "rollout", "truncated": "apart", "kl.beta": 0.05},
    }
    run("lock", plan)
    assert json.loads(run("show", plan, "--json").out)["lock"]["state"] == "locked"
    plan.write_text(TEXT + "# x\n")
    assert json.loads(run("show", plan, "--json").out)["lock"]["state"] == "refused"


def test_show_resolved_is_the_same_plan(plan, tmp_path):
    other = tmp_path / "resolved.yaml"
    other.write_text(run("show", plan, "--resolved").out)
    assert load_plan(other).digest == load_plan(plan).digest
    assert "min_clusters: 10" in other.read_text()
    assert "are the same plan" in run("diff", plan, other).out
    other.write_text(other.read_text().replace("min_clusters: 10", "min_clusters: 11"))
    assert run("diff", plan, other).out.split("\n")[1:2] == ["  statistics.min_clusters: 10 -> 11"]


def test_digest(plan):
    assert run("digest", plan.with_name("base.bin")).out.strip() == load_plan(plan).plan.model.base.sha256
    assert run("digest", plan.with_name("none")).code == 2


def test_schema_accepts_the_resolved_plan_and_closes_every_section():
    schema = json.loads(run("schema").out)
    assert schema["required"][:3] == ["ablation", "name", "question"]
    sections = [schema, *schema["$defs"].values()]
    assert all(section["additionalProperties"] is False for section in sections if section["type"] == "object")


def test_missing_plan(tmp_path):
    for command in ("check", "show", "lock", "verify", "restore"):
        outcome = run(command, tmp_path / "none.yaml")
        assert outcome.code in (2, 3), command
        assert "none.yaml" in outcome.err


def test_importing_the_commands_stays_cheap():
    code = (
        "import sys, ablation.cli.plan; print([name for name in ('pydantic', 'yaml', 'torch', 'rfc8785') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
