"""What ratings of pairs come to, once it is known whose X and Y are.

A pair passes if both answers are the same, by the same main method, and neither lacks a check: by every rater, and by a judge
that was asked in both orders, both times. Answers that differ between the orders are a tie and no pass; a pair with an order that
could never be read is left out and listed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

from ablation.blind.batch import PAIR_QUESTIONS, Batch
from ablation.blind.kappa import cohens_kappa
from ablation.blind.key import REFERENCE, SUBJECT, Key
from ablation.blind.lengths import BANDS, binomial_two_sided, model_and_length, thirds
from ablation.blind.ratings import JUDGE, ORDERS, UNPARSED, Ratings
from ablation.plan.phase2 import BlindedRead

PASSED, FAILED, UNDECIDED = "PASSED", "FAILED", "UNDECIDED"
POSITION_LEAST, POSITION_LEVEL = 6, 0.05
"""The judge's side is suspicious where at least so many replies favour one side, and a fair coin does it less often than this."""


@dataclass(frozen=True)
class Reason:
    """Why a blinded read came out as it did."""

    code: str
    text: str

    def as_json(self) -> dict[str, str]:
        return {"code": self.code, "text": self.text}


@dataclass(frozen=True)
class Rated:
    """What one rater says of one pair, all orders together; None in `values`: left out."""

    values: dict[str, bool] | None
    """Of the questions: `same_answer` and `same_method` are true if said each time, a missing check if said once."""
    passes: bool
    disagreed: bool
    """The orders did not get the same answers."""


def orders_of(ratings: Ratings | None, settings: BlindedRead) -> tuple[str, ...]:
    """In which orders a rater is asked: only a judge is asked in both."""
    return ORDERS if settings.both_orders and ratings is not None and ratings.by == JUDGE else ORDERS[:1]


def of_pair(ratings: Ratings, item: int, orders: Sequence[str]) -> Rated:
    """What `ratings` say of the pair `item`."""
    replies = [ratings.final(item, order) for order in orders]
    said = [one.values for one in replies if one is not None and one.values is not None]
    if len(said) < len(orders):
        return Rated(None, passes=False, disagreed=False)
    merged = {name: (any if name.endswith("missing_checks") else all)(one[name] for one in said) for name in PAIR_QUESTIONS}
    return Rated(merged, passes=all(map(_passes, said)), disagreed=any(one != said[0] for one in said))


def _passes(values: Mapping[str, bool]) -> bool:
    return values["same_answer"] and values["same_method"] and not (values["x_missing_checks"] or values["y_missing_checks"])


def tally(
    batch: Batch, key: Key, ratings: Mapping[str, Ratings], settings: BlindedRead, left: Collection[str] = ()
) -> dict[str, Any]:
    """The result of the read: label, reasons and every number beside it, as plain data.

    `left`: raters who were let go. What they rated counts as anybody's; where they said nothing the others decide.
    """
    orders = {rater: orders_of(one, settings) for rater, one in ratings.items()}
    said = {rater: [of_pair(one, item.number, orders[rater]) for item in batch.items] for rater, one in ratings.items()}
    outcomes = [
        _outcome([one[place] for rater, one in said.items() if rater not in left or one[place].values is not None])
        for place in range(len(batch))
    ]
    passes, left_out = outcomes.count(True), [item.number for item, one in zip(batch.items, outcomes, strict=True) if one is None]
    unparsed = _unparsed(batch, ratings, orders, left)
    label, reasons = _label(passes, left_out, unparsed, settings)
    sides = _lengths(batch, key)
    return {
        "label": label,
        "reasons": [one.as_json() for one in reasons],
        "pairs": len(batch),
        "rated": len(batch) - len(left_out),
        "passes": passes,
        "needed": settings.passes,
        "left_out": left_out,
        "items": [
            {"item": item.number, "passes": one, "problem": row["problem"], "effort": row["effort"], "index": row["index"]}
            for item, one, row in zip(batch.items, outcomes, key.items, strict=True)
        ],
        "raters": {rater: _rater(said[rater], ratings[rater], key, sides, orders[rater]) for rater in said},
        "unparsed": unparsed,
        "kappa": {f"{a}/{b}": _kappas(said[a], said[b]) for a, b in combinations(said, 2)},
        "lengths": model_and_length(sides[SUBJECT], sides[REFERENCE]) | {"bands": _bands(sides, outcomes)},
        "warnings": _warnings(batch, ratings, orders),
    }


def _outcome(said: Sequence[Rated]) -> bool | None:
    """Whether a pair passes: not if one rater fails it, whatever the others; unknown if a rater that could fail it is missing."""
    if any(one.values is not None and not one.passes for one in said):
        return False
    return None if not said or any(one.values is None for one in said) else True


def _label(passes: int, left_out: list[int], unparsed: dict[str, Any], settings: BlindedRead) -> tuple[str, list[Reason]]:
    found, needed = f"{passes} of {settings.pairs} pairs pass", f"{settings.passes} are needed"
    if unparsed["never"] > Fraction(str(settings.unparsed_limit)) * unparsed["asked"]:
        share = f"{unparsed['never']} of {unparsed['asked']} replies could never be read"
        return UNDECIDED, [Reason("UNPARSED", f"{share}; the plan allows a share of {settings.unparsed_limit:g}")]
    if passes >= settings.passes:
        return PASSED, [Reason("PASSES", f"{found}; {needed}")]
    if passes + len(left_out) >= settings.passes:
        names = ", ".join(map(str, left_out))
        return UNDECIDED, [Reason("LEFT_OUT", f"{found}, {needed}, and pairs without a rating could decide it: {names}")]
    return FAILED, [Reason("TOO_FEW_PASS", f"{found}; {needed}")]


