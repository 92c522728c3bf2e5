"""Makes the tiny reasoner from nothing: tokenizer, base model, LoRA start adapter and problems. Run it as

    python -m ablation.recipes.tiny_reasoner FOLDER

It takes 15 to 25 minutes on one core. The base (a stock Qwen3 of 0.76M parameters) is pretrained on `tiny_corpus` with an
effort token that is loosely obeyed; the adapter is then trained on the same task with one that is always obeyed.

Everything random is a function of `tiny_corpus.SEED`. Floating-point sums still depend on the machine, the thread count and the
library versions, so another machine makes a model that behaves alike and not one that is equal bit for bit. That is why a
plan names the shipped files by digest: this script is their recipe, not their identity. Problem files have no such freedom and
are the same everywhere.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from ablation.problems.problem import problem_line
from ablation.recipes import tiny_corpus as corpus

# Shapes: B documents, T tokens, V vocabulary.

HIDDEN, LAYERS, HEADS, INTERMEDIATE = 128, 4, 4, 320
RANK, ALPHA = 8, 8
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]
CONTEXT = 256
BATCH_TOKENS = 4096
POOL = 4096
"""Documents drawn at a time; what goes into one batch comes from one pool."""
OPEN_ROWS = 16
"""Rows that a document to be packed may go to: the newest ones."""
FIRST_STEPS, FIRST_RATE, FIRST_OBEYED = 1400, 0.02, 0.4
SECOND_STEPS, SECOND_RATE, SECOND_OBEYED = 250, 0.01, 0.7
ADAPTER_STEPS, ADAPTER_RATE, ADAPTER_OBEYED = 200, 4e-3, 1.0
"""Steps, learning rate, and how often the effort token means what it says: of the base's two stages, and of the adapter."""
PROBLEMS = 29
THREADS = 1

