"""A judge that is a real model, loaded and sampled by transformers behind a real server: what it says is garbage, and stays that."""

from __future__ import annotations

import json

import pytest

from ablation.chain import read_chain
from ablation.plan.locate import cache_folder
from tests.blind.made import SUBJECT, start
from tests.blind.server import serving
from tests.cli.test_blind import call

BASE = cache_folder() / "recipes" / "smollm2" / "base"


def model_script(folder):
    """What SmolLM2 says to the messages of a request, under its sampling values."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ends = [tokenizer.eos_token_id, *tokenizer.encode("<|im_end|>", add_special_tokens=False)]

    def reply(request):
        text = "".join(f"{one['role']}: {one['content']}\n\n" for one in request["messages"])  # a base model knows no turns
        inputs = tokenizer(text + "assistant:", return_tensors="pt")
        torch.manual_seed(request["seed"])
        with torch.inference_mode():
            found = model.generate(
                **inputs,
                max_new_tokens=request["max_tokens"],
                do_sample=True,
                temperature=request["temperature"],
                top_p=request["top_p"],
                eos_token_id=ends,
            )
        ids = found[0, inputs["input_ids"].shape[1] :].tolist()
        ended = "stop" if ids[-1] in ends else "length"
        return {"content": tokenizer.decode(ids), "finish_reason": ended}

    return reply


@pytest.mark.slow
@pytest.mark.skipif(not (BASE / "complete.json").is_file(), reason="`ablation prepare plans/smollm2.yaml` makes the model")
def test_the_replies_of_a_small_model_are_unparsed_and_never_a_pass(tmp_path, monkeypatch):
    folder = start(tmp_path, read={"pairs": 2, "passes": 2, "retries": 1})[2]
    monkeypatch.chdir(tmp_path)
    call("pairs", "--subject", SUBJECT)
    with serving(model_script(BASE)) as server:
        call(
            "judge",
            "--base-url",
            server.url,
            "--model",
            "SmolLM2-135M",
            "--subject",
            SUBJECT,
            "--temperature",
            "0.7",
            "--max-tokens",
            "24",
        )
    rows = read_chain(folder.rater("judge"), counter="number", first=1, what="").records
    assert [(row["item"], row["attempt"], row["status"]) for row in rows] == [
        (item, attempt, "unparsed") for item in (1, 2) for attempt in (1, 2)
    ]
    assert all(row["judge"]["reply"] and row["judge"]["problem"] for row in rows)
    assert len({row["judge"]["seed"] for row in rows}) == 4
    opened = json.loads(call("unseal", "--subject", SUBJECT, "--json", code=6).stdout)
    assert (opened["label"], opened["passes"], opened["unparsed"]) == ("UNDECIDED", 0, {"asked": 2, "never": 2, "attempts": 4})
