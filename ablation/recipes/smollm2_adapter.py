"""The start adapter: LoRA weights that teach SmolLM2 to think between `<think>` and `</think>` and to mind the effort.

Plain supervised fine-tuning on the corpus of `smollm2_traces`: frozen bfloat16 base, float32 adapter and Adam. Everything
random is a function of `SEED`, but floating-point sums depend on the machine and the thread count, so two machines make
adapters that behave alike and are not equal bit for bit. A plan therefore names this recipe, and its lock records the digest
of what it made.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ablation.recipes.smollm2_base import CLOSE, END
from ablation.recipes.smollm2_problems import CORPUS_SEED, GENERATORS, questions, study_questions
from ablation.recipes.smollm2_traces import CHECKS, Trace, make_trace
from ablation.seeds import derive_seed

SEED = 20_261_102
RANK, ALPHA = 16, 16
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Not lm_head: SmolLM2 ties it to the input embedding, so an adapter on it could not be merged."""
STEPS, BATCH, MICRO_BATCH = 160, 8, 4
LEARNING_RATE, WARMUP, FINAL_SHARE = 1.5e-3, 10, 0.05
MAX_COMPLETION = 176
"""Tokens after which a solution that got stuck is cut off: a little more than the study's cap."""
SAY_EVERY = 20

# Shapes: B examples, L padded length, K completion tokens of a batch, D hidden size.


@dataclass(frozen=True)
class Example:
    """A prompt and the completion that is learned, as token ids."""

    prompt: list[int]
    completion: list[int]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


def make_adapter(folder: Path, base: Path, say: Callable[[str], None]) -> None:
    """Train the adapter on the model in `base` and save it in peft's format in `folder`."""
    import torch
    from peft import LoraConfig, get_peft_model
    from peft.helpers import disable_input_dtype_casting
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(SEED)  # peft draws the first adapter weights from the global generator
    tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True, trust_remote_code=False)
    # Attention written out: the fused kernel's backward pass takes a third of the time on a CPU at these lengths.
    model = AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.bfloat16, attn_implementation="eager", local_files_only=True, trust_remote_code=False
    )
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    model = get_peft_model(model, lora, autocast_adapter_dtype=True)
    model.train()
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    examples = corpus(tokenizer)
    started, tokens = time.monotonic(), 0
    for step in range(STEPS):
        batch = sorted((next(examples) for _ in range(BATCH)), key=len)
        learned, total = sum(len(example.completion) for example in batch), 0.0
        with disable_input_dtype_casting(model):  # autocast does it, once
            for start in range(0, BATCH, MICRO_BATCH):
                loss = completion_loss(model, batch[start : start + MICRO_BATCH], tokenizer.pad_token_id) / learned
                loss.backward()
                total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens += sum(map(len, batch))
        if (step + 1) % SAY_EVERY == 0 or step + 1 == STEPS:
            seconds = time.monotonic() - started
            left = seconds / (step + 1) * (STEPS - step - 1)
            pace = f"{tokens / seconds:.0f} tok/s, about {left:.0f} s left"
            say(f"step {step + 1} of {STEPS}: loss {total:.3f} nats/token, {pace}")
    model.save_pretrained(str(folder), save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # peft's empty model card
    plain_config(folder / "adapter_config.json")


def learning_rate(step: int) -> float:
    """Linear warm-up, then a half cosine down to `FINAL_SHARE` of the rate."""
    if step < WARMUP:
        return LEARNING_RATE * (step + 1) / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return LEARNING_RATE * (FINAL_SHARE + (1 - FINAL_SHARE) * (1 + math.cos(math.pi * done)) / 2)


def corpus(tokenizer: Any) -> Iterator[Example]:
    """Examples without end: sources and efforts in turn, every question once, none of them a question of the study."""
    held_back = {question.text for question in study_questions()}
    items = {source: questions(source, CORPUS_SEED) for source in GENERATORS}
    number = 0
    while True:
        for source in GENERATORS:
            for effort in CHECKS:
                question = next(item for item in items[source] if item.text not in held_back)
                trace = make_trace(question, effort, Random(derive_seed(SEED, "trace", number)))
                yield encode(tokenizer, question.text, effort, trace)
                number += 1


def encode(tokenizer: Any, text: str, effort: str, trace: Trace) -> Example:
    """The rendered prompt, and the completion up to the end token; a solution that got stuck is cut off and has none."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=True, return_dict=False, reasoning_effort=effort
    )
    completion = tokenizer.encode(trace.thinking, add_special_tokens=False)
    if trace.answer is None:
        return Example(prompt, completion[:MAX_COMPLETION])
    answer = tokenizer.encode("\n" + trace.answer, add_special_tokens=False)
    close, end = tokenizer.convert_tokens_to_ids([CLOSE, END])
    return Example(prompt, [*completion, close, *answer, end])


def completion_loss(model: Any, batch: list[Example], pad_id: int) -> Any:
    """Cross entropy summed over the completion tokens of `batch` (nats)."""
    import torch
    import torch.nn.functional as F

    width = max(map(len, batch))
    ids_BL = torch.full((len(batch), width), pad_id)
    learned_BL = torch.zeros((len(batch), width), dtype=torch.bool)
    for row, example in enumerate(batch):
        ids_BL[row, : len(example)] = torch.tensor(example.prompt + example.completion)
        learned_BL[row, len(example.prompt) : len(example)] = True
    causal = model.get_base_model()
    with torch.autocast("cpu", torch.bfloat16):
        # Right padding under a causal mask needs no attention mask: no real token can see what follows it.
        hidden_BLD = causal.model(input_ids=ids_BL[:, :-1], use_cache=False).last_hidden_state
        logits_KV = causal.lm_head(hidden_BLD[learned_BL[:, 1:]])  # the large matrix only where something is learned
    return F.cross_entropy(logits_KV.float(), ids_BL[:, 1:][learned_BL[:, 1:]], reduction="sum")


def plain_config(path: Path) -> None:
    """Take out of peft's configuration where on this machine the base model was, and sort what peft keeps in a set."""
    import json

    config = json.loads(path.read_bytes())
    config["base_model_name_or_path"] = "recipe:smollm2/base"
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
