"""A vLLM server that runs already, asked as if it were an engine of this run's own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.errors import EngineFailed, UsageError
from ablation.files import disk_errors
from ablation.policy.vllm.adapter_folder import AdapterFolder
from ablation.policy.vllm.client import EngineRefused
from ablation.policy.vllm.messages import Adapter, Alive, EngineSettings, Finished, Load, Sample
from ablation.policy.vllm.server_checks import UNLOAD, Needs, Served, check, look
from ablation.policy.vllm.server_http import Denied, Link, Passing, Patience, checked_key, on_loopback, say_goodbye
from ablation.policy.vllm.server_sampling import HINT, Sampling

GOODBYE_SECONDS = 5.0


class ServerClient:
    """One server. It is neither started nor ended; at most one adapter on it is this client's, and `close` unloads it."""

    copies = 1

    def __init__(
        self,
        address: str,
        settings: EngineSettings,
        needs: Needs,
        *,
        folder: Path | None = None,
        key: str | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Connect, and check what the server can do. `folder`: where it reads adapters from, under the same path as here.

        Raises `UsageError` if it cannot be reached or cannot sample as `needs` says, with how to start it.
        """
        need_client()
        self.settings, self._needs = settings, needs
        self._run = f"ablation-{secrets.token_hex(6)}"  # no other client's adapters and cached prompts have it in their names
        self._loaded: Adapter | None = None
        self._count = 0
        self._link: Link | None = Link(address, key, patience or Patience(), settings.sequences + 4)
        self._left = _Left(self._link.root, checked_key(key), _adapter_folder(self._link.root, folder))
        self._leave = weakref.finalize(self, _leave, self._left)  # at the program's end at the latest
        self._runner = asyncio.Runner()
        try:
            self._served, self.facts = self._runner.run(check(self._link, needs))
        except BaseException:
            self.kill()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._link is not None

    def ask(self, request: Any, told: Callable[[Alive | Finished], None] | None = None) -> Any:
        """Have `request` carried out; `told` is given each finished rollout, and once a second how far it is.

        Raises `EngineRefused` if the server will not, `EngineFailed` if it breaks, hangs, is another one than before or gives
        back other than what was asked for: it is not asked again then. `UsageError` if it does not see the adapter's folder.
        """
        if self._link is None:
            raise EngineFailed("the server's client was closed")
        try:
            return self._runner.run(self._carry_out(self._link, request, told))
        except (EngineRefused, UsageError):
            raise
        except BaseException:  # at Ctrl-C, too: the server stops at what nobody waits for any more
            self.kill()
            raise

    async def _carry_out(self, link: Link, request: Any, told: Callable[[Alive | Finished], None] | None) -> None:
        if isinstance(request, Load):
            await self._load(link, request.adapter)
        elif isinstance(request, Sample):
            name = self._name(request.adapter)
            await Sampling(link, name, self._run, self._needs.vocabulary, request, told).run(self.settings.sequences)
        else:
            raise EngineRefused(f"a server does not do `{type(request).__name__.lower()}`")

    def _name(self, adapter: Adapter | None) -> str:
        """What the server calls it: a name that it does not know would be an error, and no name the base."""
        if adapter is None:
            return self.facts["model"]
        if self._left.name is None or self._loaded != adapter:
            raise EngineRefused(f"adapter {adapter.name} is not loaded")
        return self._left.name

    async def _load(self, link: Link, adapter: Adapter) -> None:
        """Unload the adapter before, and load this one from a folder and under a name that were never used before."""
        await self._still_the_same(link)
        await self._unload(link)
        for attempt in range(link.patience.tries):
            self._count += 1
            folder = self._left.folder.path / f"{adapter.name}-{self._count}"
            name = f"{adapter.name}-{self._run}-{self._count}"
            _copy(Path(adapter.folder), folder)
            try:
                await link.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)}, link.patience.load)
                await self._check_listed(link, name, folder)
            except Denied as denied:
                raise self._refusal(link, denied, folder) from None
            except Passing as problem:
                if problem.status == 500:  # vLLM's word for whatever an adapter's loading raised, or for its own end
                    await self._still_the_same(link)
                    raise EngineRefused(f"{link.root}: {problem}") from None
                if attempt + 1 == link.patience.tries:
                    raise EngineFailed(f"{link.root}: the adapter could not be loaded: {problem}", hint=HINT) from None
                await asyncio.sleep(max(problem.wait, link.patience.first_pause * 2**attempt))
                continue
            self._loaded, self._left.name = adapter, name
            return

    async def _check_listed(self, link: Link, name: str, folder: Path) -> None:
        listed = link.parsed(await link.get("/v1/models"))
        cards = listed.get("data") if isinstance(listed, dict) else None
        mine = [card for card in cards or [] if isinstance(card, dict) and card.get("id") == name]
        if len(mine) != 1 or mine[0].get("root") != str(folder):
            raise Passing("the server says that it loaded the adapter, and does not list it")

    def _refusal(self, link: Link, denied: Denied, folder: Path) -> Exception:
        if denied.status == 404 and str(folder) in str(denied).replace(" ", ""):
            return UsageError(
                f"{link.root}: the server does not see an adapter in {folder}",
                hint="Give a folder that both see under the same path: --server-folder, or ABLATION_VLLM_SERVER_FOLDER.",
            )
        if denied.status in (401, 403):
            return EngineFailed(f"{link.root}: the server refuses this client now: {denied}", hint=HINT)
        return EngineRefused(f"{link.root}: {denied}")

    async def _still_the_same(self, link: Link) -> None:
        """What was proven of a server holds for this one only: another version or model, or a new start, ends the run."""
        for attempt in range(link.patience.tries):
            try:
                now = await look(link)
                break
            except Passing as problem:
                if attempt + 1 == link.patience.tries:
                    raise EngineFailed(f"{link.root}: the server is gone: {problem}", hint=HINT) from None
                await asyncio.sleep(max(problem.wait, link.patience.first_pause * 2**attempt))
            except (Denied, ValueError) as error:
                raise EngineFailed(f"{link.root}: another server answers now: {error}", hint=HINT) from None
        difference = _difference(self._served, now)
        if difference is not None:
            raise EngineFailed(f"{link.root}: {difference}", hint=HINT)

    async def _unload(self, link: Link) -> None:
        name, self._loaded, self._left.name = self._left.name, None, None
        if name is None:
            return
        with contextlib.suppress(Passing, Denied):  # what is not there any more need not be unloaded
            await link.post(UNLOAD, {"lora_name": name}, GOODBYE_SECONDS)
        for folder in self._left.folder.path.iterdir():
            shutil.rmtree(folder, ignore_errors=True)

    def kill(self) -> None:
        """Leave the server. What it is sampling for this client it stops."""
        link, self._link = self._link, None
        if link is not None:
            with contextlib.suppress(Exception), self._runner:
                self._runner.run(link.close())
        self._leave()

    def close(self) -> None:
        """Unload the adapter and leave the server."""
        self.kill()


@dataclass
class _Left:
    """What of a client is on the server and on disk."""

    root: str
    key: str | None
    folder: AdapterFolder
    name: str | None = None


def _leave(left: _Left) -> None:
    if left.name is not None:
        say_goodbye(left.root, left.key, UNLOAD, {"lora_name": left.name}, GOODBYE_SECONDS)
    left.folder.remove()


def need_client() -> None:
    """Raise `UsageError` where the HTTP client is not installed."""
    try:
        import httpx2  # noqa: F401
    except ImportError:
        raise UsageError(
            "policy.vllm.engine: `server` needs the package `httpx2`", hint="pip install -e '.[vllm-server]'."
        ) from None


def _adapter_folder(root: str, folder: Path | None) -> AdapterFolder:
    """A new folder for adapters. In one that was given, whatever account the server runs under can read them."""
    if folder is None and not on_loopback(root):
        raise UsageError(
            f"{root}: a server on another machine needs a folder to read adapters from, seen by both under the same path",
            hint="--server-folder, or ABLATION_VLLM_SERVER_FOLDER.",
        )
    try:
        made = AdapterFolder("server", folder)
    except OSError as error:
        raise UsageError(f"--server-folder: {folder}: {error.strerror}", hint="Adapters are written into it.") from None
    if folder is not None:
        made.path.chmod(0o755)
    return made


def _copy(source: Path, target: Path) -> None:
    with disk_errors(target):
        target.mkdir(mode=0o755)
        for file in source.iterdir():
            shutil.copyfile(file, target / file.name)
            (target / file.name).chmod(0o644)


def _difference(before: Served, now: Served) -> str | None:
    """In words; None for the same server. Metrics that did not come say nothing."""
    if before.version != now.version:
        return f"the server was vLLM {before.version} and is {now.version} now"
    if before.model != now.model or before.context != now.context:
        return f"the server had the model {before.model} ({before.context} tokens) and has {now.model} ({now.context}) now"
    if before.started is not None and now.started is not None and before.started != now.started:
        return "the server was started again, and what was proven of it holds no more"
    return None
