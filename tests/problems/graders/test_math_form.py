from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.problems.graders.math_form import LONGEST, Parts, Unreadable, Value, read_form, read_number


def shown(form) -> str:
    """A form on one line: kinds and texts."""
    if isinstance(form, Parts):
        return f"{form.kind}<{'|'.join(map(shown, form.parts))}>"
    return form.text if form.exact is None else str(form.exact)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (r"$\left(-\infty,\, 1\right]$", r"(]<-\infty|1>"),
        (r"\lbrace 1; 2\rbrace", "set<1|2>"),
        (r"\langle 1,2 \rangle", "()<1|2>"),
        ("1, 2, and 3", "list<1|2|3>"),
        (r"1 \text{ or } 2", "list<1|2>"),
        ("((1,2),3)", "()<()<1|2>|3>"),
        (r"\{(1,2),(3,4)\}", "set<()<1|2>|()<3|4>>"),
        ("]1,2[", "()<1|2>"),
        ("[1,2[", "[)<1|2>"),
        (r"1\pm\sqrt{2}", r"set<1+\sqrt{2}|1-\sqrt{2}>"),
        (r"\emptyset", "set<>"),
        ("((5))", "5"),
        (r"x \in [1,2)", "[)<1|2>"),
        ("(x, y) = (1, 2)", "()<1|2>"),
        (r"(1,2)\cup(3,4)", r"(1,2)\cup(3,4)"),  # left to algebra
        (r"\{x \mid x > 2\}", "x > 2"),
        ("1,234, 5,678", "list<1234|5678>"),
        ("100,200,300", "100200300"),  # without blanks these are thousands
        ("(100,200)", "()<100|200>"),
        ("12{,}500{,}000", "12500000"),
        ("1{,}5", "3/2"),
        ("1,23", "list<1|23>"),
        (r"\frac{1,000}{3}", "1000/3"),
        (r"\dfrac 12", "1/2"),
        (r"\begin{pmatrix}1 & 2\\ 3 & 4\end{pmatrix}", r"\begin{pmatrix}1 & 2\\ 3 & 4\end{pmatrix}"),
        ("−3", "-3"),
        ("3²", "3^{2}"),
        (r"\mathrm{e}^2", "e^2"),
    ],
)  # fmt: skip
def test_shapes(text, form):
    assert shown(read_form(text)) == form


@pytest.mark.parametrize(
    ("text", "name", "percent", "unit", "number"),
    [
        ("x=5", "x", False, None, "5"),
        (r"\theta = 90^\circ", r"\theta", False, "degree", "90"),
        ("2+3=5", "2+3", False, None, "5"),
        (r"y \approx 3.5", "y", False, None, "3.5"),
        (r"50\%", None, True, None, "50"),
        (r"50\text{ percent}", None, True, None, "50"),
        (r"50\text{ cm}^2", None, False, "centimetre^2", "50"),
        ("5 square meters", None, False, "metre^2", "5"),
        (r"25^\circ\text{C}", None, False, "celsius", "25"),
        (r"5\text{ m}/\text{s}", None, False, "m/s", "5"),
        (r"5\text{ apples}", None, False, None, "5"),
        ("12 apples", None, False, None, "12"),
        ("-$6.00", None, False, "dollar", "-6"),
    ],
)
def test_what_stands_around_a_value(text, name, percent, unit, number):
    form = read_form(text)
    assert isinstance(form, Value)
    assert (form.name, form.percent, form.unit, form.exact) == (name, percent, unit, Fraction(number))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "$$",
        "½",
        r"\text{see figure}",
        "see figure",
        "unknown",
        "1,,2",
        "(((((((1,2),3),4),5),6),7),8)",
        "1" * (LONGEST + 1),
        "2 3",
        "x = 1 2 3",
        "0.5 0.5",
        r"\frac{12 50}{7}",
        r"-2\,3",
    ],
)
def test_what_is_no_mathematics(text):
    with pytest.raises(Unreadable):
        read_form(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7), ("-.5", Fraction(-1, 2)), ("5.", 5), (r"\frac{-3}{8}", Fraction(-3, 8)), (r"-\frac38", Fraction(-3, 8)), ("3/8", Fraction(3, 8)),
        (r"2\frac{1}{2}", Fraction(5, 2)), (r"-2\frac{1}{2}", Fraction(-5, 2)), ("2 1/2", Fraction(5, 2)), (r"0.1\overline{6}", Fraction(1, 6)),
        (r"3 \times 10^{5}", 300_000), (r"1.5\cdot 10^{-2}", Fraction(3, 200)), ("10^6", 1_000_000), ("10^{-3}", Fraction(1, 1000)), ("100", 100),
        (r"\frac{1}{0}", None), ("1/0", None), ("10^{99999}", None), ("", None), ("-", None), (".", None), ("1.2.3", None), ("2^3", None), ("1e5", None),
    ],
)  # fmt: skip
def test_exact_numbers(text, number):
    assert read_number(text) == number


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**6))
def test_every_rational_is_read_exactly(top, bottom):
    value = Fraction(top, bottom)
    sign, top, bottom = ("-" if value < 0 else ""), abs(value.numerator), value.denominator
    forms = [
        rf"{sign}\frac{{{top}}}{{{bottom}}}",
        rf"\frac{{{sign}{top}}}{{{bottom}}}",
        f"{sign}{top}/{bottom}",
        rf"{sign}\dfrac{{{top:,}}}{{{bottom}}}",
    ]
    if bottom == 1:
        forms += [f"{sign}{top:,}", f"{sign}{top}", f"{sign}{top:,}.00", f"{sign}{top:,}".replace(",", r"\,")]
    for text in forms:
        assert read_form(text).exact == value, text


TOKENS = [
    *"0123456789abixyze+-*/^=<>(),[]{}.;:|!%$~ _'\\",
    r"\frac",
    r"\{",
    r"\}",
    r"\left",
    r"\right",
    r"\sqrt",
    r"\pm",
    r"\text{",
    r"\cup",
]
TOKENS += [
    r"\in",
    r"\overline{",
    r"\\",
    r"\,",
    "{,}",
    r"\begin{pmatrix}",
    r"\end{pmatrix}",
    "½",
    "中",
    r"\boxed{",
    r"^\circ",
    r"\mathrm{",
    " and ",
    "cm",
]


@given(st.lists(st.sampled_from(TOKENS), max_size=60).map("".join))
def test_any_text_is_read_or_refused(text):
    try:
        form = read_form(text)
    except Unreadable:
        return
    assert isinstance(form, Value | Parts)
