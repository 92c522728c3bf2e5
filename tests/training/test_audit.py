import json

import numpy as np
import pytest

from ablation.training.audit import audit_weights
from ablation.training.weights import Weights


def test_shares_by_hand():
    tokens = [np.array([2.0, 2.0, 0.0]), np.array([-1.0, -1.0]), np.array([-4.0])]
    kl = [np.array([0.5, 0.0, 0.0]), np.zeros(2), np.zeros(1)]
    weights = Weights(tokens, kl, np.zeros(3), ["q@low"], np.array([2, 1, 0]), np.array([2, 2, 1]), np.array([3, 0, 0]))
    found = audit_weights(weights, np.array([False, False, True]), ["math", "math", "code"], ["low", "low", "xhigh"])
    assert found["absolute_weight"] == 10.0
    assert found["net_weight"] == -2.0
    assert found["net_share"] == pytest.approx(-0.2)
    assert found["negative_share"] == pytest.approx(0.6)
    assert found["truncated_share"] == pytest.approx(0.4)
    assert found["kl_share"] == pytest.approx(0.05)
    assert (found["weighted_tokens"], found["clipped_tokens"], found["kl_tokens"]) == (5, 3, 3)
    assert found["by_source"]["code"]["negative_share"] == 1.0
    assert found["by_source"]["math"]["net_weight"] == 2.0
    assert found["by_effort"]["xhigh"]["truncated_share"] == 1.0
    assert found["no_signal_cells"] == ["q@low"]


def test_a_share_of_nothing_is_null():
    none = np.zeros(1, dtype=int)
    weights = Weights([np.zeros(3)], [np.zeros(3)], np.zeros(1), ["p@low"], none, none, none)
    found = audit_weights(weights, np.array([False]), ["math"], ["low"])
    assert found["negative_share"] is None and found["truncated_share"] is None


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_have_no_shares_and_stay_json(broken):
    tokens = [np.array([1.0, broken]), np.array([-1.0]), np.array([np.inf])]
    none, counted = np.zeros(3, dtype=int), np.array([2, 1, 1])
    weights = Weights(tokens, [np.zeros(2), np.zeros(1), np.zeros(1)], np.zeros(3), [], none, counted, none)
    found = audit_weights(weights, np.array([False, True, False]), ["math", "code", "math"], ["low", "low", "low"])
    assert found["negative_share"] is None and found["absolute_weight"] is None and found["net_weight"] is None
    assert found["weighted_tokens"] == 4
    assert found["by_source"]["code"]["negative_share"] == 1.0
    json.dumps(found, allow_nan=False)
