"""Rows as the protocol's data: shifted by one, nothing on the prompt, and divided by nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ablation.policy.base import ScoreRow, TrainRow
from ablation.policy.tinker.data import Reductions, scoring_data, token_logprobs, training_data

pytest.importorskip("tinker", reason="the client is not installed")

ROW = TrainRow((7, 8, 9), np.array([4, 5]), np.array([-1.0, -2.0]), np.array([0.5, -1.5]))


def values(datum, name):
    return list(datum.loss_fn_inputs[name].data)


def test_a_row_is_shifted_by_one_and_its_prompt_has_no_weight():
    (datum,) = training_data([ROW], Reductions())
    assert datum.model_input.to_ints() == [7, 8, 9, 4]
    assert values(datum, "target_tokens") == [8, 9, 4, 5]
    assert values(datum, "logprobs") == [0.0, 0.0, -1.0, -2.0]
    assert values(datum, "advantages") == [0.0, 0.0, 0.5, -1.5]


def test_what_a_service_divides_by_is_multiplied_back():
    # 4 targets in the row and 3 rows before the step
    data = training_data([ROW, ROW, ROW], Reductions("mean", "mean"))
    assert values(data[0], "advantages") == [0.0, 0.0, 6.0, -18.0]
    assert values(training_data([ROW, ROW, ROW], Reductions("sum", "mean"))[0], "advantages") == [0.0, 0.0, 1.5, -4.5]


def test_a_token_without_a_weight_needs_no_logprob():
    row = TrainRow((7,), np.array([4, 5]), np.array([-np.inf, -2.0]), np.array([0.0, 1.0]))
    assert values(training_data([row], Reductions())[0], "logprobs") == [0.0, -2.0]


def test_scores_are_those_behind_the_prompt():
    rows = [ScoreRow((7, 8, 9), np.array([4, 5])), ScoreRow((7,), np.array([4]))]
    assert values(scoring_data(rows)[0], "weights") == [0.0, 0.0, 1.0, 1.0]
    told = [[-9.0, -8.0, -0.5, -0.25], [-3.0]]
    output = SimpleNamespace(loss_fn_outputs=[{"logprobs": SimpleNamespace(data=one)} for one in told])
    assert [one.tolist() for one in token_logprobs(rows, output)] == [[-0.5, -0.25], [-3.0]]


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ([], "0 answers for 1 rows"),
        ([{"loss": None}], "an answer without logprobs; it has loss"),
        ([{"logprobs": SimpleNamespace(data=[1.0])}], "1 logprobs for 4 targets"),
    ],
)
def test_an_answer_with_less_is_refused(outputs, said):
    with pytest.raises(ValueError, match=said):
        token_logprobs([ROW], SimpleNamespace(loss_fn_outputs=outputs))
