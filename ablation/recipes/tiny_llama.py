"""Makes the tiny Llama from nothing: base model and LoRA start adapter beside the tiny reasoner's tokenizer and problems. Run it
as

    python -m ablation.recipes.tiny_llama FOLDER

It is the tiny reasoner again (see `tiny_reasoner`, whose corpus, batches and schedule it takes), in the shape that every backend
can train: a stock Llama, of which no server joins the projections of a layer under one LoRA matrix A, and an adapter with the
alpha of 32 that services of the Tinker protocol fix, on attention and MLP alone. It takes about 10 minutes on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ablation.recipes import tiny_corpus as corpus
from ablation.recipes import tiny_reasoner as recipe

HIDDEN, LAYERS, HEADS, INTERMEDIATE = 96, 3, 3, 256
RANK, ALPHA = 8, 32
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FIRST_STEPS, SECOND_STEPS, ADAPTER_STEPS = 1400, 250, 200
ADAPTER_RATE = 2e-3


def make_model() -> LlamaForCausalLM:
    """The untrained base."""
    torch.manual_seed(corpus.derive_seed(corpus.SEED, "initial weights of the llama"))
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(corpus.VOCABULARY),
            hidden_size=HIDDEN,
            intermediate_size=INTERMEDIATE,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            head_dim=HIDDEN // HEADS,
            max_position_embeddings=2 * recipe.CONTEXT,
            tie_word_embeddings=False,
            pad_token_id=corpus.IDS[corpus.PAD],
            eos_token_id=corpus.IDS[corpus.END],
            bos_token_id=None,
        )
    )


def pretrain() -> LlamaForCausalLM:
    """The base, in the two stages of the tiny reasoner."""
    model = make_model()
    first = recipe.sorted_batches("base", recipe.FIRST_OBEYED)
    recipe.train(model, recipe.base_optimizers(model, recipe.FIRST_RATE), "base", FIRST_STEPS, first)
    second = recipe.packed_batches("mid", recipe.SECOND_OBEYED)
    recipe.train(model, recipe.base_optimizers(model, recipe.SECOND_RATE), "mid", SECOND_STEPS, second)
    return model


def teach_effort(base: LlamaForCausalLM) -> torch.nn.Module:
    """The start adapter: LoRA on the frozen base, until the effort switch is obeyed."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(corpus.derive_seed(corpus.SEED, "adapter weights of the llama"))
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=TARGETS, bias="none", task_type="CAUSAL_LM")
    model = get_peft_model(base, config)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=ADAPTER_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    recipe.train(model, [optimizer], "adapter", ADAPTER_STEPS, recipe.packed_batches("adapter", recipe.ADAPTER_OBEYED))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the tiny Llama: base/ and start-adapter/.")
    parser.add_argument("folder", type=Path, help="where to put them; files of the same name are overwritten")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(recipe.THREADS)
    base = pretrain()
    recipe.save_base(base, folder / "base")
    recipe.save_adapter(teach_effort(base), folder / "start-adapter")


if __name__ == "__main__":
    main()
