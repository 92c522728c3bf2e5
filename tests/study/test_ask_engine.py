"""What a lock says of the sampling engine. Where vLLM is installed the engine itself is asked: tests/policy/vllm."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import yaml

from ablation.errors import UsageError
from ablation.plan.load import load_plan
from ablation.plan.lock import lock_plan, verify_lock
from ablation.study.ask_engine import ask_engine, write_adapter
from tests.study.mini import ROOT

TINY = ROOT / "ablation" / "assets" / "tiny-reasoner"


class Silent:
    def say(self, message):
        raise AssertionError(f"nothing is started here: {message}")


def write_plan(folder, **vllm):
    text = (ROOT / "plans" / "quickstart.yaml").read_text()
    policy = yaml.safe_dump({"backend": "vllm", "vllm": vllm or None}, default_flow_style=True).strip()
    path = folder / "asked.yaml"
    path.write_text(
        text.replace("policy: {backend: local, threads: 1}", f"policy: {policy}").replace("name: quickstart", "name: asked")
    )
    return path


def test_a_plan_without_an_engine_has_nothing_to_ask(tmp_path):
    path = tmp_path / "plain.yaml"
    path.write_text((ROOT / "plans" / "quickstart.yaml").read_text())
    assert ask_engine(load_plan(path), Silent()) is None
    assert "sampler" not in lock_plan(path).content
    assert lock_plan.__doc__ and verify_lock(path).lock.sampler is None


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_where_vllm_is_not_installed_the_lock_records_that_nobody_asked(tmp_path):
    path = write_plan(tmp_path)
    found = ask_engine(load_plan(path), Silent())
    assert found == {"asked": False, "why": "vLLM is not installed here"}
    lock_plan(path, sampler=found)
    assert verify_lock(path).lock.sampler == found


def test_a_server_is_not_asked_at_lock_time(tmp_path):
    found = ask_engine(load_plan(write_plan(tmp_path, engine="server")), Silent())
    assert not found["asked"] and "server" in found["why"]


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_the_lock_command_says_so(tmp_path, capsys):
    from typer.testing import CliRunner

    from ablation.cli.plan import app

    result = CliRunner().invoke(app, ["lock", str(write_plan(tmp_path)), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["sampler"] == {"asked": False, "why": "vLLM is not installed here"}
    said = " ".join(result.stderr.split())
    assert "vLLM was not asked whether it takes the model and the adapter: vLLM is not installed here; a run asks" in said


def test_the_adapter_that_is_asked_about_has_weights_in_one_kind_of_module_alone(tmp_path):
    from safetensors.numpy import load_file

    write_adapter(TINY / "start-adapter", tmp_path, "lm_head", 0.1)
    start, made = (load_file(folder / "adapter_model.safetensors") for folder in (TINY / "start-adapter", tmp_path))
    assert {name: weight.shape for name, weight in made.items()} == {name: weight.shape for name, weight in start.items()}
    for name, weight in made.items():
        assert weight.any() == (".lm_head." in name)
        if weight.any():
            assert weight.std() == pytest.approx(0.1, rel=0.2)
    assert (tmp_path / "adapter_config.json").read_bytes() == (TINY / "start-adapter" / "adapter_config.json").read_bytes()


def test_a_context_that_holds_no_rollout_is_refused_before_an_engine_is_started(tmp_path, monkeypatch):
    from ablation.study import ask_engine as module

    monkeypatch.setattr(module, "_why_not", lambda loaded: None)
    cap = load_plan(write_plan(tmp_path)).plan.sampling.max_tokens
    with pytest.raises(UsageError, match=f"(?s)(?=.*{cap + 1} tokens)(?=.*max_tokens)"):
        ask_engine(load_plan(write_plan(tmp_path, context=cap + 1)), Silent())


def test_a_machine_that_is_too_small_for_the_plan_is_no_refusal(tmp_path, monkeypatch):
    from ablation.policy.vllm import devices
    from ablation.study import ask_engine as module

    monkeypatch.setattr(module, "_why_not", lambda loaded: None)
    small = write_plan(tmp_path, kv_cache_gb=1e6)
    found = ask_engine(load_plan(small), Silent())
    assert not found["asked"] and "too small: memory: trainer and engine" in found["why"]
    monkeypatch.setattr(devices, "gpu_count", lambda: 1)
    many = write_plan(tmp_path, tensor_parallel=4)
    found = ask_engine(load_plan(many), Silent())
    assert not found["asked"] and "need 4 GPUs; this process sees 1" in found["why"]
