from pathlib import Path

import pytest

from ablation.plan.weightings import WEIGHTINGS
from ablation.training import weightings


def test_every_file_is_registered_and_every_registered_weighting_has_its_file_and_its_test():
    folder = Path(weightings.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "rollouts"}
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")} - {"registration", "rollouts"}
    assert files == set(WEIGHTINGS) == tests


def test_another_name_is_a_key_error():
    with pytest.raises(KeyError, match="rollouts"):
        weightings.weighting("rollouts")
