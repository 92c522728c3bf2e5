"""The LoRA pairs of an adapter, and the weight of the base that each belongs to: every pair has one, and none is left over.

Shapes: R rank, I features in, O features out. A pair is A [R, I] and B [O, R]; the weight that it changes is W [O, I], and
the merged one W + (alpha / rank) B A (Hu et al., "LoRA", 2021, section 4.1).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ablation.errors import UsageError
from ablation.merge.base_files import BYTES, BaseFiles, Tensor
from ablation.plan.model_files import ADAPTER_CONFIG, ADAPTER_FILE, not_plain

_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<which>[AB])(?:\.default)?\.weight")
# A language model inside of a larger one has another name in the files than where it is loaded alone.
_PREFIXES = ("", "model.language_model.", "language_model.model.", "language_model.", "model.text_model.", "text_model.")
HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"


@dataclass(frozen=True)
class Pair:
    """One pair, float32, and the tensor of the base that it is added to."""

    module: str
    down: torch.Tensor  # A [R, I]
    up: torch.Tensor  # B [O, R]
    target: str
    """Name of the base's tensor. For a tied output layer the name that it gets."""

    @property
    def kind(self) -> str:
        """`q_proj`, `lm_head` ..."""
        return self.module.rpartition(".")[2]


@dataclass(frozen=True)
class Adapter:
    """Every pair by the name of its target, and the scale alpha / rank of their products."""

    pairs: dict[str, Pair]
    scale: float
    untied: str | None
    """Name of the embedding whose matrix the output layer had, where it gets one of its own; else None."""

    @property
    def kinds(self) -> dict[str, int]:
        """Pairs of each kind of module."""
        return dict(sorted(Counter(pair.kind for pair in self.pairs.values()).items()))


def read_adapter(folder: Path, base: BaseFiles) -> Adapter:
    """The pairs of the peft adapter in `folder`, each with its place in `base`.

    Raises `UsageError` for anything but plain LoRA, half a pair, a pair without a weight in the base or with one of another
    shape, two pairs for one weight, and numbers that are not finite.
    """
    path = folder / ADAPTER_FILE
    rank, scale = _config(folder / ADAPTER_CONFIG)
    try:
        stored = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{path}: no usable adapter: {error}") from error
    halves: dict[str, dict[str, torch.Tensor]] = {}
    for key, weight in sorted(stored.items()):
        found = _KEY.fullmatch(key)
        if found is None or weight.ndim != 2:
            raise UsageError(
                f"{path}: weight `{key}` is no half of a LoRA pair of a linear layer",
                hint="Only plain LoRA on linear layers is merged; everything that an adapter has must be used.",
            )
        if not torch.isfinite(weight).all():
            raise UsageError(f"{path}: weight `{key}` holds numbers that are not finite")
        if halves.setdefault(found["module"], {}).setdefault(found["which"], weight) is not weight:
            raise UsageError(f"{path}: weight `{key}` is there twice")
    if not halves:
        raise UsageError(f"{path}: holds no LoRA pair")
    tensors, pairs, untied = base.tensors, {}, None
    for module, both in halves.items():
        if set(both) != {"A", "B"}:
            raise UsageError(f"{path}: `{module}` has half a pair: lora_{min(both)} alone")
        down, up = both["A"].float(), both["B"].float()
        place = _find(module, tensors)
        head = f"{module}.weight" == HEAD
        if head and (base.tied or place is None):  # it is the embedding's matrix, even where it is stored a second time
            untied = _embedding(tensors, path)
            place, target = tensors[untied], HEAD if place is None else place.name
        elif place is None:
            raise UsageError(
                f"{path}: the pair of `{module}` has no weight in {base.folder}: there is no `{module}.weight`",
                hint="Every pair must be used. Is this the adapter of another base, or of a model with other names in its files?",
            )
        else:
            target = place.name
        if down.shape[0] != rank or up.shape[1] != rank:
            raise UsageError(f"{path}: the pair of `{module}` has rank {down.shape[0]} and {up.shape[1]}, its config says {rank}")
        if (up.shape[0], down.shape[1]) != place.shape:
            raise UsageError(f"{path}: the pair of `{module}` makes {(up.shape[0], down.shape[1])}, the weight is {place.shape}")
        if place.dtype not in BYTES:
            raise UsageError(f"{base.folder}: `{target}` is {place.dtype}: nothing can be added to it by one rounding")
        if target in pairs:
            raise UsageError(f"{path}: the pairs of `{pairs[target].module}` and `{module}` are for one weight, `{target}`")
        pairs[target] = Pair(module, down, up, target)
    return Adapter(pairs, scale, untied)


def _config(path: Path) -> tuple[int, float]:
    """(rank, scale) of plain LoRA."""
    try:
        config = json.loads(path.read_bytes())
        rank, alpha = config["r"], config["lora_alpha"]
        other = not_plain(config)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: is not the config of a LoRA adapter: {error!r}") from None
    if type(rank) is not int or rank < 1 or type(alpha) not in (int, float):
        raise UsageError(f"{path}: has r {json.dumps(rank)} and lora_alpha {json.dumps(alpha)}")
    if other:
        raise UsageError(f"{path}: has {other[0]}: only plain LoRA is merged")
    return rank, alpha / rank


def _find(module: str, tensors: dict[str, Tensor]) -> Tensor | None:
    """The weight of `module`, under its own name or the one that it has in a larger model."""
    inner = module.removeprefix("model.")
    names = [f"{module}.weight", *(f"{prefix}{one}.weight" for prefix in _PREFIXES for one in (module, inner))]
    return next((tensors[name] for name in names if name in tensors), None)


def _embedding(tensors: dict[str, Tensor], path: Path) -> str:
    found = [name for name in tensors if name.endswith(EMBEDDING)]
    if len(found) != 1:
        raise UsageError(
            f"{path}: has a pair for `lm_head`, which shares the input embedding's matrix, and {len(found)} weights could be that"
        )
    return found[0]
