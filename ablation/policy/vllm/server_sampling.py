"""The rollouts of one request to a server: so many at a time, each tried again with the same seed, and each handed over once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field

from ablation.errors import EngineFailed
from ablation.policy.vllm.client import EngineRefused
from ablation.policy.vllm.messages import Alive, Finished, Sample
from ablation.policy.vllm.server_http import Denied, Link, Passing
from ablation.policy.vllm.server_reply import GENERATE, Reply, generate_request, salt_of

Told = Callable[[Alive | Finished], None]
HINT = "Nothing that was written is lost: the same command goes on from here, and proves the server anew."
_TELL_SECONDS = 1.0


@dataclass(eq=False)
class _Try:
    """One try of one rollout that is under way."""

    reply: Reply
    scope: asyncio.Timeout
    started: float = field(default_factory=time.monotonic)
    heard: float | None = None  # when its last token came
    late: str | None = None


class Sampling:
    """Carries out one `Sample`. `model`: the name of base or adapter at the server; `run`: a word that no other client has;
    `vocabulary`: how many tokens there are."""

    def __init__(self, link: Link, model: str, run: str, vocabulary: int, request: Sample, told: Told | None) -> None:
        self.link, self.model, self.request, self._vocabulary = link, model, request, vocabulary
        self._salt, self._told, self._patience = salt_of(request.adapter, run), told, link.patience
        self._open: Iterator[tuple[int, tuple[int, ...], int]] = iter(request.rows)
        self._tries: set[_Try] = set()
        self._finished = self._kept = self._most = 0
        self._moved = time.monotonic()
        """When a token of any rollout came."""

    async def run(self, at_once: int) -> None:
        """Sample all rows, at most `at_once` at a time, and tell of each that is finished.

        Raises `EngineFailed` for a rollout that fails too often, `EngineRefused` for one that the server will not sample, and
        what `told` raises.
        """
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                work = [group.create_task(self._work()) for _ in range(min(at_once, len(self.request.rows)))]
                if work:
                    await asyncio.wait(work)
                watch.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _work(self) -> None:
        for key, prompt, seed in self._open:
            reply = await self._rollout(key, prompt, seed)
            self._finished += 1
            self._kept += len(reply.token_ids)
            if self._told is not None:
                self._told(reply.finished(self._tokens(), self._finished))

    async def _rollout(self, key: int, prompt: tuple[int, ...], seed: int) -> Reply:
        """One rollout, tried again with its own seed as long as there is hope."""
        failed = 0
        while True:
            moved = self._moved
            try:
                return await self._try(key, prompt, seed)
            except Passing as problem:
                if not (problem.busy and self._moved > moved):  # a server that is busy, and gets on, is waited for
                    failed += 1
                if failed >= self._patience.tries:
                    raise EngineFailed(f"{self.link.root}: a rollout failed {failed} times: {problem}", hint=HINT) from None
                await asyncio.sleep(max(problem.wait, self._patience.first_pause * 2 ** max(failed - 1, 0)))
            except Denied as denied:
                raise self._refusal(denied) from None

    async def _try(self, key: int, prompt: tuple[int, ...], seed: int) -> Reply:
        body = generate_request(self.model, prompt, seed, self.request.values, self._salt)
        reply = Reply(key, prompt, self.request.values, self._vocabulary)
        attempt: _Try | None = None
        try:
            async with asyncio.timeout(None) as scope:
                attempt = _Try(reply, scope)
                self._tries.add(attempt)
                async with aclosing(self.link.events(GENERATE, body)) as events:
                    async for event in events:
                        if reply.take(event):
                            attempt.heard = self._moved = time.monotonic()
            reply.finished(0, 0)
            return reply
        except TimeoutError:
            raise Passing((attempt and attempt.late) or "no answer in time") from None
        finally:
            if attempt is not None:
                self._tries.discard(attempt)

    def _refusal(self, denied: Denied) -> Exception:
        if denied.status == 404 and self.request.adapter is not None:
            return EngineFailed(
                f"{self.link.root}: the adapter is gone from the server ({denied}): it was restarted, or somebody unloaded it",
                hint=HINT,
            )
        if denied.status in (401, 403):
            return EngineFailed(f"{self.link.root}: the server refuses this client now: {denied}", hint=HINT)
        return EngineRefused(f"{self.link.root}: {denied}")

    async def _watch(self) -> None:
        """Tell how far it is, and end tries that get no further."""
        patience, told = self._patience, 0.0
        tick = min(_TELL_SECONDS, patience.idle / 4, patience.rollout / 4)
        while True:
            await asyncio.sleep(tick)
            now = time.monotonic()
            for one in self._tries:
                since = one.heard if one.heard is not None else max(one.started, self._moved)
                if now - since > patience.idle:
                    one.late = f"no new token within {patience.idle:g} s"
                elif now - one.started > patience.rollout:
                    one.late = f"not at its end after {patience.rollout:g} s"
                else:
                    continue
                if not one.scope.expired() and one.scope.when() is None:
                    one.scope.reschedule(asyncio.get_running_loop().time())
            if self._told is not None and now - told >= _TELL_SECONDS:
                told = now
                self._told(Alive(self._finished, self._tokens()))

    def _tokens(self) -> int:
        """Sampled so far; a try that came to nothing makes it no smaller."""
        self._most = max(self._most, self._kept + sum(len(one.reply.token_ids) for one in self._tries))
        return self._most
