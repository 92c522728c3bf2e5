from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.cli.audit import app
from ablation.errors import IncompleteError, IntegrityError, UsageError
from tests.training.run_folder import edit_audit, forget_digests, write_run

RECORD = Path(__file__).parents[2] / "runs" / "records" / "smollm2"


def call(*arguments, code=0):
    result = CliRunner().invoke(app, ["weights", *map(str, arguments)])
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return folder, *write_run(folder)


@pytest.fixture
def study(made, tmp_path, monkeypatch):
    folder, locked, run = made
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return locked, type(run)(tmp_path / "runs" / "small")


def test_the_page_by_hand(study):
    """N, update 1: 9 clean rollouts fill the first four cells (1 or length bonus) and half of the fifth."""
    text = call("--arm", "N").stdout
    lines = text.split("\n")
    assert lines[0] == "main/N  A_i × s0 / L_i"
    assert lines[1].split() == ["update", "negative", "net", "truncated", "KL", "clipped", "equal", "absolute"]
    assert lines[2].split()[:3] == ["1", "50.0%", "0.0%"]
    packed = " ".join(text.split())
    assert "holds in 2 net weight zero by construction, in all and in each source and effort" in packed
    assert max(map(len, lines)) <= 80


def test_one_arm_of_a_record_without_its_plan_folder():
    result = call("--run", RECORD, "--arm", "N", "--family", "main", "--recompute")
    lines = [line.split() for line in result.stdout.split("\n")]
    assert lines[2] == ["1", "50.0%", "0.0%", "5.4%", "0.0%", "-", "3", "403.3"]  # its audit.json: 0.0544, 403.33, 3 cells
    assert "same in 5   weights computed again from the rollouts" in result.stdout
    assert "main/C" not in result.stdout and "replication" not in result.stdout


def test_detail_adds_sources_and_efforts(study):
    text = call("--arm", "C", "--detail").stdout
    for name in ("products", "sums", "low", "medium"):
        assert text.count(f"\n    {name} ") == 2
    assert "products" not in call("--arm", "C").stdout


def test_json_has_all_of_it(study):
    found = json.loads(call("--recompute", "--json").stdout)
    assert found["exit_code"] == 0 and found["problems"] == []
    assert [(one["arm"], one["update"]) for one in found["updates"][:3]] == [("C", 1), ("C", 2), ("N", 1)]
    [first] = [one for one in found["updates"] if (one["arm"], one["update"]) == ("N", 1)]
    assert first["weights"]["by_effort"]["low"]["rollouts"] == 12
    assert {one["name"] for one in first["identities"]} == {"net_zero", "no_kl", "no_clip", "adds_up", "metrics"}
    assert first["recomputed"] == {"whole": True, "why_not": None, "exact": True, "differs": []}


def test_a_failing_identity_is_printed_and_ends_with_3(study):
    locked, run = study
    edit_audit(run.audit("main", "X", 1), lambda audit: audit["weights"].update(truncated_share=0.1))
    edit_audit(run.audit("main", "X", 1), lambda audit: audit["metrics"].update(truncated_share=0.1))
    forget_digests(run, locked)
    result = call("--arm", "X", code=3)
    assert "FAILS in 1 of 2  no weight on truncated rollouts (off by 1e-01 at most)" in result.stdout
    assert "main/X/update-1: does not hold: no weight on truncated rollouts (off by 0.1, limit 0)" in result.stderr
    found = json.loads(call("--arm", "X", "--json", code=3).stdout)
    assert found["exit_code"] == 3 and len(found["problems"]) == 1


def test_an_edited_audit_is_an_integrity_error(study):
    edit_audit(study[1].audit("main", "C", 1), lambda audit: audit.update(s0=1.0))
    with pytest.raises(IntegrityError, match="another main/C/update-1/audit.json"):
        call()


def test_recomputing_says_what_differs(study):
    locked, run = study
    edit_audit(run.audit("main", "C", 1), lambda audit: audit.update(s0=1.0))
    forget_digests(run, locked)
    result = call("--arm", "C", "--recompute", code=3)
    assert "main/C/update-1: s0 is 1.0; the rollouts give 14.727272727272727" in result.stderr
    assert "DIFFERS in 1 of 2  from what the rollouts give" in result.stdout


def test_names_that_the_plan_does_not_have(study):
    with pytest.raises(UsageError) as caught:
        call("--arm", "NN")
    assert caught.value.message == "--arm: the plan has no arm `NN`; did you mean `N`?"
    with pytest.raises(UsageError, match="no family `mian`; did you mean `main`"):
        call("--family", "mian")


def test_nothing_trained_yet(study):
    with pytest.raises(IncompleteError) as caught:
        call("--family", "replication")
    assert "has been trained in replication" in caught.value.message
    assert caught.value.hint == "`ablation run --all` makes one"
    with pytest.raises(IncompleteError) as caught:
        call("--family", "replication", "--run", "runs/small")
    assert caught.value.hint == "whoever made it has to go on with it"


def test_no_torch():
    code = "import sys; from typer.testing import CliRunner; from ablation.cli.audit import app; "
    code += f"assert CliRunner().invoke(app, ['weights', '--recompute', '--run', {str(RECORD)!r}]).exit_code == 0; "
    code += "assert not {'torch', 'transformers', 'peft', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
