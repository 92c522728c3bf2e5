from __future__ import annotations

import numpy as np
import pytest

from ablation.policy.base import not_as_asked

END = (6, 9)


@pytest.mark.parametrize(
    ("ids", "reason", "words"),
    [
        ([1, 2, 9], "stop", None),
        ([1, 2, 3, 4], "length", None),
        ([1, 2, 3, 6], "length", None),  # the last token that was allowed, and an end token
        ([], "stop", "0 tokens where 1 to 4 were asked for"),
        ([1, 2, 3, 4, 6], "stop", "5 tokens where 1 to 4 were asked for"),
        ([1, 2], "stop", "stopped without one of the plan's end tokens"),
        ([1, 2], "length", "cut off at 2 of 4 tokens"),
        ([1, 6], "abort", "ended for the reason `abort`"),
        ([1, 6, 2, 9], "stop", "went on after an end token"),
    ],
)
def test_a_rollout_that_was_given_back_ends_as_it_says(ids, reason, words):
    found = not_as_asked(np.array(ids, dtype=np.int32), reason, END, 4)
    assert (found is None) if words is None else (words in found)
