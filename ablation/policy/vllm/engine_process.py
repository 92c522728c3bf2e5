"""vLLM's engine in a process of its own, started by `client`: it ends when its runner does, whatever ended that; stopped or not.

The engine core runs in this very process, so that one `kill -9` or one lack of memory ends one thing and is seen at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, get_args

import numpy as np

from ablation.policy.lasting import signal_at_end_of
from ablation.policy.vllm.messages import (
    Adapter,
    Alive,
    Close,
    Done,
    EngineSettings,
    Failed,
    Finished,
    Load,
    Sample,
    SamplingValues,
    Score,
    Sleep,
    Wake,
)
from ablation.policy.vllm.top import entropy_and_mass

TOKENS_AT_ONCE = 64
"""New tokens of a rollout that the engine hands over together."""
ALIVE_SECONDS = 1.0
AHEAD = 4
"""Times `sequences` that the engine has at most: it always has what to do next, and a stage of 100,000 begins at once."""


def main() -> None:
    """`python -c ... CONNECTION LIFELINE RUNNER`: serve process RUNNER over descriptor CONNECTION until it closes LIFELINE."""
    connection, lifeline, parent = map(int, sys.argv[1:4])
    signal_at_end_of(parent)
    for handle in (connection, lifeline):
        os.set_inheritable(handle, False)  # the engine's own workers must not hold them open
    threading.Thread(target=_end_with_runner, args=(lifeline,), daemon=True).start()
    try:
        serve(Connection(connection), parent)
    except (EOFError, OSError):  # the runner is gone, which this thread may notice first
        _end_all()


def _end_with_runner(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    _end_all()


def _end_all() -> None:
    os.killpg(0, signal.SIGKILL)  # workers of a tensor-parallel engine are of this group


def serve(runner: Connection, parent: int) -> None:
    """Start an engine as the first message says, then carry out one request after the other. `parent`: the runner's process."""
    settings = runner.recv()
    if settings.tensor_parallel > 1:  # it must not go alone: woken up, it ends its workers, those that are stopped too
        signal_at_end_of(parent, signal.SIGCONT)
    if settings.cores:
        os.sched_setaffinity(0, settings.cores)  # before anything makes threads
    try:
        engine = Engine(settings)
    except Exception as error:
        runner.send(failed("starting", error))
        return
    runner.send(Done(engine.facts()))
    while True:
        request = runner.recv()
        if isinstance(request, Close):
            return
        try:
            value = engine.carry_out(request, runner)
        except Refused as refused:
            runner.send(Failed(type(request).__name__.lower(), "refused", str(refused), fatal=False))
        except Exception as error:
            runner.send(failed(type(request).__name__.lower(), error))
            return
        else:
            runner.send(Done(value))


class Refused(Exception):
    """The engine is as it was, and will not do what was asked."""


def failed(doing: str, error: Exception) -> Failed:
    """What to tell of `error`: the root of what vLLM raised, which it often wraps."""
    import traceback

    traceback.print_exc()  # into the log
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    return Failed(doing, type(root).__name__, str(root) or repr(root))


def lora_arguments(rank: int) -> dict[str, Any]:
    """What an engine that can hold one adapter of `rank` is started with; without a rank nothing."""
    if not rank:
        return {}
    return {"enable_lora": True, "max_loras": 1, "max_cpu_loras": 1, "max_lora_rank": rank_capacity(rank)}


def rank_capacity(rank: int) -> int:
    """The smallest capacity that vLLM has for adapters of `rank`. Raises `ValueError` if there is none."""
    from vllm.config.lora import MaxLoRARanks

    capacities = sorted(get_args(MaxLoRARanks))
    for capacity in capacities:
        if rank <= capacity:
            return capacity
    raise ValueError(f"LoRA rank {rank} is greater than max_lora_rank {capacities[-1]}, the largest that vLLM has")


@dataclass
class _Row:
    """A rollout that is being sampled."""

    key: int
    token_ids: list[np.ndarray] = field(default_factory=list)
    logprobs: list[np.ndarray] = field(default_factory=list)
    top: list[np.ndarray] = field(default_factory=list)


