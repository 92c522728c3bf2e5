"""The tokenizer of a model folder; without torch."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ablation.errors import UsageError

UNUSABLE_TEXT = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError)
"""What transformers and tokenizers raise for files that they cannot use."""


def load_tokenizer(base: Path) -> Any:
    """The tokenizer, chat template included, of a model folder. Raises `UsageError` if there is none that can be used."""
    if find_spec("torch") is None:
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that no model can be loaded is no news
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(base, local_files_only=True, trust_remote_code=False)
    except UNUSABLE_TEXT as error:
        raise unusable("model.base", base, "tokenizer", error) from error


def unusable(field: str, folder: Path, what: str, error: Exception) -> UsageError:
    """The error for a file of a model that cannot be used."""
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return UsageError(
        f"{field}: {folder}: no usable {what}: {reason}", hint="Look at the folder: a file is missing, cut or of another model."
    )
