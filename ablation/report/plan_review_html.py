"""The review page as one HTML file: no script, nothing loaded from anywhere, every text escaped."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ablation.report.checklist import OPEN, by_part
from ablation.report.phase2_words import TITLE
from ablation.report.plan_page import EXTENSION_TITLE, SAME, opens_words
from ablation.report.plan_review import NOW
from ablation.report.terminal import clean

_FOLDER = files("ablation.report")


def review_html(content: dict[str, Any]) -> str:
    """The page; `content` is what `plan_review.review` returns, and none of its texts is trusted."""
    css = _read("plan_review.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_read("plan_review.html.j2"))
    found = clean(content)
    ours = {"css": Markup(css), "policy": content_policy(css), "open": OPEN, "same": SAME, "now": NOW}
    ours |= {"extension_title": EXTENSION_TITLE, "phase2_title": TITLE, "opens_words": opens_words}
    return template.render(found | ours, parts=by_part(found["checklist"]))


def content_policy(css: str) -> str:
    """Nothing but the one style sheet inside the page, named by its digest."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
