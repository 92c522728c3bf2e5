"""The tokenizer in a model folder, asked in a process that is killed at a limit: its file may be anybody's. Without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ablation.problems.workers import Failure, Limits, run_items

WORK = "ablation.problems.text_work"
LIMITS = Limits(seconds=10, memory=2 << 30)
FILE = "tokenizer.json"


@dataclass(frozen=True)
class FolderTokenizer:
    """The tokenizer in `path`. What it cannot say within the limits is None."""

    path: Path

    @classmethod
    def of(cls, folder: Path) -> FolderTokenizer | None:
        """None where there is none, or the package that reads it is not installed."""
        path = folder / FILE
        return cls(path) if path.is_file() and find_spec("tokenizers") is not None else None

    def pieces(self, ids: Sequence[int]) -> list[str] | None:
        """The text that each token adds, [T]."""
        return self._ask("pieces", list(map(int, ids)))

    def encode(self, text: str) -> list[int] | None:
        """Token ids, without special tokens of its own."""
        return self._ask("encode", text)

    def _ask(self, what: str, value: Any) -> Any:
        [found] = run_items(WORK, [[what, str(self.path), self.path.stat().st_mtime_ns, value]], limits=LIMITS)
        return None if isinstance(found, Failure) else found.get("found")
