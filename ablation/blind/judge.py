"""A judge model behind a server that speaks OpenAI's chat completions: asked of each item, in each order, till it can be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from ablation.blind.judge_prompt import judge_messages, prompt_sha256, read_reply, template_sha256
from ablation.blind.ratings import JUDGE, Reply
from ablation.blind.state import ReadState
from ablation.errors import IncompleteError, UsageError
from ablation.seeds import derive_seed

if TYPE_CHECKING:
    from openai import OpenAI

_KEY = "OPENAI_API_KEY"
_OTHER = "Is this an OpenAI-compatible server? --base-url often ends with /v1."
_LONGEST_REPLY = 20_000
"""Characters of a reply that are kept; a longer one is cut in the record and unparsed in any case."""


@dataclass(frozen=True)
class Judge:
    """Which model is asked, where, and with which sampling values. The API key comes from the environment and is kept nowhere."""

    base_url: str
    model: str
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 2048
    timeout: float = 600.0
    """Seconds to wait for one reply."""

    @property
    def sampling(self) -> dict[str, Any]:
        return {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": self.max_tokens}

    @property
    def place(self) -> str:
        """`base_url` without a name, password or query in it."""
        parts = urlsplit(self.base_url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))

    def settings(self, kind: str) -> dict[str, Any]:
        """What all of this judge's replies share."""
        own = {"model": self.model, "base_url": self.place, "sampling": self.sampling}
        return own | {"template_sha256": template_sha256(kind)}

    def client(self) -> OpenAI:
        """The client. Raises `UsageError` without the package, or for an address that is none."""
        try:
            import openai
        except ImportError:
            raise UsageError(
                "a judge model needs the package `openai`", hint='Install it with the extra: pip install "ablation[judge]".'
            ) from None
        if urlsplit(self.base_url).scheme not in ("http", "https") or not urlsplit(self.base_url).netloc:
            raise UsageError(f"--base-url: `{self.place}` is no address", hint="For instance http://127.0.0.1:8000/v1.")
        key = os.environ.get(_KEY) or "none"  # a server of one's own asks for none, but the client insists on one
        return openai.OpenAI(base_url=self.base_url, api_key=key, max_retries=2, timeout=self.timeout)


def ask(state: ReadState, rater: str, judge: Judge, add: Callable[[Reply], None]) -> Iterator[Reply]:
    """Ask for everything that is open, giving each reply to `add` before the next is asked for, and then out.

    Raises:
        IncompleteError: the server cannot be reached or has an error of its own; what came so far is kept.
        UsageError: the server refuses what it is asked (the model, the key, a text that is too long).
    """
    client, kind = judge.client(), state.batch.kind
    have = state.ratings.get(rater)
    for number, order in state.open(rater, JUDGE):
        item = state.batch.item(number)
        assert item is not None
        done = 0 if have is None else have.attempts(number, order)
        for attempt in range(done + 1, state.settings.retries + 2):
            messages = judge_messages(item, order)
            seed = derive_seed(0, "judge", state.batch.sha256, rater, number, order, attempt) % 2**31
            said = _say(client, judge, messages, seed, f"item {number}")
            values, problem = read_reply(item, said["reply"], said["finish_reason"], order)
            if said.pop("refusal") is not None:
                values, problem = None, "is a refusal"
            asked = judge.settings(kind) | {"prompt_sha256": prompt_sha256(messages), "seed": seed, "problem": problem}
            reply = Reply(number, values, JUDGE, order, attempt, judge=asked | said)
            add(reply)
            yield reply
            if values is not None:
                break


def _say(client: OpenAI, judge: Judge, messages: list[dict[str, str]], seed: int, what: str) -> dict[str, Any]:
    """One reply of the model, and what the server says of it."""
    import openai

    try:
        found = client.chat.completions.create(
            model=judge.model,
            messages=messages,  # type: ignore[arg-type]
            temperature=judge.temperature,
            top_p=judge.top_p,
            max_tokens=judge.max_tokens,
            seed=seed,
            n=1,
        )
    except (openai.APIConnectionError, openai.InternalServerError, openai.RateLimitError) as error:
        raise IncompleteError(
            f"{judge.place}: {what} was not judged: {_why(error)}",
            hint="What was judged so far is kept: the same command goes on from there.",
        ) from None
    except openai.APIStatusError as error:
        raise UsageError(
            f"{judge.place}: {what}: the server refuses the request ({error.status_code}): {_why(error)}",
            hint=f"Look at --base-url, --model and --max-tokens; the API key is read from {_KEY}.",
        ) from None
    except openai.APIError as error:
        raise UsageError(f"{judge.place}: {what}: {_why(error)}", hint=_OTHER) from None
    except ValueError as error:  # what came back is no JSON
        raise UsageError(f"{judge.place}: {what}: {_why(error)}", hint=_OTHER) from None
    choice = found.choices[0] if getattr(found, "choices", None) else None
    message = getattr(choice, "message", None)
    if choice is None or message is None:  # a page of another server, or an error that says that all is well
        raise UsageError(f"{judge.place}: {what}: the server's answer has no reply in it: {_why(found)}", hint=_OTHER)
    text = getattr(message, "content", None)
    thinking = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    usage = getattr(found, "usage", None)
    return {
        "reply": _kept(text),
        "refusal": getattr(message, "refusal", None),
        "thinking": _kept(thinking),
        "finish_reason": _kept(choice.finish_reason),
        "served_model": _kept(getattr(found, "model", None)),
        "system_fingerprint": _kept(getattr(found, "system_fingerprint", None)),
        "tokens": None if usage is None else {"prompt": usage.prompt_tokens, "completion": usage.completion_tokens},
    }


def _kept(text: Any) -> str | None:
    """A server's text as it can be stored: halves of characters are replaced."""
    return text[:_LONGEST_REPLY].encode(errors="replace").decode() if isinstance(text, str) else None


def _why(error: Any) -> str:
    """The server's words on one line, short, and without the key in them."""
    text = " ".join(str(error).split())
    key = os.environ.get(_KEY)
    text = text.replace(key, "...") if key else text
    return text if len(text) <= 300 else text[:297] + "..."
