"""What `recipe:smollm2/...` stands for: a small real language model, real problems and a start adapter for them."""

from __future__ import annotations

from pathlib import Path

from ablation.recipes.recipe import Part, Say


def _base(folder: Path, finished: Path, say: Say) -> None:
    from ablation.recipes.smollm2_base import make_base

    make_base(folder, say)


def _problems(path: Path, finished: Path, say: Say) -> None:
    from ablation.recipes.smollm2_problems import make_problems

    make_problems(path)


def _adapter(folder: Path, finished: Path, say: Say) -> None:
    from ablation.recipes.smollm2_adapter import make_adapter

    make_adapter(folder, finished / "base", say)


PARTS = {
    "base": Part("folder", _base),
    "problems.jsonl": Part("file", _problems),
    "start-adapter": Part("folder", _adapter, needs=("base",)),
}
"""Part -> how it is made. Base and problems are the same on every machine; the adapter is not (see `smollm2_adapter`)."""
