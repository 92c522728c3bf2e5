"""One palette for the report and the viewer, with contrast enough for small text."""

import re

import pytest

from ablation.report.post.html import palette
from ablation.report.post.theme import SERIES
from ablation.view.render import static

TONES = ("good", "bad", "open")


def schemes(css: str) -> list[dict[str, str]]:
    """The variables of each `:root`, in order: light, dark, print."""
    return [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", css, re.S)]


def luminance(colour: str) -> float:
    """WCAG 2.1, relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_the_one_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=0.001)


@pytest.mark.parametrize("scheme", range(3), ids=["light", "dark", "print"])
def test_labels_can_be_read_on_their_ground(scheme):
    colours = schemes(palette())[scheme]
    for tone in TONES:
        assert contrast(colours[tone], colours[f"{tone}-wash"]) >= 4.5
    paper = "#14171a" if scheme == 1 else "#ffffff"
    assert all(contrast(colours[f"series-{at}"], paper) >= 4.5 for at in range(6))


def test_report_and_viewer_take_their_colours_from_it():
    from importlib.resources import files

    viewer, report = static("view.css").decode(), (files("ablation.report.post") / "post.css").read_text()
    assert viewer.startswith(palette())
    own = viewer.removeprefix(palette())
    for tone in TONES:
        assert f"--{tone}:" not in own + report and f"--{tone}-wash:" not in own + report
        assert f"var(--{tone})" in own and f"var(--{tone})" in report
    assert "--series-0:" not in own + report
    light = schemes(palette())[0]
    assert tuple(light[f"series-{at}"] for at in range(6)) == SERIES  # of figures in files, which have no variables


def test_a_printed_page_keeps_together_what_belongs_together():
    """Rows, figures and paragraphs are whole; what leads to a list or a table stays with it; a group of rows is not split."""
    from importlib.resources import files

    css = (files("ablation.report.post") / "post.css").read_text()
    printed = css[css.index("@media print") :]
    rules = dict(re.findall(r"(?m)^  ([^{}]+?) \{ ([^{}]*) \}$", printed))
    assert "tr, li" in next(name for name, said in rules.items() if said == "break-inside: avoid;" and "figure" in name)
    assert rules["p"] == "break-inside: avoid;" and rules[".note"] == "break-before: avoid;"
    assert "break-after: avoid" in rules["h2, h3, caption, h2 + p, h3 + p, dl + p"]
    assert rules["tbody:has(tr.group) tr:not(.group):not(:first-child)"] == "break-before: avoid;"
