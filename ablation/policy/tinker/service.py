"""The client of a training service: sessions, clients, downloads; what fails on the way is tried again."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from importlib.util import find_spec
from typing import Any, Protocol, TypeVar

from ablation.errors import EngineFailed, UsageError
from ablation.policy.tinker.trouble import Trouble, one_line, understand
from ablation.policy.tinker.weights import Weights, from_archive

KEY_VARIABLE = "TINKER_API_KEY"
"""Only the environment names the key: it stands in no command, record or message."""
PATIENCE = 900.0
"""Seconds without any answer after which a command gives up; a run that ended holds its adapters for minutes."""
LOOK = 30.0
"""Seconds between looks at whether a service that owes an answer is there at all."""
STALLED = 7200.0
"""Seconds without a result from a service that is there."""
AGAIN = "What is on disk stays: the same command goes on from here."
T = TypeVar("T")


class Waitable(Protocol):
    def result(self, timeout: float | None = None) -> Any: ...


def need_client() -> None:
    """Raise `UsageError` where the client is not installed: before anything is loaded for nothing."""
    if any(find_spec(name) is None for name in ("tinker", "h2")):  # h2: what the client speaks with, which it imports late
        raise UsageError(
            "policy.backend: `tinker` needs the official client, which this install does not have",
            hint="pip install -e '.[tinker]'",
        )


class Denied(Exception):
    """The service refuses what was asked for; another try would end the same."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.words)
        self.trouble = trouble


