from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ablation.errors import IntegrityError
from ablation.study.run_folder import own_plan

RECORD = Path(__file__).parents[2] / "runs" / "records" / "smollm2"


def test_a_run_whose_lock_is_gone_is_not_to_be_locked_again(tmp_path):
    for name in ("plan.yaml", "plan.lock"):
        shutil.copy(RECORD / name, tmp_path / name)
    assert own_plan(tmp_path).plan.name == "smollm2"
    (tmp_path / "plan.lock").unlink()
    with pytest.raises(IntegrityError, match="plan.lock: the lock that this run began with is gone") as raised:
        own_plan(tmp_path)
    assert "plan lock" not in raised.value.hint
