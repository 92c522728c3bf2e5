"""A document as one HTML file: no script, nothing loaded from anywhere, every text escaped."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from ablation.report.plan_review_html import content_policy
from ablation.report.post import document as model
from ablation.report.post.pretty import pretty
from ablation.report.post.theme import for_page
from ablation.report.safe import clean

_FOLDER = files("ablation.report.post")
KINDS = {
    model.Paragraph: "paragraph",
    model.Command: "command",
    model.Items: "items",
    model.Facts: "facts",
    model.Table: "table",
    model.Figure: "figure",
}


def html(document: model.Document) -> str:
    """The page. None of the document's texts is trusted but the figures, which `draw.plain_svg` has cleaned."""
    css = palette() + _read("post.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown)
    environment.filters |= {"inline": inline, "cell": cell, "hover": hover, "drawing": drawing}
    environment.tests["kind"] = lambda block, name: KINDS[type(block)] == name
    template = environment.from_string(_read("post.html.j2"))
    return template.render(document=document, css=Markup(css), policy=content_policy(css))


def inline(parts: model.Parts) -> Markup:
    """Pieces of a sentence."""
    return Markup("").join(_piece(part) for part in parts)


def _piece(part: model.Inline) -> Markup:
    if isinstance(part, str):
        return escape(clean(part))
    text = clean(part.text)
    if isinstance(part, model.Code):
        return Markup("<code>{}</code>").format(text)
    if isinstance(part, model.Strong):
        return Markup("<strong>{}</strong>").format(text)
    if isinstance(part, model.Label):
        return Markup('<b class="label {}">{}</b>').format(part.tone or "none", text)
    return Markup('<span class="num"{}>{}</span>').format(_title(part), pretty(text) if part.number else text)


def cell(one: model.Cell) -> Markup:
    """What stands in a table's cell."""
    text = pretty(clean(one.text)) if one.number else clean(one.text)
    if not one.tone:
        return escape(text)
    return Markup('<span class="tone {}">{}</span>').format(one.tone, text)


def hover(one: model.Cell) -> Markup:
    """The attribute that says where a number is from."""
    return _title(one)


def _title(one: model.Cell) -> Markup:
    if one.trace is None:
        return Markup("")
    return Markup(' title="{}"').format(clean(f"{one.trace.in_words()}\n{one.trace.command}"))


def drawing(figure: model.Figure) -> Markup:
    """The figure inside the page, with what it shows for those who do not see it."""
    svg = for_page(figure.svg or "")
    head, _, rest = svg.partition(">")
    names = Markup(' role="img" aria-labelledby="figure-{0}-title figure-{0}-says"').format(figure.key)
    told = Markup('<title id="figure-{0}-title">{1}</title><desc id="figure-{0}-says">{2}</desc>').format(
        figure.key, clean(figure.caption), clean(figure.alternative)
    )
    return Markup(head) + names + Markup(">") + told + Markup(rest)


def _shown(value: Any) -> Any:
    """Foreign text as it may be shown; what is markup already was made from such text."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def palette() -> str:
    """The colours of labels and series, the same in every page of the program that shows them."""
    return (files("ablation.report") / "palette.css").read_text(encoding="utf-8")


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
