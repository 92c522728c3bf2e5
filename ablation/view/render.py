"""Templates to pages: everything is escaped, and what a terminal or a reader's eye would obey is shown as a mark."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ablation.report import loop_words
from ablation.report.safe import clean
from ablation.view import words

STATIC = {
    "view.css": "text/css; charset=utf-8",
    "view.js": "text/javascript; charset=utf-8",
    "read.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def _shown(value: Any) -> Any:
    """What an expression of a template becomes before it is escaped."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ablation.view"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {name: getattr(words, name) for name in ("figure", "signed", "percent", "yes_no", "tone", "ago")}
    made.filters |= {name: getattr(loop_words, name) for name in ("periodic_words", "strong_words", "looping_words")}
    made.globals |= {"share": words.share, "nothing": words.NOTHING}
    return made


def page(template: str, **values: Any) -> str:
    return environment().get_template(f"{template}.html.j2").render(**values)


@cache
def static(name: str) -> bytes:
    own = (files("ablation.view") / "static" / name).read_bytes()
    return (files("ablation.report") / "palette.css").read_bytes() + own if name == "view.css" else own
