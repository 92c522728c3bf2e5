"""`ablation merge check` on real files, whole and broken."""

import json
import shutil

import numpy as np
import pytest

from ablation.errors import IntegrityError, UsageError
from ablation.merge import check
from ablation.merge.check import check_model, find_model
from ablation.merge.run import Settings, merge
from ablation.merge.source import find_source
from ablation.merge.texts import training_problems
from ablation.plan.lock import verify_lock
from tests.merge.small import edit_json, llama, rewrite, save
from tests.merge.to_gguf import to_gguf
from tests.merge.to_int8 import to_int8
from tests.study.mini import ablation


@pytest.fixture(scope="module")
def source(finished):
    return find_source(verify_lock(finished / "plans" / "mini.yaml"), finished / "runs" / "mini", "start@0")


@pytest.fixture(scope="module")
def merged(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("merged") / "start@0"
    merge(source, Settings(folder, texts=4), lambda _: None, lambda _: "card\n")
    return folder


def checked(source, path, beside=None, engine="auto"):
    return check_model(
        source.locked,
        source.base,
        training_problems(source),
        find_model(path),
        beside=beside,
        engine=engine,
        seed=1,
        longest=96,
        say=lambda _: None,
    )


def results(found) -> dict[str, str]:
    return {name: one["result"] for name, one in found["breakage"]["checks"].items()}


def test_a_merged_folder_is_whole(source, merged):
    found = checked(source, merged)
    assert found["breakage"]["passed"] and (found["format"], found["engine"]) == ("float32", "transformers")
    assert set(results(found).values()) == {"pass", "not asked"}


def test_eight_bit_gguf_is_whole_and_one_with_a_scrambled_layer_is_not(source, merged, tmp_path):
    whole = to_gguf(merged, tmp_path / "whole.gguf")
    found = checked(source, whole, beside=merged)
    assert found["breakage"]["passed"] and found["format"] == "gguf"
    assert results(found)["prompts"] == "not asked"

    def scramble(name, array):
        return np.roll(array, 7, axis=0) if "self_attn.o_proj" in name or "down_proj" in name else array

    broken = checked(source, to_gguf(merged, tmp_path / "broken.gguf", scramble), beside=merged)
    assert not broken["breakage"]["passed"] and broken["breakage"]["failed"]


def test_a_folder_with_one_gguf_file_and_with_two(merged, tmp_path):
    to_gguf(merged, tmp_path / "one.gguf")
    assert find_model(tmp_path).gguf == "one.gguf"
    shutil.copyfile(tmp_path / "one.gguf", tmp_path / "two.gguf")
    with pytest.raises(UsageError, match=r"has 2 .gguf files \(one.gguf, two.gguf\)"):
        find_model(tmp_path)


def test_another_chat_template_fails(source, merged, tmp_path):
    other = shutil.copytree(merged, tmp_path / "other")
    path = other / "chat_template.jinja"
    path.write_text(path.read_text().replace("'<|user|>'", "'<|user|><|user|>'"))
    assert checked(source, other)["breakage"]["failed"] == ["prompts"]


def test_weights_that_are_not_numbers_fail(source, merged, tmp_path):
    other = shutil.copytree(merged, tmp_path / "other")
    rewrite(other / "model.safetensors", lambda one: one["model.norm.weight"].fill_(float("nan")))
    found = checked(source, other)
    assert "finite" in found["breakage"]["failed"]


def test_what_nothing_here_loads(source, merged, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "vllm_is_here", lambda: False)
    other = to_int8(merged, tmp_path / "int8")
    edit_json(other / "config.json", quantization_config={"quant_method": "no-such-method"})
    with pytest.raises(UsageError, match="nothing here loads it") as raised:
        checked(source, other)
    assert "transformers:" in raised.value.message and "vLLM: is not installed here" in raised.value.message
    with pytest.raises(UsageError, match="cannot be loaded"):
        checked(source, other, engine="transformers")


def test_a_merge_of_another_plan(source, merged, tmp_path):
    other = shutil.copytree(merged, tmp_path / "other")
    record = json.loads((other / "merge.json").read_text())
    edit_json(other / "merge.json", plan=record["plan"] | {"digest": "0" * 64})
    with pytest.raises(IntegrityError, match="was merged under another plan"):
        checked(source, other)


def test_what_is_no_model(source, tmp_path):
    with pytest.raises(UsageError, match=r"there is no such model folder or .gguf file"):
        find_model(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"is no model folder: it has neither config.json nor a .gguf file"):
        find_model(tmp_path / "empty")
    without = save(llama(), tmp_path / "without")
    with pytest.raises(UsageError, match="has no tokenizer"):
        checked(source, without)


@pytest.mark.slow
def test_the_command(finished, merged, tmp_path):
    arguments = ("--plan", "plans/mini.yaml", "--tokens", "96", "--seed", "1")
    whole = ablation(finished, "merge", "check", str(merged), *arguments)
    assert whole.returncode == 0, whole.stderr
    assert "float32, loaded by transformers" in whole.stdout and "FAIL" not in whole.stdout
    assert "no tool was asked for" in whole.stdout
    other = shutil.copytree(merged, tmp_path / "other")
    (other / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    broken = ablation(finished, "merge", "check", str(other), "--json", *arguments)
    assert broken.returncode == 4
    content = json.loads(broken.stdout)
    assert content["exit_code"] == 4 and content["breakage"]["failed"] == ["prompts"]
    assert "broken: tokenizer and chat template give the same prompt ids" in broken.stderr
