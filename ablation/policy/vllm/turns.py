"""Trainer and engine on one device: both in memory, or one at a time.

What is sampled and what is trained does not depend on it: weights, moments and adapter are moved, never computed again, and an
engine that comes back is given the adapter anew and proven as at every change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from ablation.errors import EngineFailed
from ablation.policy.vllm.client import EngineRefused
from ablation.policy.vllm.messages import EngineSettings, Sleep, Wake
from ablation.policy.vllm.replicas import Engine

if TYPE_CHECKING:
    from ablation.policy.local import LocalPolicy

Mode = Literal["together", "restart", "sleep"]


class Turns:
    """Who has the device. `engine()` and `trainer()` give it, and cost nothing to whoever has it."""

    def __init__(
        self,
        trainer: LocalPolicy,
        start: Callable[[], Engine],
        mode: Mode = "together",
        engine: Engine | None = None,
        *,
        quickest: bool = False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`engine`: one that runs already. `quickest`: go over from `sleep` to `restart` if that is measured to be quicker."""
        self.mode: Mode = mode
        self.count = 0
        """Goes up whenever the engine holds no adapter any more."""
        self.seconds: dict[str, list[float]] = {}
        """What each kind of change took."""
        self._trainer, self._start, self._engine = trainer, start, engine
        self._asleep, self._quickest, self._tell = False, quickest, tell
        self._known = None if engine is None else (engine.settings, engine.copies, engine.facts)

    @property
    def settings(self) -> EngineSettings:
        """Those of the engine, whether it is here now or not."""
        return self._of_engine()[0]

    @property
    def copies(self) -> int:
        return self._of_engine()[1]

    @property
    def facts(self) -> dict[str, Any]:
        return self._of_engine()[2]

    def _of_engine(self) -> tuple[EngineSettings, int, dict[str, Any]]:
        if self._known is None:
            self.engine()
        assert self._known is not None
        return self._known

    def engine(self) -> Engine:
        """The engine, awake; the trainer has stepped aside if it must."""
        if self._engine is not None and not self._asleep:
            return self._engine
        if self.mode != "together":
            with self._timed("step_aside"):
                self._trainer.step_aside()
        if self._engine is None:
            if self.seconds.get("start"):
                self._tell("starting vLLM again")
            with self._timed("start"):
                self._engine = self._start()
            self._check(self._engine)
            if len(self.seconds["start"]) > 1:
                self._tell(f"vLLM started again in {self.seconds['start'][-1]:.1f} s")
        else:
            with self._timed("wake"):
                self._order(Wake())
            self._asleep = False
        self.count += 1
        return self._engine

    def trainer(self) -> None:
        """The device is the trainer's; the engine has left or sleeps if it must."""
        if self.mode == "together":
            return
        if self._engine is not None and not self._asleep:
            if self.mode == "sleep" and self._sleeping_is_quicker():
                with self._timed("sleep"):
                    self._order(Sleep())
                self._asleep = True
            else:
                with self._timed("stop"):
                    self._engine.close()
                self._engine = None
        with self._timed("come_back"):
            self._trainer.come_back()

    def record(self) -> dict[str, Any]:
        """The mode and the mean seconds of each kind of change so far."""
        means = {name: round(sum(taken) / len(taken), 3) for name, taken in self.seconds.items()}
        return {"mode": self.mode, "seconds": means}

    def close(self) -> None:
        """End the engine."""
        if self._engine is not None:
            self._engine.close()
        self._engine = None

    def _sleeping_is_quicker(self) -> bool:
        taken = self.seconds
        if not self._quickest or "sleep" not in taken or "wake" not in taken:
            return True
        nap, start = taken["sleep"][0] + taken["wake"][0], taken["start"][0]
        if nap > start:
            self.mode = "restart"
            self._tell(f"vLLM is started again from now on ({start:.1f} s): sleeping and waking took {nap:.1f} s")
        return nap <= start

    def _order(self, request: Sleep | Wake) -> None:
        assert self._engine is not None
        try:
            self._engine.ask(request)
        except EngineRefused as refused:
            raise EngineFailed(f"vLLM's engine does not do `{type(request).__name__.lower()}`: {refused}") from None

    def _check(self, engine: Engine) -> None:
        """A second engine must be what the first one was: the run's record has its facts."""
        before, self._known = self._known, (engine.settings, engine.copies, engine.facts)
        if before is None:
            return
        changed = [name for name, value in before[2].items() if name != "pid" and engine.facts.get(name) != value]
        if changed:
            engine.close()
            self._engine = None
            raise EngineFailed(f"vLLM started again with another {', '.join(changed)} than before")

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds.setdefault(name, []).append(time.monotonic() - started)
