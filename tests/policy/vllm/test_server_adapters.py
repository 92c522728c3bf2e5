"""Adapters on a server: one of each client, under a name that nobody else has, and gone when it leaves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from ablation.errors import EngineFailed, UsageError
from ablation.policy.vllm.client import EngineRefused
from ablation.policy.vllm.messages import Adapter, Load
from tests.policy.vllm.conftest import ROOT
from tests.policy.vllm.middle import GENERATE, Cut, whole
from tests.policy.vllm.server_tools import ADAPTER, sampled

pytestmark = pytest.mark.slow


def test_an_adapter_is_loaded_under_a_name_of_its_own_and_the_one_before_unloaded(connect, middle, tmp_path):
    client = connect(folder=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o755
    other = Adapter("adapter-ffff456789abcdef", 8, ADAPTER.folder)
    middle.seen.clear()
    client.ask(Load(ADAPTER))
    client.ask(Load(other))
    asked = [(path, body) for path, body in middle.seen if "lora" in path]
    assert [path for path, _ in asked] == ["/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/load_lora_adapter"]
    names = [body["lora_name"] for _, body in asked]
    assert names[0] == names[1]
    assert names[0].startswith("adapter-0123456789abcdef-")
    assert names[2].startswith("adapter-ffff456789abcdef-")
    assert sorted(os.listdir(asked[2][1]["lora_path"])) == sorted(os.listdir(ADAPTER.folder))
    assert not os.path.exists(asked[0][1]["lora_path"])
    middle.seen.clear()
    sampled(client, 1, other)
    assert middle.generated[0]["model"] == names[2]
    assert names[2] not in middle.generated[0]["cache_salt"]
    with pytest.raises(EngineRefused, match="adapter-0123456789abcdef is not loaded"):
        sampled(client, 1, ADAPTER)
    client.close()
    assert [(path, body["lora_name"]) for path, body in middle.seen if "lora" in path][-1] == (
        "/v1/unload_lora_adapter", names[2]
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_cached_prompts_are_shared_with_no_other_adapter_base_or_client(connect, middle):
    salts = []
    for _ in range(2):
        client = connect()
        middle.seen.clear()
        client.ask(Load(ADAPTER))
        sampled(client, 2, ADAPTER)
        sampled(client, 1)
        salts += [body["cache_salt"] for body in middle.generated]
        client.close()
    assert salts[0] == salts[1]
    assert len(set(salts)) == 4


def test_an_adapter_that_is_gone_in_the_middle_ends_the_run_in_words(connect, middle):
    client = connect()
    client.ask(Load(ADAPTER))

    def unload(path, body):
        if path == GENERATE:
            body["model"] = "adapter-that-is-gone"

    middle.ask = unload
    with pytest.raises(EngineFailed, match="the adapter is gone from the server .* it was restarted, or somebody unloaded it"):
        sampled(client, 1, ADAPTER)


def test_a_server_that_was_started_again_holds_no_proof(connect, middle):
    def later(path, answer):
        if path == "/metrics":
            text = b"".join(answer.pieces)
            answer.pieces = [re.sub(rb"(?m)^process_start_time_seconds .*$", b"process_start_time_seconds 1.9e9", text)]
        return answer

    client = connect()
    middle.alter = later
    with pytest.raises(EngineFailed, match="the server was started again"):
        client.ask(Load(ADAPTER))


def test_another_version_in_the_middle_ends_the_run(connect, middle):
    client = connect()
    middle.ask = lambda path, body: whole({"version": "0.33.1"}) if path == "/version" else None
    with pytest.raises(EngineFailed, match=r"the server was vLLM 0\.32\.0 and is 0\.33\.1 now"):
        client.ask(Load(ADAPTER))


def test_a_load_that_is_cut_is_tried_again_under_another_name(connect, middle):
    client, cut = connect(), []

    def ask(path, body):
        if path == "/v1/load_lora_adapter" and not cut:
            cut.append(body["lora_name"])
            raise Cut

    middle.ask = ask
    client.ask(Load(ADAPTER))
    middle.seen.clear()
    sampled(client, 1, ADAPTER)
    assert middle.generated[0]["model"] not in cut


def test_a_load_that_the_server_only_says_it_did_is_found(connect, middle):
    client = connect(tries=1)
    middle.ask = lambda path, body: whole(b"Success") if path == "/v1/load_lora_adapter" else None
    with pytest.raises(EngineFailed, match="says that it loaded the adapter, and does not list it"):
        client.ask(Load(ADAPTER))


def test_an_adapter_that_the_server_refuses_is_refused_in_its_words(connect, middle):
    client = connect()
    words = "Call to add_lora method failed: LoRA rank 9 is greater than max_lora_rank 8."
    middle.ask = lambda path, body: whole({"error": {"message": words, "code": 500}}, 500) if "load_lora" in path else None
    with pytest.raises(EngineRefused, match="LoRA rank 9 is greater than max_lora_rank 8"):
        client.ask(Load(ADAPTER))
    assert client.alive


def test_a_folder_that_the_server_does_not_see_is_named(connect, middle):
    client = connect()

    def ask(path, body):
        if path == "/v1/load_lora_adapter":
            said = f"Loading lora a failed: No adapter found for {body['lora_path']}"
            return whole({"error": {"message": said, "type": "NotFoundError", "code": 404}}, 404)

    middle.ask = ask
    with pytest.raises(UsageError, match="does not see an adapter in /") as raised:
        client.ask(Load(ADAPTER))
    assert "--server-folder" in raised.value.hint


def test_a_folder_that_is_gone_before_the_server_looks_is_named_by_its_own_word(connect, middle):
    client = connect()

    def ask(path, body):
        if path == "/v1/load_lora_adapter":
            shutil.rmtree(body["lora_path"])

    middle.ask = ask
    with pytest.raises(UsageError, match="does not see an adapter in /"):
        client.ask(Load(ADAPTER))
    middle.forget()
    client.ask(Load(ADAPTER))


ENDS = """
import sys
from ablation.policy.vllm.messages import Load
from ablation.policy.vllm.server import ServerClient
from tests.policy.vllm.server_tools import ADAPTER, NEEDS, QUICK, settings
client = ServerClient(sys.argv[1], settings(), NEEDS, patience=QUICK)
client.ask(Load(ADAPTER))
print(client._left.folder.path)
"""


def test_a_program_that_ends_leaves_nothing_on_the_server_or_on_disk(middle):
    ended = subprocess.run([sys.executable, "-c", ENDS, middle.address], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.strip()
    assert not os.path.exists(ended.stdout.strip())
    asked = [path for path, _ in middle.seen if "lora" in path]
    assert asked == ["/v1/unload_lora_adapter", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"]  # the first one is a check
