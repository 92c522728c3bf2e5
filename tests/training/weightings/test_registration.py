from pathlib import Path

import numpy as np
import pytest

from ablation.plan.weightings import WEIGHTINGS
from ablation.training import weightings

from .worked import WHOLE, A, L, weigh


def test_every_file_is_registered_and_every_registered_weighting_has_its_file_and_its_test():
    folder = Path(weightings.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "rollouts"}
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")} - {"registration", "readme"}
    assert files == set(WEIGHTINGS) == tests


def test_what_a_registration_says_of_a_weighting_holds():
    for name, registered in WEIGHTINGS.items():
        assert registered.formula.startswith("A_i * ") and registered.words.endswith("."), name
        sums = [np.sum(np.broadcast_to(one, length)) for one, length in zip(weigh(name, WHOLE), L, strict=True)]
        assert registered.per_rollout == (sums == pytest.approx(A * WHOLE.s0)), name


def test_another_name_is_a_key_error():
    with pytest.raises(KeyError, match="rollouts"):
        weightings.weighting("rollouts")
