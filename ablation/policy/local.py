"""The local policy: a transformers model with a peft adapter, sampled and trained in this process."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers.utils import logging as transformers_logging

from ablation.errors import IntegrityError, UsageError
from ablation.files import disk_errors, write_json
from ablation.plan.arms import Adam
from ablation.plan.model import Plan
from ablation.plan.model_files import ADAPTER_CONFIG, ADAPTER_FILE, OPTIMIZER_FILE
from ablation.policy.attention import PACKED, can_pack
from ablation.policy.base import Progress, SampledTokens, SampleRequest, ScoreRow, Taken, TrainRow, UpdateStats
from ablation.policy.decoding import Decoding, decode
from ablation.policy.digest import tensors_digest
from ablation.policy.head import chunks
from ablation.policy.layers import lighten, recompute_layers
from ablation.policy.loading import free_memory, load_adapted
from ablation.policy.loss import NonFiniteLoss, policy_gradient_loss
from ablation.policy.optimizer import (
    all_finite,
    clip_gradient,
    fitting,
    gradient_norm,
    load_moments,
    load_start_moments,
    make_optimizer,
    moments,
    move_moments,
    save_moments,
    take_step,
)
from ablation.policy.packing import Packed, micro_batches, pack, pad
from ablation.policy.probes import Probes
from ablation.policy.scoring import hidden_states, mismatch, token_logprobs
from ablation.policy.selftest import self_test
from ablation.rollouts.values import values_in_effect

transformers_logging.disable_progress_bar()  # the run has progress of its own


class LocalPolicy(Probes):
    """One adapter on one frozen base model. Adapter and Adam are float32; the base has the plan's dtype.

    `dtype` overrides the plan's; under float64 adapter and Adam are float64 too.
    """

    streams = False

    def __init__(
        self,
        plan: Plan,
        base: Path,
        start_adapter: Path,
        end_ids: tuple[int, ...],
        pad_id: int,
        dtype: torch.dtype | None = None,
    ) -> None:
        torch.set_num_threads(plan.policy.threads)
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is not deterministic
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # costs time and guards only against reading garbage
        self.plan, self.start_adapter = plan, start_adapter
        self.home = self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = self._load_model(base, dtype)
        self.causal = self.model.get_base_model()
        self.packs = can_pack(self.causal)
        if self.packs:
            self.causal.set_attn_implementation(PACKED)
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

    def _load_model(self, base: Path, dtype: torch.dtype | None) -> PeftModel:
        return self._light(load_adapted(self.plan, base, self.start_adapter, dtype).to(self.device))

    def _light(self, model: PeftModel) -> PeftModel:
        lighten(model)
        if self.plan.training.gradient_checkpointing:
            recompute_layers(model)
        return model.eval()  # no dropout, so a logprob is a function of weights and tokens

    def reset(self, optimizer: Adam | None = None) -> None:
        """The starting adapter, Adam (the plan's or another one) at its start, and proof that no earlier arm moved the base."""
        self._begin(optimizer)
        if self.adam.state == "start":
            self._load_moments(None)

    def _load_moments(self, path: Path | None) -> None:
        """From a file, or those of the start adapter."""
        load, source = (load_start_moments, self.start_adapter) if path is None else (load_moments, path)
        load(self.optimizer, self.trainable, source)

    def _begin(self, optimizer: Adam | None) -> None:
        if self._base_digest() != self.base_sha256:
            raise IntegrityError("the base model's weights changed since they were loaded; start again in a new process")
        self.set_weights(self.start_weights)
        self.adam = optimizer or self.plan.training.optimizer
        self.optimizer = make_optimizer(self.trainable, self.adam, self.plan.training.learning_rate)

    def prepare(self) -> None:
        """Nothing: the model is in this process."""

    def sample(
        self, requests: list[SampleRequest], progress: Progress | None = None, taken: Taken | None = None
    ) -> list[SampledTokens]:
        """Sample all requests as one batch. Given to `taken`, they come in order when the batch is done."""
        sampled = self.decode(requests, self.decoding, progress)
        if taken is None:
            return sampled
        for place, one in enumerate(sampled):
            taken(place, one)
        return []

    def decode(self, requests: list[SampleRequest], how: Decoding, progress: Progress | None = None) -> list[SampledTokens]:
        """Sample all requests as one batch, by other values than the plan's if `how` says so."""
        return decode(self.next_token_logits, self.layers, requests, how, self.device, progress)

    @property
    def sampling_values(self) -> dict[str, Any]:
        """Every value in effect: what the plan has no field for is neutral here, as this program does nothing else."""
        use = self.decoding
        return values_in_effect(use.temperature, use.top_p, use.top_k, use.max_tokens, use.end_ids)

    def self_test(self) -> None:
        """Raise `IntegrityError` if this model does not compute here what a run takes for granted; see `selftest`."""
        self_test(self)

    def score(self, rows: list[ScoreRow], *, start: bool = False) -> list[np.ndarray]:
        """Raw logprobs (float64, nats) of each row's tokens under the current adapter, or under the starting one."""
        if start:
            current = {name: weight.detach().clone() for name, weight in self.trainable.items()}
            self.set_weights(self.start_weights)
            try:
                return self.score(rows)
            finally:
                self.set_weights(current)
        scored: list[np.ndarray] = [np.zeros(0)] * len(rows)
        full = [index for index, row in enumerate(rows) if len(row.token_ids)]
        for batch, pieces in self._in_passes([rows[index] for index in full], self._logprobs):
            for index, piece in zip(batch, pieces, strict=True):
                scored[full[index]] = piece
        return scored

    def _in_passes(self, rows: list, work: Callable[[list], Any]) -> Iterator[tuple[list[int], Any]]:
        """Do `work` on the rows of each micro-batch. Gives their indices and what was found."""
        for batch in micro_batches(rows, self.plan.training.micro_batch_tokens, share=self.packs):
            yield batch, work([rows[index] for index in batch])

    @torch.no_grad()
    def _logprobs(self, rows: list[ScoreRow]) -> list[np.ndarray]:
        packed = self._packed(rows)
        with self.precision():
            hidden_UD = hidden_states(self.causal.base_model, packed)
            with self._whole_head() as head:
                logprobs_K = token_logprobs(hidden_UD, head, packed, self._vocabulary)
        ends = np.cumsum([len(row.token_ids) for row in rows])
        return np.split(logprobs_K.double().cpu().numpy(), ends[:-1])

    def update(self, rows: list[TrainRow], learning_rate: float) -> UpdateStats:
        """One Adam step on -sum(weight * ratio) over all rows; none if no token has a weight.

        Only weighted tokens are scored, and nothing after a row's last one is computed.
        """
        numbers = [number for number, row in enumerate(rows) if np.any(row.weights)]
        rows = [_weighted_part(rows[number]) for number in numbers]
        if not rows:
            return UpdateStats(loss=0.0, grad_norm=0.0, tokens=0, stepped=False, mismatch=mismatch(np.zeros(0), np.zeros(0)))
        self.optimizer.zero_grad(set_to_none=True)
        loss, told = 0.0, []
        for batch, (part, *of_tokens) in self._in_passes(rows, self._backward):
            loss += part
            numbers_K = np.repeat([numbers[index] for index in batch], [np.count_nonzero(rows[index].weights) for index in batch])
            told.append((*of_tokens, numbers_K))
        trainer_K, entropy_K, sampler_K, numbers_K = (np.concatenate(pieces) for pieces in zip(*told, strict=True))
        grad_norm = self._gradient_norm(self.trainable)
        stepped = bool(np.isfinite(grad_norm) and np.isfinite(loss))
        if stepped:  # a step on a gradient that is not finite would destroy the weights that the record needs
            clip_gradient(self.trainable, grad_norm, self.adam.max_grad_norm)
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
            stepped = take_step(self.optimizer, self.trainable, self._all_finite)
        self.optimizer.zero_grad(set_to_none=True)
        entropy = float(entropy_K.mean())
        return UpdateStats(
            loss=loss,
            grad_norm=grad_norm,
            tokens=len(trainer_K),
            stepped=stepped,
            mismatch=mismatch(trainer_K, sampler_K),
            nonfinite_rows=tuple(sorted({int(one) for one in numbers_K[~np.isfinite(trainer_K - sampler_K)]})),
            entropy=entropy if math.isfinite(entropy) else None,
        )

    def _backward(self, rows: list[TrainRow]) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Add the gradient of one micro-batch to the adapter's. Returns its loss (NaN if it is not finite, and then nothing was
        added) and of its weighted tokens the trainer's logprobs, the top entropy and the sampler's logprobs."""
        masks = [row.weights != 0 for row in rows]
        packed = self._packed(rows, masks)
        weights_K = np.concatenate([row.weights[mask] for row, mask in zip(rows, masks, strict=True)])
        sampler_K = np.concatenate([row.sampler_logprobs[mask] for row, mask in zip(rows, masks, strict=True)])
        with self.precision():
            hidden_UD = hidden_states(self.causal.base_model, packed)
        leaf_UD = hidden_UD.detach().requires_grad_()
        loss, trainer_K, entropy_K = 0.0, np.empty(packed.count), np.empty(packed.count)
        with self.precision(), self._whole_head() as head:
            for chunk in chunks(head, leaf_UD, packed, self._vocabulary, top=self.decoding.top_logprobs, gradient=True):
                order = chunk.order.cpu().numpy()
                trainer_K[order] = chunk.logprobs.double().cpu().numpy()
                entropy_K[order] = chunk.top_entropy.double().cpu().numpy()
                logprobs = chunk.logprobs.requires_grad_()
                try:
                    part = policy_gradient_loss(logprobs, *(self._like(logprobs, one[order]) for one in (sampler_K, weights_K)))
                except NonFiniteLoss:  # recorded, and never stepped on: a stop rule of the plan says what follows
                    loss = math.nan
                    continue
                loss += float(part.detach())
                chunk.backward(*torch.autograd.grad(part, logprobs))
        self._through_layers(hidden_UD, leaf_UD.grad if math.isfinite(loss) else None)
        return loss, trainer_K, entropy_K, sampler_K

    def _through_layers(self, hidden_UD: torch.Tensor, grad_UD: torch.Tensor | None) -> None:
        """Add the layers' gradient, given that of the last hidden states; None: there is none to add."""
        if grad_UD is not None:
            hidden_UD.backward(grad_UD)

    _gradient_norm = staticmethod(gradient_norm)
    _all_finite = staticmethod(all_finite)

    def step_aside(self) -> None:
        """Leave an accelerator's memory to somebody else: weights, adapter and moments go to the host's memory, bit for bit.

        Meanwhile all is done there, slowly and rounded as a CPU rounds: nothing of a run is scored or trained before `come_back`.
        Where the policy works on the CPU it has nothing to leave.
        """
        self._move(torch.device("cpu"))

    def come_back(self) -> None:
        """Back to where `step_aside` left."""
        self._move(self.home)

    def _move(self, device: torch.device) -> None:
        if self.device == device:
            return
        self.optimizer.zero_grad(set_to_none=True)
        self.model.to(device)
        moved = dict(self.model.named_parameters())
        assert all(moved[name] is weight for name, weight in self.trainable.items()), "the optimizer would lose its weights"
        self.start_weights = {name: weight.to(device) for name, weight in self.start_weights.items()}
        move_moments(self.optimizer, device)
        self.device = device
        torch.set_num_threads(self.plan.policy.threads if device == self.home else len(os.sched_getaffinity(0)))
        free_memory()

    def save(self, folder: Path) -> None:
        """Adapter in peft's format (usable without this program) and Adam's state, as safetensors.

        Raises `OSError` if the disk refuses, as every write does.
        """
        try:
            self._save(folder)
        except SafetensorError as error:  # how safetensors says that the disk is full
            raise OSError(str(error)) from error

    def save_adapter(self, folder: Path) -> None:
        """The adapter alone, in peft's format. Raises `DiskError` if the disk, or the memory that stands for one, refuses."""
        with disk_errors(folder):
            try:
                self._save_adapter(folder)
            except SafetensorError as error:
                raise OSError(str(error)) from error

    def _save(self, folder: Path) -> None:
        self._save_adapter(folder)
        save_moments(moments(self.optimizer, self.trainable), folder / OPTIMIZER_FILE)

    def _save_adapter(self, folder: Path, **options: Any) -> None:
        self.model.save_pretrained(str(folder), save_embedding_layers=False, **options)
        (folder / "README.md").unlink(missing_ok=True)  # peft's empty model card
        config = json.loads((folder / ADAPTER_CONFIG).read_bytes())
        config["target_modules"] = sorted(config["target_modules"])  # a set, written in the order of the process's hash seed
        config["base_model_name_or_path"] = self.plan.model.base.at  # peft's own is a path of this machine
        write_json(folder / ADAPTER_CONFIG, config)

    def load(self, folder: Path, optimizer: Adam | None = None) -> None:
        """Read what `save` wrote, for the plan's optimizer or another one; every adapter weight must be there."""
        self._load_weights(folder, optimizer)
        self._load_moments(folder / OPTIMIZER_FILE)

    def load_adapter(self, folder: Path) -> None:
        """Read an adapter that something else trained; every weight must be there, and the optimizer is at its start."""
        self._load_weights(folder, None)

    def _load_weights(self, folder: Path, optimizer: Adam | None) -> None:
        weights = self._agreed(lambda: self._stored_weights(folder))
        self._begin(optimizer)
        self.set_weights(weights)

    def _agreed(self, work: Callable[[], Any]) -> Any:
        """Do what may find that a file cannot be used."""
        return work()

    def _stored_weights(self, folder: Path) -> dict[str, torch.Tensor]:
        try:
            saved = load_file(folder / ADAPTER_FILE)
        except (OSError, SafetensorError) as error:
            raise IntegrityError(f"{folder / ADAPTER_FILE}: no usable adapter: {error}") from error
        weights = {}
        for name in self.trainable:
            key = name.replace(".default.", ".").replace(".default", "")
            if key not in saved:
                raise IntegrityError(f"{folder / ADAPTER_FILE}: weight `{key}` is missing")
            weights[name] = fitting(f"{folder / ADAPTER_FILE}: weight `{key}`", saved.pop(key), self.trainable[name])
        if saved:
            raise IntegrityError(f"{folder / ADAPTER_FILE}: unexpected weight `{next(iter(saved))}`")
        return weights

    def adapter_sha256(self) -> str:
        """SHA-256 over name and float32 bytes of every adapter weight, in name order."""
        return self._digest(self.trainable)

    def close(self) -> None:
        """Nothing: all that it holds is memory of this process."""

    @property
    def context(self) -> int | None:
        """Most tokens, prompt included, that the model was made for; None if it does not say."""
        return getattr(self.causal.config, "max_position_embeddings", None)

    @property
    def layers(self) -> int:
        return self.causal.config.num_hidden_layers

    def next_token_logits(self, ids_BL, mask_B1LK, position_ids_BL, cache) -> torch.Tensor:
        hidden_BLD = self.causal.base_model(
            input_ids=ids_BL, attention_mask=mask_B1LK, position_ids=position_ids_BL, past_key_values=cache, use_cache=True
        ).last_hidden_state
        return self._head(hidden_BLD[:, -1])

    @property
    def _head(self):
        return self.causal.get_output_embeddings()

    def _whole_head(self) -> AbstractContextManager[Callable]:
        """The head, to be called any number of times."""
        return nullcontext(self._head)

    @property
    def _vocabulary(self) -> int:
        return self.causal.config.vocab_size

    def _packed(self, rows: list, wanted: list[np.ndarray] | None = None) -> Packed:
        return (pack if self.packs else pad)(rows, self.device, wanted)

    def precision(self):
        """What the plan asks of matrix products in scoring and training."""
        if self.plan.training.autocast == "none":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16, cache_enabled=False)

    def _like(self, tensor: torch.Tensor, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(tensor)

    @torch.no_grad()
    def set_weights(self, weights: dict[str, torch.Tensor]) -> None:
        for name, weight in self.trainable.items():
            weight.copy_(weights[name])

    def _base_digest(self) -> str:
        base = {name: weight for name, weight in sorted(self.model.named_parameters()) if name not in self.trainable}
        return self._digest(base)

    def _digest(self, tensors: dict[str, torch.Tensor]) -> str:
        return tensors_digest(tensors.items())


def _weighted_part(row: TrainRow) -> TrainRow:
    """The row up to its last weighted token: what comes later changes nothing before it."""
    end = int(np.flatnonzero(row.weights)[-1]) + 1
    return TrainRow(row.prompt_ids, row.token_ids[:end], row.sampler_logprobs[:end], row.weights[:end])
