"""A report's folder: one HTML file, the same as Markdown, tables for LaTeX, figures, and the numbers as data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.files import json_bytes, parse_json, write_together
from ablation.report.post.document import Document
from ablation.report.post.html import html
from ablation.report.post.latex import latex_files
from ablation.report.post.markdown import markdown

PAGE, DATA = "report.html", "data.json"
_OURS = re.compile(r"(figures/[A-Za-z0-9_-]+\.(svg|png)|tables/[A-Za-z0-9_-]+\.tex)")


def report_files(document: Document, data: dict[str, Any]) -> dict[str, bytes]:
    """Path in the folder -> content, all of it a function of the document and the data.

    `data.json`, which names all the others, is the first, and what a reader opens the last.
    """
    found = {}
    for figure in document.figures():
        if figure.svg is not None and figure.png is not None:
            found[f"figures/{figure.key}.svg"] = figure.svg.encode()
            found[f"figures/{figure.key}.png"] = figure.png
    found |= {f"tables/{name}": content.encode() for name, content in latex_files(document).items()}
    found |= {"report.md": markdown(document).encode(), PAGE: html(document).encode()}
    return {DATA: json_bytes(data | {"files": sorted(found)})} | found


def write_report(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Write the files, and remove what an earlier report here made and this one has not; see `write_together`."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: is there and no folder", hint="Name another one with --out.")
    earlier = _made_before(folder) - set(files)
    written = [folder / name for name in files]
    same = all(path.is_file() and path.read_bytes() == files[name] for name, path in zip(files, written, strict=True))
    if not same or any((folder / name).exists() for name in earlier):
        write_together(folder, files, earlier)
    return written


def _made_before(folder: Path) -> set[str]:
    """What the `data.json` that is there says that it was written with: figures and tables alone."""
    try:
        named = parse_json((folder / DATA).read_bytes())["files"]
        return {name for name in named if _OURS.fullmatch(name)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