class Engine:
    """vLLM's synchronous engine with at most one adapter loaded."""

    def __init__(self, settings: EngineSettings) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        from ablation.policy.vllm import cpu_lora

        self.settings = settings
        self.loaded: Adapter | None = None
        self._count = 0
        if settings.lora_rank and settings.tensor_parallel == 1:  # layers in processes that vLLM starts compute its own way
            cpu_lora.install()
        arguments = EngineArgs(
            model=settings.model,
            skip_tokenizer_init=True,
            dtype=settings.dtype,
            seed=settings.seed,
            max_model_len=settings.context,
            max_num_seqs=settings.sequences,
            max_num_batched_tokens=settings.batch_tokens,
            # A prompt in pieces draws from its seed's stream for each piece: the CPU build breaks over it, a GPU winds it back.
            enable_chunked_prefill=False,
            kv_cache_memory_bytes=settings.kv_cache_bytes,
            # The cache's size is given, so this decides nothing; with its default vLLM does not start on a GPU beside a trainer.
            gpu_memory_utilization=0.01,
            tensor_parallel_size=settings.tensor_parallel,
            enforce_eager=settings.eager,
            enable_prefix_caching=settings.prefix_caching,
            **lora_arguments(settings.lora_rank),
            max_logprobs=settings.top_logprobs,
            logprobs_mode=settings.logprobs_mode,
            generation_config=settings.generation_config,
            enable_sleep_mode=settings.sleep,
            disable_log_stats=True,
        )
        self.engine = LLMEngine.from_engine_args(arguments)

    def facts(self) -> dict[str, Any]:
        """What came of the settings: versions, and how much fits."""
        import torch
        import vllm

        config = self.engine.vllm_config
        cache, model = config.cache_config, config.model_config
        blocks, size = cache.num_gpu_blocks or 0, cache.block_size
        return {
            "vllm": vllm.__version__,
            "torch": torch.__version__,
            "context": model.max_model_len,
            "kv_tokens": blocks * size,
            "kv_block": size,
            **(self._lora_facts() if self.settings.lora_rank else {}),
            "chunked_prefill": bool(config.scheduler_config.enable_chunked_prefill),
            "async_scheduling": bool(config.scheduler_config.async_scheduling),
            "prefix_caching": bool(cache.enable_prefix_caching),
            "logprobs_mode": str(model.logprobs_mode),
            "generation_config": str(model.generation_config),
            "pid": os.getpid(),
        }

    def _lora_facts(self) -> dict[str, Any]:
        from vllm.platforms import current_platform

        return {
            "lora_dtype": str(self.engine.vllm_config.lora_config.lora_dtype).removeprefix("torch."),
            "lora_kernel": current_platform.get_punica_wrapper().rpartition(".")[2],
        }

    def carry_out(self, request: Any, runner: Connection) -> Any:
        if isinstance(request, Load):
            return self.load(request.adapter)
        if isinstance(request, Sample):
            return self.sample(request, runner)
        if isinstance(request, Score):
            return self.score(request, runner)
        if isinstance(request, Sleep):
            return self.sleep()
        if isinstance(request, Wake):
            return self.wake()
        raise Refused(f"unknown request {type(request).__name__}")

    def load(self, adapter: Adapter) -> None:
        """Load `adapter` and drop the one before. A refused one leaves the engine without any."""
        self._drop()
        try:
            self.engine.add_lora(self._request(adapter))
        except Exception as error:  # vLLM raises what it likes: a rank, a module or a shape that it cannot take
            self._drop()
            raise Refused(str(error) or repr(error)) from error
        self.loaded = adapter

    def sleep(self) -> None:
        """Level 1: the base's weights go to host memory and come back as they were; keys and values are gone.

        Level 2 would not do: it throws the weights away and restores registered buffers alone, which an adapter's are not.
        """
        if not self.settings.sleep:
            raise Refused("it was not started with sleep mode")
        self._drop()
        self.engine.sleep(level=1)

    def wake(self) -> None:
        self.engine.wake_up()

    def _drop(self) -> None:
        for number in list(self.engine.list_loras()):
            self.engine.remove_lora(number)
        self.loaded = None

    @staticmethod
    def _request(adapter: Adapter | None) -> Any:
        from vllm.lora.request import LoRARequest

        return None if adapter is None else LoRARequest(adapter.name, adapter.number, adapter.folder)

    def sample(self, request: Sample, runner: Connection) -> None:
        """Send each rollout when it is finished, and a sign of life in between."""
        self._check_adapter(request.adapter)
        adapter, waiting, rows = self._request(request.adapter), iter(request.rows), {}
        finished = tokens = 0
        told = time.monotonic()
        while True:
            for key, prompt, seed in islice(waiting, AHEAD * self.settings.sequences - len(rows)):
                rows[self._add(prompt, self._sampling_params(request.values, seed), adapter)] = _Row(key)
            if not rows:
                return
            for output in self.engine.step():
                row, completion = rows[output.request_id], output.outputs[0]
                tokens += self._take(row, completion, request.values.top_logprobs)
                if output.finished:
                    finished += 1
                    del rows[output.request_id]
                    runner.send(_finished(row, completion, tokens, finished))
            if time.monotonic() - told > ALIVE_SECONDS:
                told = time.monotonic()
                runner.send(Alive(finished, tokens))
            if rows and not self.engine.has_unfinished_requests():
                raise RuntimeError(f"the engine is idle, but {len(rows)} rollouts were never finished")

    def score(self, request: Score, runner: Connection) -> dict[int, np.ndarray]:
        """Logprobs of given tokens, of the model alone: with an adapter on the output layer vLLM's way to them breaks."""
        if self.loaded is not None:
            raise Refused("an adapter is loaded: given tokens are scored by a model alone")
        from vllm import SamplingParams

        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        waiting, rows, scored = iter(request.rows), {}, {}
        told, tokens = time.monotonic(), 0
        while True:
            for key, ids, first in islice(waiting, AHEAD * self.settings.sequences - len(rows)):
                rows[self._add(ids, params, None)] = (key, ids, first)
            if not rows:
                return scored
            for output in self.engine.step():
                if not output.finished:
                    continue
                key, ids, first = rows.pop(output.request_id)
                places = zip(output.prompt_logprobs[first:], ids[first:], strict=True)
                scored[key] = np.array([place[token].logprob for place, token in places], dtype=np.float64)
                tokens += len(ids)
            if time.monotonic() - told > ALIVE_SECONDS:
                told = time.monotonic()
                runner.send(Alive(len(scored), tokens))
            if rows and not self.engine.has_unfinished_requests():
                raise RuntimeError(f"the engine is idle, but {len(rows)} texts were never scored")

    @staticmethod
    def _take(row: _Row, completion: Any, top: int) -> int:
        """Keep the tokens that are new in `completion`. Returns how many there are."""
        count = len(completion.token_ids)
        if not count:
            return 0
        told = completion.logprobs
        width = top + 1  # the sampled token comes first, then the most likely ones
        logprobs_TK = np.array(told.logprobs, dtype=np.float32)
        if len(told) != count or len(logprobs_TK) != count * width:
            raise RuntimeError(f"{count} tokens came with {len(told)} places and {len(logprobs_TK)} logprobs, not {width} each")
        logprobs_TK = logprobs_TK.reshape(count, width)
        ids_TK = np.array(told.token_ids, dtype=np.int64).reshape(count, width)
        token_ids = np.array(completion.token_ids, dtype=np.int64)
        if not np.array_equal(ids_TK[:, 0], token_ids):
            raise RuntimeError("the logprobs are of other tokens than those that were sampled")
        row.token_ids.append(token_ids)
        row.logprobs.append(logprobs_TK[:, 0])
        row.top.append(logprobs_TK[:, 1:])
        return count

    def _check_adapter(self, adapter: Adapter | None) -> None:
        """vLLM loads what a request names: only what `load` loaded may be named."""
        if adapter is not None and adapter != self.loaded:
            raise Refused(f"adapter {adapter.name} is not loaded")

    def _add(self, ids: tuple[int, ...], params: Any, adapter: Any) -> str:
        self._count += 1
        name = str(self._count)
        self.engine.add_request(name, {"prompt_token_ids": list(ids)}, params, lora_request=adapter)
        return name

    @staticmethod
    def _sampling_params(values: SamplingValues, seed: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            n=1,
            seed=seed,
            temperature=values.temperature,
            top_p=values.top_p,
            top_k=values.top_k,
            min_p=values.min_p,
            repetition_penalty=values.repetition_penalty,
            presence_penalty=values.presence_penalty,
            frequency_penalty=values.frequency_penalty,
            min_tokens=values.min_tokens,
            max_tokens=values.max_tokens,
            stop_token_ids=list(values.end_ids),
            ignore_eos=values.ignore_eos,
            logprobs=values.top_logprobs,
            flat_logprobs=True,
            detokenize=False,
            watermarking=False,
            output_kind=RequestOutputKind.DELTA,
            stream_interval=TOKENS_AT_ONCE,
        )


def _finished(row: _Row, completion: Any, tokens: int, finished: int) -> Finished:
    stop = completion.stop_reason
    entropy_T, mass_T = entropy_and_mass(np.concatenate(row.top))
    return Finished(
        key=row.key,
        token_ids=np.concatenate(row.token_ids),
        logprobs=np.concatenate(row.logprobs),
        top_entropy=entropy_T,
        top_mass=mass_T,
        finish_reason=str(completion.finish_reason),
        stop_id=stop if isinstance(stop, int) else None,
        tokens=tokens,
        finished=finished,
    )


if __name__ == "__main__":
    main()
