"""A document as Markdown, for a repository or an editor. Foreign text cannot become markup, HTML or a link in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ablation.report.post import document as model
from ablation.report.post.pretty import pretty
from ablation.report.safe import clean

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$^-])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
_LINKS = re.compile(r"://|\bwww\.|\b(?:mailto|xmpp):", re.IGNORECASE)


def escaped(text: str) -> str:
    """`text` as it is, on one line: no emphasis, code, table, list, HTML or link can begin in it."""
    text = " ".join(clean(text).split())
    text = "".join(_ENTITIES.get(one, one) for one in text)
    text = _LINKS.sub(lambda found: found[0].replace(":", "&#58;").replace(".", "&#46;"), text)
    text = _SPECIAL.sub(_backslash, text)
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", text)


def _backslash(found: re.Match[str]) -> str:
    """Only where the character could mean something: a hyphen or a bracket inside a sentence is left readable."""
    one, place, text = found[1], found.start(), found.string
    if one in "-+" and place:
        return one
    if one == "#" and text[max(0, place - 1) : place] == "&":  # of an entity
        return one
    return one if one in "(){}!^" and not (one == "!" and text[place + 1 : place + 2] == "[") else f"\\{one}"


def code(text: str) -> str:
    """A code span; the fence is longer than any run of backquotes inside."""
    text = " ".join(clean(text).split())
    fence, pad = "`" * (_longest(text) + 1), " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{pad}{text.replace('|', chr(92) + '|') if '|' in text else text}{pad}{fence}"


def _longest(text: str) -> int:
    """Backquotes in the longest run of them."""
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def markdown(document: model.Document) -> str:
    """The whole report; figures are the PNG files beside it."""
    lines = [f"# {escaped(document.title)}", "", f"*{escaped(document.kicker)}*", "", f"**{escaped(document.question)}**", ""]
    lines += [f"Label: **{escaped(document.label.text)}**", ""]
    figures = {figure.key: number for number, figure in enumerate(document.figures(), 1)}
    for block in document.opening:
        lines += _block(block, figures)
    if document.without_figures:
        lines += [escaped(document.without_figures), ""]
    for number, section in enumerate(document.sections, 1):
        lines += [f"## {number}. {escaped(section.title)}", ""]
        for block in section.blocks:
            lines += _block(block, figures)
        for part in section.parts:
            lines += [f"### {escaped(part.title)}", ""]
            for block in part.blocks:
                lines += _block(block, figures)
    lines += ["---", "", _inline(document.footer), ""]
    return "\n".join(lines)


def _inline(parts: model.Parts) -> str:
    return "".join(_piece(part, place == 0) for place, part in enumerate(parts))


def _piece(part: model.Inline, first: bool) -> str:
    if isinstance(part, str):
        inner = escaped(part)
        if not inner:
            return part and " "
        return f"{' ' if part[:1].isspace() else ''}{inner}{' ' if part[-1:].isspace() else ''}"
    if isinstance(part, model.Code):
        return code(part.text)
    if isinstance(part, model.Strong):
        inner = escaped(part.text.rstrip())
        return f"**{inner}**{' ' if part.text[-1:].isspace() else ''}"
    if isinstance(part, model.Label):
        return f"**{escaped(part.text)}**"
    return _number(part)


def _number(cell: model.Cell) -> str:
    return pretty(escaped(cell.text).removeprefix("\\")) if cell.number else escaped(cell.text)


def _block(block: model.Block, figures: dict[str, int]) -> Iterator[str]:
    if isinstance(block, model.Paragraph):
        quote = "> " if block.kind == "warning" else ""
        yield from (f"{quote}{_inline(block.parts)}", "")
    elif isinstance(block, model.Command):
        fence = "`" * max(3, _longest(block.text) + 1)
        yield from (f"{fence}sh", *(clean(block.text).splitlines()), fence, "")
    elif isinstance(block, model.Items):
        yield from (f"- {_inline(row)}" for row in block.rows)
        yield ""
    elif isinstance(block, model.Facts):
        yield from (f"- **{escaped(name)}**: {_inline(parts)}" for name, parts in block.rows)
        yield ""
    elif isinstance(block, model.Table):
        yield from _table(block)
    else:
        drawn = "" if block.svg else " (not drawn)"
        if block.svg:
            yield from (f"![{escaped(block.alternative)}](figures/{block.key}.png)", "")
        yield from (f"*Figure {figures[block.key]}{drawn}. {escaped(block.caption)}*", "")
        yield from ("<details><summary>The numbers of this figure</summary>", "", *_table(block.data), "</details>", "")


def _table(table: model.Table) -> Iterator[str]:
    yield from (f"**{escaped(table.caption)}**", "")
    yield f"| {' | '.join(escaped(column.title) for column in table.columns)} |"
    yield f"|{'|'.join('---:' if column.numeric else '---' for column in table.columns)}|"
    for row in table.rows:
        yield f"| {' | '.join(_number(cell) for cell in row)} |"
    yield ""
    for note in table.notes:
        yield from (f"{escaped(note)}", "")
    traces = list(table.traced())
    if traces:
        which = "this number is" if len(traces) == 1 else f"these {len(traces)} numbers are"
        yield from (f"<details><summary>Where {which} from</summary>", "")
        for where, cell in traces:
            assert cell.trace is not None
            yield f"- {escaped(where)}: {_number(cell)}. {escaped(cell.trace.in_words())}. {code(cell.trace.command)}"
        yield from ("", "</details>", "")
