"""A language model inside of a larger one, with layers that keep a state: as the published study's base is built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Qwen3_5Config, Qwen3_5ForConditionalGeneration

from ablation.merge.base_files import read_base
from ablation.merge.model import Loaded
from ablation.merge.numbers import Numbers, flat
from ablation.merge.pairs import read_adapter
from ablation.merge.write import write_merged
from ablation.policy.base import SampleRequest, ScoreRow
from ablation.policy.decoding import Decoding
from tests.merge.small import weights

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "out_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
DECODING = Decoding(1.0, 1.0, 0, 12, 5, (1,), 0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("hybrid")
    torch.manual_seed(0)
    text = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "max_position_embeddings": 128,
        "initializer_range": 0.2,
        "tie_word_embeddings": False,
    }
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 32}
    config = Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=False)
    Qwen3_5ForConditionalGeneration(config).save_pretrained(folder / "base")
    model = AutoModelForCausalLM.from_pretrained(folder / "base")
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=4, target_modules=TARGETS))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.normal_(std=0.2)
    adapted.save_pretrained(str(folder / "adapter"), save_embedding_layers=False)
    return folder / "base", folder / "adapter"


def test_only_the_language_models_weights_are_merged(folders, tmp_path):
    base = read_base(folders[0])
    adapter = read_adapter(folders[1], base)
    (tmp_path / "merged").mkdir()
    found = write_merged(base, adapter, tmp_path / "merged")
    # 3 layers that keep a state with 2 pairs, 1 with attention with 4, an MLP of 3 in each, and the output layer
    assert len(found.used) == 3 * 2 + 1 * 4 + 4 * 3 + 1
    assert any(name.startswith("model.language_model.layers.") for name in found.used) and "lm_head.weight" in found.used
    before, after = weights(folders[0]), weights(tmp_path / "merged")
    for name, one in before.items():
        assert torch.equal(one, after[name]) is (name not in found.used), name
    assert any("visual" in name for name in before)

    rows = [ScoreRow((2, 3), np.random.default_rng(seed).integers(4, 64, 20 + seed)) for seed in range(4)]
    adapted = Loaded(folders[0], "float32", folders[1])
    with_adapter = flat(adapted.score(rows))
    with adapted.without_adapter():
        alone = flat(adapted.score(rows))
    merged = Loaded(tmp_path / "merged", "float32")
    check = Numbers(alone, with_adapter, flat(merged.score(rows))).record()
    assert check["passed"] and check["ratio"] < 1e-3

    requests = [SampleRequest((2, 3, number), number) for number in range(3)]
    sampled = merged.sample(requests, DECODING)
    scored = merged.score([ScoreRow(one.prompt_ids, two.token_ids) for one, two in zip(requests, sampled, strict=True)])
    for one, other in zip(sampled, scored, strict=True):
        np.testing.assert_allclose(one.logprobs, other, atol=1e-4)
    again = adapted.sample(requests, DECODING)
    assert [one.token_ids.tolist() for one in again] == [one.token_ids.tolist() for one in sampled]


def test_a_rollout_ends_with_an_end_token_or_at_the_cap(folders):
    model = Loaded(folders[0], "float32")
    (cut,) = model.sample([SampleRequest((2, 3), 5)], DECODING)
    assert (cut.finish_reason, cut.stop_id, len(cut.token_ids)) == ("length", None, 12)
    third = int(cut.token_ids[2])
    first = cut.token_ids.tolist().index(third)
    (ended,) = model.sample([SampleRequest((2, 3), 5)], replace(DECODING, end_ids=(third,)))
    assert (ended.finish_reason, ended.stop_id) == ("stop", third)
    assert ended.token_ids.tolist() == cut.token_ids.tolist()[: first + 1]
    assert (ended.top_mass > 0).all() and (ended.top_mass <= 1 + 1e-6).all()
