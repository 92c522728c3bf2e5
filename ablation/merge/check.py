"""The breakage check of a model in any format that transformers or vLLM loads, beside the base and a model that is whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.errors import EngineFailed, IntegrityError, UsageError
from ablation.files import parse_json
from ablation.merge.base_files import configs
from ablation.merge.breakage import Look, Prompts, Samples, judge, look_at, make_prompts, prompts_alike
from ablation.merge.engines import InVllm, vllm_is_here
from ablation.merge.model import UNUSABLE, Loaded, first_line
from ablation.merge.run import RECORD, TRANSFORMERS, VLLM, longest_of
from ablation.plan.lock import LockedPlan
from ablation.plan.model_files import BASE_CONFIG
from ablation.policy.loading import DTYPES, load_tokenizer
from ablation.problems.problem import Problem

GGUF = ".gguf"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")


@dataclass(frozen=True)
class Found:
    """What lies at the path that is checked."""

    path: Path
    folder: Path
    gguf: str | None
    """Name of the GGUF file, if that has the weights."""
    format: str
    """`bfloat16`, `gguf`, `compressed-tensors`, `fp8` ..."""


def find_model(path: Path) -> Found:
    """A model folder, a folder with one GGUF file, or a GGUF file. Raises `UsageError` for anything else."""
    if path.is_file() and path.suffix == GGUF:
        return Found(path, path.parent, path.name, "gguf")
    if not path.is_dir():
        raise UsageError(f"{path}: there is no such model folder or {GGUF} file")
    weights, files = list(path.glob("*.safetensors")), sorted(path.glob(f"*{GGUF}"))
    if files and not weights:
        if len(files) > 1:
            names = ", ".join(one.name for one in files)
            raise UsageError(f"{path}: has {len(files)} {GGUF} files ({names})", hint="Name one of them.")
        return Found(path, path, files[0].name, "gguf")
    try:
        config = parse_json((path / BASE_CONFIG).read_bytes())
        own = next((one["quantization_config"] for one in configs(config) if "quantization_config" in one), None)
        name = str(own.get("quant_method", "quantised")) if own is not None else str(config.get("dtype") or config["torch_dtype"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        if not (path / BASE_CONFIG).is_file():
            raise UsageError(f"{path}: is no model folder: it has neither {BASE_CONFIG} nor a {GGUF} file") from None
        name = "not stated"
    return Found(path, path, None, name)


def check_model(
    locked: LockedPlan,
    base: Path,
    problems: dict[str, Problem],
    found: Found,
    *,
    beside: Path | None,
    engine: str,
    seed: int,
    longest: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """What the model at `found` does, beside the base and the model in `beside`.

    Raises `UsageError` if neither engine loads it, or `IntegrityError` if it is a merge of another plan.
    """
    plan = locked.plan
    _check_plan(locked, found.folder)
    tokenizer = load_tokenizer(base)
    prompts = make_prompts(plan, problems, tokenizer, seed, longest)
    references = {}
    for name, folder in {"base": base, "beside": beside}.items():
        if folder is None:
            continue
        say(f"sampling {name}: {folder}")
        loaded = Loaded(folder, plan.model.dtype)
        try:
            references[name] = look_at(loaded, prompts, tokenizer, plan)
        finally:
            loaded.close()
    say(f"sampling {found.path} ({found.format})")
    own, used = _look(
        locked, base, found, engine, lambda model: look_at(model, prompts, tokenizer, plan, references.get("beside")), prompts
    )
    same = None
    if found.gguf is None:
        if not any((found.folder / name).is_file() for name in _TOKENIZERS):
            raise UsageError(f"{found.folder}: has no tokenizer", hint="Copy the base's tokenizer files into it.")
        same = prompts_alike(plan, problems, prompts, load_tokenizer(found.folder))
    record = judge(own, references, same_prompts=same) | {"looked": prompts.record()}
    return {"model": str(found.path), "format": found.format, "engine": used, "plan": locked.digest, "breakage": record}


def _check_plan(locked: LockedPlan, folder: Path) -> None:
    """A merged folder names its plan: another one has other tokens, problems and efforts."""
    try:
        digest = parse_json((folder / RECORD).read_bytes())["plan"]["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if digest != locked.digest:
        raise IntegrityError(f"{folder}: was merged under another plan ({str(digest)[:12]}), not {locked.digest[:12]}")


def _look(
    locked: LockedPlan, base: Path, found: Found, engine: str, look: Callable[[Samples], Look], prompts: Prompts
) -> tuple[Look, str]:
    """(what the model did, what loaded it): transformers, and where that does not take it vLLM; or the engine asked for."""
    plan, reasons = locked.plan, []
    if engine != VLLM:
        try:
            loaded = Loaded(found.folder, plan.model.dtype, gguf=(found.gguf, base) if found.gguf else None)
            try:
                return look(loaded), TRANSFORMERS
            finally:
                loaded.close()
        except UsageError as error:
            reasons.append(f"transformers: {error.message}")
        except UNUSABLE as error:  # it took the folder, and its layers do not work here
            reasons.append(f"transformers: does not compute with it: {first_line(error)}")
    if engine != TRANSFORMERS and not vllm_is_here():
        reasons.append("vLLM: is not installed here")
    elif engine != TRANSFORMERS:
        plain = found.format in DTYPES
        try:
            at = found.path if found.gguf else found.folder
            in_vllm = InVllm(at, plan, longest_of([], prompts), plan.model.dtype if plain else "auto")
            try:
                return look(in_vllm), f"{VLLM} {in_vllm.version}"
            finally:
                in_vllm.close()
        except (UsageError, EngineFailed) as error:
            reasons.append(f"vLLM: {error.message}")
    raise UsageError("\n".join([f"{found.path}: nothing here loads it", *reasons]), hint="Nothing was checked.")
