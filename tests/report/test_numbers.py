"""What rounds to zero has no minus, and no share that is there looks as if it were not."""

import pytest

from ablation.report.numbers import fixed, percent, percent_range, short, with_sign
from ablation.report.verdict_parts import signed
from ablation.view import words


@pytest.mark.parametrize("value", [-0.0, -0.0004, -1e-12])
def test_no_negative_zero(value):
    assert (fixed(value, 3), with_sign(value, 3), percent(value / 100, 1), signed(value, 3)) == (
        "0.000",
        "+0.000",
        "0.0%",
        "+0.000",
    )
    assert short(-0.0, 4) == "0"
    assert words.figure(value) == "0.000" and words.signed(value) == "+0.000" and words.percent(value / 100) == "0.0%"


def test_other_numbers_are_as_they_were():
    assert (fixed(-0.25, 2), with_sign(7, 0), with_sign(-0.0006, 3), short(-12345.6, 4)) == (
        "-0.25",
        "+7",
        "-0.001",
        "-1.235e+04",
    )
    assert (words.signed(-1234), words.signed(0), words.signed(12), words.signed(None)) == ("−1,234", "0", "+12", "–")


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((0.001, 0.001), "0.1"),  # a KL term of a thousandth
        ((0.0, 0.001), "0.0 to 0.1"),
        ((0.0, 0.26), "0 to 26"),
        ((-0.238, -0.066), "-24 to -7"),
        ((0.5, 0.5), "50"),
        ((0.0, 0.0), "0"),
        ((-0.0004, 0.01), "-0.04 to 1.00"),
        ((-1e-9, 0.2), "0.000 to 20.000"),
    ],
)
def test_ranges_of_shares(ends, said):
    assert percent_range(*ends) == said
