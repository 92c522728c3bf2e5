"""The measures of a stage's texts: 348 traces of 32,768 tokens, in the process's own CPU time; and how it grows to a trace of a million."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import chain

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from ablation.plan.model import Loops
from ablation.rollouts.cjk import cjk_share, visible_cjk
from ablation.rollouts.loops import find_loops

from ..rollouts.loop_texts import KINDS, looping, natural, nearly_looping, texts
from ..rollouts.loop_texts import LOOPS as STALE
from .row import Row

TRACES, TOKENS, VOCABULARY = 348, 32_768, 150_000
LIMIT, EXPONENT = 3.0, 1.1
WORDS = 20_000


def made_up(rng: np.random.Generator, traces: int, tokens: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Token ids that are as unevenly frequent as words, the second half of every tenth trace a loop; and texts of 3.5 characters a
    token, some of it Chinese."""
    ids = (rng.zipf(1.2, size=traces * tokens) % VOCABULARY).astype(np.int32)
    for row in range(0, traces, 10):
        unit, half = int(rng.integers(5, 400)), row * tokens + tokens // 2
        ids[half : (row + 1) * tokens] = np.resize(ids[half : half + unit], tokens - tokens // 2)
    letters = np.array(list("abcdefghijklmnop 漢字"))
    words = ["".join(letters[rng.integers(0, len(letters), 7)]) for _ in range(WORDS)]
    texts = ["".join(words[place] for place in rng.integers(0, WORDS, tokens // 2)) for _ in range(traces)]
    return ids, np.arange(traces + 1) * tokens, texts


def cpu_seconds(ids: np.ndarray, offsets: np.ndarray, texts: list[str]) -> float:
    began = time.process_time()
    find_loops(ids, offsets, Loops())
    cjk_share(texts)
    visible_cjk([text[-2000:] for text in texts])
    return time.process_time() - began


def rates() -> list[Row]:
    """How many of the generated loops are found, and how many of the regular texts are called one, by words and by characters."""
    rng = random.Random(11)
    loop = [looping(rng) for _ in range(500)] + [nearly_looping(rng) for _ in range(200)]
    regular = [text for _ in range(100) for text in natural(rng)]
    found = []
    for unit, settings in (("words", Loops()), ("characters", Loops(gram=24))):
        counts = []
        for written in (loop, regular):
            pieces = [text.split() if unit == "words" else text for text in written]
            known: dict[str, int] = {}
            ids = np.array([known.setdefault(piece, len(known)) for one in pieces for piece in one], dtype=np.int32)
            report = find_loops(ids, np.cumsum([0] + [len(one) for one in pieces]), settings)
            counts.append(int((report.periodic | report.strong).sum()))
        met = counts == [len(loop), 0]
        what = f"loops found of {len(loop)}; called so of {len(regular)} regular texts, by {unit}"
        found.append(Row(what, f"{counts[0]}; {counts[1]}", f"{len(loop)}; 0", met))
    return found


def kinds() -> list[Row]:
    """Texts of known kind by words, by BPE and by characters, with the plan's novelty: what each is called, and whether all agree."""
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer = ByteLevel()
    bpe.train_from_iterator((text for kind in KINDS for text in texts(kind, 3)), BpeTrainer(vocab_size=2000))
    units: dict[str, Callable[[str], list]] = {"words": str.split, "BPE": lambda text: bpe.encode(text).ids, "characters": list}
    found, agreed, wrong, total = [], 0, 0, 0
    for kind in KINDS:
        made = list(texts(kind, 34))
        said = []
        for split in units.values():
            known: dict[object, int] = {}
            pieces = [[known.setdefault(piece, len(known)) for piece in split(text)] for text in made]
            ids, offsets = (
                np.array(list(chain.from_iterable(pieces)), dtype=np.int64),
                np.cumsum([0] + [len(one) for one in pieces]),
            )
            report = find_loops(ids, offsets, Loops(novelty=0.15), made)
            said.append(report.periodic | report.strong)
        errors = (np.array(said) != (kind in STALE)).sum(axis=1)
        agreed += int((np.array(said) == said[0]).all(axis=0).sum())
        wrong, total = wrong + int(errors.sum()), total + len(made)
        what = "says nothing new" if kind in STALE else "is regular by nature"
        found.append(Row(f"... {kind}: {what}; wrong by {', '.join(units)}", ", ".join(map(str, errors)), "0", not errors.any()))
    what = f"{total} texts of known kind, with novelty: wrong by any of three units; the same by all"
    return [Row(what, f"{wrong}; {agreed}", f"0; {total}", (wrong, agreed) == (0, total)), *found]


def rows() -> list[Row]:
    rng = np.random.default_rng(0)
    stage = made_up(rng, TRACES, TOKENS)
    seconds = min(cpu_seconds(*stage) for _ in range(3))
    points = []
    for traces in (1, 4, 16, 31):
        ids, offsets, written = made_up(rng, traces, TOKENS)
        one = (ids, offsets[[0, -1]], ["".join(written)])  # the same tokens as one trace
        points.append((len(ids), min(cpu_seconds(*one) for _ in range(5))))
    exponent = np.polyfit(*np.log(np.array(points)).T, 1)[0]
    return [
        Row("loops and CJK of 348 traces of 32,768 tokens, CPU", f"{seconds:.1f} s", f"<= {LIMIT:.0f} s", seconds <= LIMIT),
        Row(
            "... growth with the length of one trace, 33k to 1M tokens",
            f"n^{exponent:.2f}",
            f"<= n^{EXPONENT}",
            exponent <= EXPONENT,
        ),
        *rates(),
        *kinds(),
    ]
