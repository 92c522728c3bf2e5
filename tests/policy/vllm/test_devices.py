"""Which GPUs and cores engines get; no GPU is needed to know."""

from __future__ import annotations

import pytest

from ablation.errors import UsageError
from ablation.policy.vllm.devices import on_own_devices, shared_with_trainer, visible_gpus
from ablation.policy.vllm.messages import EngineSettings


def settings(tensor_parallel=1, threads=1):
    return EngineSettings("base", "float32", 512, 64, 2048, 10**8, tensor_parallel, True, threads, 8, 20)


def test_gpus_are_those_that_this_process_was_given():
    assert visible_gpus(3, {}) == ["0", "1", "2"]
    assert visible_gpus(2, {"CUDA_VISIBLE_DEVICES": "5, 3"}) == ["5", "3"]
    assert visible_gpus(1, {"CUDA_VISIBLE_DEVICES": "GPU-8a3f"}) == ["GPU-8a3f"]
    assert visible_gpus(0, {"CUDA_VISIBLE_DEVICES": ""}) == []


def test_each_engine_gets_gpus_of_its_own_and_the_trainers_comes_last():
    slices = [one.devices for one in on_own_devices(settings(2), 2, ["4", "5", "6", "7"], range(8))]
    assert slices == ["4,5", "6,7"]
    assert [one.devices for one in on_own_devices(settings(), 1, ["0", "1"], range(8))] == ["1"]
    assert [one.devices for one in on_own_devices(settings(), 2, ["0", "1", "2"], range(8))] == ["1", "2"]
    assert shared_with_trainer(2, 2, 4) and not shared_with_trainer(2, 2, 5)
    assert shared_with_trainer(1, 4, 7, processes=4) and not shared_with_trainer(1, 4, 8, processes=4)
    assert shared_with_trainer(1, 1, 0)  # no GPU: all of it is on the CPU


def test_fewer_gpus_than_engines_need_is_one_error_with_both_numbers():
    with pytest.raises(UsageError, match="3 replicas with tensor_parallel 2 need 6 GPUs; this process sees 4") as raised:
        on_own_devices(settings(2), 3, ["0", "1", "2", "3"], range(8))
    assert "CUDA_VISIBLE_DEVICES" in raised.value.hint


def test_on_a_cpu_engines_get_cores_of_their_own_if_there_are_enough():
    two = on_own_devices(settings(threads=2), 2, [], [1, 3, 5, 7, 9])
    assert [one.cores for one in two] == [(1, 3), (5, 7)]
    assert [one.cores for one in on_own_devices(settings(threads=2), 2, [], [0, 1])] == [(), ()]
    assert [one.cores for one in on_own_devices(settings(), 1, [], range(8))] == [()]
