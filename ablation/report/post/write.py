"""A report's folder: one HTML file, the same as Markdown, tables for LaTeX, figures, and the numbers as data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.files import json_bytes, parse_json, write_bytes
from ablation.report.post.document import Document
from ablation.report.post.html import html
from ablation.report.post.latex import latex_files
from ablation.report.post.markdown import markdown

PAGE, DATA = "report.html", "data.json"
_OURS = re.compile(r"(figures/[A-Za-z0-9_-]+\.(svg|png)|tables/[A-Za-z0-9_-]+\.tex)")


def report_files(document: Document, data: dict[str, Any]) -> dict[str, bytes]:
    """Path in the folder -> content, all of it a function of the document and the data. `data.json` names all the others."""
    found = {PAGE: html(document).encode(), "report.md": markdown(document).encode()}
    for figure in document.figures():
        if figure.svg is not None and figure.png is not None:
            found[f"figures/{figure.key}.svg"] = figure.svg.encode()
            found[f"figures/{figure.key}.png"] = figure.png
    found |= {f"tables/{name}": content.encode() for name, content in latex_files(document).items()}
    return found | {DATA: json_bytes(data | {"files": sorted(found)})}


def write_report(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Write the files, and remove what an earlier report here made and this one has not."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is there and no folder", hint="Name another one with --out.")
    earlier = _made_before(folder)
    written = []
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != content:
            write_bytes(path, content)
        written.append(path)
    for name in earlier - set(files):
        (folder / name).unlink(missing_ok=True)
    return written


def _made_before(folder: Path) -> set[str]:
    """What the `data.json` that is there says that it was written with: figures and tables alone."""
    try:
        named = parse_json((folder / DATA).read_bytes())["files"]
        return {name for name in named if _OURS.fullmatch(name)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
