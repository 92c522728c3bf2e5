"""The command, on a record of a real run: its rollouts go out as JSON Lines and come back as another lab's."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ablation.cli.import_rollouts import import_rollouts
from ablation.cli.status import status
from ablation.cli.verdict import verdict
from ablation.errors import UsageError
from ablation.imports.columns import ALIASES, COLUMNS
from ablation.rollouts.store import read_stage
from tests.imports.made import IDS, given_rows, write_rows
from tests.study.mini import ablation
from tests.verdict.study import lock_small

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "runs" / "records" / "smollm2"

app = typer.Typer()
app.command("import")(import_rollouts)
app.command("status")(status)
app.command("verdict")(verdict)


def call(*arguments, code=0):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def rows_of(folder: Path) -> list[dict]:
    """What a lab would write: the columns of runs/README.md."""
    left_out = ("family", "arm", "stage", "update", "source", "thinking_text", "answer_text")
    rows = []
    for one in read_stage(folder).rollouts():
        row = {name: value for name, value in vars(one).items() if name not in left_out}
        rows.append(row | {"thinking": one.thinking_text, "answer": one.answer_text})
    return rows


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """The plan, its lock and its problems: no model, no adapter."""
    (tmp_path / "plans").mkdir()
    for name in ("yaml", "lock"):
        shutil.copy(RECORD / f"plan.{name}", tmp_path / "plans" / f"smollm2.{name}")
    problems = tmp_path / "cache" / "recipes" / "smollm2" / "problems.jsonl"
    problems.parent.mkdir(parents=True)
    shutil.copy(RECORD / "problems.jsonl", problems)
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_real_run_comes_back_with_its_label_and_the_mark(lab):
    info = read_stage(RECORD / "main" / "start" / "sweep").info
    ids = ",".join(map(str, (info.think_open_id, info.think_close_id, *info.end_ids)))
    listed = [json.loads(line) for line in call("import", "--stage", "sweep", "--list").stdout.splitlines()]
    rows = rows_of(RECORD / "main" / "start" / "sweep")
    assert {(row["problem"], row["effort"], row["index"], row["seed"]) for row in listed} == {
        (row["problem"], row["effort"], row["index"], row["seed"]) for row in rows
    }
    said = call("import", "--stage", "sweep", write_rows(lab / "sweep.jsonl", rows), "--ids", ids).stdout
    assert said.startswith(f"imported 144 rollouts, 7482 tokens: {lab}/runs/smollm2/main/start/sweep")
    for family, arms in (("main", "CN"), ("replication", "CN")):
        if family == "replication":
            file = write_rows(lab / "sweep2.parquet", rows_of(RECORD / family / "start" / "sweep"))
            call("import", "--stage", "sweep", "--family", family, file)
        for arm in arms:
            file = write_rows(lab / f"{family}-{arm}.jsonl", rows_of(RECORD / family / arm / "readout"))
            call("import", "--stage", "readout", "--arm", arm, "--family", family, file)
    shown = call("status").stdout
    assert (
        "sweep    main: yes (imported)" in shown and "arm      replication/N: readout: yes (imported; not trained here)" in shown
    )
    assert shown.splitlines()[-1] == "next     ablation verdict"
    found = json.loads(call("verdict", "--json").stdout)
    recorded = json.loads((RECORD / "verdict.json").read_bytes())
    assert found["label"] == f"{recorded['label']} (imported)" == "NOT_REPLICATED (imported)"
    assert found["bare_label"] == recorded["label"] and found["reasons"] == recorded["reasons"]
    for one, other in zip(found["arms"], recorded["arms"], strict=True):
        assert one["label"] == f"{other['label']} (imported)"
        assert {name: one[name] for name in ("rules", "measures", "ratios")} == {
            name: other[name] for name in ("rules", "measures", "ratios")
        }
    page = call("verdict").stdout
    assert "Verdict: NOT_REPLICATED (imported)  (computed from imported rollouts)" in page
    assert "Imported, so no stop rule was watched and no update audited by this program:" in page
    assert "main/C         STABLE (imported)" in page
    call("verdict", "--expect", "NOT_REPLICATED")
    call("verdict", "--expect", "NOT_REPLICATED (imported)")
    call("verdict", "--expect", "NOT_REPLICATED (imported; retokenized)", code=10)


def test_wrong_use(tmp_path, monkeypatch):
    lock_small(tmp_path / "plans")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="name the files to import"):
        call("import", "--stage", "sweep")
    with pytest.raises(UsageError, match="--list imports nothing, so it takes no files"):
        call("import", "--stage", "sweep", "--list", "x.jsonl")
    with pytest.raises(UsageError, match="x.jsonl: there is no such file"):
        call("import", "--stage", "sweep", "x.jsonl")


def test_one_object_with_json_and_one_line_for_an_error(tmp_path):
    locked = lock_small(tmp_path / "plans")
    rows = given_rows(locked)
    listed = json.loads(ablation(tmp_path, "import", "--stage", "sweep", "--list", "--json").stdout)
    assert [(one["problem"], one["effort"], one["index"]) for one in listed["rollouts"]] == [
        (row["problem"], row["effort"], row["index"]) for row in rows
    ]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    done = ablation(tmp_path, "import", "--stage", "sweep", "rows.jsonl", "--ids", IDS, "--json")
    content = json.loads(done.stdout)
    assert (content["rollouts"], content["engine"]["seeds"], content["grading"]) == (24, "plan", [])
    write_rows(file, [row | {"index": "a"} for row in rows])
    refused = ablation(tmp_path, "import", "--stage", "readout", "--arm", "C", "rows.jsonl")
    assert refused.returncode == 2 and refused.stderr.startswith("rows.jsonl:1: index: found 'a'; it must be a whole number")


def test_torch_is_not_imported(tmp_path):
    lock_small(tmp_path / "plans")
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = ['ablation', 'import', '--stage', 'sweep', '--list']\n"
        "from ablation.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'transformers', 'pandas'} & set(sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        check=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stdout=subprocess.DEVNULL,
    )


def test_348_rollouts_of_1000_tokens_take_seconds(tmp_path, monkeypatch):
    """12 cells with 29 rollouts each."""
    changes = {"sampling": {"max_tokens": 1024}}
    from tests.verdict.study import PROBLEMS, plan_dict

    changes["problems"] = plan_dict()["problems"] | {"cells": {"low": PROBLEMS, "medium": PROBLEMS}}
    changes["training"] = plan_dict()["training"] | {"rollouts_per_cell": 29}
    locked = lock_small(tmp_path / "plans", **changes)
    listed = call_in(tmp_path, monkeypatch, "import", "--stage", "sweep", "--list").stdout.splitlines()
    assert len(listed) == 348
    rows = []
    for line in listed:
        row = {name: value for name, value in json.loads(line).items() if name != "prompt"}
        ids = [*(20 + (place * place) % 997 for place in range(998)), 2, 10 + int(row["problem"][1:]), 3]
        floats = [-0.123456789 * (place % 7) for place in range(len(ids))]
        row |= {"token_ids": ids, "logprobs": floats, "top_entropy": [-one for one in floats], "top_mass": [0.99] * len(ids)}
        rows.append(row | {"thinking": "words " * 998, "answer": row["problem"][1:], "prompt_opens_thinking": True})
    file = write_rows(tmp_path / "rows.jsonl", rows)
    started = time.process_time()
    call("import", "--stage", "sweep", file, "--ids", IDS)
    assert time.process_time() - started < 10  # a few seconds on a quiet core
    assert locked.plan.sampling.max_tokens == 1024


def call_in(folder, monkeypatch, *arguments):
    monkeypatch.chdir(folder)
    return call(*arguments)


def test_every_column_is_on_the_reference_page():
    page = (ROOT / "runs" / "README.md").read_text().split("## Imported rollouts")[1].split("\n## ")[0]
    assert [
        name for name in [*COLUMNS, *ALIASES] if f"`{name}`" not in page and name not in ("thinking_text", "answer_text")
    ] == []
