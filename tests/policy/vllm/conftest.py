"""One real engine at a time, on the shipped model; nothing here runs where vLLM is not installed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from ablation.plan.model import Plan

ROOT = Path(__file__).parents[3]
TINY = ROOT / "ablation" / "assets" / "tiny-reasoner"
END = 6


def pytest_collection_modifyitems(items):
    if find_spec("vllm") is None:
        why = pytest.mark.skip(reason="vLLM is not installed: `make test-vllm` installs its CPU build and runs these tests")
        for item in items:
            if item.path.parent == Path(__file__).parent and "engine" in str(item.fixturenames):
                item.add_marker(why)


@pytest.fixture(scope="session")
def base(tmp_path_factory) -> Path:
    """The shipped model, with a generation_config that would ruin every rollout if it were read."""
    folder = tmp_path_factory.mktemp("vllm") / "base"
    shutil.copytree(TINY / "base", folder)
    ruin = {"do_sample": True, "top_k": 1, "repetition_penalty": 1.8, "temperature": 0.2, "eos_token_id": [3, 4, 5]}
    (folder / "generation_config.json").write_text(json.dumps(ruin))
    return folder


@pytest.fixture(scope="session")
def tree() -> dict:
    tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
    settings = {"kv_cache_gb": 0.05, "eager": True, "sequences": 64, "batch_tokens": 2048}
    tree["policy"] = {"backend": "vllm", "threads": 1, "vllm": settings}
    tree["sampling"] |= {"max_tokens": 64}
    return tree


@pytest.fixture(scope="session")
def plan(tree) -> Plan:
    return Plan.model_validate(tree)


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    from ablation.policy.loading import load_tokenizer
    from ablation.problems.problem import load_problems
    from ablation.problems.render import render_prompt

    tokens = Plan.model_validate(yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())).model.tokens
    tokenizer = load_tokenizer(TINY / "base")
    problems = list(load_problems(TINY / "problems.jsonl").values())[:8]
    return [render_prompt(tokenizer, problem, "low", tokens).ids for problem in problems]


@pytest.fixture(scope="session")
def trainer(plan, base):
    from ablation.policy.local import LocalPolicy

    return LocalPolicy(plan, base, TINY / "start-adapter", (END,), 0)


class Engines:
    """Hands out the engine with the settings asked for, and ends the one before: an engine takes half a minute to start."""

    def __init__(self, plan: Plan, base: Path) -> None:
        self.plan, self.base, self.client = plan, base, None

    def get(self, **changes):
        from ablation.policy.vllm.client import EngineClient
        from ablation.policy.vllm.policy import engine_settings

        settings = replace(engine_settings(self.plan, self.base), **changes)
        if self.client is None or self.client.settings != settings or not self.client.alive:
            self.close()
            self.client = EngineClient(settings)
        return self.client

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
        self.client = None


@pytest.fixture(scope="session")
def engines(plan, base):
    engines = Engines(plan, base)
    yield engines
    engines.close()


@pytest.fixture
def make_policy(engines, trainer, plan, prompts):
    """A policy on the engine with the settings asked for, holding the start adapter."""
    from ablation.policy.vllm.policy import VllmPolicy

    def make(kind=VllmPolicy, plan=plan, trainer=trainer, **changes):
        trainer.reset()
        return kind(plan, trainer, engines.get(**changes), (END,), prompts)

    return make


class RunningServer:
    """`python -m vllm.entrypoints.openai.api_server` (what `vllm serve` starts) on the shipped model, as the README says to."""

    def __init__(self, base: Path, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address, self.log = f"http://127.0.0.1:{port}", folder / "server.log"
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--max-num-seqs", "64", "--max-num-batched-tokens", "2048"]
        arguments += ["--dtype", "float32", "--enforce-eager", "--skip-tokenizer-init", "--no-enable-chunked-prefill"]
        arguments += ["--enable-scale-out", "--enable-lora", "--max-lora-rank", "8", "--max-logprobs", "21"]
        own = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
        own |= {
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(base), *arguments],
                env=os.environ | own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        until = time.monotonic() + 600
        while time.monotonic() < until:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
        raise AssertionError("the server did not start in 600 s")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="session")
def server_engine(base, tmp_path_factory):
    """The address of a server that reads the base's generation_config and caches prefixes."""
    server = RunningServer(base, tmp_path_factory.mktemp("server"))
    try:
        server.wait()
        yield server.address
    finally:
        server.close()


@pytest.fixture(scope="session", params=["stand-in", "vllm"])
def upstream(request):
    """One proxy before one server."""
    from tests.policy.vllm.middle import Middle
    from tests.policy.vllm.stand_in import StandIn

    if request.param == "stand-in":
        found = StandIn()
    elif find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    else:
        found = request.getfixturevalue("server_engine")
    middle = Middle(found)
    yield middle
    middle.close()


@pytest.fixture
def middle(upstream):
    upstream.forget()
    yield upstream
    upstream.forget()


@pytest.fixture
def connect(middle):
    from ablation.policy.vllm.server import ServerClient
    from tests.policy.vllm.server_tools import NEEDS, QUICK, settings

    clients = []

    def connect(sequences=8, needs=None, key=None, folder=None, **patience):
        found = ServerClient(
            middle.address,
            settings(sequences),
            needs or NEEDS,
            folder=folder,
            key=key,
            patience=replace(QUICK, **patience),
        )
        clients.append(found)
        return found

    yield connect
    middle.forget()
    for client in clients:
        client.close()
