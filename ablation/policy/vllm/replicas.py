"""Engines beside each other, asked as if they were one: what one of them does not do, none has done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from ablation.errors import EngineFailed
from ablation.policy.vllm.client import EngineClient, EngineRefused
from ablation.policy.vllm.messages import Alive, EngineSettings, Finished, Sample


class Engine(Protocol):
    """What samples: one process, or several."""

    settings: EngineSettings
    facts: dict[str, Any]

    @property
    def copies(self) -> int:
        """Engines that rollouts are dealt to: the one at place i of a request goes to the engine i mod `copies`."""

    @property
    def alive(self) -> bool: ...

    def ask(self, request: Any, told: Callable[[Alive | Finished], None] | None = None) -> Any: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Ended:
    """One engine's part of a request."""

    value: Any = None
    error: BaseException | None = None


class EngineGroup:
    """At least two engines. All are asked at once; if one fails, all are ended and its error is raised."""

    def __init__(self, settings: Sequence[EngineSettings]) -> None:
        """Start them all. Raises what `EngineClient` raises for the first that does not start; then none is left."""
        self.settings = settings[0]
        self.clients: list[EngineClient] = []
        given_up, failed = threading.Event(), []
        started: dict[int, EngineClient] = {}

        def start(number: int) -> None:
            try:
                started[number] = EngineClient(settings[number], given_up)
            except BaseException as error:
                failed.append(error)
                given_up.set()

        threads = [threading.Thread(target=start, args=(number,), daemon=True) for number in range(len(settings))]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:  # at Ctrl-C, too: none of them may stay
            if len(started) < len(settings):
                given_up.set()
            for thread in threads:
                thread.join()
            self.clients = [started[number] for number in sorted(started)]
            if len(self.clients) < len(settings):
                self.kill()
        if failed:
            raise failed[0]
        self.facts = self.clients[0].facts
        differ = [client for client in self.clients if _comparable(client.facts) != _comparable(self.facts)]
        if differ:
            self.kill()
            raise EngineFailed(f"vLLM's engines are not alike: {_comparable(self.facts)} and {_comparable(differ[0].facts)}")

    @property
    def copies(self) -> int:
        return len(self.clients)

    @property
    def alive(self) -> bool:
        return all(client.alive for client in self.clients)

    @property
    def pids(self) -> list[int]:
        return [client.pid for client in self.clients]

    @property
    def log(self) -> Path:
        """That of the first one."""
        return self.clients[0].log

    def ask(self, request: Any, told: Callable[[Alive | Finished], None] | None = None) -> Any:
        """As `EngineClient.ask`; `told` is called in the caller's own thread, with counts of all engines together."""
        parts = self._parts(request)
        mailbox: SimpleQueue = SimpleQueue()
        threads = [
            threading.Thread(target=_ask, args=(client, part, number, mailbox), daemon=True)
            for number, (client, part) in enumerate(zip(self.clients, parts, strict=True))
        ]
        for thread in threads:
            thread.start()
        counts = [(0, 0)] * len(threads)
        ended: list[_Ended] = []
        try:
            while len(ended) < len(threads):
                number, message = mailbox.get()
                if isinstance(message, _Ended):
                    if message.error is not None and not isinstance(message.error, EngineRefused):
                        raise message.error
                    ended.append(message)
                    continue
                counts[number] = (message.finished, message.tokens)
                finished, tokens = (sum(column) for column in zip(*counts, strict=True))
                if told is not None:
                    told(replace(message, finished=finished, tokens=tokens))
        except BaseException:
            for client in self.clients:  # the others have sampled what belongs to nothing
                client.strike()
            for thread in threads:
                thread.join()
            self.kill()
            raise
        refused = [one.error for one in ended if one.error is not None]
        if refused:
            raise refused[0]
        return ended[0].value

    def _parts(self, request: Any) -> list[Any]:
        if not isinstance(request, Sample):
            return [request] * len(self.clients)
        return [replace(request, rows=request.rows[number :: len(self.clients)]) for number in range(len(self.clients))]

    def kill(self) -> None:
        """End them at once. Their logs stay."""
        for client in self.clients:
            client.kill()

    def close(self) -> None:
        """End them and remove their logs."""
        for client in self.clients:
            client.close()


def _ask(client: EngineClient, request: Any, number: int, mailbox: SimpleQueue) -> None:
    try:
        value = client.ask(request, lambda message: mailbox.put((number, message)))
    except BaseException as error:
        mailbox.put((number, _Ended(error=error)))
    else:
        mailbox.put((number, _Ended(value)))


def _comparable(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name != "pid"}
