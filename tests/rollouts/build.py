"""Small real stages for tests: a vocabulary of numbers, a few special ids, and rollouts written by hand."""

from __future__ import annotations

from ablation.problems.problem import Problem
from ablation.rollouts.schema import Rollout, StageInfo
from ablation.seeds import derive_seed

OPEN, CLOSE, END, END2 = 1, 2, 901, 902
CAP = 64


def info(family="main", arm="start", stage="sweep", update=0, cap=CAP, digest="d" * 64) -> StageInfo:
    return StageInfo(
        plan_digest=digest,
        family=family,
        arm=arm,
        stage=stage,
        update=update,
        adapter_sha256="a" * 64,
        think_open_id=OPEN,
        think_close_id=CLOSE,
        end_ids=(END, END2),
        max_tokens=cap,
        sampling={"temperature": 1.0, "top_p": 1.0, "top_k": 0},
        engine={"name": "local", "dtype": "float32"},
    )


def rollout(
    of: StageInfo,
    ids: list[int],
    *,
    problem="p1",
    effort="low",
    source="sums",
    index=0,
    seed=None,
    reason=None,
    opens=True,
    answer="",
    thinking="",
    logprob=-0.5,
    logprobs=None,
    entropy=0.25,
    mass=0.99,
) -> Rollout:
    return Rollout(
        family=of.family,
        arm=of.arm,
        stage=of.stage,
        update=of.update,
        problem=problem,
        effort=effort,
        source=source,
        index=index,
        seed=derive_seed(7, problem, effort, index) if seed is None else seed,
        prompt_sha256="b" * 64,
        prompt_length=5,
        prompt_opens_thinking=opens,
        token_ids=ids,
        logprobs=[logprob] * len(ids) if logprobs is None else logprobs,
        top_entropy=[entropy] * len(ids),
        top_mass=[mass] * len(ids),
        finish_reason=reason or ("stop" if ids[-1] in of.end_ids else "length"),
        thinking_text=thinking,
        answer_text=answer,
    )


PROBLEMS = {
    "p1": Problem("p1", "sums", "3 + 4?", "integer", "7"),
    "p2": Problem("p2", "sums", "2 + 2?", "integer", "4"),
    "p3": Problem("p3", "products", "3 * 3?", "integer", "9"),
}
