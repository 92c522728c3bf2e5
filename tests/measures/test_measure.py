import json

import numpy as np

from ablation.measures.measure import measure

from .build import outcomes


def test_counts_and_means():
    found = measure(
        outcomes(
            [
                ("a", "low", 0, 1, 10, 12, {"logprob": -0.2, "cjk_share": 0.5}),
                ("a", "low", 1, 1, 30, 32, {"periodic": True, "logprob": -0.1}),
                ("a", "xhigh", 0, 0, 64, 64, {"truncated": True, "strong": True, "no_answer": True, "logprob": -0.6}),
                ("b", "low", 0, 1, 0, 3, {"logprob": np.nan, "source": "words", "cjk_share": 0.25}),
            ]
        )
    )
    expected = {
        "rollouts": 4,
        "cells": 3,
        "correct": 3,
        "clean": 2,
        "truncated": 1,
        "looping": 2,
        "truncated_or_looping": 2,
        "no_answer": 1,
        "periodic": 1,
        "strong": 1,
        "finished": 3,
        "with_thinking": 3,
        "total_tokens": 111,
        "thinking_tokens": 104,
        "tokens_per_correct": 37.0,
        "clean_length": 5.0,
        "cjk_share": 0.375,
        "top20_entropy": 0.25,
        "logprob": -0.3,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["by_effort"]["xhigh"]["truncated"] == 1
    assert found["by_effort"]["low"]["rollouts"] == 3
    assert found["by_source"]["words"]["logprob"] is None
    json.dumps(found, allow_nan=False)


def test_over_nothing_there_is_no_mean():
    found = measure(outcomes([("a", "low", 0, 0, 0, 3, {"logprob": np.nan})]))
    for name in ("tokens_per_correct", "clean_length", "logprob", "cjk_share"):
        assert found[name] is None


def test_a_logprob_that_is_not_finite_is_no_number():
    found = measure(outcomes([("a", "low", 0, 1, 5, 6, {"logprob": -np.inf}), ("b", "low", 0, 1, 5, 6)]))
    assert found["logprob"] is None
