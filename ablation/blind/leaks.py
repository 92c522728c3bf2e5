"""Whether anything that a rater sees tells whose an answer is.

- **fields**: an item has a number and texts, and nothing else (reading a batch refuses any other field).
- **ids**: no seed, `ARM@UPDATES` or digest is in batch, page or form.
- **names** of the plan, arms, families, efforts, models and problems that are in the texts of one model alone (whole words of
  three characters or more). Texts are never changed for it, so this is listed and refuses nothing; a name in the problem or in
  both texts of a pair tells nothing.
- **order**: the subject is X in half of the pairs; of single answers, as many of either model in the first half as chance allows.
- **lengths**: how often one model's text is the longer one. It is listed, without saying which model.
- **known**: texts of a read of the same set whose key was opened before (`blind.known`). It refuses no batch, as the start's
  answers are the same in all of them: it refuses raters.
- **times**: batch, page and form have one time of change, and hold none.

What the key has to say (order, lengths by model) is told without any pair's answer.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from ablation.blind.batch import PAIRS, Batch
from ablation.blind.build import Sides
from ablation.blind.key import REFERENCE, SUBJECT, Key
from ablation.blind.lengths import model_and_length
from ablation.plan.model import START, Plan
from ablation.rollouts.blind_record import BlindFolder

OK, NOTE, LEAK, UNCHECKED = "ok", "note", "leak", "not checked"
_SEED, _NAME = 6, 3
"""Shorter seeds and names are in any text by chance."""
_ORDER_LEVEL = 0.001


@dataclass(frozen=True)
class Finding:
    """What one part of the leak test found."""

    name: str
    state: str
    """`ok`, `note` (a reader should know), `leak` (no rater may see this), or `not checked`."""
    text: str

    def as_json(self) -> dict[str, str]:
        return {"name": self.name, "state": self.state, "text": self.text}


def leaks(folder: BlindFolder, plan: Plan, batch: Batch, sides: Sides, key: Key | None, shown: dict[str, bytes]) -> list[Finding]:
    """Every part of the leak test. `shown`: the files that a rater gets, by name; without `key` its parts are not checked."""
    return [
        Finding("fields", OK, f"{len(batch)} items of a number and texts"),
        _ids(folder, sides, shown),
        _names(folder, plan, batch, sides),
        _order(batch, key),
        _lengths(batch, key),
    ]


def times(folder: BlindFolder) -> Finding:
    """Whether the files of a batch were changed at one time."""
    files = [path for path in (folder.batch, folder.page, folder.form) if path.is_file()]
    same = len({path.stat().st_mtime_ns for path in files}) <= 1
    text = (
        "batch, page and form have one time of change" if same else "batch, page and form have different times of change: copied?"
    )
    return Finding("times", OK if same else NOTE, text)


def _ids(folder: BlindFolder, sides: Sides, shown: dict[str, bytes]) -> Finding:
    stages = (sides.subject, sides.reference)
    seeds = {str(seed) for stage in stages for seed in stage.seed.tolist()}
    words = {seed for seed in seeds if len(seed) >= _SEED} | {folder.subject}
    digests = {one[:12] for stage in stages for one in (*stage.prompt_sha256, stage.info.adapter_sha256, stage.info.plan_digest)}
    found = []
    for name, data in sorted(shown.items()):
        text = data.decode()
        there = {word for word in words if word in text and _whole(word).search(text)}
        found += [f"{word} in {name}" for word in sorted(there | {one for one in digests if one and one in text})]
    if found:
        return Finding("ids", LEAK, f"{', '.join(found[:5])}{f' and {len(found) - 5} more' if len(found) > 5 else ''}")
    return Finding("ids", OK, "no seed, digest or id")


def _whole(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9_]){re.escape(word)}(?![A-Za-z0-9_])", re.IGNORECASE)


def names_of(folder: BlindFolder, plan: Plan, sides: Sides) -> list[str]:
    """Names that would tell a rater something, if one model says them and the other does not."""
    models = [resource.at.rstrip("/").split("/")[-1].split("@")[0] for resource in (plan.model.base, plan.model.start_adapter)]
    found = {plan.name, folder.subject, START, *plan.arms, *plan.families, *models}
    found |= {name for stage in (sides.subject, sides.reference) for name in (*stage.effort, *stage.problem)}
    return sorted(name for name in found if len(name) >= _NAME)


def names_told(folder: BlindFolder, plan: Plan, batch: Batch, sides: Sides) -> list[dict[str, Any]]:
    """Each name that one text of a pair (or any single answer) has and nothing else beside it: item, side, name."""
    patterns = {name: _whole(name) for name in names_of(folder, plan, sides)}
    found = []
    for item in batch.items:
        texts = {side: "\n".join(texts.values()) for side, texts in item.texts.items()}
        lower = {side: text.lower() for side, text in texts.items()}
        for name, pattern in patterns.items():
            there = [side for side, text in texts.items() if name.lower() in lower[side] and pattern.search(text)]
            if there and pattern.search(item.prompt):
                continue
            if len(there) == 1:
                found.append({"item": item.number, "side": there[0], "name": name})
    return found


def _names(folder: BlindFolder, plan: Plan, batch: Batch, sides: Sides) -> Finding:
    found = names_told(folder, plan, batch, sides)
    if not found:
        return Finding("names", OK, "no name is in one model's text alone")
    shown = [f"`{one['name']}` in item {one['item']} {one['side']}" for one in found]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return Finding("names", NOTE, f"texts are not changed, and some have a name: {', '.join(shown[:5])}{more}")


def _order(batch: Batch, key: Key | None) -> Finding:
    if key is None:
        return Finding("order", UNCHECKED, "the key is not at hand")
    if batch.kind == PAIRS:
        first = sum(row["X"] == SUBJECT for row in key.items)
        fair = abs(2 * first - len(batch)) <= 1
        return Finding(
            "order",
            OK if fair else LEAK,
            f"either model is X in half of the {len(batch)} pairs" if fair else "one model is X more often",
        )
    half = len(batch) // 2
    models = [row["model"] for row in key.items]
    chance = hypergeometric_two_sided(models[:half].count(SUBJECT), half, models.count(SUBJECT), len(models))
    text = f"of the first half of {len(batch)} answers either model has as many as chance allows (p = {chance:.3g})"
    return (
        Finding("order", OK, text)
        if chance >= _ORDER_LEVEL
        else Finding("order", LEAK, f"one model comes first (p = {chance:.2g})")
    )


def hypergeometric_two_sided(hits: int, drawn: int, marked: int, total: int) -> float:
    """Chance of a draw of `drawn` out of `total`, `marked` of them marked, that is no likelier than one with `hits` marked."""
    ways = {
        k: math.comb(marked, k) * math.comb(total - marked, drawn - k)
        for k in range(max(0, drawn - total + marked), min(drawn, marked) + 1)
    }
    return sum(one for one in ways.values() if one <= ways[hits]) / math.comb(total, drawn)


def _lengths(batch: Batch, key: Key | None) -> Finding:
    if key is None:
        return Finding("lengths", UNCHECKED, "the key is not at hand")
    sides: dict[str, list[int]] = {SUBJECT: [], REFERENCE: []}
    for item, row in zip(batch.items, key.items, strict=True):
        for side in item.texts:
            sides[row[side] if batch.kind == PAIRS else row["model"]].append(item.length(side))
    found = model_and_length(sides[SUBJECT], sides[REFERENCE])
    r = "undefined" if found["correlation"] is None else f"{abs(found['correlation']):.2f}"
    text = f"correlation of model and length: {r} (without its sign)"
    if batch.kind == PAIRS:
        most = max(found["subject_longer"], found["reference_longer"])
        text = f"one and the same model has the longer text in {most} of {len(batch)} pairs; " + text
    return Finding("lengths", NOTE, text)
