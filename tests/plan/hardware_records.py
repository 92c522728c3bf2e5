"""What the model of `plan show --hardware` says of runs that were made, beside what they took.

`python -m tests.plan.hardware_records` prints the table of plans/hardware.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from ablation.plan.hardware import hardware
from ablation.plan.hardware_plan import OnHardware
from ablation.plan.hardware_time import Lengths
from ablation.plan.load import load_plan
from ablation.plan.model import Plan
from ablation.plan.work import Work
from ablation.rollouts.store import stage_tokens

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "runs" / "records"
SMOLLM2 = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class Compared:
    run: str
    part: str
    predicted: float
    measured: float
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


def of_record(name: str) -> list[Compared]:
    """Sampling and training of a run that is kept, stage by stage, with the lengths that its rollouts had."""
    root = RECORDS / name
    plan = load_plan(root / "plan.yaml").plan
    events = [json.loads(line) for line in (root / "journal.jsonl").read_text().splitlines()]
    sampled = {event["stage"]: event for event in events if event["event"] == "stage_sampled"}
    guess = {"sampling": 0.0, "training": 0.0}
    real = {"sampling": 0.0, "training": 0.0}
    for stage, event in sampled.items():
        prompts, tokens = stage_tokens(root / stage)
        rollouts = event["rollouts"]
        on = OnHardware(plan, hardware("cpu"), SMOLLM2, prompt=round(prompts / rollouts))
        guess["sampling"] += on.stage(rollouts, Lengths(tokens / rollouts, on.cap))
        real["sampling"] += event["seconds"]
        if "/update-" in stage:
            guess["training"] += sum(on.passes(Work(trained=prompts + tokens), tokens / rollouts))
    real["training"] = sum(event["seconds"] for event in events if event["event"] == "update_trained")
    run = f"{name}, {'vLLM' if plan.policy.vllm else 'local'}, 1 CPU thread"
    notes = {"sampling": "the assumed rate is of this measurement"} if name == "smollm2" else {}
    return [Compared(run, part, guess[part], real[part], notes.get(part, "")) for part in guess]


def made_up(layers: int, hidden: int, heads: int, length: int, micro_batch: int) -> OnHardware:
    """The random model of `tests/bench/made_up.py`, whose MLP is three times as wide as the model."""
    vocabulary = 151_936
    keys = hidden // 2
    parameters = 2 * vocabulary * hidden + layers * (2 * hidden * hidden + 2 * hidden * keys + 9 * hidden * hidden)
    tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
    own = {"dtype": "bfloat16", "layers": layers, "hidden_size": hidden, "vocabulary": vocabulary, "parameters": parameters}
    tree["model"] |= own
    tree["model"]["lora"]["targets"] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    tree["training"] |= {"micro_batch_tokens": micro_batch, "autocast": "bfloat16"}
    tree["sampling"] |= {"max_tokens": length - 32}
    sizes = {"hidden_size": hidden, "intermediate_size": 3 * hidden, "num_hidden_layers": layers, "vocab_size": vocabulary}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": heads // 2}
    return OnHardware(Plan.model_validate(tree), hardware("h200"), sizes, prompt=32)


def of_gpu_check() -> Iterator[Compared]:
    """`runs/records/gpu-check`: 32 texts of 2,048 tokens in 16 layers of 2,048; one of 32,768 in a layer of 128."""
    run, tokens = "gpu-check, local, one H200", 32 * 2048
    on = made_up(16, 2048, 16, 2048, 8 * 2048)
    fitted = "the assumed share is of this measurement"
    yield Compared(run, "scoring", on.passes(Work(scored=tokens), 2016)[0], tokens / 114_466, fitted)
    yield Compared(run, "training", on.passes(Work(trained=tokens), 2016)[1], tokens / 36_349, fitted)
    small = made_up(1, 128, 4, 32_768, 32_768)
    tiny = "one layer of 128: launching kernels is all of it, and the model has none outside decoding"
    yield Compared(run, "one text scored", small.passes(Work(scored=32_768), 32_736)[0], 0.7, tiny)
    yield Compared(run, "one text trained on", small.passes(Work(trained=32_768), 32_736)[1], 1.5, tiny)
    tree = yaml.safe_load((ROOT / "plans" / "quickstart.yaml").read_text())
    tree["training"] |= {"updates": 1, "rollouts_per_cell": 2}
    plan = Plan.model_validate(tree)
    config = json.loads((ROOT / "ablation" / "assets" / "tiny-reasoner" / "base" / "config.json").read_text())
    on = OnHardware(plan, hardware("h200"), config, prompt=QUICKSTART.prompt)
    lengths = Lengths(QUICKSTART.mean, on.cap)
    seconds = 3 * on.stage(116, lengths) + sum(on.passes(Work(trained=round(116 * (on.prompt + lengths.mean))), lengths.mean))
    yield Compared(run, "quickstart: sweep, an update, readout", seconds, 9.0, "measured with loading, self-test and grading")


@dataclass(frozen=True)
class Once:
    """A run of plans/quickstart.yaml, measured once; its folder is not kept."""

    prompt: int
    mean: float
    sampling: float
    training: float
    rollouts: int = 5568


QUICKSTART = Once(prompt=16, mean=63.1, sampling=1012.9, training=155.0)


def of_quickstart() -> list[Compared]:
    """The whole study on one thread: 9 sweeps and readouts of 348 rollouts, and 35 updates of 66 or 72."""
    plan = load_plan(ROOT / "plans" / "quickstart.yaml").plan
    config = json.loads((ROOT / "ablation" / "assets" / "tiny-reasoner" / "base" / "config.json").read_text())
    on = OnHardware(plan, hardware("cpu"), config, mean=QUICKSTART.mean, prompt=QUICKSTART.prompt)
    means = [row.mean for row in on.rows()]
    run, busy = "quickstart, local, 1 CPU thread", "two cores with 15 to 20 other processes at work"
    sampling, passes = sum(one.sampling for one in means), sum(one.scoring + one.training for one in means)
    return [
        Compared(run, "sampling", sampling, QUICKSTART.sampling, busy),
        Compared(run, "training", passes, QUICKSTART.training, busy),
        Compared(run, "all of it", sampling + passes, 240.0, "README: 3 to 5 minutes on two idle cores, grading included"),
    ]


def compared() -> list[Compared]:
    return [*of_record("smollm2"), *of_record("smollm2-vllm"), *of_quickstart(), *of_gpu_check()]


def seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def table() -> str:
    """In Markdown."""
    lines = ["| run | part | predicted (s) | measured (s) | ratio | |", "|---|---|---:|---:|---:|---|"]
    for one in compared():
        cells = (one.run, one.part, seconds(one.predicted), seconds(one.measured), f"{one.ratio:.2g}", one.note)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
