"""`ablation audit RUN`: which run it means, its page, its JSON, its exit codes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.cli.audit import app
from ablation.errors import IncompleteError, IntegrityError, UsageError
from tests.audit.build import make_run, write_verdict
from tests.audit.faults import edit_json

RECORD = Path(__file__).parents[2] / "runs" / "records" / "smollm2"


def call(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    run = make_run(folder)
    write_verdict(run)
    run.journal.close()
    return folder


@pytest.fixture
def study(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Path("runs/small")


def test_a_record_of_a_real_model_agrees():
    text = call(RECORD).stdout
    assert "\n  replication    NOT_REPLICATED\n  main/C         STABLE\n" in text
    assert "\n        1,440  seeds against the function\n" in text
    assert "\n        1,370  answers graded by this audit's own code\n" in text
    assert "  - that stored logprobs, entropies and token ids are what the named model gave: no model is run\n" in text
    assert text.rstrip().split("\n")[-1].startswith("AGREES: ")
    assert max(map(len, text.split("\n"))) <= 100 + len(str(RECORD))


def test_without_a_run_it_is_that_of_the_only_locked_plan(study):
    assert call().stdout.startswith("audit of runs/small\n")
    assert call("run").stdout == call().stdout == call("--plan", "plans/small.yaml").stdout
    assert call("runs/small").stdout.rstrip().split("\n")[-1].startswith("AGREES")
    Path("plans/small.deviations.jsonl").unlink()
    assert "small.deviations.jsonl: is not there, but" in call(code=3).stdout.replace("\n    ", " ")
    call("runs/small")  # alone it is judged by its own copies


def test_json_is_one_object(study):
    found = json.loads(call("--json").stdout)
    assert found["exit_code"] == 0 and found["differences"] == found["missing"] == []
    assert found["labels"]["replication"] == "REPLICATED (deviation 1)"
    assert found["checked"]["seeds against the function"] == 336
    assert any("stored logprobs" in line for line in found["cannot"])
    edit_json(study / "main/N/readout/measures.json", lambda content: content.update(clean=1))
    found = json.loads(call(study, "--json", code=3).stdout)
    assert found["differences"] == ["runs/small/main/N/readout/measures.json: clean is 1; the rollouts give 13"]
    assert found["exit_code"] == 3


def test_what_is_missing_ends_with_6_and_the_rest_is_checked(study):
    (study / "main/X/readout/stage.json").unlink()
    for part in (study / "main/X/readout").glob("part-*"):
        part.unlink()
    lines = (study / "journal.jsonl").read_bytes().splitlines(keepends=True)
    last = next(i for i, line in enumerate(lines) if b'"stage": "main/X/readout"' in line)
    (study / "journal.jsonl").write_bytes(b"".join(lines[:last]))
    for path in ("verdict.json", "replication", "main/N/check-4", "main/N/update-3", "main/N/update-4", "main/X/readout"):
        (shutil.rmtree if (study / path).is_dir() else Path.unlink)(study / path)
    result = call(study, code=6)
    text = result.stdout
    assert (
        "main/X: its readout, or the sweep of main" in text and "replication/C: its readout, or the sweep of replication" in text
    )
    assert text.rstrip().split("\n")[-1].startswith("INCOMPLETE: ")
    assert "replication INCOMPLETE" in " ".join(text.split())


def test_names_that_lead_nowhere(study):
    with pytest.raises(UsageError, match="nowhere: there is no such run folder"):
        call("nowhere")
    with pytest.raises(UsageError, match="weight: there is no such run folder"):
        call("weight")
    with pytest.raises(IntegrityError, match=r"plans/none.yaml is not locked"):
        call("--plan", "plans/none.yaml")
    shutil.rmtree("runs")
    with pytest.raises(IncompleteError, match="there is no run of plans/small.yaml yet"):
        call()


def test_help_says_both():
    text = " ".join(call("--help").stdout.split())
    assert "`ablation audit RUN` reads the rollouts" in text and "weights" in text
    assert "--regrade" in call("run", "--help").stdout


def test_weights_is_still_a_command_of_its_own():
    assert "A_i" in call("weights", "--run", RECORD, "--arm", "N", "--family", "main").stdout


def test_no_torch_and_no_pandas():
    code = "import sys; from typer.testing import CliRunner; from ablation.cli.audit import app; "
    code += f"assert CliRunner().invoke(app, [{str(RECORD)!r}]).exit_code == 0; "
    code += "assert not {'torch', 'transformers', 'peft', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
