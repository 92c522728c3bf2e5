"""The local policy: a transformers model with a peft adapter, sampled and trained in this process."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers.utils import logging as transformers_logging

from ablation.errors import IntegrityError, UsageError
from ablation.files import write_json
from ablation.plan.arms import Adam
from ablation.plan.model import Plan
from ablation.plan.model_files import ADAPTER_CONFIG
from ablation.policy.base import Progress, SampledTokens, SampleRequest, ScoreRow, TrainRow, UpdateStats
from ablation.policy.decoding import Decoding, decode
from ablation.policy.loading import ADAPTER_FILE, load_adapted
from ablation.policy.loss import NonFiniteLoss, policy_gradient_loss
from ablation.policy.scoring import micro_batches, mismatch, token_logprobs

OPTIMIZER_FILE = "optimizer.safetensors"
transformers_logging.disable_progress_bar()  # the run has progress of its own


class LocalPolicy:
    """One adapter on one frozen base model. Adapter and Adam are float32; the base has the plan's dtype."""

    def __init__(self, plan: Plan, base: Path, start_adapter: Path, end_ids: tuple[int, ...], pad_id: int) -> None:
        torch.set_num_threads(plan.policy.threads)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # costs time and guards only against reading garbage
        self.plan = plan
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = load_adapted(plan, base, start_adapter)
        self.model.to(self.device).eval()  # eval: no dropout, so a logprob is a function of weights and tokens
        self.causal = self.model.get_base_model()
        self.trainable = {name: weight for name, weight in sorted(self.model.named_parameters()) if weight.requires_grad}
        if not self.trainable:
            raise UsageError(f"{start_adapter}: the adapter has no weights to train")
        self.start_weights = {name: weight.detach().clone() for name, weight in self.trainable.items()}
        self.base_sha256 = self._base_digest()
        sampling = plan.sampling
        self.decoding = Decoding(
            sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens, sampling.top_logprobs, end_ids, pad_id
        )
        self.reset()

    def reset(self, optimizer: Adam | None = None) -> None:
        """The starting adapter, a fresh Adam (the plan's or another one), and proof that no earlier arm moved the base."""
        if self._base_digest() != self.base_sha256:
            raise IntegrityError("the base model's weights changed since they were loaded; start again in a new process")
        self._set_weights(self.start_weights)
        adam = optimizer or self.plan.training.optimizer
        self.optimizer = torch.optim.AdamW(
            list(self.trainable.values()),
            lr=self.plan.training.learning_rate,
            betas=(adam.beta1, adam.beta2),
            eps=adam.eps,
            weight_decay=adam.weight_decay,
        )

    def sample(self, requests: list[SampleRequest], progress: Progress | None = None) -> list[SampledTokens]:
        """Sample all requests as one batch, in order."""
        return decode(self._next_token_logits, self._layers, requests, self.decoding, self.device, progress)

    def score(self, rows: list[ScoreRow], *, start: bool = False) -> list[np.ndarray]:
        """Raw logprobs (float64, nats) of each row's tokens under the current adapter, or under the starting one."""
        if start:
            current = {name: weight.detach().clone() for name, weight in self.trainable.items()}
            self._set_weights(self.start_weights)
            try:
                return self.score(rows)
            finally:
                self._set_weights(current)
        scored: list[np.ndarray] = [np.zeros(0)] * len(rows)
        with torch.inference_mode():
            for batch in micro_batches(rows, self.plan.training.micro_batch_tokens):
                logprobs = self._logprobs([rows[index] for index in batch]).double().cpu().numpy()
                ends = np.cumsum([len(rows[index].token_ids) for index in batch])
                for index, piece in zip(batch, np.split(logprobs, ends[:-1]), strict=True):
                    scored[index] = piece
        return scored

    def update(self, rows: list[TrainRow], learning_rate: float) -> UpdateStats:
        """One Adam step on -sum(weight * ratio) over all rows; none if no token has a weight."""
        rows = [row for row in rows if np.any(row.weights)]
        if not rows:
            return UpdateStats(loss=0.0, grad_norm=0.0, tokens=0, stepped=False, mismatch=mismatch(np.zeros(0), np.zeros(0)))
        self.optimizer.zero_grad(set_to_none=True)
        loss, trainer, sampler = 0.0, [], []
        for batch in micro_batches(rows, self.plan.training.micro_batch_tokens):
            chosen = [rows[index] for index in batch]
            logprobs_K = self._logprobs(chosen)
            weights_K = np.concatenate([row.weights for row in chosen])
            sampler_K = np.concatenate([row.sampler_logprobs for row in chosen])
            try:
                loss_part = policy_gradient_loss(
                    logprobs_K,
                    torch.from_numpy(sampler_K.astype(np.float32)).to(self.device),
                    torch.from_numpy(weights_K.astype(np.float32)).to(self.device),
                )
                loss_part.backward()
                loss += float(loss_part.detach())
            except NonFiniteLoss:  # recorded, and never stepped on: a stop rule of the plan says what follows
                loss = math.nan
            weighted = weights_K != 0
            trainer.append(logprobs_K.detach().double().cpu().numpy()[weighted])
            sampler.append(sampler_K[weighted])
        gradients = [weight.grad for weight in self.trainable.values() if weight.grad is not None]
        norms = [torch.linalg.vector_norm(gradient.double()) for gradient in gradients]
        grad_norm = float(torch.linalg.vector_norm(torch.stack(norms))) if norms else math.nan
        stepped = bool(np.isfinite(grad_norm) and np.isfinite(loss))
        if stepped:  # a step on a gradient that is not finite would destroy the weights that the record needs
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        trainer_all = np.concatenate(trainer)
        return UpdateStats(loss, grad_norm, len(trainer_all), stepped, mismatch(trainer_all, np.concatenate(sampler)))

    def save(self, folder: Path) -> None:
        """Adapter in peft's format (usable without this program) and Adam's state, as safetensors.

        Raises `OSError` if the disk refuses, as every write does.
        """
        try:
            self._save(folder)
        except SafetensorError as error:  # how safetensors says that the disk is full
            raise OSError(str(error)) from error

    def _save(self, folder: Path) -> None:
        self.model.save_pretrained(str(folder), save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)  # peft's empty model card
        config = json.loads((folder / ADAPTER_CONFIG).read_bytes())
        config["target_modules"] = sorted(config["target_modules"])  # a set, written in the order of the process's hash seed
        config["base_model_name_or_path"] = self.plan.model.base.at  # not where this machine has it
        config["base_model_name_or_path"] = self.plan.model.base.at  # peft's own is a path of this machine
        write_json(folder / ADAPTER_CONFIG, config)
        state = {}
        for name, weight in self.trainable.items():
            for field, value in self.optimizer.state.get(weight, {}).items():
                state[f"{field}/{name}"] = value.detach().cpu().contiguous()
        save_file(state or {"empty": torch.zeros(1)}, folder / OPTIMIZER_FILE)

    def load(self, folder: Path, optimizer: Adam | None = None) -> None:
        """Read what `save` wrote, for the plan's optimizer or another one; every adapter weight must be there."""
        saved = load_file(folder / ADAPTER_FILE)
        weights = {}
        for name in self.trainable:
            key = name.replace(".default.", ".").replace(".default", "")
            if key not in saved:
                raise IntegrityError(f"{folder / ADAPTER_FILE}: weight `{key}` is missing")
            weights[name] = saved.pop(key)
        if saved:
            raise IntegrityError(f"{folder / ADAPTER_FILE}: unexpected weight `{next(iter(saved))}`")
        self.reset(optimizer)
        self._set_weights(weights)
        for key, value in load_file(folder / OPTIMIZER_FILE).items():
            if key != "empty":
                field, _, name = key.partition("/")
                self.optimizer.state[self.trainable[name]][field] = value if field == "step" else value.to(self.device)

    def adapter_sha256(self) -> str:
        """SHA-256 over name and float32 bytes of every adapter weight, in name order."""
        return _tensors_digest(self.trainable)

    @property
    def context(self) -> int | None:
        """Most tokens, prompt included, that the model was made for; None if it does not say."""
        return getattr(self.causal.config, "max_position_embeddings", None)

    @property
    def _layers(self) -> int:
        return self.causal.config.num_hidden_layers

    def _next_token_logits(self, ids_BL, mask_B1LK, position_ids_BL, cache) -> torch.Tensor:
        hidden_BLD = self.causal.base_model(
            input_ids=ids_BL, attention_mask=mask_B1LK, position_ids=position_ids_BL, past_key_values=cache, use_cache=True
        ).last_hidden_state
        return self.causal.get_output_embeddings()(hidden_BLD[:, -1])

    def _logprobs(self, rows: list) -> torch.Tensor:
        head = self.causal.get_output_embeddings()
        return token_logprobs(self.causal.base_model, head, rows, self.causal.config.vocab_size, self.device)

    @torch.no_grad()
    def _set_weights(self, weights: dict[str, torch.Tensor]) -> None:
        for name, weight in self.trainable.items():
            weight.copy_(weights[name])

    def _base_digest(self) -> str:
        return _tensors_digest(
            {name: weight for name, weight in sorted(self.model.named_parameters()) if name not in self.trainable}
        )


def _tensors_digest(tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(name.encode() + b"\0")
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()