Batch = tuple[Tensor, Tensor, Tensor]
"""ids_BT, positions_BT, labels_BT (label -100: no loss)."""

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message['role'] == 'user' -%}{{ '<|user|>' + message['content'] }}
{%- elif message['role'] == 'assistant' -%}{{ '<|assistant|>' + message['content'] + '<|end|>' }}
{%- else -%}{{ raise_exception('this model knows the roles user and assistant') }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{%- set effort = reasoning_effort | default('medium') -%}
{%- if effort not in ['low', 'medium', 'xhigh'] -%}{{ raise_exception('reasoning_effort must be low, medium or xhigh') }}
{%- endif -%}
{{- '<|' + effort + '|><|assistant|><think>' -}}
{%- endif -%}
"""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a character, and one for each special token."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    raw = Tokenizer(models.WordLevel(dict(corpus.IDS), unk_token=corpus.UNKNOWN))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    raw.decoder = decoders.Fuse()
    special = [token for token in corpus.VOCABULARY if len(token) > 1]
    raw.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token=corpus.PAD,
        unk_token=corpus.UNKNOWN,
        eos_token=corpus.END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=2 * CONTEXT,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model() -> Qwen3ForCausalLM:
    """The untrained base: untied embeddings, because the adapter also changes lm_head."""
    torch.manual_seed(corpus.derive_seed(corpus.SEED, "initial weights"))
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(corpus.VOCABULARY),
            hidden_size=HIDDEN,
            intermediate_size=INTERMEDIATE,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            head_dim=HIDDEN // HEADS,
            max_position_embeddings=2 * CONTEXT,
            tie_word_embeddings=False,
            pad_token_id=corpus.IDS[corpus.PAD],
            eos_token_id=corpus.IDS[corpus.END],
            bos_token_id=None,
        )
    )


def pools(name: str, obeyed: float) -> Iterator[tuple[list[corpus.Document], torch.Generator]]:
    """Endless pools of POOL documents, each with the generator for what is random in its order."""
    pool = 0
    while True:
        indices = range(pool * POOL, (pool + 1) * POOL)
        documents = [corpus.draw_document(corpus.SEED, name, index, CONTEXT, obeyed) for index in indices]
        yield documents, torch.Generator().manual_seed(corpus.derive_seed(corpus.SEED, name, "order", pool))
        pool += 1


def sorted_batches(name: str, obeyed: float) -> Iterator[Batch]:
    """Batches of documents of like length, one a row: little padding. But documents that stop early never meet those that do
    not, and a model trained so was found to ignore the effort token however often it was obeyed; hence the second stage.
    """
    for documents, generator in pools(name, obeyed):
        documents.sort(key=lambda document: len(document.ids))
        groups: list[list[corpus.Document]] = [[]]
        for document in documents:
            if (len(groups[-1]) + 1) * len(document.ids) > BATCH_TOKENS:
                groups.append([])
            groups[-1].append(document)
        for group in torch.randperm(len(groups), generator=generator).tolist():
            yield collate([[document] for document in groups[group]])


def packed_batches(name: str, obeyed: float) -> Iterator[Batch]:
    """Batches of rows of at most CONTEXT tokens, each filled with documents of all lengths (first fit)."""
    for documents, generator in pools(name, obeyed):
        rows: list[list[corpus.Document]] = []
        room: list[int] = []
        for document in documents:
            size = len(document.ids)
            place = next((row for row in range(max(0, len(rows) - OPEN_ROWS), len(rows)) if room[row] >= size), None)
            if place is None:
                place = len(rows)
                rows.append([])
                room.append(CONTEXT)
            rows[place].append(document)
            room[place] -= size
        order = torch.randperm(len(rows), generator=generator).tolist()
        size = BATCH_TOKENS // CONTEXT
        for begin in range(0, len(order) - size + 1, size):
            yield collate([rows[row] for row in order[begin : begin + size]])


def collate(rows: list[list[corpus.Document]]) -> Batch:
    """Right-padded rows. Positions start again at 0 with each document, by which the model keeps the documents of a row apart."""
    shape = (len(rows), max(sum(len(document.ids) for document in row) for row in rows))
    ids_BT, positions_BT, labels_BT = (
        torch.full(shape, corpus.IDS[corpus.PAD]),
        torch.zeros(shape, dtype=torch.long),
        torch.full(shape, -100),
    )
    for row, documents in enumerate(rows):
        begin = 0
        for document in documents:
            end = begin + len(document.ids)
            ids_BT[row, begin:end] = torch.tensor(document.ids)
            positions_BT[row, begin:end] = torch.arange(end - begin)
            labels_BT[row, begin + document.prompt_length : end] = ids_BT[row, begin + document.prompt_length : end]
            begin = end
    return ids_BT, positions_BT, labels_BT


def schedule(step: int, steps: int) -> float:
    """Learning-rate factor: 5% linear warm-up, then a cosine down to 2%."""
    warm_up = max(1, steps // 20)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def train(
    model: torch.nn.Module, optimizers: list[torch.optim.Optimizer], name: str, steps: int, source: Iterator[Batch]
) -> None:
    """Minimize the next-token loss; no padding mask is needed, since padding is on the right of a causal model."""
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    started, total = time.monotonic(), 0.0
    model.train()
    for step in range(steps):
        ids_BT, positions_BT, labels_BT = next(source)
        logits_BTV = model(input_ids=ids_BT, position_ids=positions_BT, use_cache=False).logits
        loss = F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), labels_BT[:, 1:].flatten(), ignore_index=-100)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for optimizer, group_rates in zip(optimizers, rates, strict=True):
            for group, rate in zip(optimizer.param_groups, group_rates, strict=True):
                group["lr"] = rate * schedule(step, steps)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        total += loss.item()
        if (step + 1) % 50 == 0:
            print(f"{name} step {step + 1}/{steps}  loss {total / 50:.4f}  {time.monotonic() - started:.0f} s", flush=True)
            total = 0.0
    model.eval()


def pretrain() -> Qwen3ForCausalLM:
    """The base, in two stages: sorted batches to learn arithmetic cheaply, packed ones to notice the effort token."""
    model = make_model()
    train(model, base_optimizers(model, FIRST_RATE), "base", FIRST_STEPS, sorted_batches("base", FIRST_OBEYED))
    train(model, base_optimizers(model, SECOND_RATE), "mid", SECOND_STEPS, packed_batches("mid", SECOND_OBEYED))
    return model


def base_optimizers(model: Qwen3ForCausalLM, rate: float) -> list[torch.optim.Optimizer]:
    """Muon on the hidden matrices, AdamW on embeddings and norms; both fresh."""
    matrices = [weight for key, weight in model.named_parameters() if weight.ndim == 2 and ".layers." in key]
    chosen = set(map(id, matrices))
    others = [weight for weight in model.parameters() if id(weight) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=rate, momentum=0.95, weight_decay=0.01, adjust_lr_fn="original"),
        torch.optim.AdamW(others, lr=rate / 4, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def teach_effort(base: PreTrainedModel) -> torch.nn.Module:
    """The start adapter: LoRA on the frozen base, until the effort switch is obeyed."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(corpus.derive_seed(corpus.SEED, "adapter weights"))
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=TARGETS, bias="none", task_type="CAUSAL_LM")
    model = get_peft_model(base, config)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=ADAPTER_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    train(model, [optimizer], "adapter", ADAPTER_STEPS, packed_batches("adapter", ADAPTER_OBEYED))
    return model


def save_base(model: Qwen3ForCausalLM, folder: Path) -> None:
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    make_tokenizer().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)  # sampling values belong to the plan


def save_adapter(model: torch.nn.Module, folder: Path) -> None:
    """The adapter alone, without the base's path and without a generated model card."""
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    (folder / "adapter_model.safetensors").chmod(0o644)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = None
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def save_problems(folder: Path) -> None:
    """`problems.jsonl`, and `NAME.jsonl` for each set of phase 2."""
    sets = {"problems": corpus.draw_problems(corpus.SEED, PROBLEMS)} | corpus.draw_evaluations(corpus.SEED, PROBLEMS)
    for name, problems in sets.items():
        (folder / f"{name}.jsonl").write_text("".join(problem_line(problem) + "\n" for problem in problems))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the tiny reasoner: base/, start-adapter/ and its problem files.")
    parser.add_argument("folder", type=Path, help="where to put them; files of the same name are overwritten")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(THREADS)
    save_problems(folder)
    base = pretrain()
    save_base(base, folder / "base")
    save_adapter(teach_effort(base), folder / "start-adapter")


if __name__ == "__main__":
    main()
