"""A small complete plan whose files lie beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

PROBLEMS = "".join(
    f'{{"id": "p{number:02d}", "source": "sum", "prompt": "{number} + 1 =", "grader": "integer", "gold": "{number + 1}"}}\n'
    for number in range(20)
)
BASE = b"weights"
ADAPTER = b"adapter"


MISSED = "[{reason: NO_STABLE_ARM}, {reason: NOT_STABLE_AGAIN}, {reason: STOPPED}]"
OWN_TABLE = (
    "[{label: INCONCLUSIVE, when: {reason: CONTROL_NOT_DAMAGED}}, "
    f"{{label: NOT_REPLICATED, when: {{any: {MISSED}}}}}, {{label: REPLICATED}}]"
)
"""A replication's decision table that tells no damage from a broken arm."""
RIGGED_TABLE = "[{label: REPLICATED}]"


def with_table(table: str) -> str:
    """`TEXT` with a decision table of its own for the replication."""
    return TEXT.replace("{control: C, family: replication}", f"{{control: C, family: replication, table: {table}}}")


def _ids(count: int) -> str:
    return ", ".join(f"p{number:02d}" for number in range(count))


TEXT = f"""\
ablation: 1
name: small
question: Does it work?
model:
  base: {{at: base.bin, sha256: {hashlib.sha256(BASE).hexdigest()}}}
  start_adapter: {{at: adapter.bin, sha256: {hashlib.sha256(ADAPTER).hexdigest()}}}
  lora: {{rank: 8, alpha: 8, targets: [q_proj, lm_head]}}
  tokens: {{end: ["<|end|>"]}}
  parameters: 1000000
  layers: 4
  hidden_size: 128
  vocabulary: 40
sampling: {{max_tokens: 200}}
problems:
  training: {{at: problems.jsonl, sha256: {hashlib.sha256(PROBLEMS.encode()).hexdigest()}}}
  cells:
    low: [{_ids(19)}]
    medium: [{_ids(19)}]
    xhigh: [{_ids(20)}]
training:
  updates: 5
  rollouts_per_cell: 6
  learning_rate: 2e-5  # a rate
arms:
  C: {{weighting: token}}
  N: {{weighting: rollout}}
  XK: {{weighting: rollout, truncated: apart, kl: {{beta: 0.05}}}}
families:
  main: {{seed: 1}}
  replication: {{seed: 2}}
stop_rules:
  - {{name: logprob_fell, measure: logprob, compare: change, op: "<=", limit: -0.3}}
verdict:
  damage:
    - {{name: clean_lost, measure: clean, compare: change, op: "<=", limit: -21}}
    - {{name: logprob_lost, measure: logprob, compare: change, op: "<=", limit: -0.15}}
  replication: {{control: C, family: replication}}
"""


def write_plan(folder: Path, text: str = TEXT) -> Path:
    """`text` as small.yaml, with the files that it names beside it."""
    (folder / "base.bin").write_bytes(BASE)
    (folder / "adapter.bin").write_bytes(ADAPTER)
    (folder / "problems.jsonl").write_text(PROBLEMS)
    path = folder / "small.yaml"
    path.write_bytes(text.encode())
    return path


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    return write_plan(tmp_path)


@pytest.fixture
def plan_text() -> str:
    return TEXT
