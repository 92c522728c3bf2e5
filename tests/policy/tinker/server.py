"""A real server of the Tinker protocol on this machine: SkyRL's, with its jax backend on the CPU, and a Llama made for the tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import yaml

from tests.study.mini import ROOT, mini_tree

ENVIRONMENT = Path(sys.executable).parent.parent
INSTALLED = all(find_spec(name) is not None for name in ("skyrl", "jax", "tinker"))
WHY = "SkyRL's server is not installed: `make test-tinker` installs it and runs these tests"
KEY = "tml-for-a-test"
PATIENCE = 600.0
ADAPTERS, RANK = 24, 8
PROJECT = """\
[project]
name = "server"
version = "0"
requires-python = ">=3.11"
[project.optional-dependencies]
tinker = []
jax = []
"""
"""The server starts its engine by `uv run --extra tinker --extra jax`: here both are in the environment already."""


class Server:
    """One server process; it can be killed, stopped and started again with what it had stored."""

    def __init__(self, folder: Path, model: Path, cache: Path) -> None:
        self.folder, self.model, self.cache = folder, model, cache
        self.port = free_port()
        self.process: subprocess.Popen | None = None
        (folder / "pyproject.toml").write_text(PROJECT)
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def start(self) -> None:
        config = {
            "max_lora_adapters": ADAPTERS,
            "max_lora_rank": RANK,
            "train_micro_batch_size": 1,  # one shape to compile for each length, whatever the number of rows
            "sample_max_num_sequences": 16,
        }
        command = ["uv", "run", "-m", "skyrl.tinker.api", "--base-model", str(self.model), "--backend", "jax"]
        command += ["--backend-config", json.dumps(config), "--checkpoints-base", str(self.checkpoints)]
        command += ["--database-url", f"sqlite:///{self.folder / 'tinker.db'}", "--host", "127.0.0.1", "--port", str(self.port)]
        self.log = (self.folder / "log.txt").open("a")
        self.process = subprocess.Popen(
            ["nice", "-n", "10", *command],
            cwd=self.folder,
            env=self.environment(),
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        end = time.monotonic() + PATIENCE
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "log.txt").read_text()[-3000:]
            assert time.monotonic() < end, (self.folder / "log.txt").read_text()[-3000:]
            time.sleep(0.2)

    def environment(self) -> dict[str, str]:
        return os.environ | {
            "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}",
            "UV_PROJECT_ENVIRONMENT": str(ENVIRONMENT),
            "UV_NO_SYNC": "1",
            "UV_OFFLINE": "1",
            "VIRTUAL_ENV": str(ENVIRONMENT),
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(self.cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/healthz", timeout=5) as answer:
                return answer.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def signal(self, number: signal.Signals) -> None:
        """To the server and its engine: they are a group of their own."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait(30)
        self.log.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def make_llama(folder: Path) -> None:
    """`base` and `start-adapter`: a Llama of 0.1M parameters with the tiny reasoner's tokenizer, and LoRA of rank 8 and alpha 32.

    Random and not trained, but for the end token, which is made likely enough that some rollouts end.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    from ablation.recipes import tiny_corpus as corpus
    from ablation.recipes.tiny_llama import TARGETS
    from ablation.recipes.tiny_reasoner import make_tokenizer, save_adapter

    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(corpus.VOCABULARY),
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        pad_token_id=corpus.IDS[corpus.PAD],
        eos_token_id=corpus.IDS[corpus.END],
        bos_token_id=None,
        initializer_range=0.1,
    )
    base = LlamaForCausalLM(config)
    base.save_pretrained(folder / "base")
    make_tokenizer().save_pretrained(folder / "base")
    (folder / "base" / "generation_config.json").unlink(missing_ok=True)
    adapted = get_peft_model(base, LoraConfig(r=RANK, lora_alpha=32, target_modules=TARGETS, bias="none", task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.randn_like(weight) * 0.02)
    save_adapter(adapted, folder / "start-adapter")


def service_tree(model: Path) -> dict:
    """The mini study on the Llama in `model`, with arms that move it whatever it answers: pushed to finish or not to loop."""
    from ablation.files import sha256_path
    from ablation.recipes import tiny_corpus as corpus
    from ablation.recipes.tiny_llama import TARGETS

    tree = mini_tree()
    tree["name"] = "served"
    tree["model"] = {
        "base": {"at": str(model / "base"), "sha256": sha256_path(model / "base")},
        "start_adapter": {"at": str(model / "start-adapter"), "sha256": sha256_path(model / "start-adapter")},
        "lora": {"rank": RANK, "alpha": 32, "targets": TARGETS},
        "tokens": tree["model"]["tokens"],
        "dtype": "float32",
        "parameters": 103104,
        "layers": 2,
        "hidden_size": 64,
        "vocabulary": len(corpus.VOCABULARY),
    }
    tree["policy"] = {"backend": "local", "threads": 1, "also": ["tinker"], "tinker": {"base_model": str(model / "base")}}
    tree["sampling"] |= {"max_tokens": 24, "batch_rollouts": 12}
    tree["problems"]["cells"] = {effort: ids[:2] for effort, ids in tree["problems"]["cells"].items()}
    tree["training"] |= {"updates": 2, "rollouts_per_cell": 3, "s0": 20.0, "learning_rate": 2.0e-3}
    tree["arms"] = {
        "C": {"weighting": "token", "finish_push": 0.2},
        "K": {"weighting": "rollout", "finish_push": 0.2, "kl": {"beta": 0.05}},
    }
    return tree


def write_tree(folder: Path, tree: dict) -> Path:
    path = folder / "plans" / f"{tree['name']}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


__all__ = ["INSTALLED", "KEY", "ROOT", "WHY", "Server", "make_llama", "service_tree", "write_tree"]
