from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ablation.cli.arms import app
from ablation.errors import UsageError
from ablation.plan.load import load_plan
from tests.plan.conftest import TEXT, write_plan


def call(*arguments) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list():
    text = call()
    assert "high_entropy" in text and "Dr_GRPO" in text and "clip.low" in text
    found = json.loads(call("--json"))
    assert found["library"]["N"]["formula"] == "A_i × s0 / L_i"
    assert "arms" not in found


def test_list_with_the_arms_of_a_plan(tmp_path):
    path = write_plan(tmp_path)
    found = json.loads(call("--plan", path, "--json"))
    assert found["plan"] == str(path) and list(found["arms"]) == ["C", "N", "XK"]
    assert f"Arms of {path}".replace(" ", "") in "".join(call("--plan", path).split())


def test_what_is_shown_is_what_can_be_pasted(tmp_path):
    """The whole output stands in for the plan's `arms:` section."""
    shown = call("show", "DAPO")
    section = TEXT[TEXT.index("arms:") : TEXT.index("families:")]
    text = TEXT.replace(section, shown).replace("control: C", "control: DAPO")
    assert load_plan(write_plan(tmp_path, text)).plan.arms["DAPO"].clip.high == 0.28


def test_example_and_the_rollout_that_is_worked():
    found = json.loads(call("show", "XP", "--example", "--rollout", "3", "--json"))
    assert [round(row["total"], 9) for row in found["example"]["rollouts"]] == [30, -10, -10, 90, -30, -30, 10, 10, 10]
    assert found["example"]["by_hand"]["rollout"] == 3
    assert "Rollout 3 by hand (p1@low, truncated" in call("show", "XP", "--example", "--rollout", "3")


def test_an_arm_of_a_plan_goes_first_and_has_the_plans_reward(tmp_path):
    text = TEXT.replace("  N: {weighting: rollout}", "  N: {weighting: token, learning_rate: 1e-3}")
    text = text.replace("  updates: 5\n", "  updates: 5\n  reward: {length_bonus: 0}\n")
    path = write_plan(tmp_path, text)
    found = json.loads(call("show", "N", "--plan", path, "--example", "--json"))
    assert found["source"] == f"an arm of {path}" and found["fields"]["weighting"] == "token"
    assert "Its learning rate is 0.001, not 2e-05." in found["words"]
    assert [row["reward"] for row in found["example"]["rollouts"]] == [1, 1, 0, 1, 0, 0, 0, 0, 0]
    assert json.loads(call("show", "GRPO", "--plan", path, "--json"))["source"] == "an arm of the library"


def test_an_unknown_name_lists_what_there_is(tmp_path):
    with pytest.raises(UsageError) as caught:
        call("show", "GRPo")
    assert caught.value.message == "there is no arm `GRPo`; did you mean `GRPO`?"
    assert "Library: C, N, X, XP, XK, P, GRPO" in caught.value.hint and "needs --plan" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        call("show", "xkk", "--plan", write_plan(tmp_path))
    assert "C, N, XK" in caught.value.hint


def test_an_option_before_the_command_is_not_ignored(tmp_path):
    with pytest.raises(UsageError, match="go behind `show`"):
        call("--plan", write_plan(tmp_path), "show", "N")


def test_no_torch():
    code = "import sys; from typer.testing import CliRunner; from ablation.cli.arms import app; "
    code += "assert CliRunner().invoke(app, ['show', 'GRPO', '--example']).exit_code == 0; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
