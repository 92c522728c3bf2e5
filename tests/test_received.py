"""Folders from elsewhere that are made to hurt: whatever judges them, nothing of theirs runs on this machine."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.errors import AblationError, IntegrityError
from ablation.problems.workers import close_workers
from ablation.study.evaluate_subject import subjects_there
from tests.audit.build import make_run
from tests.audit.faults import reseal
from tests.verdict import study as made


@pytest.fixture(autouse=True, scope="module")
def _no_worker_is_left():
    yield
    close_workers()


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def evaluated(code: str) -> bytes:
    """Problems whose metadata the package would evaluate."""
    lines = [
        {
            "id": name,
            "source": "sums" if i % 2 else "products",
            "prompt": f"{i}?",
            "grader": "reasoning_gym",
            "gold": hex(i),
            "entry": {
                "dataset": ["bitwise_arithmetic", "simple_integration"][i % 2],
                "seed": 1,
                "index": 0,
                "config": {},
                "metadata": {"problem": code, "integrand": code, "variable": "x"},
            },
        }
        for i, name in enumerate(made.PROBLEMS)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@pytest.fixture
def received(tmp_path, monkeypatch):
    """(two complete runs without stored grades, what their problems would make if they were evaluated)."""
    pytest.importorskip("reasoning_gym")
    mark = tmp_path / "pwned"
    monkeypatch.setattr(made, "problems_bytes", lambda: evaluated(f"__import__('os').system('touch {mark}')"))
    locked = made.lock_small(tmp_path / "plans")
    runs = [made.start_run(tmp_path / "runs" / name, locked) for name in ("small", "other")]
    for run in runs:
        made.write_study(run, locked, {("main", "C"), ("replication", "C")})
    monkeypatch.chdir(tmp_path)
    return [run.root for run in runs], mark


def test_problems_check_evaluates_nothing(tmp_path):
    pytest.importorskip("reasoning_gym")
    path, mark = tmp_path / "p.jsonl", tmp_path / "pwned"
    path.write_bytes(evaluated(f"__import__('os').system('touch {mark}')"))
    done = call("problems", "check", path)
    assert done.exit_code == 2 and not mark.exists()
    assert (
        f"{path}: problem `p0`: reasoning-gym does not make this problem of its dataset, seed, index and config again: "
        "entry_differs (grader `reasoning_gym`)"
    ) in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("verdict --run", 6, "the grader failed on 22 rollouts: p0@low #0"),
        ("verdict --regrade --run", 6, "the grader failed on 22 rollouts: p0@low #0"),
        ("audit", 3, "main/start/sweep: the grader failed on 22 rollouts, for instance p0@low #0"),  # nor are its seeds a run's
        ("audit --regrade", 3, "main/start/sweep: the grader failed on 22 rollouts, for instance p0@low #0"),
        ("report --no-figures", 6, "the grader failed on 22 rollouts: p0@low #0"),
        ("compare runs/other", 6, "the grader failed on 22 rollouts: p0@low #0"),
        ("status --run", 0, ""),
        ("show main/start/sweep --run", 6, "the grader failed on 22 rollouts: p0@low #0"),
        ("show main/start/sweep/p1@low#0 --run", 0, "grader error (entry_differs)"),
    ],
)
def test_judging_a_run_evaluates_nothing(received, command, code, said):
    (run, _), mark = received
    done = call(*command.split(), run)
    text = done.output
    if isinstance(done.exception, AblationError):
        text += " ".join(done.exception.lines())
        assert "`entry_differs`" in text and done.exception.exit_code == code
    else:
        assert done.exit_code == code, text
    assert said in " ".join(text.split()) and not mark.exists()


def test_the_viewer_evaluates_nothing(received, monkeypatch):
    starlette = pytest.importorskip("starlette.testclient")
    from ablation.view.app import create_app
    from ablation.view.library import Library

    (run, _), mark = received
    monkeypatch.setenv("ABLATION_CACHE", str(run.parent / "cache"))
    library = Library(run)
    browser = starlette.TestClient(create_app(library), base_url="http://127.0.0.1:8000")
    library.study("small").index.look(60)
    for page in ("curves", "rules", "rollouts", "rollout?family=main&arm=start&stage=sweep&problem=p1&effort=low&index=0"):
        browser.get(f"/study/small/{page}")
    assert not mark.exists()


@pytest.mark.parametrize("data", [b"[" * 100_000 + b"]" * 100_000, b"null", b"\0", b'"x"'], ids=["deep", "null", "nul", "text"])
def test_a_check_that_is_no_record_is_named(tmp_path, data):
    made_run = make_run(tmp_path)
    path = made_run.run.check_result("main", "N", 4)
    path.write_bytes(data)
    reseal(made_run.run.root)
    assert call("status", "--run", made_run.run.root).exit_code == 0
    with pytest.raises(IntegrityError, match=f"{path}: is not the result of a check"):
        subjects_there(made_run.locked, made_run.run)
