"""A service of the Tinker protocol: rollouts and updates asked for many at one time, as the policy does, against one by one.

The server is SkyRL's on this CPU with a Llama of 0.1M parameters, so requests cost little beside the way there and back: what is
measured is what waiting for each answer would add. After one turn for what the server compiles, the two sides take turns, and
each counts its best.

It needs the server: `make bench-tinker`, or `python -m tests.bench tinker` where it is installed.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from .row import Row

ROLLOUTS, TURNS = 24, 2
LENGTH = 24


def rows() -> list[Row]:
    from tests.policy.tinker.server import INSTALLED

    if not INSTALLED:
        why = "not measured: SkyRL's server is not installed here; `make bench-tinker` measures it in an environment of its own"
        return [Row("rollouts from a service, many at one time against one by one", why, "<= 0.8x", False)]
    with tempfile.TemporaryDirectory(prefix="ablation-bench-") as folder:
        return _measured(Path(folder))


def _measured(folder: Path) -> list[Row]:
    from ablation.plan.load import load_plan
    from ablation.policy.base import SampleRequest
    from ablation.policy.tinker.policy import TinkerPolicy
    from ablation.policy.tinker.service import Service
    from ablation.policy.tinker.skyrl_start import put_start
    from ablation.policy.tinker.weights import from_folder
    from tests.policy.tinker.server import KEY, Server, make_llama, service_tree, write_tree

    os.environ["TINKER_API_KEY"] = KEY
    make_llama(folder / "model")
    plan = load_plan(write_tree(folder, service_tree(folder / "model"))).plan
    plan = plan.model_copy(update={"policy": plan.policy.with_backend("tinker")})
    (folder / "server").mkdir()
    server = Server(folder / "server", folder / "model" / "base", folder / "cache")
    try:
        service = Service(server.url, lambda text: None)
        adapter = folder / "model" / "start-adapter"
        start = put_start(plan, adapter, service, server.checkpoints)
        policy = TinkerPolicy(plan, service, start, from_folder(adapter), (6,), "at the service")
        policy.reset()
        requests = [SampleRequest((7, 8, 9, 10, 11, 12), 1000 + place) for place in range(ROLLOUTS)]
        many = policy.in_flight

        def sampled(in_flight: int) -> float:
            policy.in_flight = in_flight
            started = time.perf_counter()
            policy.sample(requests)
            return time.perf_counter() - started

        policy.sample(requests)
        sampled(1)
        turns = np.array([(sampled(many), sampled(1)) for _ in range(TURNS)])
        policy.close()
    finally:
        server.kill()
    together, alone = turns.min(axis=0)
    ratio = together / alone
    what = f"{ROLLOUTS} rollouts from a service, up to {many} at one time against one by one: wall time"
    return [Row(what, f"{ratio:.2f}x ({together:.1f}/{alone:.1f} s)", "<= 0.8x", bool(ratio <= 0.8))]
