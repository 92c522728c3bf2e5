"""What no service can do is refused before one is asked; and where it is, and where the start lies."""

from __future__ import annotations

import pytest

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.study.service import norm_problems, service_problems, service_settings
from tests.study.mini import mini_tree


def plan(**changes) -> Plan:
    tree = mini_tree()
    tree["policy"] = {"backend": "tinker", "tinker": {"base_model": "some/model"}}
    for name, value in changes.items():
        tree[name] = tree[name] | value if isinstance(value, dict) else value
    return Plan.model_validate(tree)


def test_the_study_as_it_is_can_run_there():
    assert service_problems(plan()) == []


def rule(measure: str) -> dict:
    return {"name": "one", "measure": measure, "op": ">", "limit": 1}


def test_rules_on_what_was_not_sampled():
    (found,) = service_problems(plan(stop_rules=[rule("entropy")]))
    assert found.startswith("stop_rules[0].measure: `entropy` needs the probabilities of tokens that were not sampled")
    tree = mini_tree()["verdict"]
    tree["damage"].append({"name": "wild", "measure": "top20_entropy", "compare": "change", "op": ">=", "limit": 0.5})
    (found,) = service_problems(plan(verdict=tree))
    assert "`top20_entropy`" in found and found.startswith("verdict.damage[")


def test_a_norm_that_is_not_told():
    asked = plan(stop_rules=[rule("grad_norm")])
    assert norm_problems(asked, "grad_norm") == []
    assert norm_problems(asked, None) == ["stop_rules[0].measure: `grad_norm`: the service does not tell the norm of a gradient"]
    assert norm_problems(plan(), None) == []


def test_optimizers_that_no_service_has():
    training = {"optimizer": {"name": "adam", "weight_decay": 0.1, "state": "start"}}
    assert [one.split(":")[0] for one in service_problems(plan(training=training))] == [
        "training.optimizer.state",
        "training.optimizer.name",
    ]
    assert service_problems(plan(training={"optimizer": {"name": "adamw", "weight_decay": 0.1}})) == []
    arms = {"C": {"weighting": "token", "optimizer": {"state": "start"}}, "E": {"weighting": "high_entropy"}}
    assert [one.split(":")[0] for one in service_problems(plan(arms=mini_tree()["arms"] | arms))] == [
        "arms.C.optimizer.state",
        "arms.E.weighting",
    ]


def test_a_name_is_needed():
    tree = mini_tree()
    tree["policy"] = {"backend": "tinker"}
    with pytest.raises(ValueError, match=r"policy.tinker.base_model"):
        Plan.model_validate(tree)


def test_settings():
    start = "tinker://run/weights/start"
    assert service_settings({"ABLATION_TINKER_START": start}) == (None, start)
    both = {"ABLATION_TINKER_START": start, "ABLATION_TINKER_SERVER": "http://127.0.0.1:8000"}
    assert service_settings(both) == ("http://127.0.0.1:8000", start)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "ABLATION_TINKER_START is not set"),
        ({"ABLATION_TINKER_START": "tinker://run/sampler_weights/x"}, "an address such as tinker://RUN/weights/NAME"),
        ({"ABLATION_TINKER_START": "runs/x"}, "found `runs/x`"),
        ({"ABLATION_TINKER_START": "tinker://a\x1b[31m/weights/b"}, "an address such as tinker://RUN/weights/NAME"),
        ({"ABLATION_TINKER_SERVER": "localhost"}, "ABLATION_TINKER_SERVER: found `localhost`"),
        ({"ABLATION_TINKER_SERVER": "http://me:secret@host"}, "has a name or a password in it"),
    ],
)
def test_settings_that_cannot_be(environment, said):
    with pytest.raises(UsageError, match=said):
        service_settings(environment)
