"""One server for all tests of a session, and the plan's start adapter on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.policy.tinker.server import INSTALLED, KEY, WHY, Server, make_llama, service_tree, write_tree

FOLDERS = (Path(__file__).parent, Path(__file__).parents[2] / "study" / "tinker")
WITHOUT_SERVER = ("test_data.py", "test_weights.py", "test_trouble.py", "test_service_problems.py")


def pytest_collection_modifyitems(items):
    if INSTALLED:
        return
    for item in items:
        if item.path.parent in FOLDERS and item.path.name not in WITHOUT_SERVER:
            item.add_marker(pytest.mark.skip(reason=WHY))


@dataclass(frozen=True)
class Served:
    """A server, the model that it has, a plan for it, and the address of the plan's start adapter there."""

    server: Server
    model: Path
    plan: Path
    start: str

    @property
    def environment(self) -> dict[str, str]:
        return {"TINKER_API_KEY": KEY, "ABLATION_TINKER_SERVER": self.server.url, "ABLATION_TINKER_START": self.start}


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> Iterator[Served]:
    from ablation.plan.load import load_plan
    from ablation.policy.tinker.service import Service
    from ablation.policy.tinker.skyrl_start import put_start

    folder = tmp_path_factory.mktemp("served")
    make_llama(folder / "model")
    plan = write_tree(folder, service_tree(folder / "model"))
    (folder / "server").mkdir()
    cache = Path(pytest.__file__).parents[1] / ".jax-cache"  # in the environment: compiled once for all sessions
    server = Server(folder / "server", folder / "model" / "base", cache)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TINKER_API_KEY", KEY)
            service = Service(server.url, print)
            start = put_start(load_plan(plan).plan, folder / "model" / "start-adapter", service, server.checkpoints)
            service.close()
        yield Served(server, folder / "model", plan, start)
    finally:
        server.kill()
