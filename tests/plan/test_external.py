"""What a plan may say of an arm that a command trains."""

from __future__ import annotations

import hashlib
import json

import pytest

from ablation.errors import IntegrityError
from ablation.plan.arms import Arm
from ablation.plan.canonical import canonical_tree
from ablation.plan.external import External, external_in_words
from ablation.plan.load import PlanError, load_plan, parse_plan
from ablation.plan.locate import resource_path, resources_of
from ablation.plan.lock import lock_plan, verify_lock
from ablation.plan.resolved import resolved_yaml

from .conftest import TEXT, write_plan

SCRIPT = b"print('trained')\n"
SHA = hashlib.sha256(SCRIPT).hexdigest()
EXTERNAL = f"E: {{external: {{command: [python3, train.py], each: update, files: [{{at: train.py, sha256: {SHA}}}]}}}}"


def with_arm(arm: str) -> str:
    return TEXT.replace("  N: {weighting: rollout}\n", f"  N: {{weighting: rollout}}\n  {arm}\n")


@pytest.fixture
def path(tmp_path):
    (tmp_path / "train.py").write_bytes(SCRIPT)
    return write_plan(tmp_path, with_arm(EXTERNAL))


def problems(tmp_path, arm: str) -> list[str]:
    with pytest.raises(PlanError) as refused:
        load_plan(write_plan(tmp_path, with_arm(arm)))
    return [line.split(": ", 1)[1] for line in refused.value.message.split("\n")]


def test_an_external_arm_needs_no_weighting_and_its_files_are_locked(path):
    plan = load_plan(path).plan
    assert plan.arms["E"].weighting is None
    assert plan.arms["E"].external.words == "python3 train.py"
    assert resources_of(plan)["arms.E.external.files[0]"].at == "train.py"
    lock_plan(path)
    assert verify_lock(path, resources=True).lock.resources["arms.E.external.files[0]"]["sha256"] == SHA
    (path.parent / "train.py").write_bytes(SCRIPT + b"# another\n")
    with pytest.raises(
        IntegrityError, match=r"train\.py: arms\.E\.external\.files\[0\] has changed since .* was locked"
    ) as changed:
        verify_lock(path, resources=True)
    assert changed.value.exit_code == 3


def test_the_resolved_plan_is_the_same_plan(path):
    loaded = load_plan(path)
    again = parse_plan(path, resolved_yaml(loaded.plan).encode())
    assert again.digest == loaded.digest


def test_an_arm_of_an_earlier_lock_gains_a_null_alone():
    assert canonical_tree(Arm(weighting="token")).pop("external") is None
    assert canonical_tree(Arm(weighting="token"))["weighting"] == "token"


@pytest.mark.parametrize(
    ("field", "value"),
    [("weighting", "rollout"), ("baseline", "none"), ("clip", "{low: 0.1}"), ("kl", "{beta: 0.1}"), ("optimizer", "{beta1: 0.5}"),
     ("truncated", "mask"), ("finish_push", "0.1"), ("tokens", "response")],
)  # fmt: skip
def test_what_the_command_decides_is_refused_beside_it(tmp_path, field, value):
    found = problems(tmp_path, f"E: {{external: {{command: [x], each: update}}, {field}: {value}}}")
    assert found == [f"arms.E.{field}: the command of `external` decides this, so it would do nothing here; leave it out"]


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ("E: {note: empty}", "arms.E.weighting: is missing; it needs `weighting: ...` (token, rollout, grpo"),
        ("E: {external: {command: [], each: update}}", "arms.E.external.command: found a list; allowed: a list that is not empty"),
        ("E: {external: {command: train, each: update}}", 'arms.E.external.command: found the text "train"; allowed: a list'),
        ("E: {external: {command: [train]}}", "arms.E.external.each: is missing; it needs `each: ...`"),
        ("E: {external: {command: [train], each: step}}", 'arms.E.external.each: found the text "step"; allowed: `update` or `arm`'),
        ("E: {external: {command: [train], each: arm}, reward: {length_bonus: 0.0}}", "arms.E.reward: with `each: arm` no rollout is graded"),
        ("E: {external: {command: [train], each: arm, timeout_minutes: 0}}", "arms.E.external.timeout_minutes: found the number 0"),
        ("E: {external: {command: [train], each: arm, files: [{at: a}]}}", "arms.E.external.files[0]: needs `sha256`"),
        (f"E: {{external: {{command: [x], each: arm, files: [{{at: a, sha256: {SHA}}}, {{at: a, sha256: {SHA}}}]}}}}",
         "arms.E.external.files[1].at: `a` is named before"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(tmp_path, arm, message):
    [found] = problems(tmp_path, arm)
    assert found.startswith(message), found


def test_learning_rate_and_reward_go_to_the_command(tmp_path):
    arm = "E: {external: {command: [x], each: update}, learning_rate: 0.1, reward: {length_bonus: 0.0}, note: ours}"
    assert load_plan(write_plan(tmp_path, with_arm(arm))).plan.arms["E"].learning_rate == 0.1


def test_an_arm_trained_as_a_whole_cannot_be_extended_by_name(tmp_path):
    text = with_arm("E: {external: {command: [x], each: arm}}") + "extension: {arms: [N, E], updates: 6, checks: [6]}\n"
    with pytest.raises(PlanError, match=r"extension\.arms\[1\]: `E` is trained as a whole \(`external\.each: arm`\)"):
        load_plan(write_plan(tmp_path, text))


def test_the_path_of_a_resource():
    assert resource_path("arms.E.external.files[12]") == ("arms", "E", "external", "files", 12)
    assert resource_path("model.base") == ("model", "base")


def test_words_name_the_command_its_limit_and_what_is_locked():
    external = External(command=["sh", "-c", "a b"], each="update", timeout_minutes=1.5)
    first, second = external_in_words(external)
    assert first.endswith("sampled with: sh -c 'a b', for at most 1.5 minutes; no file of it is locked.")
    assert second.startswith("What trains it is outside this program")
    assert json.loads(external.model_dump_json())["files"] == []
