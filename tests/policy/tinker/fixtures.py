"""One server for all tests of a session, and the plan's start adapter on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.policy.tinker.server import INSTALLED, KEY, WHY, Server, make_llama, service_tree, write_tree

END, PROMPT = (6,), (7, 8, 9, 10, 11, 12)
"""The end token of the tiny reasoner's tokenizer, and ids that it has."""
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


def policy_of(served: Served, plan=None, start: str | None = None, patience: float = 900.0):
    """A policy for a plan, without a preflight."""
    from ablation.plan.load import load_plan
    from ablation.policy.tinker.policy import TinkerPolicy
    from ablation.policy.tinker.service import Service
    from ablation.policy.tinker.weights import from_folder

    plan = plan or on_service(load_plan(served.plan).plan)
    service = Service(served.server.url, print, patience)
    return TinkerPolicy(plan, service, start or served.start, from_folder(served.model / "start-adapter"), END, "at the service")


@pytest.fixture(autouse=True, scope="session")
def key():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINKER_API_KEY", KEY)
        yield


@pytest.fixture
def make_policy(served):
    """Makes policies of which the server holds nothing after the test: its places for adapters are few."""
    made = []

    def make(plan=None, start: str | None = None):
        made.append(policy_of(served, plan, start))
        return made[-1]

    yield make
    for policy in made:
        policy.close()


@pytest.fixture(scope="session")
def proven(served):
    """A policy of the plan after its preflight."""
    from ablation.policy.tinker.preflight import preflight
    from ablation.policy.tokenizer import load_tokenizer

    policy = policy_of(served)
    adams = [policy.plan.training.optimizer_of(arm) for arm in policy.plan.arms.values()]
    policy.found = preflight(policy, load_tokenizer(served.model / "base"), PROMPT, adams)
    yield policy
    policy.close()


@pytest.fixture(scope="session")
def local(served):
    """The local policy on the same base and start adapter."""
    from ablation.plan.load import load_plan
    from ablation.policy.local import LocalPolicy

    return LocalPolicy(load_plan(served.plan).plan, served.model / "base", served.model / "start-adapter", END, 0)


def on_service(plan):
    return plan.model_copy(update={"policy": plan.policy.with_backend("tinker")})
