"""Files of other trainers for tests, and a tokenizer of words that anybody can count by hand."""

from __future__ import annotations

import json
from pathlib import Path

from ablation.seeds import derive_seed
from ablation.study.schedule import rollout_seed
from tests.verdict.study import CAP, CLOSE, DIGITS, END, OPEN

IDS = f"{OPEN},{CLOSE},{END}"
WORDS = ["the", "number", "is", "as", "it", "says", "and", "so", "on", "just", "words", *map(str, range(10))]


def write_tokenizer(folder: Path) -> Path:
    """One token a word; `<think>` 1, `</think>` 2, `<|end|>` 3, digit d is 10 + d, the other words follow from 20 on."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = {str(digit): DIGITS + digit for digit in range(10)}
    words |= {word: 20 + place for place, word in enumerate(WORDS[:11])}
    tags = {"<|unk|>": 0, "<think>": OPEN, "</think>": CLOSE, "<|end|>": END}
    tokenizer = Tokenizer(WordLevel(tags | words, unk_token="<|unk|>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(tag, special=True, normalized=False) for tag in tags])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def given_rows(locked, family="main", stage="sweep", update=0, clean=12, cut=2, logprob=-0.5, cells=None) -> list[dict]:
    """Rows with everything that can be given: `clean` right ones, `cut` truncated, the rest wrong; seeds as the plan's."""
    from ablation.rollouts.schema import Cell

    rows, kinds = [], ["clean"] * clean + ["cut"] * cut
    cells = locked.plan.cells if cells is None else cells
    for place, (problem, effort, index) in enumerate((p, e, i) for p, e in cells for i in range(2)):
        kind = kinds[place] if place < len(kinds) else "wrong"
        gold = int(problem[1:])
        varied = [20 + (7 * position + gold) % 61 for position in range(12 + gold)]
        digit = gold if kind == "clean" else 9
        ids = [100 + position for position in range(CAP)] if kind == "cut" else [*varied, CLOSE, DIGITS + digit, END]
        rows.append(
            {
                "problem": problem,
                "effort": effort,
                "index": index,
                "seed": rollout_seed(locked.plan.families[family].seed, stage, update, Cell(problem, effort), index),
                "prompt_token_ids": [7, gold, OPEN],
                "token_ids": ids,
                "logprobs": [logprob] * len(ids),
                "top_entropy": [0.4] * len(ids),
                "top_mass": [0.99] * len(ids),
                "finish_reason": "length" if kind == "cut" else "stop",
                "thinking": "so",
                "answer": "" if kind == "cut" else str(digit),
            }
        )
    return rows


def spoken(ids: list[int]) -> str:
    """The text of ids of that tokenizer."""
    names = {OPEN: "<think>", CLOSE: "</think>", END: "<|end|>"} | {DIGITS + digit: str(digit) for digit in range(10)}
    return " ".join((names | {20 + place: word for place, word in enumerate(WORDS[:11])})[one] for one in ids)


def own_seed(row: dict) -> int:
    """A seed that is not the plan's."""
    return derive_seed(99, row["problem"], row["effort"], row["index"])


def write_rows(path: Path, rows: list[dict]) -> Path:
    """JSON Lines, or Parquet by the name's ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def bring(locked, rows, name="r.jsonl", **more):
    """Import `rows` as the sweep of the run that the plan has."""
    from ablation.imports.stage import import_stage, make_request

    folder = locked.path.parents[1]
    path = write_rows(folder / name, rows)
    more = {"ids": IDS} | more
    return import_stage(locked, folder / "runs" / "small", make_request(locked, "sweep", None, None, None, files=[path], **more))
