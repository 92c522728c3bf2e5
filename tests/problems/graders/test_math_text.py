"""Writing that is not LaTeX, or LaTeX that only looks different."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.problems.graders.math_text import clean, without_e


@pytest.mark.parametrize(
    ("texts", "read"),
    [
        (["**73**", "__73__", "`73`", "*73*", r"**$73$**", "７３", "𝟕𝟑", r"{\bf 73}", r"\color{red}{73}", r"\textbf{73.}"], "73"),
        ([r"\text{73}", r"\mathrm{73}", r"\text{ 73 }", r"\mathsf{73}", r"\underline{73}", r"\mathbf{7}3", r"7\text{3}"], "73"),
        (["3e8", "3E8", r"3\mathrm{e}8", r"3\text{E}{8}", "3 e8"], r"3\times 10^{8}"),
        (["1e-05", "1E-05"], r"1\times 10^{-05}"),
        (["2e-1"], "2e-1"),
        (["1/3e8"], r"1/{3\times 10^{8}}"),
        (["3 x 10^8", "3×10⁸"], None),
        (["pi/2", "Pi/2", "π/2", r"\text{pi}/2"], r"\pi /2"),
        (["2pi r^2", "2π r²"], None),
        (["sqrt(2)", "sqrt2", "sqrt 2", "√2", "√(2)", r"\sqrt2", r"\sqrt 2"], r"\sqrt{2}"),
        (["sqrt12", "√12"], r"\sqrt{12}"),
        ([r"\sqrt12"], r"\sqrt{1}2"),
        (["sqrt((1+2)(3))"], r"\sqrt{(1+2)\cdot (3)}"),
        ([r"2(\frac{1}{2})"], r"2\cdot (\frac{1}{2})"),
        (["infinity", "Infinity", "inf", "oo", "∞", r"\text{infinity}"], r"\infty"),
        (["2^10", "2**10", "2^(10)"], "2^{10}"),
        (["2^-0.5", "2**-0.5"], "2^{-0.5}"),
        ([r"\frac12", r"\frac1{2}", r"\frac{1}2", r"\tfrac 1 2", r"\nicefrac{1}{2}"], r"\frac{1}{2}"),
        ([r"\frac\pi4"], r"\frac{\pi}{4}"),
        ([r"\sin 30^\circ", "sin 30°", r"\sin 30^{\circ}"], r"\sin \frac{30\pi}{180}"),
        ([r"{5 \choose 2}", "C(5,2)"], r"\binom{5}{2}"),
        (["90°"], r"90^\circ"),
        ([r"\text{see figure}"], r"\text{see figure}"),
        ([r"5\text{ cm}^2"], r"5\text{ cm}^2"),
    ],
)
def test_many_ways_to_write_one_thing(texts, read):
    found = {clean(text) for text in texts}
    assert found == {read} if read else len({re.sub("[ {}]", "", one) for one in found}) == 1


def test_three_e_minus_five_for_one_who_never_writes_e():
    assert clean(without_e("3e-5")) == r"3\times 10^{-5}"
    assert without_e("2x+3e^2") == "2x+3e^2"


@given(st.text(alphabet="0123456789abeixpqrst(){}[]^_/*√\\$.,'⁰²½π ", max_size=40))
def test_any_text_is_cleaned(text):
    clean(clean(text))


@pytest.mark.parametrize(
    "text", ["0." + "1" * 3_990, "0." + "12" * 1_990, "1" * 3_990, "x^{" + "\\prime" * 600 + "}", "A^T" * 1_300]
)
def test_long_texts_are_read_at_once(text):
    begun = time.process_time()
    clean(text)
    assert time.process_time() - begun < 0.25
