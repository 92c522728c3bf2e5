"""Colours, shapes and type of the figures, on paper and on a dark screen."""

from __future__ import annotations

import re
from typing import Any

INK, SOFT, LINE, CARD, WASH = "#1c1f23", "#565d66", "#d5d2c9", "#fffffe", "#e6f0f8"
SERIES = ("#0067a5", "#b8480a", "#007a58", "#97408a", "#7d6300", "#4a4f57")
"""Each at least 4.5 : 1 on white, and told apart in every common kind of colour blindness; shape and dash tell them, too."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 2, 1, 2])
GOOD, BAD, OPEN = SERIES[0], SERIES[1], SERIES[4]
VARIABLES = {
    **{INK: "--ink", SOFT: "--soft", LINE: "--line", CARD: "--card", WASH: "--blue-wash"},
    **{colour: f"--series-{place}" for place, colour in enumerate(SERIES)},
}
"""Colour of a figure -> the variable of the page's style sheet that stands for it."""
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_COLOUR = re.compile("|".join(VARIABLES))


def chart(content: dict[str, Any]) -> dict[str, Any]:
    """A whole Vega-Lite specification."""
    return {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", "config": _config(), **content}


def _config() -> dict[str, Any]:
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12}
    axis = {**text, "domainColor": SOFT, "tickColor": SOFT, "gridColor": LINE, "titleFontWeight": "normal"}
    return {
        "background": "white",
        "font": FONT,
        "view": {"stroke": None},
        "axis": axis,
        "header": {**text, "titleFontSize": 13, "labelFontSize": 13, "labelFontWeight": "bold"},
        "legend": {**text, "symbolSize": 90, "orient": "top", "title": None, "labelLimit": 240},
    }


def series_of(names: list[str]) -> dict[str, tuple[str, str, list[int]]]:
    """Name -> its colour, shape and dash."""
    count = len(SERIES)
    return {name: (SERIES[at % count], SHAPES[at % count], DASHES[at % count]) for at, name in enumerate(names)}


def for_page(svg: str) -> str:
    """The drawing without its paper and with the page's own colours, so that it follows light and dark."""
    svg = re.sub(r'<rect [^>]*fill="white"[^>]*/>', "", svg, count=1)
    return _COLOUR.sub(lambda found: f"var({VARIABLES[found[0]]})", svg)
