"""The shipped model: what is promised of the files, read without torch where that is possible."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ablation.files import sha256_path
from ablation.plan.load import load_plan
from ablation.problems.grade import check_problems, grade
from ablation.problems.problem import load_problems, problem_line
from ablation.problems.render import render_prompt, token_ids
from ablation.recipes import tiny_corpus as corpus

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "ablation" / "assets" / "tiny-reasoner"
BASE, ADAPTER, PROBLEMS = ASSETS / "base", ASSETS / "start-adapter", ASSETS / "problems.jsonl"


def header(path: Path) -> tuple[dict, bytes]:
    """Tensor name -> dtype, shape and offsets of a safetensors file, and the bytes they lie in."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8 : 8 + size])
    tensors.pop("__metadata__", None)
    return tensors, data[8 + size :]


@pytest.fixture(scope="module")
def plan():
    return load_plan(ROOT / "plans" / "quickstart.yaml").plan


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(BASE)


def test_the_files_are_small():
    files = [path for path in ASSETS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 4_000_000


def test_the_base_has_at_most_a_million_float32_parameters(plan):
    tensors, _ = header(BASE / "model.safetensors")
    assert {entry["dtype"] for entry in tensors.values()} == {"F32"}
    parameters = sum(math.prod(entry["shape"]) for entry in tensors.values())
    assert parameters == plan.model.parameters <= 1_000_000
    embedding, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    assert embedding["shape"] == head["shape"] == [plan.model.vocabulary, plan.model.hidden_size]
    assert embedding["data_offsets"] != head["data_offsets"]  # untied: LoRA on lm_head must not change the inputs
    config = json.loads((BASE / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert (config["num_hidden_layers"], config["model_type"]) == (plan.model.layers, "qwen3")


def test_the_adapter_has_the_plans_shape_and_is_not_zero(plan):
    config = json.loads((ADAPTER / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (plan.model.lora.rank, plan.model.lora.alpha)
    assert sorted(config["target_modules"]) == sorted(plan.model.lora.targets)
    assert config["base_model_name_or_path"] is None
    tensors, data = header(ADAPTER / "adapter_model.safetensors")
    modules = {name.rsplit(".lora_", 1)[0] for name in tensors}
    assert len(modules) == 7 * plan.model.layers + 1  # seven in a layer, and lm_head
    assert {module.rsplit(".", 1)[1] for module in modules} == set(plan.model.lora.targets)
    for name, entry in tensors.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[begin:end], dtype="<f4")
        assert plan.model.lora.rank in entry["shape"]
        assert np.isfinite(values).all() and np.abs(values).max() > 0, name


def test_no_sampling_value_hides_in_the_model_folder():
    assert not (BASE / "generation_config.json").exists()


def test_the_problem_file_is_what_the_generator_makes():
    problems = load_problems(PROBLEMS)
    made = corpus.draw_problems(corpus.SEED, len(problems))
    assert PROBLEMS.read_text() == "".join(problem_line(problem) + "\n" for problem in made)


def test_every_gold_grades_as_correct_against_itself():
    problems = load_problems(PROBLEMS)
    assert check_problems(problems) == []
    assert all(grade(problem, problem.gold).extracted == problem.gold for problem in problems.values())


def test_the_plan_names_these_files_and_58_of_their_cells(plan):
    assert plan.model.base.sha256 == sha256_path(BASE)
    assert plan.model.start_adapter.sha256 == sha256_path(ADAPTER)
    assert plan.problems.training.sha256 == sha256_path(PROBLEMS)
    problems = load_problems(PROBLEMS)
    assert len(plan.cells) == 58
    assert {problem for problem, _ in plan.cells} == set(problems)
    assert [len(ids) for ids in plan.problems.cells.values()] == [20, 19, 19]


def test_the_template_renders_what_the_model_was_trained_on(plan, tokenizer):
    for problem in load_problems(PROBLEMS).values():
        for effort in corpus.EFFORTS:
            prompt = render_prompt(tokenizer, problem, effort, plan.model.tokens)
            assert prompt.ids == corpus.prompt_ids(problem.prompt, effort)
            assert prompt.opens_thinking


def test_the_template_refuses_what_it_does_not_know(tokenizer):
    from jinja2 import TemplateError

    with pytest.raises(TemplateError, match="low, medium or xhigh"):
        tokenizer.apply_chat_template([{"role": "user", "content": "1+1="}], add_generation_prompt=True, reasoning_effort="huge")
    with pytest.raises(TemplateError, match="roles user and assistant"):
        tokenizer.apply_chat_template([{"role": "system", "content": "1+1="}])


def test_the_tokenizer_gives_back_what_it_read(tokenizer):
    text = "13*6=78;32-15=17\n" + corpus.CLOSE + "122" + corpus.END
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids == [corpus.IDS[token] for token in (*"13*6=78;32-15=17\n", corpus.CLOSE, *"122", corpus.END)]
    assert tokenizer.decode(ids) == text


def test_special_tokens_are_one_token_each(plan, tokenizer):
    ids = token_ids(tokenizer, plan.model.tokens)
    assert (ids.open, ids.close, ids.end) == (corpus.IDS["<think>"], corpus.IDS["</think>"], (corpus.IDS["<|end|>"],))
    assert len(tokenizer) == plan.model.vocabulary == len(corpus.VOCABULARY)


def test_stock_libraries_load_it_and_the_adapter_obeys_the_effort(tokenizer):
    """After one pass over the chain low effort ends and xhigh goes on; the base alone only leans that way."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, ADAPTER).eval()
    line = [corpus.IDS[token] for token in "47+86=133-39=94+58=152"]

    def ending(effort: str) -> float:
        ids_BT = torch.tensor([corpus.prompt_ids("47+86-39+58=", effort) + line])
        with torch.no_grad():
            return model(input_ids=ids_BT).logits[0, -1].softmax(-1)[corpus.IDS[corpus.CLOSE]].item()

    assert ending("low") > 0.85 and ending("medium") < 0.1 and ending("xhigh") < 0.1
    with model.disable_adapter():
        assert 0.1 < ending("low") - ending("xhigh") < 0.5


def test_a_packed_row_trains_each_document_as_if_it_were_alone():
    import torch
    from transformers import AutoModelForCausalLM

    from ablation.recipes import tiny_reasoner as recipe

    ids_BT, positions_BT, labels_BT = next(recipe.packed_batches("test", 1.0))
    begins = (ids_BT[0] == corpus.IDS[corpus.USER]).nonzero().flatten().tolist()
    assert len(begins) >= 2 and [positions_BT[0, begin].item() for begin in begins] == [0] * len(begins)
    second = begins[1]
    opened = (ids_BT[0, :second] == corpus.IDS[corpus.OPEN]).nonzero().item()
    assert labels_BT[0, : opened + 1].eq(-100).all()  # no loss on the prompt
    assert labels_BT[0, opened + 1 : second].equal(ids_BT[0, opened + 1 : second])
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).eval()
    end = begins[2] if len(begins) > 2 else int((ids_BT[0] != corpus.IDS[corpus.PAD]).sum())
    with torch.no_grad():
        packed_TV = model(input_ids=ids_BT[:1], position_ids=positions_BT[:1], use_cache=False).logits[0, second:end]
        alone_TV = model(input_ids=ids_BT[:1, second:end], use_cache=False).logits[0]
    assert torch.allclose(packed_TV, alone_TV, atol=1e-4)


@pytest.mark.parametrize("kind", ["sorted_batches", "packed_batches"])
def test_batches_hold_whole_documents_with_little_padding(kind):
    from ablation.recipes import tiny_reasoner as recipe

    source = getattr(recipe, kind)("test", 0.5)
    tokens = padding = 0
    for _ in range(20):
        ids_BT, _, _ = next(source)
        assert ids_BT.numel() <= recipe.BATCH_TOKENS and ids_BT.shape[1] <= recipe.CONTEXT
        tokens += ids_BT.numel()
        padding += (ids_BT == corpus.IDS[corpus.PAD]).sum().item()
    assert padding < 0.1 * tokens


def test_the_learning_rate_schedule():
    from ablation.recipes.tiny_reasoner import schedule

    assert schedule(0, 100) == pytest.approx(1 / 5)
    assert schedule(4, 100) == schedule(5, 100) == 1.0
    assert schedule(100, 100) == pytest.approx(0.02)


def test_the_recipe_makes_files_of_the_shipped_form(tmp_path, monkeypatch):
    """The whole recipe, two steps a stage: same file names, tensors and shapes, and the same problems."""
    from ablation.recipes import tiny_reasoner as recipe

    for name in ("FIRST_STEPS", "SECOND_STEPS", "ADAPTER_STEPS"):
        monkeypatch.setattr(recipe, name, 2)
    monkeypatch.setattr(recipe, "POOL", 256)
    monkeypatch.setattr(recipe, "BATCH_TOKENS", 1024)
    monkeypatch.setattr("sys.argv", ["tiny_reasoner", str(tmp_path)])
    recipe.main()

    def names(folder: Path) -> set[str]:
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}

    assert names(tmp_path) == names(ASSETS)
    for file in ("base/model.safetensors", "start-adapter/adapter_model.safetensors"):
        made, shipped = header(tmp_path / file)[0], header(ASSETS / file)[0]
        assert {name: (entry["dtype"], entry["shape"]) for name, entry in made.items()} == {
            name: (entry["dtype"], entry["shape"]) for name, entry in shipped.items()
        }
    for file in ("problems.jsonl", "base/chat_template.jinja", "base/tokenizer.json"):
        assert (tmp_path / file).read_bytes() == (ASSETS / file).read_bytes()
