"""Updates: what `audit.json` says of the weights and of the stop rules, against the rollouts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablation.audit.counts import Outcome
from ablation.audit.findings import ROUNDING, Findings
from ablation.audit.locked import LockedTree
from ablation.audit.rules import stop_fired
from ablation.audit.stages import Rows
from ablation.audit.step import check_step
from ablation.audit.weights import UNITS, Passes, weigh

SUMS = ("absolute_weight", "net_weight", "net_share", "negative_share", "truncated_share", "kl_share")


def check_audit(
    path: Path,
    rows: Rows,
    own: Sequence[Outcome],
    tree: LockedTree,
    *,
    reference: Mapping[str, float],
    s0: float,
    found: Findings,
) -> tuple[Mapping[str, Any], Passes | None]:
    """The audit of one update against what its rollouts give; (it as it is stored, the tokens that it went through)."""
    stored = json.loads(path.read_bytes())
    where, arm, update = f"{rows.name}/audit.json", tree.arms[rows.info["arm"]], rows.info["update"]
    found.same(where, "update", stored["update"], update, source="its folder is of update")
    cap = tree.plan["sampling"]["max_tokens"]
    weighed = weigh(arm, tree.training, rows, own, reference=reference, s0=s0, cap=cap, stored=stored)
    outside = arm.get("external") is not None
    for name in ("learning_rate", "reward_mean", *(() if outside else ("s0",))):
        if name in stored or not outside:
            found.same(where, name, stored.get(name), getattr(weighed, name))
    found.same(where, "metrics", stored["metrics"], weighed.metrics)
    found.count("updates: reward, scale and stop metrics")
    check_step(where, stored, arm, rows, weighed, found)
    if outside:
        found.same(where, "weights", stored["weights"], None, source="an external arm has")
        return stored, None
    weights = stored["weights"]
    found.same(where, "weights.no_signal_cells", weights["no_signal_cells"], weighed.no_signal)
    found.same(where, "weights.rollouts", weights["rollouts"], len(rows))
    _check_shares(where, weights, found)
    for name in ("negative_share", "truncated_share", "kl_share"):
        found.same(where, f"metrics.{name}", stored["metrics"].get(name), weights[name], source="its own weights say")
    if weighed.counts is not None and "kl_tokens" in weights:  # an earlier version counted what rounding left of a KL term
        found.same(where, "weights", weights, weighed.counts)
        found.count("updates: weighted tokens, in all and by source and effort")
    if weighed.weights is None:
        known = arm["weighting"] in UNITS
        found.leave(f"weights of some updates of arm {rows.info['arm']}: {weighed.why_not}" if known else str(weighed.why_not))
        return stored, weighed.passes
    _compare_weights(where, weights, weighed.weights, found)
    found.count("updates: weights, in all and by source and effort")
    return stored, weighed.passes


def _compare_weights(where: str, stored: Mapping[str, Any], own: Mapping[str, Any], found: Findings) -> None:
    """A net weight that is zero by construction is what rounding left of a sum, so its size is that of the absolute weight."""
    absolute = own["absolute_weight"] or 0.0
    parts = {"weights": (stored, own)}
    for group in ("by_source", "by_effort"):
        if set(stored[group]) != set(own[group]):
            found.differ(
                where,
                f"weights.{group} has {', '.join(sorted(stored[group]))}; the rollouts have {', '.join(sorted(own[group]))}",
            )
        parts |= {
            f"weights.{group}.{label}": (stored[group][label], own[group][label])
            for label in stored[group].keys() & own[group].keys()
        }
    for name, (told, mine) in parts.items():
        for field, value in mine.items():
            if field.startswith("by_") or (field == "kl_tokens" and field not in told):  # an earlier version has none
                continue
            if field == "net_weight" and told[field] is not None and value is not None:
                if abs(told[field] - value) > ROUNDING * max(absolute, 1.0):
                    found.differ(where, f"{name}.{field} is {told[field]!r}; the rollouts give {value!r}")
            else:
                found.same(where, f"{name}.{field}", told[field], value)


def _check_shares(where: str, weights: Mapping[str, Any], found: Findings) -> None:
    """Parts add up to the whole and shares are those of the sums, also where the weights themselves need the model."""
    if weights["absolute_weight"] is None:
        return
    whole = weights["absolute_weight"]
    for group in ("by_source", "by_effort"):
        for name in ("absolute_weight", "net_weight", "rollouts", "weighted_tokens"):
            total = sum(part[name] for part in weights[group].values())
            if abs(total - weights[name]) > ROUNDING * max(whole, 1.0):
                found.differ(where, f"weights.{group}: {name} adds up to {total!r}, in all it is {weights[name]!r}")
        for name in ("negative_share", "truncated_share", "kl_share"):
            total = sum((part[name] or 0.0) * part["absolute_weight"] for part in weights[group].values())
            if abs(total - (weights[name] or 0.0) * whole) > ROUNDING * max(whole, 1.0):
                found.differ(where, f"weights.{group}: {name} does not add up to {weights[name]!r}, as it is in all")
    parts = {f"{group}.{label}": part for group in ("by_source", "by_effort") for label, part in weights[group].items()}
    for name, part in {"weights": weights, **parts}.items():
        if not part["absolute_weight"]:
            for share in SUMS[2:]:
                found.same(where, f"{name}.{share}", part[share], None, source="a share of nothing is")
        else:
            net = part["net_weight"] / part["absolute_weight"]
            if abs(net - part["net_share"]) > ROUNDING or abs(1 - 2 * part["negative_share"] - net) > ROUNDING:
                found.differ(where, f"shares of {name} are not those of its sums")


def check_stops(
    root: Path, tree: LockedTree, family: str, arm: str, audits: Mapping[int, Mapping[str, Any]], found: Findings
) -> None:
    """A stop rule that holds at an update ended the arm there, and nothing else did."""
    folder = root / family / arm
    metrics: list[Mapping[str, Any]] = []
    rules = tree.plan["stop_rules"]
    for update in sorted(audits):
        if update != len(metrics) + 1:
            return  # an arm whose updates were not all sampled here
        metrics.append(audits[update]["metrics"])
        fired = stop_fired(rules, metrics)
        file = folder / ("stopped.json" if update <= tree.updates else "extension-stopped.json")
        told = json.loads(file.read_bytes()) if file.is_file() else None
        at = told is not None and told.get("update") == update
        if fired is not None and not at:
            found.differ(folder, f"stop rule `{fired}` holds at update {update}, and the arm was not ended there")
        elif at and told is not None and told.get("rule") != fired:
            found.differ(
                file, f"says that rule `{told.get('rule')}` ended the arm at update {update}; the metrics give {fired or 'none'}"
            )
        if fired is not None and (folder / f"update-{update + 1}").exists():
            found.differ(folder / f"update-{update + 1}", f"is there, although stop rule `{fired}` ended the arm before")
        found.count("stop rules at an update", len(rules))
    for name in ("stopped.json", "extension-stopped.json"):
        if (folder / name).is_file():
            told = json.loads((folder / name).read_bytes())
            if told["rule"] not in {rule["name"] for rule in rules}:
                found.differ(folder / name, f"rule `{told['rule']}` is not a stop rule of this plan")
