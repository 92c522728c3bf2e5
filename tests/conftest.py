"""Settings of the whole suite."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A job in a shell's background ignores Ctrl-C, and so would the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example's time says more about what else the machine does than about the code.
settings.register_profile("ablation", deadline=None)
settings.load_profile("ablation")

HERE = Path(__file__).parent
LIMITED = (
    *(HERE / "problems" / name for name in ("sandbox", "graders/test_code.py", "graders/test_math.py", "test_workers.py")),
    *(HERE / name for name in ("study/test_background.py", "plan/test_yaml_reader.py")),
)
"""Their tests hold code to limits of a second or so, which another busy process can break: `make test` runs them by themselves."""


def pytest_collection_modifyitems(items):
    for item in items:
        if any(item.path.is_relative_to(place) for place in LIMITED):
            item.add_marker(pytest.mark.alone)