class Service:
    """One service, by its address or the client's own. `epoch` goes up whenever clients made before are of no use any more."""

    def __init__(self, address: str | None, say: Callable[[str], None], patience: float = PATIENCE) -> None:
        need_client()
        os.environ.setdefault("TINKER_TELEMETRY", "0")  # it tells a service of errors here, with paths of this machine
        if not os.environ.get(KEY_VARIABLE):
            raise UsageError(
                f"policy.backend: `tinker` needs a key in the environment variable {KEY_VARIABLE}",
                hint="A server of your own takes any key that begins with tml-, for instance tml-none.",
            )
        key = os.environ[KEY_VARIABLE]
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(f"{KEY_VARIABLE}: the key has a character that none can have, such as a space or the end of a line")
        self.address, self.say, self.patience = address, say, patience
        self.epoch = 0
        self.leaves_gradients = True
        """Whether a new client may find the gradient of one that was let go without a step; the preflight finds out."""
        self._client: Any = None
        self._paused = _TellPauses(say)
        logging.getLogger("tinker").addHandler(self._paused)
        logging.getLogger("tinker").propagate = False

    @property
    def client(self) -> Any:
        """The session, begun when it is first needed."""
        import tinker

        if self._client is None:
            if not self.there():  # the client itself would not say so for minutes
                raise ConnectionError(f"no answer from {self.url}")
            self._client = tinker.ServiceClient(base_url=self.address, user_metadata={"program": "ablation"})
        return self._client

    @property
    def where(self) -> str:
        return self.address or "the Tinker service"

    def renew(self) -> None:
        """Another session: what was made in the last one is gone."""
        self._end()
        self.epoch += 1

    def do(self, what: str, work: Callable[[], T]) -> T:
        """`work`, again and again while the service is busy, away or was started again.

        Raises `UsageError` if the key or the account is refused, `EngineFailed` if there is no answer for `patience`, and
        `Denied` if the service refuses what was asked for. `work` finds a new session after one is lost.
        """
        began, delay, told = time.monotonic(), 1.0, False
        while True:
            try:
                return work()
            except Denied:
                raise
            except Exception as error:
                trouble = understand(error)
                if trouble is None:
                    raise
                self.raise_if_final(trouble, what)
                if trouble.kind == "lost":
                    self.renew()
                if time.monotonic() - began > self.patience:
                    raise EngineFailed(
                        f"{self.where}: no success in {self.patience / 60:.0f} minutes while {what}: {trouble.words}", hint=AGAIN
                    ) from None
                if not told:
                    told = True
                    self.say(
                        f"the service fails while {what} ({trouble.words}); trying again for {self.patience / 60:.0f} minutes"
                    )
                time.sleep(delay)
                delay = min(2 * delay, 30.0)

    def raise_if_final(self, trouble: Trouble, what: str) -> None:
        """Raise for trouble that another try would not end."""
        if trouble.kind == "key":
            raise UsageError(f"{self.where}: the service refuses the key in {KEY_VARIABLE}: {trouble.words}") from None
        if trouble.kind == "money":
            raise EngineFailed(
                f"{self.where}: the account has no more credit, or a limit is reached, while {what}: {trouble.words}",
                hint=f"Add credit or raise the limit in the service's console. {AGAIN}",
            ) from None
        if trouble.kind == "refused":
            raise Denied(trouble) from None

    def wait(self, future: Waitable) -> Any:
        """The result of a request. A service that is gone is noticed, which the client alone would wait for without end."""
        away, began = 0.0, time.monotonic()
        while True:
            try:
                return future.result(LOOK)
            except TimeoutError:
                if isinstance(future, Future) and future.done():
                    raise
                away = 0.0 if self.there() else away + LOOK
                self.check_patience(away, time.monotonic() - began)

    def check_patience(self, away: float, waited: float) -> None:
        """Raise `EngineFailed` if the service has been away, or has given nothing, for too long."""
        if away > self.patience:
            raise EngineFailed(f"{self.where}: no answer for {away / 60:.0f} minutes", hint=AGAIN)
        if waited > STALLED:
            raise EngineFailed(f"{self.where}: no result for {waited / 60:.0f} minutes, though the service is there", hint=AGAIN)

    def there(self) -> bool:
        """Whether anything answers at its address."""
        import httpx

        try:
            httpx.get(f"{self.url}/api/v1/healthz", timeout=10.0)
        except httpx.HTTPError:
            return False
        return True

    @property
    def url(self) -> str:
        """Where requests go."""
        from tinker._client import AsyncTinker

        if self.address is not None:
            return self.address.rstrip("/")
        return str(AsyncTinker(api_key="tml-none").base_url).rstrip("/")

    def _capabilities(self) -> Any:
        return self.client.get_server_capabilities()

    def models(self) -> list[str]:
        """Names of the models that the service offers."""
        offered = self.do("asking for its models", self._capabilities)
        return sorted(one.model_name for one in offered.supported_models if one.model_name)

    def trainer(self, state: str, *, optimizer: bool) -> Any:
        """A training client that begins at a stored state, with the stored optimizer or a fresh one, and without a gradient.

        SkyRL's adapters have places, and what was accumulated in a place stays there when its client ends. A client that is made
        for that alone takes a step of size 0, which clears the place, and leaves it to the real one.
        """
        from tinker import types

        if self.leaves_gradients:
            clearing = self._trainer(state, optimizer=False)
            try:
                self.wait(clearing.optim_step(types.AdamParams(learning_rate=0.0)))
            except ValueError as error:  # the norm of what was left is not finite, and the client cannot read it
                if not unreadable_metric(error):
                    raise
            finally:
                self.let_go(clearing)
        return self._trainer(state, optimizer=optimizer)

    def _trainer(self, state: str, *, optimizer: bool) -> Any:
        self.need_state(state)
        make = self.client.create_training_client_from_state_with_optimizer if optimizer else None
        made = (make or self.client.create_training_client_from_state)(state)
        return made.result() if hasattr(made, "result") else made

    def need_state(self, state: str) -> None:
        """Raise `Denied` if there is no such state: the client would say only that something was not found."""
        try:
            self.wait(self.client.create_rest_client().get_weights_info_by_tinker_path(state))
        except Exception as error:
            trouble = understand(error)
            if trouble is None or trouble.kind not in ("lost", "refused"):
                raise
            raise Denied(Trouble("refused", f"it has no state {state}: {trouble.words}")) from None

    def let_go(self, trainer: Any) -> None:
        """Free what a training client holds at the service, if it frees such things; hosted ones end with their session."""
        from tinker.lib.client_connection_pool_type import ClientConnectionPoolType
        from tinker.types import UnloadModelRequest

        async def unload() -> None:
            with trainer.holder.aclient(ClientConnectionPoolType.TRAIN) as client:
                await client.models.unload(request=UnloadModelRequest(model_id=trainer.model_id), max_retries=0)

        try:
            trainer.holder.run_coroutine_threadsafe(unload()).result(10.0)
        except Exception as error:  # an adapter that stays until its session ends costs a place, and no number
            logging.getLogger(__name__).debug("%s: not unloaded: %s", trainer.model_id, one_line(str(error)))

    def download(self, sampler: str) -> tuple[Weights, dict[str, Any]]:
        """(weights, adapter config) of stored sampler weights."""
        import httpx

        run, _, rest = sampler.removeprefix("tinker://").partition("/")
        names = [f"sampler_weights/{rest.rpartition('/')[2]}", rest.rpartition("/")[2]]
        rest_client = self.client.create_rest_client()
        for place, name in enumerate(names):
            try:
                url = self.wait(rest_client.get_checkpoint_archive_url(run, name)).url
                break
            except Exception as error:
                trouble = understand(error)
                if trouble is None or trouble.kind not in ("lost", "refused") or place + 1 == len(names):
                    raise
        answer = httpx.get(url, timeout=httpx.Timeout(60.0, read=600.0), follow_redirects=True)
        answer.raise_for_status()
        return from_archive(sampler, answer.content)

    def close(self) -> None:
        """End the session's threads; what is stored at the service stays."""
        logging.getLogger("tinker").removeHandler(self._paused)
        self._end()

    def _end(self) -> None:
        for name in ("_session_holder", "_rest_holder"):
            holder = getattr(self._client, name, None)
            if holder is not None:
                holder.close()
        self._client = None


def unreadable_metric(error: BaseException) -> bool:
    """Whether a step was taken and its metrics hold a number that is not finite, for which the client has no type."""
    return isinstance(error, ValueError) and "OptimStepResponse" in str(error) and "metrics" in str(error)


class _TellPauses(logging.Handler):
    """The client waits in silence while an account is out of credit: its log is the only word of it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say, self._told = say, 0.0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "billing" in text.lower() and time.monotonic() - self._told > 60.0:
            self._told = time.monotonic()
            self._say(f"{one_line(text)}: add credit or raise the limit in the service's console; the run waits")


def unique_name(purpose: str) -> str:
    """A name for something stored at the service: two tries never share one."""
    return f"ablation-{purpose}-{uuid.uuid4().hex[:16]}"


def offered_words(models: Iterable[str]) -> str:
    found = list(models)
    return f"it offers {', '.join(found[:20])}{' and others' if len(found) > 20 else ''}" if found else "it offers none"
