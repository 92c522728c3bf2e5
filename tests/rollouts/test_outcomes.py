import numpy as np
import pytest

from ablation.errors import IncompleteError, IntegrityError
from ablation.plan.model import Loops
from ablation.problems.problem import Problem
from ablation.rollouts.outcomes import outcomes
from ablation.rollouts.store import stage_of

from .build import CAP, CLOSE, END, PROBLEMS, info, rollout

OF = info()
THINK = [21, 22, 23]


def of(*rows):
    return outcomes(stage_of(OF, [rollout(OF, index=i, **row) for i, row in enumerate(rows)]), PROBLEMS, Loops())


def test_every_kind_of_rollout():
    loop = [31, 32, 33, 34, 35, 36] * 8
    found = of(
        dict(ids=[*THINK, CLOSE, 7, END], answer="7", thinking="\u4e2d\u6587 ok"),  # clean
        dict(ids=[*THINK, CLOSE, 8, END], answer="8"),  # wrong
        dict(ids=[*THINK, CLOSE, END], answer=""),  # closed, no answer
        dict(ids=[*THINK, END]),  # ended inside its thinking
        dict(ids=[21, 22] * (CAP // 2)),  # cut inside its thinking, 32 repeats of a unit of two
        dict(ids=[*loop, CLOSE, 7, END], answer="7"),  # right, but the thinking loops
        dict(ids=[*THINK, CLOSE, *range(100, 100 + CAP - 4)], answer="7"),  # graded right, but cut
        dict(ids=[7, END], opens=False, answer="7"),  # no thinking at all
    )
    columns = {
        "correct": [1, 0, 0, 0, 0, 1, 1, 1],
        "no_answer": [0, 0, 1, 1, 1, 0, 0, 0],
        "truncated": [0, 0, 0, 0, 1, 0, 1, 0],
        "finished": [1, 1, 1, 0, 0, 1, 0, 1],
        "stopped_in_thinking": [0, 0, 0, 1, 0, 0, 0, 0],
        "periodic": [0, 0, 0, 0, 1, 1, 0, 0],
        "looping": [0, 0, 0, 0, 1, 1, 0, 0],
        "clean": [1, 0, 0, 0, 0, 0, 0, 1],
        "truncated_or_looping": [0, 0, 0, 0, 1, 1, 1, 0],
        "thinking_length": [3, 3, 3, 4, CAP, 48, 3, 0],
        "weighted_length": [4, 4, 4, 4, CAP, 49, 4, 0],
        "total_tokens": [6, 6, 5, 4, CAP, 51, CAP, 2],
        "loop_period": [0, 0, 0, 0, 2, 6, 0, 0],
        "loop_length": [0, 0, 0, 0, CAP, 48, 0, 0],
    }
    for name, expected in columns.items():
        assert getattr(found, name).astype(int).tolist() == expected, name
    assert found.extracted.tolist() == ["7", "8", None, None, None, "7", "7", "7"]
    assert found.logprob[:7].tolist() == [-0.5] * 7 and np.isnan(found.logprob[7])
    assert found.cjk_share[0] == 0.5
    assert found.cell[0] == "p1@low"


def test_rows_of_several_graders_keep_their_places():
    problems = PROBLEMS | {"root": Problem("root", "sums", "Root of 8?", "math", r"2\sqrt{2}")}
    answers = [
        ("root", r"\boxed{\sqrt{8}}"),
        ("p1", "7"),
        ("root", "no box"),
        ("root", r"\boxed{3}"),
        ("p1", "8"),
        ("root", r"\boxed{8^{1/2}}"),
    ]
    rows = [
        rollout(OF, [*THINK, CLOSE, 7, END], problem=name, index=place, answer=answer)
        for place, (name, answer) in enumerate(answers)
    ]
    found = outcomes(stage_of(OF, rows), problems, Loops())
    assert found.correct.tolist() == [True, True, False, False, False, True]
    assert found.no_answer.tolist() == [False, False, True, False, False, False]
    assert found.extracted.tolist() == [r"\sqrt{8}", "7", None, "3", "8", "8^{1/2}"]


def test_an_answer_inside_thinking_is_never_graded():
    """Case A02: the text of an open thinking holds the right number, and it counts for nothing."""
    found = of(dict(ids=[*THINK, 7, END], thinking="it is 7"))
    assert not found.correct[0] and found.no_answer[0]
    with pytest.raises(IntegrityError, match="its thinking was never closed"):
        of(dict(ids=[*THINK, 7, END], answer="7"))


def test_a_grader_failure_is_not_a_wrong_answer():
    broken = {"p1": Problem("p1", "sums", "3 + 4?", "integer", "see figure")}
    stage = stage_of(OF, [rollout(OF, [21, CLOSE, 7, END], answer="7")])
    with pytest.raises(IncompleteError, match="failed on 1 rollouts: p1@low #0"):
        outcomes(stage, broken, Loops())


def test_unknown_problems_and_other_sources_are_refused():
    stage = stage_of(OF, [rollout(OF, [21, CLOSE, 7, END], answer="7")])
    with pytest.raises(IntegrityError, match="there is no problem `p1`"):
        outcomes(stage, {}, Loops())
    with pytest.raises(IntegrityError, match="source is `sums`"):
        outcomes(stage, {"p1": Problem("p1", "other", "3 + 4?", "integer", "7")}, Loops())


def test_sorting_is_by_key():
    rows = [
        rollout(OF, [21, CLOSE, 7, END], answer="7", problem=p, effort=e, source=PROBLEMS[p].source, index=i)
        for p, e, i in [("p2", "low", 1), ("p1", "xhigh", 0), ("p2", "low", 0), ("p1", "low", 3)]
    ]
    found = outcomes(stage_of(OF, rows), PROBLEMS, Loops()).sorted()
    keys = list(zip(found.problem.tolist(), found.effort.tolist(), found.index.tolist(), strict=True))
    assert keys == [("p1", "low", 3), ("p1", "xhigh", 0), ("p2", "low", 0), ("p2", "low", 1)]
