"""A judge model behind a server that speaks OpenAI's chat completions: asked of each item, in each order, till it can be read."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from ablation.blind.judge_answer import NoAnswer, said_of, within
from ablation.blind.judge_prompt import judge_messages, prompt_sha256, read_reply, template_sha256
from ablation.blind.ratings import JUDGE, Reply
from ablation.blind.state import ReadState
from ablation.errors import IncompleteError, UsageError
from ablation.seeds import derive_seed

if TYPE_CHECKING:
    from openai import OpenAI

_KEY = "OPENAI_API_KEY"
_OTHER = "Is this an OpenAI-compatible server? --base-url often ends with /v1."
_LONGEST_WAIT = 7 * 24 * 3600


@dataclass(frozen=True)
class Judge:
    """Which model is asked, where, and with which sampling values. The API key comes from the environment and is kept nowhere."""

    base_url: str
    model: str
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 2048
    timeout: float = 600.0
    """Seconds to wait for one whole reply, further tries of the request included."""

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

    def check(self) -> None:
        """Raise `UsageError` for a value that no request can be made with."""
        for name, value in (("--temperature", self.temperature), ("--top-p", self.top_p), ("--timeout", self.timeout)):
            if not math.isfinite(value):
                raise UsageError(f"{name}: found {value}", hint="A number that is not infinite.")
        if self.timeout > _LONGEST_WAIT:
            raise UsageError(f"--timeout: found {self.timeout:g}", hint=f"At most {_LONGEST_WAIT} seconds, a week.")

    def client(self) -> OpenAI:
        """The client. Raises `UsageError` without the package, for an address that is none, and as `check`."""
        self.check()
        try:
            import openai
        except ImportError:
            raise UsageError("a judge model needs the package `openai`", hint="pip install -e '.[judge]'.") from None
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

    def request() -> bytes:
        raw = client.chat.completions.with_raw_response.create(
            model=judge.model,
            messages=messages,  # type: ignore[arg-type]
            temperature=judge.temperature,
            top_p=judge.top_p,
            max_tokens=judge.max_tokens,
            seed=seed,
            n=1,
        )
        return raw.http_response.content

    try:
        return said_of(within(judge.timeout, request))
    except (openai.APIConnectionError, openai.InternalServerError, openai.RateLimitError, TimeoutError) as error:
        raise IncompleteError(
            f"{judge.place}: {what} was not judged: {_why(error)}",
            hint="What was judged so far is kept: the same command goes on from there.",
        ) from None
    except openai.APIStatusError as error:
        raise UsageError(
            f"{judge.place}: {what}: the server refuses the request ({error.status_code}): {_why(error)}",
            hint=f"Look at --base-url, --model and --max-tokens; the API key is read from {_KEY}.",
        ) from None
    except (openai.APIError, NoAnswer) as error:
        raise UsageError(f"{judge.place}: {what}: {_why(error)}", hint=_OTHER) from None


def _why(error: Any) -> str:
    """The server's words on one line, short, and without the key in them."""
    text = " ".join(str(error).split())
    key = os.environ.get(_KEY)
    text = text.replace(key, "...") if key else text
    return text if len(text) <= 300 else text[:297] + "..."
