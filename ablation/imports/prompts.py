"""What a row says of its prompt: of which problem it is, its digest, and whether it ends inside the thinking.

Several columns may say it. All of them are read, and what contradicts is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from ablation.files import json_bytes, sha256_bytes
from ablation.imports.columns import Row, message_text
from ablation.imports.wanted import Wanted
from ablation.plan.section import did_you_mean
from ablation.problems.render import ends_inside_thinking, ids_sha256


def problem_of(row: Row, wanted: Wanted) -> str:
    """The row's problem: by its id, or (dumps of trainers) the one whose text its prompt holds."""
    named = row.get("problem")
    if named is not None and named not in wanted.problems:
        raise row.error(f"problem: there is no `{named}` in the plan's problems{did_you_mean(named, wanted.problems)}")
    if named is None and "prompt" not in row:
        raise row.error("problem: is missing, and there is no prompt to know it by", "Add the problem's id.")
    for column, text in _texts(row, wanted):
        held = wanted.held_by(text)
        if named is None and len(held) != 1:
            which = ", ".join(sorted(held)[:3])
            said = f"the prompt holds the texts of {which}" if held else "the prompt holds no text of the plan's problems"
            raise row.error(f"problem: is missing, and {said}", "Add the problem's id.")
        if named is not None and held and named not in held:
            raise row.differ("problem", named, column, held[0])
        named = named or held[0]
    assert named is not None
    return named


def _texts(row: Row, wanted: Wanted) -> Iterator[tuple[str, str]]:
    """(column, the prompt's text by it), for each column that shows one."""
    prompt = row.get("prompt")
    if prompt is not None:
        yield "prompt", prompt if isinstance(prompt, str) else "\n".join(message_text(one.get("content")) for one in prompt)
    if "prompt_token_ids" in row and wanted.tokens.at_hand:
        yield "prompt_token_ids", wanted.tokens.decode(row.get("prompt_token_ids"))


def digest_of(row: Row) -> tuple[str, int]:
    """(digest, tokens) of the prompt: of its ids, else of its text; `("", 0)` if it is not known."""
    digest, length, prompt = row.get("prompt_sha256"), row.get("prompt_length"), row.get("prompt")
    if "prompt_token_ids" in row:
        ids = row.get("prompt_token_ids")
        for column, value, right in (("prompt_sha256", digest, ids_sha256(ids)), ("prompt_length", length, len(ids))):
            if value not in (None, right):
                raise row.differ(column, value, "prompt_token_ids", right)
        return ids_sha256(ids), len(ids)
    if digest is None and prompt is not None:
        digest = sha256_bytes(prompt.encode() if isinstance(prompt, str) else json_bytes(prompt))
    return digest or "", length or 0


def opens_thinking(row: Row, wanted: Wanted) -> bool:
    """Whether the prompt ends inside the thinking: as the row or the user says, else by the prompt. Never guessed."""
    tags, prompt = wanted.plan.model.tokens, row.get("prompt")
    said: list[tuple[str, bool]] = []
    if "prompt_opens_thinking" in row:
        said.append(("prompt_opens_thinking", row.get("prompt_opens_thinking")))
    if wanted.opens is not None:
        said.append((f"--{'' if wanted.opens else 'no-'}prompt-opens-thinking", wanted.opens))
    if "prompt_token_ids" in row:
        said.append(("prompt_token_ids", ends_inside_thinking(row.get("prompt_token_ids"), wanted.tokens.ids)))
    if isinstance(prompt, str) and (tags.open in prompt or tags.close in prompt or not said):
        said.append(("prompt", prompt.rfind(tags.open) > prompt.rfind(tags.close)))
    if len({value for _, value in said}) > 1:
        words = " and ".join(f"{str(value).lower()} by {row.name(name)}" for name, value in said)
        raise row.error(f"whether the prompt ends inside the thinking is {words}", "Both cannot be: leave out what is wrong.")
    if said:
        return said[0][1]
    if "token_ids" not in row and "completion" not in row and "thinking" in row:
        return False  # thinking and answer come apart, and the open tag is put between them
    raise row.error(
        f"prompt_opens_thinking: is missing: nothing says whether the prompt ends with `{tags.open}`",
        "Add it, or say it for the whole file: --prompt-opens-thinking or --no-prompt-opens-thinking.",
    )
