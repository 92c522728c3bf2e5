"""What a rater reads in a browser: one file, nothing loaded from anywhere, every text escaped; one script fills in the form."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ablation.blind.batch import LABEL_QUESTION, LABEL_WORDS, NEEDED_CHECK, NOT_TOLD, PAIR_QUESTIONS, PAIRS, Batch
from ablation.report.safe import clean

_FOLDER = files("ablation.report")


def blind_page(batch: Batch) -> str:
    """The page; a function of the batch. Its button saves the ratings as the JSON that `ablation blind import` reads."""
    css, script = _read("blind_page.css"), _read("blind_page.js.j2")
    items = [
        {
            "number": item.number,
            "prompt": item.prompt,
            "sides": [{"name": side, **texts} for side, texts in item.texts.items()],
            "questions": _questions(item.labels),
        }
        for item in batch.items
    ]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # The digest is hex, so nothing in the script is of somebody else.
    script = script.replace("BATCH_SHA256", json.dumps(batch.sha256))
    ours = {"css": Markup(css), "script": Markup(script), "policy": _policy(css, script), "pairs": batch.kind == PAIRS}
    ours |= {"check": NEEDED_CHECK, "not_told": NOT_TOLD}
    return environment.from_string(_read("blind_page.html.j2")).render(items=clean(items), **ours)


def _questions(labels: tuple[str, ...]) -> list[dict[str, Any]]:
    if labels:
        choices = [{"value": json.dumps(label), "text": f"{label}: {LABEL_WORDS.get(label, label)}"} for label in labels]
        return [{"field": "label", "text": LABEL_QUESTION, "choices": choices}]
    yes_no = [{"value": "true", "text": "yes"}, {"value": "false", "text": "no"}]
    return [{"field": name, "text": text, "choices": yes_no} for name, text in PAIR_QUESTIONS.items()]


def _policy(css: str, script: str) -> str:
    """Nothing but the page's own style and script, each named by its digest."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return f"default-src 'none'; style-src {digest(css)}; script-src {digest(script)}; base-uri 'none'; form-action 'none'"


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
