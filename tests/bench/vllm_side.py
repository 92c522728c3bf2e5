"""One side of `bench_vllm`, in a process of its own: sampling as a run does it, or by a bare vLLM script.

`python -m tests.bench.vllm_side ours|bare`: says when it is ready, then does what each line on stdin asks for (`sample`, `swap`) and
answers with one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import psutil
import torch

from ablation.plan.load import load_plan
from ablation.plan.locate import locate
from ablation.plan.model import Plan
from ablation.policy.base import SampleRequest
from ablation.policy.loading import load_tokenizer
from ablation.problems.problem import load_problems
from ablation.problems.render import token_ids
from ablation.study.sampler import Prompts, stage_items

PLAN = Path(__file__).parents[2] / "plans" / "smollm2-vllm.yaml"
ROLLOUTS_PER_CELL = 1
WARM = 4


class Clock:
    """Wall seconds, and CPU seconds of this process and all that it started."""

    def __enter__(self) -> Clock:
        self.wall, self.cpu = time.perf_counter(), cpu_seconds()
        return self

    def __exit__(self, *_) -> None:
        self.wall, self.cpu = time.perf_counter() - self.wall, cpu_seconds() - self.cpu


def cpu_seconds() -> float:
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(one.user + one.system for one in times)


class Work:
    """The plan's sweep with fewer rollouts in each cell."""

    def __init__(self) -> None:
        self.plan: Plan = load_plan(PLAN).plan
        self.base, self.adapter = (locate(one, PLAN) for one in (self.plan.model.base, self.plan.model.start_adapter))
        tokenizer = load_tokenizer(self.base)
        self.end_ids = token_ids(tokenizer, self.plan.model.tokens).end
        self.prompts = Prompts(self.plan, load_problems(locate(self.plan.problems.training, PLAN)), tokenizer)
        items = stage_items(self.plan, "main", "sweep", 0, self.prompts.cells, ROLLOUTS_PER_CELL)
        self.requests = [SampleRequest(tuple(self.prompts[item.cell].ids), item.seed) for item in items]


class Ours:
    def __init__(self, work: Work) -> None:
        from ablation.policy.local import LocalPolicy
        from ablation.policy.vllm.client import EngineClient
        from ablation.policy.vllm.policy import VllmPolicy, engine_settings
        from ablation.policy.vllm.preflight import preflight

        self.work = work
        trainer = LocalPolicy(work.plan, work.base, work.adapter, work.end_ids, work.end_ids[0])
        with Clock() as start:
            engine = EngineClient(engine_settings(work.plan, work.base))
        self.policy = VllmPolicy(
            work.plan, trainer, engine, work.end_ids, [work.prompts[cell].ids for cell in work.prompts.cells]
        )
        with Clock() as proof:
            preflight(self.policy)
        self.ready = {
            "start": start.wall,
            "preflight": proof.wall,
            "preflight_cpu": proof.cpu,
        }

    def sample(self, count: int | None = None) -> list[list[int]]:
        return [one.token_ids.tolist() for one in self.policy.sample(self.work.requests[:count])]

    def swap(self) -> None:
        """A new adapter until the engine is proven to hold it. What changes the weights is not part of it."""
        self.policy.hand_over()

    def change(self) -> None:
        trainer = self.policy.trainer
        trainer.set_weights({name: weight + 1e-4 * torch.randn_like(weight) for name, weight in trainer.trainable.items()})

    def close(self) -> None:
        self.policy.close()


class Bare:
    """What somebody would write who only wants the tokens, with the quickest form of logprobs that vLLM has."""

    def __init__(self, work: Work) -> None:
        from vllm import LLM, SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind

        plan, engine = work.plan, work.plan.policy.vllm
        assert engine is not None and engine.context is not None
        with Clock() as start:
            self.llm = LLM(
                str(work.base),
                skip_tokenizer_init=True,
                dtype=plan.model.dtype,
                max_model_len=engine.context,
                max_num_seqs=engine.sequences,
                max_num_batched_tokens=engine.batch_tokens,
                enable_chunked_prefill=False,  # with it, seeded requests break the CPU build
                enable_prefix_caching=False,
                kv_cache_memory_bytes=round(engine.kv_cache_gb * 1e9),
                enforce_eager=engine.eager,
                enable_lora=True,
                max_loras=1,
                max_lora_rank=plan.model.lora.rank,
                max_logprobs=plan.sampling.top_logprobs,
                logprobs_mode="raw_logprobs",
                generation_config="vllm",
            )
        self.ready = {"start": start.wall}
        self.prompts = [{"prompt_token_ids": list(one.prompt_ids)} for one in work.requests]
        self.params = [
            SamplingParams(
                seed=one.seed,
                temperature=plan.sampling.temperature,
                top_p=plan.sampling.top_p,
                top_k=plan.sampling.top_k,
                max_tokens=plan.sampling.max_tokens,
                stop_token_ids=list(work.end_ids),
                ignore_eos=True,
                logprobs=plan.sampling.top_logprobs,
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            for one in work.requests
        ]
        self.adapter = LoRARequest("adapter", 1, str(work.adapter))

    def sample(self, count: int | None = None) -> list[list[int]]:
        outputs = self.llm.generate(self.prompts[:count], self.params[:count], lora_request=self.adapter, use_tqdm=False)
        return [list(one.outputs[0].token_ids) for one in outputs]

    def close(self) -> None:
        del self.llm


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM writes to stdout
    work = Work()
    if sys.argv[1] == "bare" and "--our-lora" in sys.argv:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from ablation.policy.vllm import cpu_lora

        cpu_lora.install()
    side = {"ours": Ours, "bare": Bare}[sys.argv[1]](work)
    side.sample(WARM)
    print(json.dumps(side.ready), file=answers, flush=True)
    for line in sys.stdin:
        answer = {}
        if line.strip() == "swap":
            side.change()
            with Clock() as clock:
                side.swap()
        else:
            with Clock() as clock:
                sampled = side.sample()
            answer = {"tokens": sum(map(len, sampled)), "ids": sampled}
        print(json.dumps({"wall": clock.wall, "cpu": clock.cpu, **answer}), file=answers, flush=True)
    side.close()


if __name__ == "__main__":
    main()
