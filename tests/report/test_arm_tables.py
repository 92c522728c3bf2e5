"""Golden pages: after a change on purpose `UPDATE_GOLDEN=1 python -m pytest tests/report`, and read the difference.

The numbers in them are worked out by hand in test_arm_example.py.
"""

from __future__ import annotations

import io
import json
import os
from itertools import product
from pathlib import Path

import pytest
import yaml

from ablation.plan.arms import Arm, Reward, library_arms
from ablation.plan.weightings import WEIGHTINGS
from ablation.report.arm_example import Example
from ablation.report.arm_tables import (
    all_arms,
    arm_content,
    arm_yaml,
    arms_page,
    example_content,
    example_page,
    library,
)
from ablation.report.terminal import Page, plain_console
from ablation.training.weightings import weighting

GOLDEN = Path(__file__).parent / "golden"


def text_page(content, width=80) -> str:
    out = io.StringIO()
    plain_console(file=out, width=width, color_system=None).print(Page(content), end="")
    return out.getvalue()


def golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def worked(name: str, arm: Arm, row: int = 0) -> str:
    example = Example(arm, Reward())
    content = arm_content(name, arm, "an arm of the library", None) | {"example": example_content(example, row)}
    return text_page(example_page(content, example))


def test_golden_list():
    golden("arms.txt", text_page(arms_page(all_arms(None, None))))


@pytest.mark.parametrize("name", ["N", "XP", "GRPO"])
def test_golden_examples(name):
    golden(f"arm_example_{name}.txt", worked(name, library()[name]))


def test_no_example_is_cut_or_wider_than_a_terminal():
    arms = library() | {
        "high_entropy": Arm(weighting="high_entropy"),
        "masked": library()["GRPO"].model_copy(update={"truncated": "mask"}),
    }
    for name, arm in arms.items():
        for row in range(9):
            text = worked(name, arm, row)
            assert "…" not in text and max(map(len, text.split("\n"))) <= 80


def test_the_list_names_everything_that_exists():
    found = all_arms(None, None)
    page = text_page(arms_page(found))
    assert set(found["library"]) == set(library_arms())
    for name in found["weightings"]:
        assert f"  {name} " in page
        assert weighting(name)
    fields = {name.split(".")[0] for name in found["parts"]}
    assert fields == set(Arm.model_fields) - {"weighting"}
    assert found["parts"]["kl.estimator"]["default"] == "`k1`"
    assert "one of the plan" not in page and "Arms of" not in page


def test_a_plans_arms_are_listed_beside_the_library():
    own = {"mine": Arm(weighting="prompt_mean", note="mine")}
    page = text_page(arms_page(all_arms(own, "plans/x.yaml")))
    assert "Arms of plans/x.yaml\n  mine  A_i × s0 × R / (G × L_g)\n        mine\n" in page


@pytest.mark.parametrize("name", library_arms())
def test_the_yaml_of_an_arm_can_be_pasted(name):
    arm = library()[name]
    text = arm_yaml(arm_content(name, arm, "an arm of the library", None))
    read = yaml.safe_load(text)
    assert Arm.model_validate(read["arms"][name]) == arm
    assert text.startswith(f"# {name}, an arm of the library\n# weight of a token: ")


def test_a_note_in_many_lines_stays_a_comment():
    arm = Arm(weighting="rollout", note="one\ntwo: three")
    text = arm_yaml(arm_content("a", arm, "an arm of x\ny.yaml", None))
    assert yaml.safe_load(text)["arms"]["a"]["note"] == "one\ntwo: three"
    assert text.startswith("# a, an arm of x y.yaml\n")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e15, 5e-324])
@pytest.mark.parametrize("scale", ["none", "std"])
def test_the_largest_and_smallest_coefficients_are_still_numbers(size, scale):
    """Whatever a plan may say, an example is finite and is shown."""
    fields = {
        "kl": {"kl": {"beta": size, "estimator": "k3", "unit": "advantage"}},
        "push": {"finish_push": size},
        "penalty": {"truncated": "penalize", "truncation_penalty": size},
        "loops": {"reward": {"loop_penalty": size}},
        "clip": {"clip": {"high": size}},
    }
    for spread, (name, own) in product(WEIGHTINGS, fields.items()):
        arm = Arm.model_validate({"weighting": spread, "scale": scale} | own)
        worked = Example(arm, Reward(**(own.get("reward", {}))))
        content = arm_content(name, arm, "an arm", None)
        for row in range(9):
            content["example"] = example_content(worked, row)
            json.dumps(content, allow_nan=False)
        plain_console(file=io.StringIO(), width=80).print(example_page(content, worked))
