"""What is sampled with and what a logprob is of (F05, F07)."""

import json
import math
import shutil

import numpy as np
import pytest
import torch

from ablation.policy.base import SampleRequest
from ablation.policy.decoding import Decoding, decode
from ablation.policy.local import LocalPolicy
from tests.small_models import END, PAD


@pytest.mark.parametrize(
    ("logits", "changes", "raw", "processed"),
    [
        ([3.0, 2.0, 1.0, 0.0, -1.0], {"top_k": 2}, {0: -0.4519, 1: -1.4519}, {0: -0.3133, 1: -1.3133}),
        ([2.0, 1.0, 0.0], {"temperature": 0.6}, {0: -0.4076, 1: -1.4076, 2: -2.4076}, {0: -0.2038, 1: -1.8705, 2: -3.5371}),
        ([2.0, 1.0, 0.0], {"temperature": 1.0}, {0: -0.4076, 1: -1.4076, 2: -2.4076}, {}),
        ([2.0, 1.0, 0.0], {"top_p": 0.6}, {0: -0.4076}, {0: 0.0}),
    ],
)
def test_a_logprob_is_raw_whatever_the_sampling_values_are(logits, changes, raw, processed):
    values = {"temperature": 1.0, "top_p": 1.0, "top_k": 0} | changes
    decoding = Decoding(**values, max_tokens=1, top_logprobs=2, end_ids=(END,), pad_id=PAD)

    def forward(ids, *_):
        return torch.tensor([logits]).repeat(len(ids), 1)

    requests = [SampleRequest((1, 2), seed) for seed in range(400)]
    sampled = decode(forward, 0, requests, decoding, torch.device("cpu"), None)
    found = {int(one.token_ids[0]): float(one.logprobs[0]) for one in sampled}
    assert found.keys() == raw.keys()  # of 400, each that can come has come
    for token, logprob in found.items():
        assert logprob == pytest.approx(raw[token], abs=5e-5)
        assert processed.get(token) is None or abs(logprob - processed[token]) > 0.05
    shares = np.bincount([int(one.token_ids[0]) for one in sampled], minlength=len(logits)) / len(sampled)
    for token, logprob in (processed or raw).items():  # and sampled is by the processed ones
        assert shares[token] == pytest.approx(math.exp(logprob), abs=0.1)
    for one in sampled:
        assert one.stop_id == (END if one.finish_reason == "stop" else None)


def test_a_models_own_generation_config_changes_nothing_and_every_value_is_said(small_plan, model_folders, tmp_path):
    base, adapter = model_folders
    shutil.copytree(base, tmp_path / "base")
    ruin = {"do_sample": True, "top_k": 1, "repetition_penalty": 1.8, "temperature": 0.2, "eos_token_id": [3, 4, 5]}
    (tmp_path / "base" / "generation_config.json").write_text(json.dumps(ruin))
    requests = [SampleRequest((3, 4, 5, 6), seed) for seed in range(8)]
    plain, ruined = (LocalPolicy(small_plan, folder, adapter, (END,), PAD) for folder in (base, tmp_path / "base"))
    for one, other in zip(plain.sample(requests), ruined.sample(requests), strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()
        assert one.logprobs.tolist() == other.logprobs.tolist()
    assert ruined.sampling_values == {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_tokens": 24,
        "end_ids": [END],
        "min_p": 0.0,
        "min_tokens": 0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": True,
    }