def _unparsed(
    batch: Batch, ratings: Mapping[str, Ratings], orders: Mapping[str, Sequence[str]], left: Collection[str]
) -> dict[str, Any]:
    """Replies that judges were asked for, those that never came, and the attempts that could not be read."""
    asked = never = attempts = 0
    for rater, one in ratings.items():
        if one.by != JUDGE:
            continue
        for item in batch.items:
            for order in orders[rater]:
                last = one.final(item.number, order)
                if last is None and rater in left:
                    continue  # was never asked
                asked += 1
                never += last is None or last.status == UNPARSED
        attempts += sum(reply.status == UNPARSED for reply in one.replies)
    return {"asked": asked, "never": never, "attempts": attempts}


def _rater(
    said: Sequence[Rated], ratings: Ratings, key: Key, sides: Mapping[str, list[int]], orders: Sequence[str]
) -> dict[str, Any]:
    """One rater's numbers: answers to each question, which model lacked checks, and which one is preferred for having them."""
    rated = [(one.values, row) for one, row in zip(said, key.items, strict=True) if one.values is not None]
    missing = {SUBJECT: 0, REFERENCE: 0}
    better = {SUBJECT: 0, REFERENCE: 0}
    for one, row in zip(said, key.items, strict=True):
        if one.values is None:
            continue
        lacks = {row["X"]: one.values["x_missing_checks"], row["Y"]: one.values["y_missing_checks"]}
        for model in missing:
            missing[model] += lacks[model]
        if not one.disagreed and lacks[SUBJECT] != lacks[REFERENCE]:
            better[REFERENCE if lacks[SUBJECT] else SUBJECT] += 1
    ties = len(rated) - sum(better.values())
    found = {
        "by": ratings.by,
        "passes": sum(one.passes for one in said),
        "rated": len(rated),
        "same_answer": sum(values["same_answer"] for values, _ in rated),
        "same_method": sum(values["same_method"] for values, _ in rated),
        "missing_checks": missing,
        "preferred": better | {"tie": ties, "rate": (better[SUBJECT] + ties / 2) / len(rated) if rated else None},
        "orders": list(orders),
        "replies": len(ratings.replies),
        "told_again": list(ratings.again),
    }
    if len(orders) > 1:
        differ = sum(one.disagreed for one in said)
        found["disagreed"] = {"pairs": differ, "share": differ / len(rated) if rated else None}
    if ratings.by == JUDGE:
        asked = ratings.replies[0].judge or {}
        found["judge"] = {name: asked.get(name) for name in ("model", "base_url", "sampling", "template_sha256")}
    return found


def _kappas(first: Sequence[Rated], second: Sequence[Rated]) -> dict[str, float | None]:
    """Cohen's kappa of two raters over the pairs that both rated: of passing, and of each question."""
    both = [(a, b) for a, b in zip(first, second, strict=True) if a.values is not None and b.values is not None]
    found = {"passes": cohens_kappa([a.passes for a, _ in both], [b.passes for _, b in both])}
    for name in PAIR_QUESTIONS:
        found[name] = cohens_kappa([a.values[name] for a, _ in both], [b.values[name] for _, b in both])  # type: ignore[index]
    return {name: None if one is None else float(one) for name, one in found.items()}


def _lengths(batch: Batch, key: Key) -> dict[str, list[int]]:
    """Characters shown of each model, by item."""
    found: dict[str, list[int]] = {SUBJECT: [], REFERENCE: []}
    for item, row in zip(batch.items, key.items, strict=True):
        for side in "XY":
            found[row[side]].append(item.length(side))
    return found


def _bands(sides: Mapping[str, list[int]], outcomes: Sequence[bool | None]) -> list[dict[str, Any]]:
    """The result by thirds of the pairs' length."""
    totals = [a + b for a, b in zip(sides[SUBJECT], sides[REFERENCE], strict=True)]
    bands = thirds(totals)
    found = []
    for band in BANDS:
        rows = [place for place, one in enumerate(bands) if one == band]
        if rows:
            shown = {"pairs": len(rows), "passes": sum(outcomes[row] is True for row in rows)}
            shown["left_out"] = sum(outcomes[row] is None for row in rows)
            found.append({"band": band, "from": min(totals[row] for row in rows), "to": max(totals[row] for row in rows)} | shown)
    return found


def _warnings(batch: Batch, ratings: Mapping[str, Ratings], orders: Mapping[str, Sequence[str]]) -> list[str]:
    """Judges that seem to answer by the side that a text was shown on."""
    found = []
    for rater, one in ratings.items():
        if one.by != JUDGE:
            continue
        first = second = 0
        for item in batch.items:
            for order in orders[rater]:
                reply = one.final(item.number, order)
                if reply is None or reply.values is None:
                    continue
                x, y = reply.values["x_missing_checks"], reply.values["y_missing_checks"]
                if x != y:
                    lacks_shown_first = x if order == "XY" else y
                    first, second = first + (not lacks_shown_first), second + lacks_shown_first
        if first + second >= POSITION_LEAST and binomial_two_sided(first, first + second) < POSITION_LEVEL:
            found.append(
                f"{rater} prefers a side: of {first + second} replies that find only one answer without its checks, {first} are "
                f"for the one shown first and {second} for the one shown second"
            )
    return found
