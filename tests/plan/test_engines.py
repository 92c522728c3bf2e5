from __future__ import annotations

import pytest
from pydantic import ValidationError

from ablation.plan.canonical import canonical_tree
from ablation.plan.engines import Policy, Vllm


def test_vllm_has_its_defaults_written_out_whether_it_is_named_or_not():
    named, unnamed = Policy.model_validate({"backend": "vllm", "vllm": {}}), Policy.model_validate({"backend": "vllm"})
    assert named == unnamed
    assert unnamed.vllm == Vllm()
    assert canonical_tree(unnamed)["vllm"]["sequences"] == 256


def test_a_local_policy_has_no_settings_of_vllm():
    assert Policy().vllm is None
    with pytest.raises(ValidationError, match="says how vLLM samples, but `backend` is `local`"):
        Policy.model_validate({"backend": "local", "vllm": {"eager": True}})


@pytest.mark.parametrize("field", ["context", "sequences", "batch_tokens", "kv_cache_gb", "tensor_parallel", "mismatch"])
def test_no_setting_may_be_nothing(field):
    with pytest.raises(ValidationError, match=field):
        Policy.model_validate({"backend": "vllm", "vllm": {field: 0}})
