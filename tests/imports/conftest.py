from __future__ import annotations

import pytest

from tests.verdict.study import lock_small


@pytest.fixture
def locked(tmp_path):
    return lock_small(tmp_path / "plans")
