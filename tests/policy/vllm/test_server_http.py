"""Addresses, keys and words of a server."""

from __future__ import annotations

import resource
import socket

import pytest

from ablation.errors import UsageError
from ablation.files import DiskError
from ablation.policy.vllm.messages import EngineSettings
from ablation.policy.vllm.server import ServerClient, _copy
from ablation.policy.vllm.server_checks import Needs
from ablation.policy.vllm.server_http import Patience, checked_key, on_loopback, server_root

SETTINGS = EngineSettings("base", "float32", 512, 8, 2048, 1, 1, True, 1, 8, 20)
NEEDS = Needs(8, 20, None, 80, (3, 4), 40)


@pytest.mark.parametrize(
    ("address", "root"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://host/behind/a/proxy/v1", "https://host/behind/a/proxy"),
    ],
)
def test_an_address_is_taken_with_and_without_v1(address, root):
    assert server_root(address) == root


def test_a_query_in_an_address_is_refused_without_it():
    with pytest.raises(UsageError, match="nothing may follow") as raised:
        server_root("http://host:1/v1?key=secret")
    assert "secret" not in raised.value.message


@pytest.mark.parametrize("here", ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1", "http://127.9.9.9"])
def test_this_machine_is_told_from_others(here):
    assert on_loopback(here)
    assert not on_loopback("http://10.0.0.1:8000")
    assert not on_loopback("http://localhost.example.org")


@pytest.mark.parametrize("key", ["with space", "line\nend", "ümlaut", "nul\0"])
def test_a_key_that_no_header_carries_is_refused_unsaid(key):
    with pytest.raises(UsageError, match="ABLATION_VLLM_SERVER_KEY") as raised:
        checked_key(key)
    assert key not in raised.value.message
    assert checked_key("") is None


def test_a_server_that_is_not_there_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"{address}: no answer as a server gives one") as raised:
            ServerClient(address, SETTINGS, NEEDS, patience=Patience(connect=5))
    assert "--enable-scale-out --enable-lora --max-lora-rank 8 --max-logprobs 21" in raised.value.hint


def test_a_server_on_another_machine_needs_a_folder_that_both_see():
    with pytest.raises(UsageError, match="needs a folder to read adapters from") as raised:
        ServerClient("http://192.0.2.1:8000", SETTINGS, NEEDS)
    assert "--server-folder" in raised.value.hint


def test_a_server_folder_without_room_is_named_and_not_where_the_adapter_came_from(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "weights").write_bytes(b"0" * 5_000)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limit[1]))
    try:
        with pytest.raises(DiskError, match=f"{tmp_path}/to: could not be written: File too large"):
            _copy(tmp_path / "from", tmp_path / "to")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UsageError, match="--server-folder: .*nowhere: No such file"):
        ServerClient("http://192.0.2.1:8000", SETTINGS, NEEDS, folder=tmp_path / "nowhere")
