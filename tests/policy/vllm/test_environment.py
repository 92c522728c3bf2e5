from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from ablation.policy.vllm.client import _environment, vllm_variables

SETTINGS = SimpleNamespace(threads=3, devices=None)


def test_what_could_move_a_number_is_of_the_record_and_nothing_else(monkeypatch):
    for name in ("VLLM_ATTENTION_BACKEND", "VLLM_FLOAT32_MATMUL_PRECISION"):
        monkeypatch.setenv(name, "x")
    for name in ("VLLM_CPU_KVCACHE_SPACE", "VLLM_CACHE_ROOT", "VLLM_LOGGING_LEVEL", "VLLM_API_KEY", "OTHER"):
        monkeypatch.setenv(name, "y")
    found = vllm_variables()
    assert {name: value for name, value in found.items() if value in "xy"} == {
        "VLLM_ATTENTION_BACKEND": "x",
        "VLLM_FLOAT32_MATMUL_PRECISION": "x",
    }


def test_an_engine_has_its_own_temporary_folder_and_the_compiler_its_lasting_one(monkeypatch, tmp_path):
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "40")
    found = _environment(SETTINGS, tmp_path)
    assert found["TMPDIR"] == str(tmp_path)
    assert Path(found["TORCHINDUCTOR_CACHE_DIR"]).parent != tmp_path
    assert found["OMP_NUM_THREADS"] == "3"
    assert "VLLM_CPU_KVCACHE_SPACE" not in found
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    assert _environment(SETTINGS, tmp_path)["TORCHINDUCTOR_CACHE_DIR"] == "/mine"
