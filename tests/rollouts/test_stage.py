"""The checks of a stage against a reference that looks at one rollout after the other, on stages with all sorts of faults."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.errors import IntegrityError
from ablation.problems.grade import grade
from ablation.rollouts.columns import Coded
from ablation.rollouts.grades import grade_rows
from ablation.rollouts.schema import StageInfo
from ablation.rollouts.stage import Stage, check_stage
from ablation.rollouts.store import stage_of
from ablation.rollouts.thinking import split

from .build import CLOSE, END, END2, PROBLEMS, info, rollout

CAP = 4
RETOKENIZED = {"name": "imported", "token_ids": "retokenized"}


def reference(stage: Stage) -> str | None:
    """What is wrong, in the order in which it is looked for."""
    keys = list(zip(stage.problem, stage.effort, stage.index.tolist(), strict=True))
    for (problem, effort, index), count in Counter(keys).items():
        if count > 1:
            return f"{problem}@{effort} #{index} is there more than once"
    names = [f"{problem}@{effort} #{index}" for problem, effort, index in keys]
    seeds = stage.seed.tolist()
    for seed in sorted(seeds):
        rows = [row for row, one in enumerate(seeds) if one == seed]
        if len(rows) > 1:
            return f"rollouts {names[rows[0]]} and {names[rows[1]]} have the same seed"
    tokens = [stage.token_ids[a:b].tolist() for a, b in zip(stage.offsets[:-1], stage.offsets[1:], strict=True)]
    ends = stage.info.end_ids
    for name, ids in zip(names, tokens, strict=True):
        if any(one in ends for one in ids[:-1]):
            return f"{name} goes on after an end token"
    slack = 0.1 if stage.info.engine == RETOKENIZED else 0
    for name, ids, reason in zip(names, tokens, stage.finish_reason, strict=True):
        if len(ids) > CAP * (1 + slack):
            return f"{name} has {len(ids)} tokens, more than the cap"
        right = "stop" if ids[-1] in ends else "length" if len(ids) >= CAP * (1 - slack) else "neither"
        if reason != right:
            return f"{name} has finish reason `{reason}`"
    return None


@st.composite
def stages(draw) -> Stage:
    """A right stage, and up to two faults put into its columns."""
    of: StageInfo = info(cap=CAP)
    if draw(st.booleans()):
        of = replace(of, engine=RETOKENIZED)
    rows = []
    for place in range(draw(st.integers(1, 5))):
        ids = draw(st.sampled_from([[5, END], [5, 6, CLOSE, END2], [5, 6, 7, 8], [END]]))
        rows.append(rollout(of, ids, problem=f"p{place % 3}", effort="lh"[place % 2], index=place // 6, seed=10 + place))
    stage = stage_of(of, rows)
    row = st.integers(0, len(rows) - 1)
    for fault in draw(st.lists(st.sampled_from(["key", "seed", "token", "reason"]), max_size=2)):
        one, other = draw(row), draw(row)
        if fault == "key":
            for name in ("problem", "effort", "index"):
                column = list(getattr(stage, name))
                column[one] = column[other]
                new = np.array(column) if name == "index" else coded(column)
                stage = replace(stage, **{name: new})
        elif fault == "seed":
            seed = stage.seed.copy()
            seed[one] = seed[other]
            stage = replace(stage, seed=seed)
        elif fault == "token":
            ids = stage.token_ids.copy()
            ids[draw(st.integers(0, len(ids) - 1))] = draw(st.sampled_from([9, END]))
            stage = replace(stage, token_ids=ids)
        else:
            reasons = list(stage.finish_reason)
            reasons[one] = draw(st.sampled_from(["stop", "length", "other"]))
            stage = replace(stage, finish_reason=coded(reasons))
    return stage


def coded(rows: list[str]) -> Coded[str]:
    return Coded.sorted(np.arange(len(rows)), rows)


@settings(max_examples=300)
@given(stages())
def test_the_same_fault_is_named_as_row_by_row(stage):
    expected = reference(stage)
    if expected is None:
        check_stage(stage, "here")
        return
    with pytest.raises(IntegrityError) as error:
        check_stage(stage, "here")
    assert expected in error.value.message


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(list(PROBLEMS)), st.sampled_from(["4", "7", "9", " 7.", "no", ""]), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_grades_are_those_of_each_answer_by_itself(rows):
    of = info()
    written = [
        rollout(
            of,
            [5, CLOSE, 7, END] if closed else [5, END],
            problem=name,
            source=PROBLEMS[name].source,
            index=index,
            answer=text if closed else "",
        )
        for index, (name, text, closed) in enumerate(rows)
    ]
    stage = stage_of(of, written)
    assert split(stage).closed.tolist() == [closed for *_, closed in rows]
    expected = [grade(PROBLEMS[name], text) if closed else None for name, text, closed in rows]
    assert grade_rows(stage, PROBLEMS) == expected
    assert [stage.problem.values[cell // len(stage.effort.values)] for cell in stage.cell] == [name for name, *_ in rows]
    assert stage.by_key.tolist() == sorted(range(len(rows)), key=lambda row: (rows[row][0], row))
