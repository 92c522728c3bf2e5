import pytest

from ablation.errors import UsageError
from ablation.problems.sandbox.limits import Limits, read_limits


def test_what_is_left_out_has_its_default():
    assert read_limits(None, "x") == Limits(10.0, 512, 32, 1024, 64, 16)
    assert read_limits({"seconds": 2, "memory_mb": 128}, "x") == Limits(seconds=2.0, memory_mb=128)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "x: must be an object"),
        ({"time": 1}, "x: unknown limit `time`"),
        ({"seconds": 0}, "x.seconds: found 0"),
        ({"seconds": "1"}, "x.seconds: found '1'"),
        ({"seconds": float("nan")}, "x.seconds: found nan"),
        ({"processes": True}, "x.processes: found True"),
        ({"files": 20.5}, "x.files: found 20.5"),
        ({"memory_mb": 10**9}, "x.memory_mb: found 1000000000"),
    ],
)
def test_errors_name_the_limit(values, said):
    with pytest.raises(UsageError) as error:
        read_limits(values, "x")
    assert error.value.message == said
    assert error.value.hint
