"""An adapter as arrays: the digest of every other policy, archives that are no adapters, differences in words."""

from __future__ import annotations

import hashlib
import io
import tarfile

import numpy as np
import pytest

from ablation.audit.adapters import adapter_digest
from ablation.errors import IntegrityError, UsageError
from ablation.policy.tinker.weights import archive_of, change, digest, from_archive, from_bytes, from_folder, need_same, target_of
from tests.study.mini import ROOT

ADAPTER = ROOT / "ablation" / "assets" / "tiny-reasoner" / "start-adapter"
NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def test_the_digest_is_that_of_audit_and_local_policy():
    assert digest(from_folder(ADAPTER)) == adapter_digest(ADAPTER / "adapter_model.safetensors")


def test_the_digest_by_hand():
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight"
    expected = hashlib.sha256(name.encode() + b"\0" + b"\x00\x00\x80\x3f\x00\x00\x00\xc0").hexdigest()
    assert digest({NAME: np.array([[1.0, -2.0]], dtype=np.float32)}) == expected


def test_an_archive_comes_back_as_it_went():
    weights = from_folder(ADAPTER)
    found, config = from_archive("x", archive_of(weights, {"r": 8, "lora_alpha": 32}))
    assert config == {"r": 8, "lora_alpha": 32}
    assert found.keys() == weights.keys()
    assert all(np.array_equal(found[name], weights[name]) for name in weights)


def archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<html>", "tinker://x: the download is no adapter"),
        (archive({"adapter_config.json": b"{}"}), "tinker://x: the download has no adapter_model.safetensors"),
        (archive({"adapter_config.json": b"[]", "adapter_model.safetensors": b"12345678"}), "is no object"),
        (archive({"adapter_config.json": b"{}", "adapter_model.safetensors": b"12345678"}), "no usable adapter"),
        (archive({"adapter_config.json": b"{", "adapter_model.safetensors": b""}), "the download is no adapter"),
    ],
)
def test_what_is_no_adapter_is_said(data, said):
    with pytest.raises(IntegrityError, match=said):
        from_archive("tinker://x", data)


def test_whole_numbers_are_no_weights():
    from safetensors.numpy import save

    with pytest.raises(IntegrityError, match="weight `a` has the type int64"):
        from_bytes("x", save({"a": np.zeros(2, dtype=np.int64)}))


def test_a_difference_is_named():
    own = {NAME: np.ones((2, 2), dtype=np.float32)}
    need_same("x", dict(own), own, "the plan's")
    other = {NAME: np.array([[1, 1], [1, 1.5]], dtype=np.float32)}
    with pytest.raises(UsageError, match=r"x: is not the plan's: weight `.*q_proj.lora_A.weight` differs by up to 0.5"):
        need_same("x", other, own, "the plan's")
    with pytest.raises(UsageError, match=r"has the shape \(2, 3\); in the plan's it is \(2, 2\)"):
        need_same("x", {NAME: np.ones((2, 3), dtype=np.float32)}, own, "the plan's")
    with pytest.raises(UsageError, match="the service's adapter has no q_proj and trains up_proj as well"):
        need_same("x", {NAME.replace("q_proj", "up_proj"): own[NAME]}, own, "the plan's")


def test_a_change_is_in_the_order_of_names():
    before = {"b": np.zeros(2, dtype=np.float32), "a": np.ones(1, dtype=np.float32)}
    after = {"a": np.full(1, 3, dtype=np.float32), "b": np.array([5, 7], dtype=np.float32)}
    assert change(after, before).tolist() == [2.0, 5.0, 7.0]
    assert target_of(NAME) == "q_proj"
