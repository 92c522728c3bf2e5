"""Runs of one locked plan beside each other: what each backend made of it, and how far its sampler was from its trainer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablation.errors import UsageError
from ablation.files import parse_json
from ablation.plan.model import Plan
from ablation.power.judged import judge_whole
from ablation.report.post.cost import device_of, run_cost
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import read_journal
from ablation.rollouts.stage import Stage
from ablation.rollouts.store import read_stage, stage_is_complete
from ablation.study.run_folder import own_plan
from ablation.verdict.model import Verdict
from ablation.verdict.stored import check_stored


@dataclass(frozen=True)
class Mismatch:
    """Trainer's against sampler's logprobs on the weighted tokens of all updates of all arms (nats)."""

    tokens: int
    mean: float
    """Mean absolute difference, over the tokens of all updates."""
    p99: float
    """The largest 99th percentile of an update; not a number where one update has none."""
    outside: float
    """Share of tokens whose ratio trainer/sampler is more than 10% off 1."""

    def as_json(self) -> dict[str, Any]:
        """A number that is not finite, as an update that diverged has, is null: JSON has none."""
        numbers = {"mean_absolute": self.mean, "p99_absolute": self.p99, "outside_10_percent": self.outside}
        return {"tokens": self.tokens} | {name: one if math.isfinite(one) else None for name, one in numbers.items()}


@dataclass(frozen=True)
class RunOfPlan:
    """One run folder."""

    root: Path
    engine: dict[str, Any]
    """What sampled its first sweep; empty where there is none."""
    devices: tuple[str, ...]
    """What sampled and trained; empty where a service did, which does not say."""
    workers: int
    """Processes of a Ray cluster that sampled and trained for it; 0: the run did that itself."""
    verdict: Verdict
    mismatch: Mismatch | None
    """None: no update of this program is there, or audits are gone."""
    gone: tuple[str, ...]
    """Audits that are not there, though the journal tells of their updates: the run is not audited."""
    wrong: tuple[str, ...]
    """What is in the folder or was done in it without being allowed, and what `verdict.json` says otherwise than the rollouts."""
    before: float | None
    """Mean absolute difference in the last proof before training (nats); None for a sampler that is the trainer."""
    same: float | None
    """Share of the first sweep's rollouts whose tokens are those of the first run; None where one of them has no sweep."""
    rollouts: int
    tokens: int
    seconds: float

    @property
    def backend(self) -> str:
        return str(self.engine.get("name", "nothing yet"))

    @property
    def where(self) -> str:
        """Who sampled and trained."""
        processes = int(self.engine.get("processes", 1))
        if self.backend == "tinker":
            return "a service"
        if self.workers:
            return f"Ray, {self.workers} worker{'s' * (self.workers != 1)}"
        return "one process" if processes == 1 else f"{processes} processes"

    @property
    def version(self) -> str:
        """Of what samples."""
        name = "torch" if self.backend == "local" else self.backend
        return f"{name} {self.engine[name]}" if name in self.engine else "unknown"

    def as_json(self) -> dict[str, Any]:
        found = self.verdict.as_json()
        return {
            "run": str(self.root),
            "backend": self.backend,
            "engine": self.engine,
            "devices": list(self.devices),
            "workers": self.workers,
            "label": found["label"],
            "labels": found["labels"],
            "arms": {f"{one['family']}/{one['arm']}": one["label"] for one in found["arms"]},
            **self.verdict.attempts.as_json(),
            "rules": {one.name: {rule.rule.name: rule.as_json() for rule in one.rules} for one in self.verdict.arms},
            "audits_gone": list(self.gone),
            "wrong": list(self.wrong),
            "mismatch": None if self.mismatch is None else self.mismatch.as_json(),
            "mismatch_before_training": self.before,
            "same_rollouts_as_first": self.same if self.same is None or math.isfinite(self.same) else None,
            "rollouts": self.rollouts,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 3),
        }


