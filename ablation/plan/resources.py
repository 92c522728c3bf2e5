"""Files that a plan needs and names by digest: models, adapters, problems."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from ablation.plan.section import Digest, PositiveInt, Section, Text, refuse_any

HUB = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", re.ASCII)


class Resource(Section):
    """A file or folder outside the plan. `at` is one of

    - `package:PATH` - shipped in this package, below `ablation/assets/`;
    - `recipe:NAME/PATH` - made on first use by a recipe of this package (`ablation prepare`), then cached;
    - `hub:ORG/NAME@REVISION` - a model hub repository at a full commit hash;
    - anything else is a path, relative to the plan's folder.
    """

    at: Text
    """Where it is."""
    sha256: Digest | None = None
    """Digest of the file, or of the folder's sorted `name NUL digest NL` lines. May be left out only for `recipe:` (the lock
    records what the recipe made) and `hub:` (the revision pins it)."""
    owed: Text | None = None
    """Why the digest cannot be given yet (the file is not at hand). A run refuses until the file and its digest are there."""

    @model_validator(mode="after")
    def _pinned(self) -> Resource:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        scheme, _, rest = self.at.partition(":")
        if scheme == "hub" and not HUB.fullmatch(rest):
            problems.append((("at",), f"found `{self.at}`; allowed: `hub:ORG/NAME@REVISION` with a commit hash of 40 hex digits"))
        if scheme in ("package", "recipe"):
            parts = rest.split("/")
            if any(part in ("", ".", "..") for part in parts) or (scheme == "recipe" and len(parts) < 2):
                form = "`package:PATH`" if scheme == "package" else "`recipe:NAME/PATH`"
                problems.append((("at",), f"found `{self.at}`; allowed: {form}, without `.` and `..`"))
        if self.sha256 is None and self.owed is None and scheme not in ("recipe", "hub"):
            problems.append(((), "needs `sha256` (or `owed: WHY` if the file is not at hand)"))
        if self.sha256 is not None and self.owed is not None:
            problems.append((("owed",), "there is a `sha256` too; keep one of them"))
        refuse_any(problems)
        return self


def repeated(names: list[str]) -> list[tuple[int, str]]:
    """(place, name) of each name that came before in the list."""
    first: dict[str, int] = {}
    return [(place, name) for place, name in enumerate(names) if first.setdefault(name, place) != place]


class Lora(Section):
    """The shape of the adapter that every arm trains."""

    rank: PositiveInt
    """Rank of every pair of matrices."""
    alpha: PositiveInt
    """The product of a pair is scaled by alpha / rank."""
    targets: list[Text] = Field(min_length=1)
    """Module names, for instance q_proj, gate_proj, lm_head."""

    @model_validator(mode="after")
    def _targets(self) -> Lora:
        refuse_any([(("targets", place), f"`{name}` is listed twice") for place, name in repeated(self.targets)])
        return self


class ThinkingTokens(Section):
    """The tokens that frame thinking and end a turn, each one token of the model's tokenizer."""

    open: Text = "<think>"
    """Opens the thinking."""
    close: Text = "</think>"
    """Closes the thinking; it carries weight in the loss, the visible answer after it does not."""
    end: list[Text] = Field(min_length=1)
    """Every token that ends a turn."""

    @model_validator(mode="after")
    def _distinct(self) -> ThinkingTokens:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        if self.open == self.close:
            problems.append((("close",), f"found `{self.close}`, which opens the thinking, too"))
        for place, name in repeated([self.open, self.close, *self.end]):
            if place >= 2:
                problems.append((("end", place - 2), f"`{name}` is named before; open, close and every end token must differ"))
        refuse_any(problems)
        return self


class Model(Section):
    """The model that every arm starts from."""

    base: Resource
    """Folder of the frozen base model: config, weights, tokenizer, chat template."""
    start_adapter: Resource
    """LoRA weights that every arm starts from."""
    lora: Lora
    """Shape of the adapter."""
    tokens: ThinkingTokens
    """Thinking and end tokens."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the frozen base weights. The adapter and Adam are always float32."""
    parameters: PositiveInt
    """Parameters of the base model: what `plan show` computes time and memory from."""
    layers: PositiveInt
    """Transformer layers."""
    hidden_size: PositiveInt
    """Width of the residual stream."""
    vocabulary: PositiveInt
    """Tokens in the output layer."""
