from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.errors import IntegrityError, UsageError
from tests.verdict.study import lock_small, plan_dict, start_run, write_study

ROOT = Path(__file__).parents[2]
MEASURES = ROOT / "tests" / "verdict" / "measures"


def call(*arguments, code=0):
    result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def study(tmp_path, monkeypatch):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked, {("main", "C"), ("replication", "C")})
    monkeypatch.chdir(tmp_path)
    return run


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_report_is_written_beside_the_rollouts_and_again_with_the_same_bytes(study):
    result = call("runs/small")
    folder = study.root / "report"
    assert result.stdout == "runs/small/report/report.html written: REPLICATED\n"
    first = files_of(folder)
    assert {"report.html", "report.md", "data.json", "figures/flow.svg", "figures/flow.png", "tables/all.tex"} <= set(first)
    assert json.loads(first["data.json"])["files"] == sorted(set(first) - {"data.json"})
    call()  # the only locked plan's run
    assert files_of(folder) == first
    # what the report leaves does not disturb those who judge the folder
    for command in (["verdict"], ["plan", "verify", "plans/small.yaml"], ["status"]):
        result = CliRunner().invoke(app, [*command, "--run", "runs/small", "--json"])
        assert result.exit_code == 0 and "small/report" not in result.output, (command, result.output)


def test_the_page_names_no_folder_of_this_machine(study, tmp_path):
    call(study.root, "--out", tmp_path / "elsewhere")
    for name, content in files_of(tmp_path / "elsewhere").items():
        assert str(tmp_path).encode() not in content, name


def test_json_says_what_was_written(study, tmp_path):
    found = json.loads(call("--out", "here", "--json").stdout)
    assert (found["folder"], found["page"], found["label"], found["figures"]) == ("here", "here/report.html", "REPLICATED", True)
    assert {Path(one) for one in found["written"]} == {Path("here") / one for one in files_of(tmp_path / "here")}


def test_one_number_is_printed_and_nothing_written(study):
    result = call("runs/small", "--at", "/labels/replication", "--at", "/flow/families/0/sweep")
    assert result.stdout == '"REPLICATED"\n24\n'
    assert not (study.root / "report").exists()
    with pytest.raises(UsageError, match="there is no `flows`; did you mean `flow`"):
        call("runs/small", "--at", "/flows")


def test_without_the_package_that_draws_it_says_so_and_tables_stand_in(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = call("runs/small")
    assert "no figures, because vl-convert-python is not installed: pip install -e '.[report]'" in result.stderr
    text = (study.root / "report" / "report.html").read_text()
    assert "made without figures, because vl-convert-python is not installed" in text and "(not drawn)" in text
    assert not (study.root / "report" / "figures").exists()


def test_what_an_earlier_report_drew_goes_when_figures_are_not_wanted(study):
    call("runs/small")
    folder = study.root / "report"
    (folder / "figures" / "mine.png").write_bytes(b"mine")
    call("runs/small", "--no-figures")
    assert [path.name for path in (folder / "figures").iterdir()] == ["mine.png"]


def test_an_edited_verdict_is_told_in_the_report_and_ends_with_3(study):
    CliRunner().invoke(app, ["verdict"])
    content = json.loads(study.verdict.read_bytes())
    content["labels"]["replication"] = content["label"] = "NOT_REPLICATED"
    study.verdict.write_text(json.dumps(content))
    result = call("runs/small", "--no-figures", code=3)
    assert '/label says "NOT_REPLICATED", and the rollouts give "REPLICATED"' in result.stderr
    assert "/label says &#34;NOT_REPLICATED&#34;" in (study.root / "report" / "report.html").read_text()


def test_edited_rollouts_are_refused(study):
    path = study.readout("main", "N") / "part-000.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(IntegrityError):
        call("runs/small")
    assert not (study.root / "report").exists()


def test_a_guests_folder_is_reported_by_its_own_plan(study, tmp_path, monkeypatch):
    shutil.copytree(study.root, tmp_path / "guest" / "copy")
    monkeypatch.chdir(tmp_path / "guest")
    assert call("copy", "--no-figures").stdout == "copy/report/report.html written: REPLICATED\n"
    assert "ablation verdict --run copy --at" in (tmp_path / "guest" / "copy" / "report" / "report.html").read_text()


def test_reported_figures_need_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="has no run folder to write into"):
        call("--measures", MEASURES / "study.yaml", "--plan", ROOT / "plans" / "tessera.yaml")
    with pytest.raises(UsageError, match="say one of them"):
        call("runs/x", "--measures", MEASURES / "study.yaml")
    call("--measures", MEASURES / "study.yaml", "--plan", ROOT / "plans" / "tessera.yaml", "--out", "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "Reported figures, no rollouts." in text and re.search(r"\| C \| – \| −25 \| 62 \|", text)


def test_a_run_that_is_not_there_and_a_file_in_the_way(study, tmp_path):
    with pytest.raises(UsageError, match="no such run folder"):
        call("runs/other")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is there and no folder"):
        call("runs/small", "--out", tmp_path / "file", "--no-figures")


def test_hostile_words_of_a_plan_stay_words(tmp_path, monkeypatch):
    question = "<script>alert(1)</script> \\input{/etc/passwd} [x](javascript:alert(1)) | `a` https://evil.example"
    locked = lock_small(tmp_path / "plans", **{"question": question, "arms": plan_dict()["arms"]})
    run = start_run(tmp_path / "runs" / "small", locked)
    write_study(run, locked)
    monkeypatch.chdir(tmp_path)
    call("runs/small", "--no-figures")
    folder = run.root / "report"
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in (folder / "report.html").read_text()
    assert "<script" not in (folder / "report.html").read_text()
    text = (folder / "report.md").read_text()
    assert "&lt;script&gt;" in text and "https://evil" not in text and "[x](" not in text
    assert r"\textbackslash{}input\{/etc/passwd\}" in (folder / "tables" / "all.tex").read_text()


def test_a_disk_that_is_full_leaves_the_earlier_report_whole(study):
    call("runs/small", "--no-figures")
    for name, content in files_of(study.root / "report").items():
        (study.root / "report" / name).write_bytes(content.replace(b"REPLICATED", b"replicated"))
    before = files_of(study.root / "report")
    code = (
        "import resource, signal, sys\n"
        "from ablation.cli.main import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "sys.argv = ['ablation', 'report', 'runs/small', '--no-figures']\n"
        "main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert result.returncode == 2 and "could not be written: File too large" in result.stderr, result.stderr
    assert files_of(study.root / "report") == before
