import pytest

from ablation.problems.graders.math_units import unit_name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("cm", "centimetre"), (" centimeters ", "centimetre"), ("cm^2", "centimetre^2"), ("cm^{2}", "centimetre^2"), ("sq cm", "centimetre^2"),
        ("square centimeters", "centimetre^2"), ("cubic meters", "metre^3"), ("s^{-1}", "second^-1"), ("m", "metre"), ("minutes", "minute"),
        ("Hours", "hour"), ("mph", "mile/h"), ("dollars", "dollar"), ("°", "degree"), ("°C", "celsius"), ("in.", "inch"), ("units", "unit"),
        ("miles per hour", "mile/h"), ("m/s", "m/s"), ("kJ", "kilojoule"), ("MJ", "megajoule"), ("mJ", "millijoule"), ("kilometers", "kilometre"),
        ("meters per second squared", "metre/second^2"), ("m/s^2", "metre/second^2"), ("dollars per hour", "dollar/hour"), ("a.m.", None),
        ("AM", "a.m."), ("miles per parsec", None), ("apples", None), ("", None), ("square", None), ("or", None),
    ],
)  # fmt: skip
def test_units_by_their_many_names(written, name):
    assert unit_name(written) == name
