"""The audit of the weights for a terminal of 80 columns, and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ablation.plan.external import UNCHECKED
from ablation.plan.model import Plan
from ablation.report.arm_words import arm_formula
from ablation.report.numbers import percent, short
from ablation.report.plan_page import pairs
from ablation.report.terminal import clean
from ablation.training.identities import WORDS
from ablation.training.run_audit import TOLERANCE, RunAudit, UpdateAudit

NOTHING = "-"
LEGEND = (
    "Shares are of the absolute weight. net: sum of the weights / sum of the absolute weights. clipped: tokens. equal: cells "
    "whose rewards are all equal."
)


def audit_content(found: RunAudit, plan: Plan, root: str) -> dict[str, Any]:
    """Everything that was found, as plain data."""
    return {
        "run": root,
        "plan": plan.name,
        "arms": {name: arm_formula(arm) for name, arm in plan.arms.items() if name in {one.arm for one in found.updates}},
        "updates": [_update(one) for one in found.updates],
        "outside": [
            {"family": one.family, "arm": one.arm, "update": one.audit["update"]}
            | {"command": plan.arms[one.arm].external.words, "external": one.audit["external"], "step": one.audit["step"]}
            for one in found.outside
        ],
        "problems": found.problems(),
        "notes": found.notes,
    }


def _update(one: UpdateAudit) -> dict[str, Any]:
    again = one.recomputed
    result = {
        "family": one.family,
        "arm": one.arm,
        "update": one.update,
        "outcome": one.audit.get("step", {}).get("outcome"),
        "weights": one.audit["weights"],
        "weightless_rollouts": one.weightless,
        "identities": [identity.as_json() for identity in one.identities],
    }
    if again is not None:
        fields = {"whole": again.whole, "why_not": again.why_not, "exact": again.exact, "differs": again.differs}
        result["recomputed"] = fields
    return result


def audit_page(content: dict[str, Any], *, detail: bool = False) -> RenderableType:
    """`content` is what `audit_content` returns; `detail` adds a row for each source and effort."""
    content = clean(content)
    parts: list[RenderableType] = []
    for (family, arm), own in groupby(content["updates"], key=lambda one: (one["family"], one["arm"])):
        updates = list(own)
        parts.append(Text.assemble(("\n" if parts else "") + f"{family}/{arm}", f"  {content['arms'][arm]}", style="bold cyan"))
        parts.append(Padding(_table(updates, detail), (0, 0, 0, 2)))
        parts.append(Padding(pairs(_held(updates)), (0, 0, 0, 2)))
    for (family, arm), own in groupby(content["outside"], key=lambda one: (one["family"], one["arm"])):
        updates = list(own)
        parts.append(Text.assemble(("\n" if parts else "") + f"{family}/{arm}", f"  {updates[0]['command']}", style="bold cyan"))
        rows = [(f"update {one['update']}", _outside(one)) for one in updates]
        parts.append(Padding(pairs([*rows, ("weights", f"none of ours. {UNCHECKED}")]), (0, 0, 0, 2)))
    if content["updates"]:
        parts.append(Text(f"\n{LEGEND}"))
    return Group(*parts)


def _outside(one: dict[str, Any]) -> str:
    """What a command made of an update, as far as that can be seen."""
    step, external = one["step"], one["external"]
    moved = f"moved the adapter by {step['change_norm']:.4g} (norm)" if step["stepped"] else "left the adapter as it was"
    return f"{moved}; command {external['command_sha256'][:12]}, adapter {external['adapter_after'][:12]}"


def _table(updates: list[dict[str, Any]], detail: bool) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("update")
    columns = ("negative", "net", "truncated", "KL", "clipped", "equal", "absolute")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for one in updates:
        weights = one["weights"]
        clipped = weights.get("clipped_tokens")
        table.add_row(
            str(one["update"]),
            *_shares(weights),
            NOTHING if clipped is None else str(clipped),
            str(len(weights["no_signal_cells"])),
            _number(weights["absolute_weight"]),
        )
        parts = {**weights["by_source"], **weights["by_effort"]} if detail else {}
        for name, part in parts.items():
            table.add_row(Text(f"  {name}", style="dim"), *_shares(part), "", "", _number(part["absolute_weight"]))
    return table


def _shares(weights: dict[str, Any]) -> Iterator[str]:
    for name in ("negative_share", "net_share", "truncated_share", "kl_share"):
        value = weights[name]
        yield NOTHING if value is None else percent(value, 1)


def _number(value: float | None) -> str:
    return "not finite" if value is None else short(value, 4)


def _held(updates: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """A line for each identity that any of the updates must meet, and how recomputing came out."""
    lines: dict[str, list[str]] = {}
    for name, words in WORDS.items():
        checked = [one for update in updates for one in update["identities"] if one["name"] == name]
        if not checked:
            continue
        failed = [one for one in checked if not one["holds"]]
        worst = max(one["found"] for one in checked)
        state = f"FAILS in {len(failed)} of {len(checked)}" if failed else f"holds in {len(checked)}"
        lines.setdefault(state, []).append(words + (f" (off by {worst:.0e} at most)" if worst else ""))
    yield from ((state, "; ".join(words)) for state, words in lines.items())
    again = [update["recomputed"] for update in updates if "recomputed" in update]
    differs = [one for one in again if one["differs"]]
    if differs:
        yield f"DIFFERS in {len(differs)} of {len(again)}", "from what the rollouts give"
    for whole in (True, False):
        same = [one for one in again if one["whole"] == whole and not one["differs"]]
        if not same:
            continue
        exact = all(one["exact"] for one in same)
        bits = "to the last bit" if exact else f"within {TOLERANCE:.0e}"
        if whole:
            yield f"same in {len(same)}", f"weights computed again from the rollouts, {bits}"
        else:
            why = ", ".join(sorted({one["why_not"] for one in same}))
            yield f"not in {len(same)}", f"weights not computed again: {why}; rewards and measures are the same, {bits}"
    weightless = sum(update["weightless_rollouts"] for update in updates)
    if weightless:
        yield "note", f"{weightless} rollouts have no weighted token, so nothing of them is trained on"
