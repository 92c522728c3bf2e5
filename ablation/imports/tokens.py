"""Token ids of an import: those of the tags and end tokens, and a tokenizer for texts, where there is one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.files import sha256_file
from ablation.plan.resources import ThinkingTokens
from ablation.problems.render import TokenIds

FILE = "tokenizer.json"
LARGEST_ID = (1 << 31) - 1


@dataclass
class Tokens:
    """Ids of the plan's tags and end tokens, and the file that texts are encoded with (None: only given ids can be read)."""

    ids: TokenIds
    path: Path | None = None
    _loaded: Any = None

    @property
    def sha256(self) -> str | None:
        """Digest of `tokenizer.json`."""
        return None if self.path is None else sha256_file(self.path)

    @property
    def at_hand(self) -> bool:
        """Whether ids can be decoded here."""
        return self.path is not None and find_spec("tokenizers") is not None

    def encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """(ids, first character of each and the one after it) of `text`, which gets no special tokens but those written in it.

        Raises `ValueError` naming what the tokenizer has no token for.
        """
        tokenizer = self._tokenizer()
        found = tokenizer.encode(text, add_special_tokens=False)
        unknown = getattr(tokenizer.model, "unk_token", None)
        place = (
            found.ids.index(tokenizer.token_to_id(unknown)) if unknown and tokenizer.token_to_id(unknown) in found.ids else None
        )
        if place is not None:
            start, stop = found.offsets[place]
            raise ValueError(f"the tokenizer {self.path} has no token for {text[start:stop]!r}")
        return found.ids, found.offsets

    def decode(self, ids: Sequence[int], *, skip: bool = False) -> str:
        """The text of `ids`; `skip` leaves the special tokens out."""
        return self._tokenizer().decode(list(ids), skip_special_tokens=skip)

    def _tokenizer(self) -> Any:
        if self._loaded is None:
            assert self.path is not None
            self._loaded = load_tokenizer(self.path)
        return self._loaded


def load_tokenizer(path: Path) -> Any:
    """The tokenizer in the file `path`, which cuts and pads nothing. Raises `UsageError` if it or the package is none."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UsageError("texts without token ids need the package tokenizers", hint="pip install -e '.[imports]'") from None
    try:
        found = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises no other kind
        raise UsageError(f"{path}: is not a tokenizer: {error}", hint="Name a folder with tokenizer.json.") from None
    found.no_truncation()
    found.no_padding()
    return found


def tokens_from_file(path: Path, tokens: ThinkingTokens) -> Tokens:
    """Tokens of the tokenizer in the file `path`; ids are read from it without any package.

    Raises `UsageError` if it cannot be read or lacks one of the plan's tokens.
    """
    try:
        content = json.loads(path.read_bytes())
        known = {one["content"]: one["id"] for one in content.get("added_tokens") or []}
        vocabulary = content["model"].get("vocab")
    except OSError as error:
        raise UsageError(
            f"{path}: could not be read: {error.strerror or error}", hint="Name a folder with tokenizer.json."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: is not a tokenizer ({type(error).__name__}: {error})") from None

    def id_of(text: str, field: str) -> int:
        found = known.get(text, vocabulary.get(text) if isinstance(vocabulary, dict) else None)
        if found is None:
            raise UsageError(f"{path}: has no token `{text}` ({field})", hint="Name the tokenizer that sampled these rollouts.")
        if type(found) is not int or not 0 <= found <= LARGEST_ID:
            raise UsageError(f"{path}: the id of `{text}` is {found!r}, which is none ({field})")
        return found

    end = tuple(id_of(text, f"model.tokens.end[{place}]") for place, text in enumerate(tokens.end))
    return Tokens(TokenIds(id_of(tokens.open, "model.tokens.open"), id_of(tokens.close, "model.tokens.close"), end), path)


def tokens_from_words(words: str, tokens: ThinkingTokens) -> Tokens:
    """`OPEN,CLOSE,END[,END...]`, as `--ids` takes them."""
    try:
        ids = [int(word) for word in words.split(",")]
    except ValueError:
        ids = []
    if len(ids) != 2 + len(tokens.end) or len(set(ids)) != len(ids) or not 0 <= min(ids, default=-1) <= max(ids) <= LARGEST_ID:
        names = ", ".join([tokens.open, tokens.close, *tokens.end])
        raise UsageError(f"--ids: found `{words}`; it must be the ids of {names}, with commas between them")
    return Tokens(TokenIds(ids[0], ids[1], tuple(ids[2:])))
