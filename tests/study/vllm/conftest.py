"""A whole study on the real engine; nothing here runs where vLLM is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    if find_spec("vllm") is None:
        why = pytest.mark.skip(reason="vLLM is not installed: `make test-vllm` installs its CPU build and runs these tests")
        for item in items:
            if item.path.parent == Path(__file__).parent:
                item.add_marker(why)
