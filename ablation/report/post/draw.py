"""Figures drawn as SVG and PNG on this machine, by vl-convert, without a browser and without a network.

The drawing library takes a second to start, so it starts in a process of its own while the verdict is computed:
`python -m ablation.report.post.draw` reads one JSON specification a line and answers each with a line of JSON.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from ablation.errors import AblationError

PACKAGE = "vl-convert-python"
SVG = "http://www.w3.org/2000/svg"
SCALE = 2
"""Pixels of the PNG for one of the SVG."""
PATIENCE = 600.0
"""Seconds after which a figure that is not drawn counts as failed; it takes less than one where nothing else goes on."""
_ELEMENTS = {"svg", "g", "path", "line", "rect", "text", "tspan", "circle"}
_ATTRIBUTES = {
    *("d", "fill", "fill-opacity", "font-family", "font-size", "font-style", "font-weight", "height", "opacity", "rx", "ry"),
    *("stroke", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "stroke-miterlimit", "stroke-opacity", "stroke-width"),
    *("text-anchor", "transform", "viewBox", "width", "x", "x1", "x2", "y", "y1", "y2", "dominant-baseline", "dx", "dy"),
}
_UNSAFE = re.compile(r"url|[<>&:]", re.IGNORECASE)


def can_draw() -> bool:
    """Whether the package that draws is installed."""
    return find_spec("vl_convert") is not None


class Drawer:
    """Draws Vega-Lite specifications in a process that is started at once."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-m", "ablation.report.post.draw"]
        pipe, packages = subprocess.PIPE, str(Path(__file__).resolve().parents[3])
        self._process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (packages, os.environ.get("PYTHONPATH"))))},
        )

    def draw(self, spec: dict[str, Any]) -> tuple[str, bytes]:
        """(SVG, PNG). Raises `AblationError` if the drawing process died."""
        assert self._process.stdin is not None and self._process.stdout is not None
        stuck = threading.Timer(PATIENCE, self._process.kill)
        stuck.start()
        try:
            self._process.stdin.write(json.dumps(spec) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            raise AblationError(
                "the figures could not be drawn: the process of vl-convert ended",
                hint=f"Try `ablation report --no-figures`, or reinstall {PACKAGE}.",
            ) from None
        finally:
            stuck.cancel()
        return answer["svg"], base64.b64decode(answer["png"])

    def __enter__(self) -> Drawer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        if kind is not None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def plain_svg(svg: str) -> str:
    """The drawing alone: known elements and attributes; no style, script, link, id or namespace of another kind."""
    root = ET.fromstring(svg)
    _clean(root)
    ET.register_namespace("", SVG)
    return ET.tostring(root, encoding="unicode")


def _clean(element: ET.Element) -> None:
    shown = {name: value for name, value in element.attrib.items() if name in _ATTRIBUTES}
    element.attrib = {name: value for name, value in shown.items() if name == "d" or not _UNSAFE.search(value)}
    for child in list(element):
        name = child.tag.removeprefix(f"{{{SVG}}}") if isinstance(child.tag, str) else ""
        hidden = child.get("display") == "none" or (name == "path" and not child.get("d"))
        empty = child.get("class") == "background" and child.get("stroke") is None and child.get("fill") is None
        if name not in _ELEMENTS or hidden or empty:
            element.remove(child)
            continue
        _clean(child)
        if name == "g" and not len(child):
            element.remove(child)


def _serve() -> None:
    """Answer specifications until stdin ends."""
    import vl_convert

    from ablation.report.post.theme import chart

    vl_convert.vegalite_to_svg(chart({"data": {"values": [{}]}, "mark": "point"}))  # starts the engine before it is needed
    for line in sys.stdin:
        svg = plain_svg(vl_convert.vegalite_to_svg(json.loads(line)))
        png = base64.b64encode(vl_convert.svg_to_png(svg, scale=SCALE)).decode()
        sys.stdout.write(json.dumps({"svg": svg, "png": png}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
