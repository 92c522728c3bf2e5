import dataclasses

import numpy as np
import pytest

from ablation.errors import IntegrityError
from ablation.plan.arms import Training
from ablation.plan.model import Loops
from ablation.training.scale import fixed_scale, sweep_reference

from .test_batch import PROBLEMS, STAGE, outcomes

TRAINING = Training(updates=1, rollouts_per_cell=2, learning_rate=1e-3)
OWN = outcomes(STAGE, PROBLEMS, Loops())  # thinking of 3 (right), 1 (wrong) and 12 tokens (truncated)


def test_a_number_in_the_plan_is_not_measured():
    assert fixed_scale(TRAINING.model_copy(update={"s0": 4790.0}), pytest.fail) == 4790.0


def test_the_mean_over_untruncated_rollouts():
    assert fixed_scale(TRAINING, lambda: OWN) == 2.0


def test_nothing_to_measure_on_is_said():
    cut = dataclasses.replace(OWN, truncated=np.ones(3, dtype=bool))
    with pytest.raises(IntegrityError, match="s0 cannot be measured"):
        fixed_scale(TRAINING, lambda: cut)


def test_the_reference_is_the_mean_of_clean_rollouts_of_a_cell():
    assert sweep_reference(OWN) == {"p@low": 3.0}
