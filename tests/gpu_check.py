"""`make gpu-check`: does the local policy work on this machine's GPU, how much memory does it take and how fast is it?

One script, nothing to download, made to fit 6 minutes on one GPU. Without a GPU it runs in miniature on the CPU and says so:
that checks the script, and no GPU. Exits with 1 if a check failed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

# cuBLAS is deterministic with a fixed workspace alone, and reads this when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from rich.console import Console
from rich.table import Table

from ablation.cli.progress import PlainReporter
from ablation.plan.lock import lock_plan
from ablation.study.runner import open_study
from ablation.study.workspace import gate
from tests.bench.made_up import QUICKSTART, made_up_policy, made_up_rows

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
SIZES = (
    {"layers": 16, "hidden": 2048, "heads": 16, "vocabulary": 151_936, "rollouts": 32, "length": 2048, "long": 32_768}
    if GPU
    else {"layers": 2, "hidden": 64, "heads": 2, "vocabulary": 4096, "rollouts": 4, "length": 96, "long": 2048}
)
table = Table("check", "found", "ok", title=f"gpu-check on {torch.cuda.get_device_name() if GPU else 'a CPU, in miniature'}")


def main() -> int:
    if not GPU:
        print("no GPU here: everything below runs in miniature on the CPU, and says nothing about a GPU", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix="ablation-gpu-check-"))
    passed = []
    try:
        for check in (agreement, quickstart_update, long_rollout, speed):
            started = time.perf_counter()
            print(f"{check.__doc__.splitlines()[0]} ...", file=sys.stderr, flush=True)
            own = folder / check.__name__
            own.mkdir()
            try:
                passed.append(check(own))
            except Exception as error:  # the other checks still tell something, and machine time is dear
                table.add_row(check.__name__, f"{type(error).__name__}: {error}", "NO")
                passed.append(False)
            if GPU:
                torch.cuda.empty_cache()
            print(f"  {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder)
    Console(width=110).print(table)
    return 0 if all(passed) else 1


def row(what: str, found: str, ok: bool) -> bool:
    table.add_row(what, found, "yes" if ok else "NO")
    return ok


def agreement(folder: Path) -> bool:
    """Self-test, repeatability and float32 against the CPU"""
    results = []
    for dtype in ("float32", "bfloat16"):
        policy = made_up_policy(folder / dtype, layers=2, hidden=128, vocabulary=1000, context=512, dtype=dtype)
        policy.self_test()
        rows = made_up_rows(6, 200, 1000)
        digests = []
        for _ in range(2):
            policy.reset()
            policy.update(rows, 1e-3)
            digests.append(policy.adapter_sha256())
        same = digests[0] == digests[1]
        note = (
            "the same to the last bit" if same else "NOT the same to the last bit: a resumed run may differ from an unbroken one"
        )
        results.append(row(f"self-test, and an update twice, {dtype}", f"passed; {note}", same or GPU))
        if dtype == "float32" and GPU:
            policy.reset()
            there = [torch.from_numpy(one) for one in policy.score(rows)]
            policy.model.to("cpu")
            policy.device = torch.device("cpu")
            here = [torch.from_numpy(one) for one in policy.score(rows)]
            apart = float((torch.cat(there) - torch.cat(here)).abs().max())
            results.append(row("logprobs in float32, GPU against CPU", f"at most {apart:.1e} nats apart", apart < 1e-3))
    return all(results)


def quickstart_update(folder: Path) -> bool:
    """The quickstart study's sweep and arm N, with a single update"""
    plan = folder / "quickstart.yaml"
    text = (
        QUICKSTART.read_text()
        .replace("  updates: 5\n", "  updates: 1\n")
        .replace("  rollouts_per_cell: 6\n", "  rollouts_per_cell: 2\n")
    )
    if not GPU:  # cut so short that nothing finishes, which a stop rule would not let pass
        text = text.replace("max_tokens: 192 ", "max_tokens: 24 ").replace("limit: 0.60", "limit: 0.99")
    plan.write_text(text)
    lock_plan(plan)
    started = time.perf_counter()
    with open_study(gate(plan), folder / "run", PlainReporter()) as study:
        study.run_arm("main", "N")
        device = study.models.policy.device.type
    complete = (folder / "run" / "main" / "N" / "readout" / "measures.json").is_file()
    return row("quickstart: sweep, one update, readout", f"{time.perf_counter() - started:.0f} s on {device}", complete)


