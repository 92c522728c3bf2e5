from __future__ import annotations

import pytest
from pydantic import ValidationError

from ablation.plan.canonical import canonical_tree
from ablation.plan.engines import Policy, Vllm
from ablation.plan.model import Plan
from tests.study.mini import mini_tree


def test_vllm_has_its_defaults_written_out_whether_it_is_named_or_not():
    named, unnamed = Policy.model_validate({"backend": "vllm", "vllm": {}}), Policy.model_validate({"backend": "vllm"})
    assert named == unnamed
    assert unnamed.vllm == Vllm()
    assert canonical_tree(unnamed)["vllm"]["sequences"] == 256


def test_a_local_policy_has_no_settings_of_vllm():
    assert Policy().vllm is None
    with pytest.raises(ValidationError, match="says how vLLM samples, but `backend` is `local`"):
        Policy.model_validate({"backend": "local", "vllm": {"eager": True}})


def test_a_plan_may_name_other_backends_and_a_run_has_one_of_them():
    policy = Policy.model_validate({"also": ["vllm"], "threads": 3})
    assert policy.backends == ["local", "vllm"]
    assert policy.vllm == Vllm()
    assert policy.with_backend("local") == Policy(threads=3)
    assert policy.with_backend("vllm") == Policy.model_validate({"backend": "vllm", "threads": 3})


@pytest.mark.parametrize(
    ("also", "message"),
    [
        (["local"], "also.0: `local` is named before"),
        (["vllm", "vllm"], "also.1: `vllm` is named before"),
        (["vlm"], "also.0"),
        ("vllm", "also"),
    ],
)
def test_a_backend_is_named_once_and_by_its_name(also, message):
    tree = mini_tree() | {"policy": {"also": also}}
    with pytest.raises(ValidationError) as refused:
        Plan.model_validate(tree)
    assert message in ".".join(map(str, refused.value.errors()[0]["loc"])) + str(refused.value).replace("policy.", "")


@pytest.mark.parametrize("field", ["context", "sequences", "batch_tokens", "kv_cache_gb", "tensor_parallel", "mismatch"])
def test_no_setting_may_be_nothing(field):
    with pytest.raises(ValidationError, match=field):
        Policy.model_validate({"backend": "vllm", "vllm": {field: 0}})


@pytest.mark.parametrize(("field", "value"), [("tensor_parallel", 2), ("replicas", 2), ("eager", True), ("kv_cache_gb", 8.0)])
def test_what_a_running_server_was_started_with_cannot_be_planned(field, value):
    with pytest.raises(ValueError, match="is a setting of the server that runs already: leave it out"):
        Vllm.model_validate({"engine": "server", field: value})
    assert getattr(Vllm.model_validate({field: value}), field) == value


def test_a_context_that_holds_no_rollout_at_the_cap_is_refused():
    tree = mini_tree() | {"policy": {"backend": "vllm", "vllm": {"context": 48}}}
    tree["sampling"] |= {"max_tokens": 48}
    with pytest.raises(ValueError, match=r"policy\.vllm\.context: found 48; a prompt and `sampling.max_tokens` \(48\) need more"):
        Plan.model_validate(tree)
    tree["policy"]["vllm"]["context"] = 49
    assert Plan.model_validate(tree)
