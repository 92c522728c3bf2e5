import pytest

from ablation.problems.graders.math_units import unit_name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("cm", "centimetre"), (" centimeters ", "centimetre"), ("cm^2", "centimetre^2"), ("cm^{2}", "centimetre^2"), ("sq cm", "centimetre^2"),
        ("square centimeters", "centimetre^2"), ("cubic meters", "metre^3"), ("s^{-1}", "second^-1"), ("m", "metre"), ("minutes", "minute"),
        ("Hours", "hour"), ("mph", "mile/h"), ("dollars", "dollar"), ("°", "degree"), ("°C", "celsius"), ("in.", "inch"), ("units", "unit"),
        ("apples", None), ("", None), ("square", None), ("or", None),
    ],
)  # fmt: skip
def test_units_by_their_many_names(written, name):
    assert unit_name(written) == name
