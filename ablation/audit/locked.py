"""The locked plan, read from its lock as plain data: no class of the plan language is used here."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import rfc8785

from ablation.audit.findings import Findings

ARM = {
    "tokens": "thinking",
    "baseline": "mean",
    "scale": "none",
    "no_signal": "keep",
    "advantages": "all",
    "truncated": "keep",
    "truncation_penalty": None,
    "finish_push": 0.0,
    "clip": None,
    "kl": None,
    "reward": None,
    "learning_rate": None,
    "external": None,
}
"""What an arm does that says nothing of it: a field that is younger than the lock is at its default (plans/README.md)."""
STATISTICS = {"method": "percentile", "few_clusters": "undecided", "estimand": "pooled"}
REWARD = {"length_bonus": 0.3, "loop_penalty": 0.0}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@dataclass(frozen=True)
class LockedTree:
    """What the lock in a run folder says."""

    content: dict[str, Any]

    @property
    def plan(self) -> dict[str, Any]:
        """The plan with every default written out."""
        return self.content["plan"]

    @property
    def digest(self) -> str:
        return self.content["digest"]

    @cached_property
    def order(self) -> dict[str, list[str]]:
        return self.plan["order"]

    @cached_property
    def cells(self) -> list[tuple[str, str]]:
        """(problem, effort), in plan order."""
        named = self.plan["problems"]["cells"]
        return [(problem, effort) for effort in self.order["problems.cells"] for problem in named[effort]]

    @cached_property
    def families(self) -> dict[str, int]:
        """Name -> seed, in plan order. A seed beyond 2^53 is text in the canonical form."""
        return {name: int(self.plan["families"][name]["seed"]) for name in self.order["families"]}

    @cached_property
    def arms(self) -> dict[str, dict[str, Any]]:
        return {name: ARM | self.plan["arms"][name] for name in self.order["arms"]}

    @cached_property
    def training(self) -> dict[str, Any]:
        training = self.plan["training"]
        return training | {"reward": REWARD | training["reward"]}

    @property
    def main_family(self) -> str:
        return next(iter(self.families))

    @property
    def per_cell(self) -> int:
        return self.plan["training"]["rollouts_per_cell"]

    @property
    def updates(self) -> int:
        return self.plan["training"]["updates"]

    @property
    def second_family(self) -> str:
        return self.plan["verdict"]["replication"]["family"]

    @property
    def control(self) -> str:
        return self.plan["verdict"]["replication"]["control"]

    def runs(self, stable: str | None) -> list[tuple[str, str]]:
        """(family, arm) of every run that the plan asks for, the first family's first. `stable`: the arm that is run again."""
        claims = (self.plan["verdict"].get("claims") or {}).values()
        claimed = {
            (family, arm) for one in claims for family in one["families"] or () for arm in [*one["subjects"], one["reference"]]
        }
        again = {(self.second_family, arm) for arm in (self.control, stable)}
        every = [(family, arm) for family in self.families for arm in self.arms]
        return [run for run in every if run[0] == self.main_family or run in again | claimed]

    def statistics(self, name: str) -> Any:
        value = self.plan["statistics"].get(name, STATISTICS.get(name))
        return int(value) if name == "seed" else value


def read_lock(root: Path, found: Findings) -> LockedTree | None:
    """The lock's copy in `root`, whose digests are computed again; None if it cannot be read."""
    path = root / "plan.lock"
    if not path.is_file():
        found.differ(path, "is not there, so nothing says what was promised")
        return None
    tree = None
    with found.guard(path):
        data = path.read_bytes()
        content = json.loads(data)
        body = {name: value for name, value in content.items() if name != "lock_sha256"}
        found.same(path, "lock_sha256", content["lock_sha256"], sha256(rfc8785.dumps(body)), source="its content has the digest")
        found.same(path, "digest", content["digest"], sha256(rfc8785.dumps(content["plan"])), source="the plan in it has")
        found.same(path, "bytes_sha256", content["bytes_sha256"], sha256(content["text"].encode()), source="its text has")
        laid_out = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
        if laid_out.encode() != data:
            found.differ(path, "its layout is not the one that a lock is written with: it was edited")
        read = LockedTree(content)
        _ = read.cells, read.families, read.arms, read.control, read.second_family, read.updates, read.per_cell  # all readable
        tree = read
        found.count("digests of plan, lock and problem files", 4)
    plan = root / "plan.yaml"
    if tree is None:
        return None
    with found.guard(plan):
        if plan.read_bytes() != tree.content["text"].encode():
            found.differ(plan, "is not byte for byte the plan that was locked")
    _check_problem_file(root, tree, found)
    return tree


def _check_problem_file(root: Path, tree: LockedTree, found: Findings) -> None:
    path = root / "problems.jsonl"
    with found.guard(path):
        wanted = tree.content["resources"].get("problems.training", {}).get("sha256")
        if wanted is None:
            found.leave("whether problems.jsonl is the locked file: the lock has no digest of it")
        elif file_sha256(path) != wanted:
            found.differ(path, "is not the file of training problems that the plan was locked with")


def read_problems(path: Path, found: Findings) -> dict[str, dict[str, Any]]:
    """id -> the fields of its line."""
    problems: dict[str, dict[str, Any]] = {}
    with found.guard(path):
        for line in path.read_bytes().decode("utf-8-sig").split("\n"):
            if line.strip():
                fields = json.loads(line)
                if fields["id"] in problems:
                    found.differ(path, f"problem `{fields['id']}` is there twice")
                problems[fields["id"]] = fields
    return problems
