"""A model as transformers loads it from disk, with or without an adapter: its logprobs of given tokens, and rollouts of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from ablation.errors import UsageError
from ablation.policy.attention import can_pack
from ablation.policy.base import SampledTokens, SampleRequest, ScoreRow
from ablation.policy.decoding import Decoding, choose_tokens, decode, uniforms
from ablation.policy.head import chunks
from ablation.policy.loading import DTYPES, free_memory
from ablation.policy.packing import micro_batches, pad

BATCH_TOKENS = 4096
"""Tokens that are scored in one pass, padding counted; a longer text goes alone."""
START = "start"
# What transformers, peft and safetensors raise for files that they cannot use.
UNUSABLE = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError, SafetensorError)
transformers_logging.disable_progress_bar()


def _device(model: Any) -> torch.device:
    """The accelerator, if the weights and a fifth more fit into what is free of it."""
    needed = 1.2 * sum(weight.numel() * weight.element_size() for weight in model.parameters())
    fits = torch.cuda.is_available() and torch.cuda.mem_get_info()[0] > needed
    return torch.device("cuda" if fits else "cpu")


def first_line(error: Exception) -> str:
    """The first line of what it says."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class Loaded:
    """One model in memory. `close` lets go of it."""

    def __init__(self, folder: Path, dtype: str, adapter: Path | None = None, gguf: tuple[str, Path] | None = None) -> None:
        """`dtype`: of the plan. `gguf`: the file in `folder` that has the weights, which are made whole again, and the base's
        folder, whose config it has: what transformers reads of a GGUF file's own lacks fields of some models.

        Raises `UsageError` if the folder cannot be loaded, or a weight is not in its files.
        """
        transformers_logging.set_verbosity_error()
        try:
            options: dict[str, Any] = {}
            if gguf is not None:
                options = {
                    "gguf_file": gguf[0],
                    "config": AutoConfig.from_pretrained(gguf[1], local_files_only=True, trust_remote_code=False),
                }
            causal, loaded = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=DTYPES[dtype],
                attn_implementation="sdpa",
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                **options,
            )
            self.model: Any = causal if adapter is None else PeftModel.from_pretrained(causal, str(adapter))
        except UNUSABLE as error:
            raise UsageError(f"{folder if adapter is None else adapter}: cannot be loaded: {first_line(error)}") from error
        lost = sorted(map(str, [*loaded["missing_keys"], *loaded["mismatched_keys"]]))
        if lost:
            raise UsageError(f"{folder}: {len(lost)} weights are not in its files, for instance {lost[0]}")
        if getattr(causal.config, "quantization_config", None) is not None and getattr(causal, "hf_quantizer", None) is None:
            raise UsageError(f"{folder}: cannot be loaded: transformers does not know its quantisation")
        self.device = _device(causal)
        self.model.to(self.device).eval()
        self.causal = causal
        self.adapted = adapter is not None

    @contextmanager
    def without_adapter(self) -> Iterator[None]:
        """The base alone, as peft gives it."""
        with self.model.disable_adapter():
            yield

    @contextmanager
    def with_other(self, adapter: Path) -> Iterator[None]:
        """Another adapter on the same base."""
        try:
            self.model.load_adapter(str(adapter), START)
        except UNUSABLE as error:
            raise UsageError(f"{adapter}: cannot be loaded: {error}") from error
        self.model.set_adapter(START)
        try:
            yield
        finally:
            self.model.set_adapter("default")
            self.model.delete_adapter(START)

    def score(self, rows: Sequence[ScoreRow]) -> list[np.ndarray]:
        """Raw logprobs (float64, nats) of each row's tokens."""
        scored: list[np.ndarray] = [np.zeros(0)] * len(rows)
        head = self.causal.get_output_embeddings()
        for batch in micro_batches(list(rows), BATCH_TOKENS, share=False):
            packed = pad([rows[index] for index in batch], self.device)
            with torch.no_grad():
                hidden_BLD = self.causal.base_model(
                    input_ids=packed.ids, position_ids=packed.positions, use_cache=False
                ).last_hidden_state
                hidden_UD = hidden_BLD.flatten(0, 1).index_select(0, packed.scored_U)
            found_K = np.empty(packed.count)
            for chunk in chunks(head, hidden_UD, packed, self.vocabulary):
                found_K[chunk.order.cpu().numpy()] = chunk.logprobs.double().cpu().numpy()
            ends = np.cumsum([len(rows[index].token_ids) for index in batch])
            for index, piece in zip(batch, np.split(found_K, ends[:-1]), strict=True):
                scored[index] = piece
        return scored

    def sample(self, requests: list[SampleRequest], decoding: Decoding) -> list[SampledTokens]:
        """One rollout for each request, by the seeds alone."""
        if can_pack(self.causal):
            return decode(self._next_token_logits, self.layers, requests, decoding, self.device, None)
        return [self._sample_alone(request, decoding) for request in requests]

    @torch.no_grad()
    def _sample_alone(self, request: SampleRequest, decoding: Decoding) -> SampledTokens:
        """Without padding and with the cache that the model makes for itself: its layers may keep a state, or see a window."""
        chance, cache, told = uniforms(request.seed, decoding.max_tokens), None, []
        ids_1L = torch.tensor([request.prompt_ids], device=self.device)
        for step in range(decoding.max_tokens):
            made = self.causal.base_model(input_ids=ids_1L, past_key_values=cache, use_cache=True)
            cache = made.past_key_values
            raw_1V = torch.log_softmax(self.causal.get_output_embeddings()(made.last_hidden_state[:, -1]).float(), dim=-1)
            chosen_1 = choose_tokens(raw_1V, torch.tensor(chance[step : step + 1], device=self.device), decoding)
            top_1k = raw_1V.topk(min(decoding.top_logprobs, raw_1V.shape[1])).values
            mass = float(top_1k.exp().sum())
            normal_1k = top_1k - math.log(mass) if mass > 0 else top_1k
            told.append((int(chosen_1), float(raw_1V[0, chosen_1]), float(-(normal_1k.exp() * normal_1k).sum()), mass))
            if told[-1][0] in decoding.end_ids:
                break
            ids_1L = chosen_1[None]
        token_ids, *floats = zip(*told, strict=True)
        ended = token_ids[-1] in decoding.end_ids
        arrays = (np.array(one, dtype=np.float32) for one in floats)
        return SampledTokens(
            np.array(token_ids, dtype=np.int64), *arrays, "stop" if ended else "length", token_ids[-1] if ended else None
        )

    def _next_token_logits(self, ids_BL, mask_B1LK, position_ids_BL, cache) -> torch.Tensor:
        hidden_BLD = self.causal.base_model(
            input_ids=ids_BL, attention_mask=mask_B1LK, position_ids=position_ids_BL, past_key_values=cache, use_cache=True
        ).last_hidden_state
        return self.causal.get_output_embeddings()(hidden_BLD[:, -1])

    @property
    def layers(self) -> int:
        return self.causal.config.get_text_config().num_hidden_layers

    @property
    def vocabulary(self) -> int:
        return self.causal.config.get_text_config().vocab_size

    @property
    def tied(self) -> bool:
        """Whether output layer and input embedding are one matrix in memory."""
        head = getattr(self.causal.get_output_embeddings(), "base_layer", self.causal.get_output_embeddings())
        return head.weight.data_ptr() == self.causal.get_input_embeddings().weight.data_ptr()

    def close(self) -> None:
        del self.model, self.causal
        free_memory()
