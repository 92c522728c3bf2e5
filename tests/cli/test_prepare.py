import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ablation.cli.prepare import prepare
from ablation.errors import AblationError
from ablation.files import sha256_path
from ablation.plan.load import load_plan
from tests.plan.conftest import TEXT, write_plan

pytest.importorskip("reasoning_gym")

SMOLLM2 = Path(__file__).parents[2] / "plans" / "smollm2.yaml"
PROBLEMS = load_plan(SMOLLM2).plan.problems.training.sha256
app = typer.Typer()
app.command()(prepare)


def run(*arguments):
    """(exit code, stdout, stderr); an expected error is handled as the program's entry point does."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, AblationError):
        return int(result.exception.exit_code), result.stdout, result.stderr + "\n".join(result.exception.lines())
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def plan_with(folder: Path, at: str, sha256: str | None = None) -> Path:
    """The small plan with a recipe's problems."""
    line = next(line for line in TEXT.splitlines() if "training: {at" in line)
    digest = f', sha256: "{sha256}"' if sha256 else ""
    return write_plan(folder, TEXT.replace(line, f'  training: {{at: "{at}"{digest}}}'))


def test_what_is_missing_is_made_once(tmp_path, cache):
    path = plan_with(tmp_path, "recipe:smollm2/problems.jsonl", PROBLEMS)
    code, out, err = run(path)
    made = cache / "recipes" / "smollm2" / "problems.jsonl"
    assert (code, out) == (0, f"{path}: ready (1 made, 0 there already)\n")
    assert f"problems.jsonl: making {made}" in err
    assert sha256_path(made) == PROBLEMS
    before = made.stat().st_mtime_ns
    code, out, err = run(path, "--json")
    assert code == 0
    assert json.loads(out) == {
        "plan": str(path),
        "resources": {
            "problems.training": {
                "at": "recipe:smollm2/problems.jsonl",
                "path": str(made),
                "sha256": PROBLEMS,
                "made": False,
            }
        },
        "not_as_locked": [],
    }
    assert made.stat().st_mtime_ns == before
    assert "there already" in err


def test_a_plan_without_recipes_has_nothing_to_make(tmp_path, cache):
    assert run(write_plan(tmp_path)) == (0, f"{tmp_path / 'small.yaml'}: names no `recipe:`, so there is nothing to make\n", "")
    assert not cache.exists()


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("recipe:smolm2/base", "there is no recipe `smolm2`; there are: "),
        (
            "recipe:smollm2/problem.jsonl",
            "recipe `smollm2` makes no `problem.jsonl`; it makes: base, problems.jsonl, start-adapter",
        ),
    ],
)
def test_an_unknown_recipe_or_part_is_an_error_in_the_plan(tmp_path, cache, at, said):
    path = plan_with(tmp_path, at)
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if at in text)
    code, out, err = run(path)
    assert (code, out) == (2, "")
    assert err.startswith(f"{path}:{line}:")
    assert f"problems.training.at: {said}" in err
    assert not cache.exists()


def test_another_digest_than_the_plan_says_is_refused_and_not_kept(tmp_path, cache):
    path = plan_with(tmp_path, "recipe:smollm2/problems.jsonl", "0" * 64)
    code, _, err = run(path)
    assert code == 3, err
    assert f"was made with the digest {PROBLEMS}, but the plan says {'0' * 64}; it was not kept" in err
    assert not (cache / "recipes" / "smollm2" / "problems.jsonl").exists()


def test_a_file_that_is_not_the_locked_one_is_said_to_be_so(tmp_path, cache):
    from ablation.plan.lock import lock_plan

    made = cache / "recipes" / "smollm2" / "problems.jsonl"
    made.parent.mkdir(parents=True)
    made.write_text((tmp_path / "x").name)  # what another machine made
    path = plan_with(tmp_path, "recipe:smollm2/problems.jsonl")
    lock_plan(path)
    made.unlink()
    code, out, err = run(path, "--json")
    assert code == 0
    assert json.loads(out)["not_as_locked"] == ["problems.training"]
    assert f"warning: problems.training is not the one that {path} was locked with" in err


def test_a_cache_that_cannot_be_written_is_one_clear_line(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("ABLATION_CACHE", str(blocked))
    code, _, err = run(plan_with(tmp_path, "recipe:smollm2/problems.jsonl"))
    assert code == 2
    assert "could not be written" in err
    assert "Traceback" not in err


def test_asking_for_help_imports_nothing_heavy():
    program = (
        "import sys, ablation.cli.prepare; print([name for name in ('torch', 'transformers', 'peft') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout == "[]\n"
