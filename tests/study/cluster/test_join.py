"""Clusters that cannot do the work are refused before anything is started."""

import socket
import time

import pytest

from ablation.errors import ExitCode, UsageError, WorkerLost
from ablation.plan.engines import Policy
from ablation.plan.lock import lock_plan, verify_lock
from ablation.study.cluster import join
from ablation.study.cluster.join import joined, parse_on
from ablation.study.cluster.needs import Needs, Node, needs_of, places
from ablation.study.cluster.study import open_cluster_study
from ablation.study.machine import DEFAULT, Machine

from ..mini import ROOT, write_plan
from .conftest import STORE, Silent, small_tree


def test_places_of_a_cluster():
    assert [parse_on(text) for text in ("ray", "ray=local", "ray=auto", "ray=10.0.0.1:6379")] == [
        "local",
        "local",
        "auto",
        "10.0.0.1:6379",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slurm", "found `slurm`; it is `ray`"),
        ("ray=", "found `ray=`; it is `ray`"),
        ("ray=10.0.0.1", "an address is HOST:PORT"),
        ("ray=host:99999", "an address is HOST:PORT"),
        ("ray=ray://host:10001", "a Ray client's address does not do"),
    ],
)
def test_other_words_for_a_cluster(text, said):
    with pytest.raises(UsageError, match="^--on: ") as refused:
        parse_on(text)
    assert said in refused.value.message


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(join, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs Ray") as refused:
        parse_on("ray")
    assert "'.[ray]'" in refused.value.hint


def nodes(*sizes: tuple[float, float]) -> list[Node]:
    return [Node(f"{number:056x}", f"host{number}", *size) for number, size in enumerate(sizes)]


def vllm(**fields) -> Policy:
    return Policy(backend="vllm", vllm=fields)


@pytest.mark.parametrize(
    ("policy", "turns", "machines", "needs", "count"),
    [
        (Policy(threads=3), "auto", [(8, 0), (4, 0)], Needs(3, 0), 3),  # 2 and 1
        (Policy(), "auto", [(64, 8)], Needs(1, 1), 8),
        (Policy(threads=16), "auto", [(64, 8)], Needs(16, 1), 4),  # by its CPUs
        (vllm(tensor_parallel=2, replicas=2), "auto", [(64, 8)], Needs(1, 5), 1),
        (vllm(tensor_parallel=2, replicas=2), "sleep", [(64, 8)], Needs(1, 4), 2),
        (vllm(tensor_parallel=2, replicas=2), "auto", [(64, 4)], Needs(1, 4), 1),  # no machine has a fifth
        (vllm(), "together", [(64, 8)], Needs(1, 2), 4),
        (vllm(), "auto", [(2, 0), (2, 0)], Needs(1, 0), 4),  # vLLM on CPUs
    ],
)
def test_what_a_unit_needs_and_how_many_there_are_at_one_time(policy, turns, machines, needs, count):
    found = needs_of(policy, Machine(turns=turns), nodes(*machines))
    assert found == needs
    assert places(found, nodes(*machines), policy) == count


def test_gpus_on_two_machines_are_no_machine_with_both():
    policy, machines = vllm(tensor_parallel=8), nodes((64, 4), (64, 4))
    with pytest.raises(UsageError) as refused:
        places(needs_of(policy, DEFAULT, machines), machines, policy)
    assert "needs 1 CPUs (policy.threads) and 9 GPUs (policy.vllm.tensor_parallel 8 x replicas 1, and the trainer)" in str(
        refused.value
    )
    assert "host0 has 64 CPUs and 4 GPUs; host1 has 64 CPUs and 4 GPUs" in refused.value.message


@pytest.mark.parametrize("host", ["h" * 64, ".."])
def test_what_cannot_be_a_host_is_one_error(host):
    """A part of a name has from 1 to 63 characters: Python's resolver raises no OSError for it."""
    with pytest.raises(UsageError, match="no Ray cluster could be joined"), joined(f"{host}:80", Policy(), DEFAULT, print):
        pass


@pytest.mark.slow
def test_an_address_with_nobody_or_somebody_else_behind_it(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(join, "ANSWER", 6.0)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        port = deaf.getsockname()[1]
        with (
            pytest.raises(UsageError, match="no Ray cluster could be joined: .*refused"),
            joined(f"127.0.0.1:{port}", Policy(), DEFAULT, print),
        ):
            pass
        deaf.listen()
        began = time.monotonic()
        with (
            pytest.raises(UsageError, match="does not answer as one within 6 s"),
            joined(f"127.0.0.1:{port}", Policy(), DEFAULT, print),
        ):
            pass
        assert time.monotonic() - began < 30


@pytest.mark.slow
def test_a_cluster_whose_machines_are_too_small(cluster):
    with pytest.raises(UsageError, match="needs 4 CPUs") as refused, joined(cluster.address, Policy(threads=4), DEFAULT, print):
        pass
    assert "has 1 CPUs and 0 GPUs" in refused.value.message


@pytest.mark.slow
def test_a_machine_with_another_version_of_a_package(cluster, tmp_path):
    """Its path has the metadata of an older peft before the one that is installed."""
    folder = tmp_path / "peft-0.0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: peft\nVersion: 0.0.1\n")
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE, env_vars={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    try:
        from importlib.metadata import version

        with pytest.raises(UsageError) as refused, joined(cluster.address, Policy(), DEFAULT, print):
            pass
        [line] = refused.value.message.splitlines()  # of one machine, and for nothing else
        assert line.endswith(f"peft 0.0.1, here {version('peft')}") and f"({node.node_id[:8]}) has other versions" in line
    finally:
        cluster.remove_node(node)


@pytest.mark.slow
def test_workers_that_are_lost_again_and_again(cluster, tmp_path):
    """On the one node that is large enough, importing peft kills the process."""
    (tmp_path / "broken" / "peft").mkdir(parents=True)
    (tmp_path / "broken" / "peft" / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    tree = small_tree()
    tree["policy"] = {"threads": 2}
    plan = write_plan(tmp_path, tree)
    lock_plan(plan)
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE, env_vars={"PYTHONPATH": f"{tmp_path / 'broken'}:{ROOT}"})
    reporter = Silent()
    try:
        with open_cluster_study(verify_lock(plan), tmp_path / "run", reporter, address=cluster.address) as study:
            with pytest.raises(WorkerLost, match="4 workers in a row were lost before they delivered anything") as lost:
                study.run_arm("main", "C")
            told = [event["worker"] for event in study.journal.events if event["event"] == "worker_lost"]
        assert len(told) == len(set(told)) == 4 and lost.value.exit_code == ExitCode.INCOMPLETE
    finally:
        cluster.remove_node(node)