def long_rollout(folder: Path) -> bool:
    """Logprobs and gradient of one long rollout, the logits in chunks"""
    length, vocabulary = SIZES["long"], SIZES["vocabulary"]
    policy = made_up_policy(
        folder, layers=1, hidden=128, vocabulary=vocabulary, context=length, dtype="bfloat16", micro_batch_tokens=length
    )
    rows = made_up_rows(1, length, vocabulary)
    logits = f"the logits would be {length * vocabulary * 4 / 1e9:.1f} GB"
    results = []
    for name, call in (("scored", lambda: policy.score(rows)), ("trained on", lambda: policy.update(rows, 1e-4))):
        seconds, beyond = measured(call)
        memory = f"{beyond / 1e9:.2f} GB beyond the model; {logits}" if GPU else "memory is measured on a GPU only"
        results.append(row(f"one rollout of {length:,} tokens {name}, one layer", f"{seconds:.1f} s, {memory}", beyond <= 1e9))
    return all(results)


def speed(folder: Path) -> bool:
    """Tokens a second against the card's own matrix products"""
    hidden, layers, vocabulary = SIZES["hidden"], SIZES["layers"], SIZES["vocabulary"]
    rollouts, length = SIZES["rollouts"], SIZES["length"]
    policy = made_up_policy(
        folder,
        layers=layers,
        hidden=hidden,
        heads=SIZES["heads"],
        vocabulary=vocabulary,
        context=length,
        dtype="bfloat16",
        micro_batch_tokens=8 * length,
        autocast="bfloat16",
    )
    rows = made_up_rows(rollouts, length, vocabulary)
    tokens, scored = rollouts * length, sum(len(one.token_ids) for one in rows)
    base = sum(module.base_layer.weight.numel() for module in policy.model.modules() if hasattr(module, "base_layer"))
    head = policy.causal.get_output_embeddings().weight.numel()
    adapter = sum(weight.numel() for weight in policy.trainable.values())
    ceiling = products(hidden, 8 * length)
    results = []
    for name, call, flops in (
        ("scoring", lambda: policy.score(rows), 2 * (base + adapter) * tokens + 2 * head * scored),
        ("update", lambda: policy.update(rows, 1e-4), (4 * base + 6 * adapter) * tokens + 4 * head * scored),
    ):
        call()
        seconds, beyond = measured(call)
        share = flops / seconds / ceiling
        found = f"{tokens / seconds:,.0f} tokens/s, {share:.0%} of {ceiling / 1e12:.1f} TFLOP/s"
        results.append(
            row(f"{name}, {rollouts} x {length} tokens, {layers} layers of {hidden}", found + memory_words(beyond), True)
        )
    return all(results)


def products(hidden: int, tokens: int) -> float:
    """Floating-point operations a second of this model's own matrix products in bfloat16."""
    x = torch.randn(tokens, hidden, dtype=torch.bfloat16, device=DEVICE)
    weight = torch.randn(3 * hidden, hidden, dtype=torch.bfloat16, device=DEVICE)
    times = [measured(lambda: [torch.nn.functional.linear(x, weight) @ weight for _ in range(5)])[0] for _ in range(4)]
    return 5 * 2 * 2 * tokens * weight.numel() / min(times)


def measured(call: Callable[[], object]) -> tuple[float, int]:
    """Seconds, and bytes that the GPU held beyond what it held before (0 without one)."""
    before = 0
    if GPU:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    started = time.perf_counter()
    call()
    if GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - started, torch.cuda.max_memory_allocated() - before if GPU else 0


def memory_words(beyond: int) -> str:
    return f", {beyond / 1e9:.1f} GB beyond the model" if GPU else ""


if __name__ == "__main__":
    sys.exit(main())
