"""The worked update that every weighting is tried on: two groups, five rollouts.

group 0: lengths 10, 20, 60 (sum 90), advantages 2/3, -1/3, -1/3. group 1: lengths 5, 25 (sum 30), advantages 1/2, -1/2.
s0 = 100, cap = 200. `MASKED` is the same with the rollout of 60 tokens out of the loss.
"""

import numpy as np

from ablation.training.weightings import weighting
from ablation.training.weightings.rollouts import Rollouts

A = np.array([2 / 3, -1 / 3, -1 / 3, 0.5, -0.5])
L = np.array([10, 20, 60, 5, 25])
GROUP = np.array([0, 0, 0, 1, 1])
WHOLE = Rollouts(A, L, GROUP, np.ones(5, dtype=bool), 100.0, 200)
IN_LOSS = np.array([True, True, False, True, True])
MASKED = Rollouts(np.where(IN_LOSS, A, 0.0), L, GROUP, IN_LOSS, 100.0, 200)
NOTHING = Rollouts(np.zeros(5), L, GROUP, np.zeros(5, dtype=bool), 100.0, 200)
EMPTY = Rollouts(A, np.zeros(5, dtype=int), GROUP, np.ones(5, dtype=bool), 100.0, 200)


def weigh(name, rollouts):
    """The weights, after what must hold for every weighting: finite, float64, and 0 where nothing is in the loss."""
    function = weighting(name)
    for empty in (NOTHING, EMPTY):
        assert np.isfinite(function(empty)).all()
    assert function(NOTHING).tolist() == [0.0] * 5
    found = function(rollouts)
    assert found.dtype == np.float64 and found.shape == (5,)
    return found
