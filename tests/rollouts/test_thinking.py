import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.rollouts.store import stage_of
from ablation.rollouts.thinking import Span, split, thinking_span

from .build import CAP, CLOSE, END, OPEN, info, rollout


def span(ids, opens):
    return thinking_span(ids, prompt_opens_thinking=opens, open_id=OPEN, close_id=CLOSE)


@pytest.mark.parametrize(
    ("ids", "opens", "expected", "answer"),
    [
        # case C01: prompt-opened; not opened and no tag; thinking switched off in the prompt looks the same
        ([21, 22, CLOSE, 5, END], True, Span(0, 2, opened=True, closed=True), [5, END]),
        ([5, END], False, Span(0, 0, opened=False, closed=False), [5, END]),
        ([OPEN, 21, 22, CLOSE, 5, END], False, Span(1, 3, opened=True, closed=True), [5, END]),
        # case C02: never closed, ended by the model or by the cap
        ([21, 22, END], True, Span(0, 3, opened=True, closed=False), []),
        ([21, 22], True, Span(0, 2, opened=True, closed=False), []),
        # closed at once; closed twice; opened after text; a close without an open
        ([CLOSE, 5, END], True, Span(0, 0, opened=True, closed=True), [5, END]),
        ([21, CLOSE, 5, CLOSE, END], True, Span(0, 1, opened=True, closed=True), [5, CLOSE, END]),
        ([9, OPEN, 21, CLOSE, 5, END], False, Span(2, 3, opened=True, closed=True), [5, END]),
        ([5, CLOSE, END], False, Span(0, 0, opened=False, closed=False), [5, CLOSE, END]),
        ([21, OPEN, 22, CLOSE, END], True, Span(0, 3, opened=True, closed=True), [END]),
        ([5, OPEN], False, Span(2, 2, opened=True, closed=False), []),
    ],
)
def test_one_rollout(ids, opens, expected, answer):
    found = span(ids, opens)
    assert found == expected
    assert ids[found.answer_start :] == answer


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.lists(st.sampled_from([OPEN, CLOSE, 5, 6]), max_size=7), st.booleans()), min_size=1, max_size=6))
def test_a_stage_is_its_rollouts_one_by_one(rows):
    of = info()
    stage = stage_of(of, [rollout(of, [*ids, END], index=i, opens=opens) for i, (ids, opens) in enumerate(rows)])
    thinking = split(stage)
    for i, (ids, opens) in enumerate(rows):
        one = span([*ids, END], opens)
        taken = stage.token_ids[thinking.take[thinking.offsets[i] : thinking.offsets[i + 1]]]
        assert taken.tolist() == [*ids, END][one.start : one.stop]
        assert (thinking.opened[i], thinking.closed[i]) == (one.opened, one.closed)


def test_means_are_over_thinking_tokens_and_do_not_depend_on_the_rows_around():
    of = info()
    first = rollout(of, [21, 22, CLOSE, 5, END], logprobs=[-1.0, -0.5, -9.0, -9.0, -9.0])
    second = rollout(of, [5, END], index=1, opens=False)
    third = rollout(of, [21] * CAP, index=2, logprobs=list(np.linspace(-1, -0.1, CAP)))
    stage = stage_of(of, [first, second, third])
    means = split(stage).mean(stage.logprobs)
    assert means[0] == -0.75
    assert np.isnan(means[1])
    alone = stage_of(of, [third])
    assert split(alone).mean(alone.logprobs)[0] == means[2]


def test_a_logprob_that_is_not_finite_is_seen():
    of = info()
    stage = stage_of(of, [rollout(of, [21, 22, CLOSE, 5, END], logprobs=[-1.0, -np.inf, 0.0, 0.0, 0.0])])
    assert split(stage).mean(stage.logprobs)[0] == -np.inf


@settings(max_examples=100, deadline=None)
@given(st.floats(-20, 0), st.integers(1, CAP - 2), st.integers(1, CAP - 2))
def test_the_mean_of_equal_numbers_is_that_number(value, first, second):
    of = info()
    rows = [rollout(of, [21] * n + [CLOSE, END], index=i, logprob=value) for i, n in enumerate((first, second))]
    stage = stage_of(of, rows)
    assert split(stage).mean(stage.logprobs).tolist() == [value, value]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=12), st.integers(1, 20))
def test_means_do_not_depend_on_what_is_summed_together(rows, block):
    """`rows`: thinking tokens, and other tokens before and after them."""
    of = info()
    random = np.random.default_rng(block)
    written = []
    for index, (count, more) in enumerate(rows):
        ids = [*[5] * more, OPEN, *[6] * count, CLOSE, *[7] * more, END]
        written.append(rollout(of, ids, index=index, opens=False, logprobs=np.log(random.random(len(ids))).tolist()))
    stage = stage_of(of, written)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablation.rollouts.thinking._BLOCK", block)
        found = split(stage).mean(stage.logprobs)
    for row, one in enumerate(written):
        alone = stage_of(of, [one])
        assert np.array_equal(split(alone).mean(alone.logprobs), found[row : row + 1], equal_nan=True)
