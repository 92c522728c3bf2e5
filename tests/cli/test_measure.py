import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ablation.cli.main import app
from ablation.errors import UsageError

ROOT = Path(__file__).parents[2]
STAGE = ROOT / "runs" / "records" / "smollm2" / "main" / "C" / "readout"


def call(*arguments):
    return CliRunner().invoke(app, ["measure", *map(str, arguments)])


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("<think>Let us see. " + "No, wait. " * 20 + "</think>\nThe answer is 11.", encoding="utf-8")
    return path


def test_a_page_with_the_loop_marked(text):
    shown = call(text).output
    assert "thinking       212 characters, closed" in shown  # "Let us see. " and 20 times "No, wait. "
    assert (
        "periodic loop  20.2 times" in shown
    )  # the ". " before the first one belongs to the stretch and "(10 characters)" in shown
    assert "⟦" in shown and "⟧" in shown
    assert "0.0% of the thinking's letters; none in the answer" in shown


def test_json_and_a_grade(text):
    found = json.loads(call(text, "--grader", "integer", "--gold", "11", "--json").output)
    assert found["grade"] == "no_answer (not_one_integer)" and found["looping"] and found["loop"]["period"] == 10


def test_novelty_of_a_plan_is_what_a_strong_loop_is(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text((ROOT / "plans" / "everywhere.yaml").read_text().replace("loops: {gram: 24}", "loops: {novelty: 0.15}"))
    (tmp_path / "text.txt").write_text(
        "<think>" + "".join(f"Step {i}: let me check again whether the sum is right. " for i in range(40))
    )
    shown = " ".join(call(tmp_path / "text.txt", "--plan", plan).output.split())
    assert "strong loop yes; it is one if fewer than 15% of the last 200 words say anything new" in shown
    assert "windows" not in shown


def test_a_rollout_of_a_run():
    found = json.loads(call(STAGE, "--rollout", "chain_sum-1@low #0", "--json").output)
    assert found["thinking_length"] > 0 and found["opened"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.txt",), "none.txt: cannot be read"),
        ((STAGE,), "--rollout: name one of the 144 rollouts"),
        ((STAGE, "--rollout", "x"), "--rollout: there is no `x`"),
        ((ROOT / "README.md", "--rollout", "x"), "goes with the folder of a stage"),
        ((ROOT / "README.md", "--grader", "math"), "--grader and --gold go together"),
        ((ROOT / "README.md", "--grader", "code", "--gold", "1"), "those that need no more than a gold"),
        ((ROOT / "README.md", "--tokenizer", "nowhere"), "there is no nowhere/tokenizer.json"),
        ((ROOT / "README.md", "--open", ""), "--open, --close: found `` and `</think>`; the tags must be two"),
        ((ROOT / "README.md", "--open", "|", "--close", "|"), "--open, --close: found `|` and `|`; the tags must be two"),
    ],
)
def test_wrong_use(arguments, said):
    assert said in str(call(*arguments).exception)


def test_a_file_that_is_no_tokenizer_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("[]")
    error = call(ROOT / "README.md", "--tokenizer", tmp_path).exception
    assert isinstance(error, UsageError) and "tokenizer.json: is not a tokenizer: " in error.message