def runs_of_one_plan(roots: Sequence[Path]) -> tuple[Plan, str, list[RunOfPlan]]:
    """(the plan, its digest, each run). Raises `UsageError` unless all are runs of one locked plan, byte for byte."""
    if len({root.resolve() for root in roots}) < len(roots):
        raise UsageError("a run folder is named twice: name each once")
    plans = [own_plan(root) for root in roots]
    first = plans[0]
    for root, one in zip(roots, plans, strict=True):
        if (one.digest, one.bytes_sha256) != (first.digest, first.bytes_sha256):
            raise UsageError(
                f"{root}: is a run of another plan ({one.digest[:12]}) than {roots[0]} ({first.digest[:12]})",
                hint="Only runs of one locked plan can be compared; `policy.also` names the backends that it may be run with.",
            )
    runs: list[RunOfPlan] = []
    sweep: Stage | None = None
    for root, one in zip(roots, plans, strict=True):
        own = _first_sweep(root, one.plan)
        sweep = own if not runs else sweep
        runs.append(_run(root, one, own, sweep))
    return first.plan, first.digest, runs


def _run(root: Path, locked: Any, own: Stage | None, first: Stage | None) -> RunOfPlan:
    events = read_journal(RunFolder(root).journal) if RunFolder(root).journal.is_file() else []
    loaded = [event for event in events if event.get("event") == "model_loaded"]
    proofs = [event["preflight"] for event in loaded if isinstance(event.get("preflight"), dict)]
    cost = run_cost(events)
    served = own is not None and own.info.engine.get("name") == "tinker"
    gone = _gone_audits(root, events)
    verdict = judge_whole(root, locked, None)
    return RunOfPlan(
        root=root,
        engine={} if own is None else own.info.engine,
        devices=() if served else tuple(dict.fromkeys(device_of(event.get("environment") or {}).words for event in loaded)),
        workers=len({event["worker"] for event in events if isinstance(event.get("worker"), str)}),
        verdict=verdict,
        mismatch=None if gone else mismatch_of(root, locked.plan),
        gone=gone,
        wrong=_wrong(root, verdict),
        before=proofs[-1].get("mismatch") if proofs else None,
        same=None if own is None or first is None else same_rollouts(own, first),
        rollouts=cost.sampled.rollouts,
        tokens=cost.sampled.tokens,
        seconds=cost.seconds,
    )


def _gone_audits(root: Path, events: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    trained = [event for event in events if event.get("event") == "update_trained"]
    told = dict.fromkeys(f"{event.get('arm')}/update-{event.get('update')}/audit.json" for event in trained)
    return tuple(name for name in told if not (root / name).is_file())


def _wrong(root: Path, found: Verdict) -> tuple[str, ...]:
    lines = [one.text for section in found.sections.values() for of in (section, *section.others) for one in of.wrong]
    differs = check_stored(RunFolder(root).verdict, found.as_json()).wrong
    return tuple(dict.fromkeys([*lines, *([differs] if differs else [])]))


def _first_sweep(root: Path, plan: Plan) -> Stage | None:
    folder = RunFolder(root).sweep(plan.main_family)
    return read_stage(folder) if stage_is_complete(folder) else None


def same_rollouts(one: Stage, other: Stage) -> float:
    """Share of the rollouts of `one` whose tokens are the same in `other`, cell by cell and draw by draw."""
    there = {(other.problem[row], other.effort[row], int(other.index[row])): row for row in range(len(other))}
    same = 0
    for row in range(len(one)):
        place = there.get((one.problem[row], one.effort[row], int(one.index[row])))
        same += place is not None and np.array_equal(_tokens(one, row), _tokens(other, place))
    return same / len(one) if len(one) else math.nan


def _tokens(stage: Stage, row: int) -> np.ndarray:
    return stage.token_ids[stage.offsets[row] : stage.offsets[row + 1]]


def mismatch_of(root: Path, plan: Plan) -> Mismatch | None:
    """From the audits of the run in `root`; None if no update weighted a token."""
    run, steps = RunFolder(root), []
    for family in plan.families:
        for arm in plan.arms:
            for path in sorted(run.arm(family, arm).glob("update-*/audit.json")):  # those of an extension, too
                step = parse_json(path.read_bytes()).get("step")
                if isinstance(step, dict) and step.get("mismatch") and step.get("weighted_tokens"):
                    steps.append((step["weighted_tokens"], step["mismatch"]))
    if not steps:
        return None
    tokens = sum(count for count, _ in steps)
    mean, outside = (
        sum(count * _known(found[name]) for count, found in steps) / tokens
        for name in ("mean_absolute", "share_ratio_outside_10_percent")
    )
    percentiles = [_known(found["p99_absolute"]) for _, found in steps]
    p99 = math.nan if any(map(math.isnan, percentiles)) else max(percentiles)  # `max` drops what is no number, or all after it
    return Mismatch(tokens, mean, p99, outside)


def _known(value: float | None) -> float:
    return math.nan if value is None else value
