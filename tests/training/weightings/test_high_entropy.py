from dataclasses import replace

import numpy as np
import pytest

from ablation.training.weightings.high_entropy import threshold
from ablation.training.weightings.high_entropy import weigh as function

from .worked import MASKED, WHOLE, A, weigh


def test_a_fifth_of_all_tokens_keeps_the_weight_that_dapo_gives_it():
    # 120 tokens, so 24 count: 0.59 down to 0.36 in the rollout of 60, all above 0.25; Lbar = 24
    found = weigh("high_entropy", WHOLE)
    assert found[2].tolist() == pytest.approx([0.0] * 36 + [-1 / 3 * 100 / 24] * 24)
    assert not any(one.any() for row, one in enumerate(found) if row != 2)


def test_a_rollout_out_of_the_loss_is_not_ranked():
    # 60 tokens, so 12 count; Lbar = 15. 0.24 to 0.20 are in the rollout of 25 alone, 0.19 to 0.16 there and in that of 20: the
    # twelfth highest is one of two of 0.16, and both count
    found = weigh("high_entropy", MASKED)
    assert [np.count_nonzero(one) for one in found] == [0, 4, 0, 0, 9]
    assert found[1][-1] == pytest.approx(A[1] * 100 / 15)
    assert found[4][-1] == pytest.approx(A[4] * 100 / 15)


def test_the_threshold_by_hand():
    assert threshold([np.array([0.1, 0.5]), np.array([0.9, 0.3, 0.2])]) == 0.9  # one of five
    assert threshold([np.array([0.1, 0.5]), np.array([0.9, 0.3, 0.2, 0.0])]) == 0.5  # 1.2 of six, rounded up
    assert threshold([]) == np.inf


def test_without_entropies_it_is_a_bug():
    with pytest.raises(ValueError, match="entropy"):
        function(replace(WHOLE, entropy=[]))
