"""The prompt as the model sees it: chat template, effort switch, token ids and their digest.

Rules on the ids, the same for every model:

- A prompt begins with at most one start token; what a template or tokenizer repeats of it is dropped.
- Thinking is open where the last opening token comes after the last closing token: the first sampled token is then thinking.
- Two efforts of one problem have different prompts, or the plan's cells would be one cell under two names: a template that
  ignores `reasoning_effort` serves one effort.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ablation.errors import UsageError
from ablation.plan.resources import ThinkingTokens
from ablation.problems.problem import Problem


class ChatTokenizer(Protocol):
    """What is used of a transformers tokenizer; importing its class would cost seconds."""

    chat_template: str | None
    unk_token_id: int | None
    bos_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: object) -> list[int]: ...


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt."""

    ids: list[int]
    sha256: str
    """Hex SHA-256 over the ids as little-endian int32."""
    opens_thinking: bool
    """The prompt ends inside a thinking block, so the first sampled token is already thinking."""


@dataclass(frozen=True)
class TokenIds:
    """Ids of the tokens that frame thinking and end a turn."""

    open: int
    close: int
    end: tuple[int, ...]


def token_ids(tokenizer: ChatTokenizer, tokens: ThinkingTokens) -> TokenIds:
    """Ids of the plan's tokens.

    Raises:
        UsageError: one of them is not exactly one token of this tokenizer, or two of them are the same token.
    """
    end = tuple(_one_token(tokenizer, text, f"model.tokens.end[{place}]") for place, text in enumerate(tokens.end))
    opening = _one_token(tokenizer, tokens.open, "model.tokens.open")
    closing = _one_token(tokenizer, tokens.close, "model.tokens.close")
    ids = TokenIds(opening, closing, end)
    named = (ids.open, ids.close, *ids.end)
    if len(set(named)) != len(named):
        raise UsageError("model.tokens: two of them are the same token", hint="open, close and every end token must differ.")
    return ids


def render_prompt(tokenizer: ChatTokenizer, problem: Problem, effort: str, tokens: ThinkingTokens) -> Prompt:
    """The prompt of `problem` at `effort`: one user turn and the generation prompt; the template gets `reasoning_effort`.

    Raises:
        UsageError: the tokenizer has no chat template, or the template fails or renders nothing.
    """
    ids = token_ids(tokenizer, tokens)
    if not tokenizer.chat_template:
        raise UsageError(
            "model.base: the tokenizer has no chat template", hint="Put a chat_template.jinja into the model folder."
        )
    try:
        rendered = tokenizer.apply_chat_template(
            [{"role": "user", "content": problem.prompt}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            reasoning_effort=effort,
        )
    except Exception as error:  # a template is a program: it can fail in any way
        raise UsageError(
            f"problem `{problem.id}` at effort `{effort}`: the chat template failed: {error}",
            hint="Fix the chat template of model.base, or leave this effort out of problems.cells.",
        ) from error
    prompt = one_start([int(token) for token in rendered], tokenizer.bos_token_id)
    if not prompt:
        raise UsageError(
            f"problem `{problem.id}` at effort `{effort}`: the chat template renders nothing",
            hint="Fix the chat template of model.base.",
        )
    return Prompt(prompt, ids_sha256(prompt), ends_inside_thinking(prompt, ids))


def one_start(ids: list[int], start: int | None) -> list[int]:
    """`ids` with one start token where it begins with several."""
    while start is not None and ids[:2] == [start, start]:
        ids = ids[1:]
    return ids


def refuse_equal_prompts(prompts: Mapping[tuple[str, str], Prompt]) -> None:
    """Raise `UsageError` if two efforts of a problem have the same prompt. Keys are (problem, effort)."""
    seen: dict[tuple[str, str], str] = {}
    for (problem, effort), prompt in prompts.items():
        other = seen.setdefault((problem, prompt.sha256), effort)
        if other != effort:
            raise UsageError(
                f"problem `{problem}`: efforts `{other}` and `{effort}` have the same prompt: the chat template of model.base "
                "ignores reasoning_effort or does not know one of them",
                hint="Use one effort in problems.cells, or a template that makes a difference between them.",
            )


def ids_sha256(ids: list[int]) -> str:
    """Hex SHA-256 over `ids` as little-endian int32."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()


def ends_inside_thinking(ids: list[int], tokens: TokenIds) -> bool:
    """True if the last opening token comes after the last closing token."""
    for token in reversed(ids):
        if token == tokens.close:
            return False
        if token == tokens.open:
            return True
    return False


def _one_token(tokenizer: ChatTokenizer, text: str, field: str) -> int:
    ids = tokenizer.encode(text, add_special_tokens=False)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        found = "is not in the vocabulary" if len(ids) == 1 else f"is {len(ids)} tokens"
        raise UsageError(
            f"{field}: `{text}` {found} of model.base's tokenizer",
            hint="Name a text that the tokenizer has as one token (a special or added token).",
        )
    return ids[0]
