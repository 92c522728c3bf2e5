"""The worked update that every weighting is tried on: two groups, five rollouts.

group 0: lengths 10, 20, 60 (sum 90), advantages 2/3, -1/3, -1/3. group 1: lengths 5, 25 (sum 30), advantages 1/2, -1/2.
s0 = 100, cap = 200, entropies rise by 0.01 nats a token. `MASKED` is the same with the rollout of 60 tokens out of the loss.
"""

from dataclasses import replace

import numpy as np

from ablation.training.weightings import weighting
from ablation.training.weightings.rollouts import Rollouts

A = np.array([2 / 3, -1 / 3, -1 / 3, 0.5, -0.5])
L = np.array([10, 20, 60, 5, 25])
GROUP = np.array([0, 0, 0, 1, 1])
ENTROPY = [np.arange(length) / 100 for length in L]  # nats: 0, 0.01, 0.02 ... in each rollout
WHOLE = Rollouts(A, L, GROUP, np.ones(5, dtype=bool), 100.0, 200, ENTROPY)
IN_LOSS = np.array([True, True, False, True, True])
MASKED = Rollouts(np.where(IN_LOSS, A, 0.0), L, GROUP, IN_LOSS, 100.0, 200, ENTROPY)
NOTHING = Rollouts(np.zeros(5), L, GROUP, np.zeros(5, dtype=bool), 100.0, 200, ENTROPY)
EMPTY = Rollouts(A, np.zeros(5, dtype=int), GROUP, np.ones(5, dtype=bool), 100.0, 200, [np.zeros(0)] * 5)


def weigh(name, rollouts):
    """The weights, after what must hold for every weighting: finite, float64, one number or L_i of them for each rollout, in
    proportion to the advantages, and 0 where nothing is in the loss."""
    function = weighting(name)
    assert all(np.isfinite(one).all() for one in function(EMPTY))
    assert not any(np.any(one) for one in function(NOTHING))
    found = function(rollouts)
    assert len(found) == 5
    for one, length in zip(found, L, strict=True):
        assert one.dtype == np.float64 and one.shape in ((), (length,))
    other = np.where(IN_LOSS, L, 30)  # another length of the rollout that is out of the loss: no divisor may count it
    moved = replace(MASKED, lengths_R=other, entropy=[np.arange(length) / 100 for length in other])
    for one, two, counted in zip(function(MASKED), function(moved), IN_LOSS, strict=True):
        assert not counted or np.allclose(one, two, rtol=1e-12), f"{name}: counts the length of a rollout that is out of the loss"
    total = sum(np.abs(np.broadcast_to(one, length)).sum() for one, length in zip(function(WHOLE), L, strict=True))
    size = total / (np.abs(A) * L).sum()
    assert 0.1 < size < 20, f"{name}: a token weighs {size:.3g} per unit of advantage; the README's units make it about 1"
    doubled = function(replace(rollouts, advantages_R=2 * rollouts.advantages_R))
    assert all(np.allclose(2 * one, two, rtol=1e-12) for one, two in zip(found, doubled, strict=True))
    return found
