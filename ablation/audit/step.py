"""What `audit.json` says of the optimizer step: what the step and the stop rules' metrics say of one thing, and the rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ablation.audit.findings import Findings
from ablation.audit.stages import Rows
from ablation.audit.weights import Weighed

MISMATCH = {
    "mismatch_mean": "mean_absolute",
    "mismatch_p99": "p99_absolute",
    "mismatch_outside": "share_ratio_outside_10_percent",
    "mismatch_k3": "k3",
}
LATER = (*MISMATCH, "grad_norm", "entropy")
"""Metrics that an earlier version of this program did not have: an audit has all of them, or none."""
OUTCOMES = ("stepped", "empty_step", "no_signal", "nonfinite", "unchanged")


def check_step(
    where: str, stored: Mapping[str, Any], arm: Mapping[str, Any], rows: Rows, weighed: Weighed, found: Findings
) -> None:
    step, metrics = stored["step"], stored["metrics"]
    if "outcome" in step:  # an earlier version did not say why there was no step
        found.same(where, "step.stepped", step["stepped"], step["outcome"] == "stepped", source="its outcome says")
        if step["outcome"] not in OUTCOMES:
            found.differ(where, f"step.outcome is {step['outcome']!r}")
    if arm.get("external") is not None:
        _check_outside(where, stored, rows, found)
        return
    has = [name for name in LATER if name in metrics]
    if ("outcome" in step or has) and len(has) < len(LATER):
        found.differ(where, f"metrics has no {', '.join(name for name in LATER if name not in metrics)}")
    tokens = step["weighted_tokens"]
    found.same(where, "step.weighted_tokens", tokens, stored["weights"]["weighted_tokens"], source="its weights have")
    if arm.get("clip") is None and ("outcome" in step or "clipped_tokens" in stored["weights"]):
        found.same(
            where, "weights.clipped_tokens", stored["weights"].get("clipped_tokens"), 0, source="an arm without a clip has"
        )
    if has:
        any_weight = tokens > 0 or (arm.get("kl") is not None and metrics["grad_norm"] is not None)
        told = {name: step["mismatch"].get(of) for name, of in MISMATCH.items()} | {"grad_norm": step["grad_norm"]}
        for name, value in told.items():
            found.same(where, f"metrics.{name}", metrics.get(name), value if any_weight else None, source="its step says")
    _check_outcome(where, stored, arm, rows, weighed, found)
    found.count("updates: what the step says of itself")


def _check_outcome(
    where: str, stored: Mapping[str, Any], arm: Mapping[str, Any], rows: Rows, weighed: Weighed, found: Findings
) -> None:
    """Whether there was a step goes with the number of weighted tokens, and with what is not finite."""
    step, tokens = stored["step"], stored["step"]["weighted_tokens"]
    absent = [name for name in ("loss", "grad_norm", "mismatch") if name not in step]
    if absent:
        found.differ(where, f"step has no {', '.join(absent)}")
    broken = (step.get("loss") is None) + (step.get("grad_norm") is None)
    least = int(np.count_nonzero(~np.isfinite(rows.tokens["logprobs"]))) + (step.get("loss") is None)
    if tokens and not step["stepped"]:
        least += not broken
    told = stored["metrics"].get("nonfinite")
    if told not in (least, least + (step.get("grad_norm") is None)):  # a service may tell of no norm
        found.differ(where, f"metrics.nonfinite is {told!r}; rollouts and step have {least}")
    if arm.get("kl") is not None:
        return  # its last bits may make a step of nothing else
    cells = {f"{problem}@{effort}" for problem, effort, _ in rows.keys}
    nothing = "no_signal" if cells == set(weighed.no_signal) else "empty_step"
    allowed = (nothing,) if tokens == 0 else ("stepped", "nonfinite")
    if step.get("outcome", allowed[0]) not in allowed or (step["stepped"] and tokens == 0):
        found.differ(
            where, f"step.outcome is {step.get('outcome')!r}; with {tokens} weighted tokens it is {' or '.join(allowed)}"
        )
    if step["stepped"] and step.get("loss") is None:
        found.differ(where, "took a step with a loss that is not finite")
    names = {rows.who(row) for row in range(len(rows))}
    if not set(step.get("nonfinite_rollouts", ())) <= names:
        found.differ(where, "step.nonfinite_rollouts names rollouts that the update does not have")


def _check_outside(where: str, stored: Mapping[str, Any], rows: Rows, found: Findings) -> None:
    """An update that a command trained."""
    outside, step = stored["external"], stored["step"]
    found.same(
        where, "external.adapter_before", outside["adapter_before"], rows.info["adapter_sha256"], source="it was sampled with"
    )
    moved = outside["adapter_before"] != outside["adapter_after"]
    found.same(where, "step.stepped", step["stepped"], moved, source="by its adapters it is")
    found.same(where, "step.change_norm is above 0", step["change_norm"] > 0, moved, source="by its adapters it is")
    found.same(where, "external.exit_code", outside["exit_code"], 0, source="what is taken has")
