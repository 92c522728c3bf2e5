"""From rows of a file to the rollouts of one stage: every one that the plan asks for, once, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ablation.errors import UsageError
from ablation.imports.columns import FINISH, SETTINGS, Row
from ablation.imports.prompts import digest_of, opens_thinking, problem_of
from ablation.imports.several import each
from ablation.imports.texts import Parts, channels_of, check_no_tags, completion_of, hold_columns, stripped, texts_beside_ids
from ablation.imports.wanted import Wanted
from ablation.problems.render import TokenIds
from ablation.rollouts.imported import SLACK
from ablation.rollouts.schema import Rollout
from ablation.rollouts.thinking import thinking_span
from ablation.study.sampler import Item

NEAR_CAP = 0.01
"""With `--finish-by-count` a text whose token count is this near to the cap was cut."""


@dataclass(frozen=True)
class Read:
    """The rollouts, in the order of `Wanted.items`, and what is known of them: the fields of `rollouts.imported`."""

    rollouts: list[Rollout]
    known: dict[str, Any]


def read_rollouts(rows: Sequence[Row], wanted: Wanted) -> Read:
    """Check every row and put it in its place. Raises `UsageError` naming file and line."""
    first = rows[0]
    placed = _placed(rows, wanted)
    own_ids, seeds = "token_ids" in first, "seed" in first
    if not own_ids and wanted.tokens.path is None:
        raise first.error(
            "token_ids: is missing, and there is no tokenizer to encode the text with",
            "Give the sampled ids, or name the model's tokenizer: --tokenizer FOLDER (with tokenizer.json).",
        )
    if not own_ids and ("logprobs" in first or "top_entropy" in first):
        raise first.error("logprobs: are given without token_ids, so nothing says which tokens they are of", "Give the ids, too.")
    if not (own_ids or "finish_reason" in first or wanted.by_count):
        raise first.error(
            "finish_reason: is missing: nothing says whether this rollout ended or was cut",
            f"Add it (stop or length). --finish-by-count takes texts within {NEAR_CAP:.0%} of the cap as cut, and is marked.",
        )
    opens_thinking(first, wanted)  # what every row lacks is said once
    numbered = enumerate(zip(wanted.items, placed, strict=True), 1)
    rollouts = each(numbered, lambda one: _rollout(one[1][1], one[1][0], wanted, one[0]))
    seen: dict[int, Row] = {}
    for row in placed if seeds else ():
        if row.get("seed") in seen:
            raise row.error(f"seed: {row.get('seed')} is that of {seen[row.get('seed')].where}, too", "Each rollout has its own.")
        seen[row.get("seed")] = row
    others = [item for one, item in zip(rollouts, wanted.items, strict=True) if seeds and one.seed != item.seed]
    of_plan = seeds and not others
    if others and len(others) < len(placed):
        row = placed[wanted.items.index(others[0])]
        raise row.error(
            f"seed: {row.get('seed')} is not the plan's, which is {others[0].seed}; {len(others)} of {len(placed)} rows differ",
            "All seeds are the plan's, or none is: `ablation import --list` prints them.",
        )
    with_ids = "prompt_token_ids" in first or "prompt_sha256" in first
    known = {
        "token_ids": "given" if own_ids else "retokenized",
        "logprobs": "logprobs" in first,
        "top_entropy": "top_entropy" in first,
        "seeds": "plan" if of_plan else "own" if seeds else "absent",
        "prompts": "ids" if with_ids else "text" if "prompt" in first else "absent",
        "texts": "held" if not own_ids or wanted.tokens.at_hand else "given",
        "finish": "given" if "finish_reason" in first else "by_ids" if own_ids else "by_count",
        "tokenizer_sha256": None if own_ids else wanted.tokens.sha256,
        "redacted": sum(one.thinking_text is None for one in rollouts),
    }
    return Read(rollouts, known)


def _placed(rows: Sequence[Row], wanted: Wanted) -> list[Row]:
    """The row of each item."""
    plan, found = wanted.plan, dict[tuple[str, str, int], Row]()
    items = {(item.cell.problem, item.cell.effort, item.index) for item in wanted.items}
    cells = {(problem, effort) for problem, effort, _ in items}
    counts: dict[tuple[str, str], int] = {}

    def place(row: Row) -> None:
        for name in SETTINGS:
            own, value = getattr(plan.sampling, name), row.get(name)
            if value is not None and value != own and not (name == "top_k" and value == -1 and own == 0):
                raise row.error(f"{name}: was sampled with {value}; the plan says {own}", "Only rollouts of the plan count.")
        problem, effort = problem_of(row, wanted), row.get("effort") or wanted.effort
        efforts = list(dict.fromkeys(effort for _, effort in plan.cells))
        if effort is None and len(efforts) == 1:
            effort = efforts[0]
        if effort is None:
            raise row.error("effort: is missing", f"Add it ({', '.join(efforts)}), or say --effort for the whole file.")
        if effort not in efforts:
            raise row.error(f"effort: found `{effort}`; the plan's are {', '.join(efforts)}")
        if (problem, effort) not in cells:
            raise row.error(f"{problem}@{effort} is no cell of {wanted.name}")
        if "index" not in row and "problem" in row:
            raise row.error("index: is missing", "Add it: 0, 1, ... within each problem and effort.")
        index = row.get("index") if "index" in row else counts.get((problem, effort), 0)
        counts[problem, effort] = counts.get((problem, effort), 0) + 1
        key = (problem, effort, index)
        if key not in items:
            most = plan.training.rollouts_per_cell
            raise row.error(
                f"{problem}@{effort} #{index} is one too many: the plan has {most} rollouts a cell, #0 to #{most - 1}"
            )
        if key in found:
            raise row.error(f"{problem}@{effort} #{index} is there already, at {found[key].where}")
        found[key] = row

    each(rows, place)
    lacking = [item for item in wanted.items if (item.cell.problem, item.cell.effort, item.index) not in found]
    if lacking:
        one = lacking[0]
        raise UsageError(
            f"{rows[-1].where.rpartition(':')[0]}: has {len(found)} of the {len(wanted.items)} rollouts of {wanted.name}; "
            f"lacks, for instance, {one.cell.id} #{one.index}",
            hint="A stage is imported whole: name all its files in one command.",
        )
    return [found[item.cell.problem, item.cell.effort, item.index] for item in wanted.items]


def _rollout(row: Row, item: Item, wanted: Wanted, number: int) -> Rollout:
    family, arm, stage, update = wanted.who
    shown = next((name for name in ("thinking", "completion", "token_ids") if row.get(name)), None)
    if row.get("thinking_redacted") and shown is not None:
        raise row.differ(shown, row.get(shown), "thinking_redacted", True)
    opens = not row.get("thinking_redacted") and opens_thinking(row, wanted)  # a redacted row gets both tags, so none is hidden
    ids, thinking, answer, finish = (_given if "token_ids" in row else _encoded)(row, wanted, opens)
    absent = [float("nan")] * len(ids)
    for name in ("logprobs", "top_entropy", "top_mass"):
        if name in row and len(row.get(name)) != len(ids):
            raise row.error(f"{name}: has {len(row.get(name))} numbers for {len(ids)} tokens")
    if "top_entropy" in row and "top_mass" not in row:
        raise row.error("top_mass: is missing", "It goes with top_entropy: the probability that those tokens hold.")
    _check_entropy(row, wanted.plan.sampling.top_logprobs)
    sha256, length = digest_of(row)
    return Rollout(
        family=family,
        arm=arm,
        stage=stage,
        update=update,
        problem=item.cell.problem,
        effort=item.cell.effort,
        source=wanted.problems[item.cell.problem].source,
        index=item.index,
        seed=row.get("seed") if "seed" in row else -number,
        prompt_sha256=sha256,
        prompt_length=length,
        prompt_opens_thinking=opens,
        token_ids=ids,
        logprobs=row.get("logprobs") or absent,
        top_entropy=row.get("top_entropy") or absent,
        top_mass=row.get("top_mass") or absent,
        finish_reason=finish,
        thinking_text=thinking,
        answer_text=answer,
        stop_id=ids[-1] if finish == "stop" else None,
    )


def _check_entropy(row: Row, top: int) -> None:
    """The entropy of `top` renormalized probabilities is at most ln(top); a larger one is of more tokens than these."""
    highest = max(row.get("top_entropy") or [0.0])
    if highest > math.log(top) + 1e-4:
        raise row.error(
            f"top_entropy: found {highest:g}; that of {top} tokens is at most ln({top}) = {math.log(top):.4g}",
            f"It is of the {top} most likely tokens, their probabilities divided by their sum (sampling.top_logprobs).",
        )


def _given(row: Row, wanted: Wanted, opens: bool) -> tuple[list[int], str | None, str, str]:
    """(ids, thinking, answer, finish reason) of a row with the sampled ids."""
    ids, frame, cap = row.get("token_ids"), wanted.tokens.ids, wanted.plan.sampling.max_tokens
    if not ids:
        raise row.error("token_ids: is empty")
    if len(ids) > cap:
        raise row.error(f"token_ids: has {len(ids)} tokens; the plan's cap is {cap}")
    ended = ids[-1] in frame.end
    early = next((place for place, one in enumerate(ids[:-1]) if one in frame.end), None)
    if early is not None:
        raise row.error(f"token_ids: goes on after the end token {ids[early]} at place {early}")
    if not ended and len(ids) != cap:
        raise row.error(
            f"token_ids: {len(ids)} tokens of {cap} that do not end with an end token ({', '.join(map(str, frame.end))})",
            "Give the end token where it was sampled. A rollout that was cut has exactly the cap's tokens.",
        )
    right = "stop" if ended else "length"
    if "finish_reason" in row and _finish(row) != right:
        raise row.error(f"finish_reason: found `{row.get('finish_reason')}`, but by its ids this rollout's is `{right}`")
    span = thinking_span(ids, prompt_opens_thinking=opens, open_id=frame.open, close_id=frame.close)
    _check_open(row, wanted, span.opened, frame.close in ids)
    thinking, answer = texts_beside_ids(row, wanted, opens, span)
    return ids, thinking, answer, right


def _encoded(row: Row, wanted: Wanted, opens: bool) -> tuple[list[int], str | None, str, str]:
    """(ids, thinking, answer, finish reason) of a row that is encoded again; of redacted thinking (None) there are no ids."""
    frame, tags, cap = wanted.tokens.ids, wanted.plan.model.tokens, wanted.plan.sampling.max_tokens

    redacted = row.get("thinking_redacted") is True

    def encode(text: str) -> tuple[list[int], list[tuple[int, int]]]:
        try:
            return wanted.tokens.encode(text)
        except ValueError as error:
            raise row.error(str(error), "--tokenizer must name the tokenizer of the model that wrote this.") from None

    channels = channels_of(completion_of(row)) if "completion" in row else None
    if channels is not None:
        hold_columns(row, channels, "completion")
        thinking, answer = channels.thinking or "", channels.answer or ""
        ended_in_text = stripped(completion_of(row), ("<|return|>", *tags.end))[1]
        ids = _between_tags(encode, frame, opens, channels)
    elif "completion" in row:
        text, ended_in_text = stripped(completion_of(row), tags.end)
        ids, offsets = encode(text)
        span = thinking_span(ids, prompt_opens_thinking=opens, open_id=frame.open, close_id=frame.close)
        _check_open(row, wanted, span.opened, frame.close in ids)

        def cut(start: int, stop: int) -> str:
            return text[offsets[start][0] : offsets[stop - 1][1]] if stop > start else ""

        thinking = cut(span.start, span.stop)
        answer = cut(span.answer_start, len(ids)) if span.closed or not span.opened else ""
        hold_columns(row, Parts(thinking, answer), "completion")
    elif redacted or "thinking" in row or "answer" in row:
        check_no_tags(row, wanted)
        thinking, (answer, ended_in_text) = row.get("thinking") or "", stripped(row.get("answer") or "", tags.end)
        before = "" if redacted else thinking or None
        ids = _between_tags(encode, frame, opens, Parts(before, answer if "answer" in row else None))
    else:
        raise row.error("completion: is missing", "Add completion (with its tags), or thinking and answer, or token_ids.")
    early = next((one for one in ids if one in frame.end), None)
    if early is not None:
        raise row.error(f"the text goes on after the end token {early}")
    by_count = "stop" if ended_in_text or len(ids) < cap * (1 - NEAR_CAP) else "length"
    finish = _finish(row) if "finish_reason" in row else by_count
    if finish == "length" and ended_in_text:
        raise row.error("finish_reason: found `length`, but the text ends with an end token")
    count = len(ids) + (finish == "stop")
    if count > cap * (1 + SLACK) or (finish == "length" and count < cap * (1 - SLACK) and not redacted):
        raise row.error(
            f"this text is {count} tokens long and ended with `{finish}`; the plan's cap is {cap}",
            "It was sampled with another cap, or --tokenizer is not the model's.",
        )
    return ([*ids, frame.end[0]] if finish == "stop" else ids), None if redacted else thinking, answer, finish


def _between_tags(encode: Callable, frame: TokenIds, opens: bool, parts: Parts) -> list[int]:
    """The ids of thinking and answer with the tags that belong there; without an answer the thinking was never closed."""
    ids = [] if opens or parts.thinking is None else [frame.open]
    ids = [*ids, *encode(parts.thinking or "")[0]]
    if parts.answer is None:
        return ids
    return [*ids, *([frame.close] if opens or parts.thinking is not None else []), *encode(parts.answer)[0]]


def _check_open(row: Row, wanted: Wanted, opened: bool, closes: bool) -> None:
    if closes and not opened:
        raise row.error(
            f"closes a thinking (`{wanted.plan.model.tokens.close}`) that neither it nor its prompt opened",
            "If the prompt ends with the open tag, say --prompt-opens-thinking, or add the column prompt_opens_thinking.",
        )


def _finish(row: Row) -> str:
    found = row.get("finish_reason")
    if found not in FINISH:
        raise row.error(
            f"finish_reason: found `{found}`; it must be stop or length", "A call that failed is no rollout: sample it again."
        )
    return FINISH[found]
