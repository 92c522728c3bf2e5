"""The tables of a document for a paper: booktabs, one file a table, and one that shows them all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ablation.report.post.document import Cell, Document, Table
from ablation.report.safe import clean

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "'": "'",
    "-": "-",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "–": "--",
    "’": "'",
    "…": r"\ldots{}",
    "\N{NO-BREAK SPACE}": "~",
}
_RANGE = re.compile(r"(?<=[0-9])-(?=[0-9])")
_MINUS = re.compile(r"(?<![0-9A-Za-z])-(?=[0-9])")
_TIMES = re.compile(r"(?<=[0-9])x(?![A-Za-z])")
PACKAGES = ("booktabs", "graphicx")
"""What the tables need, beside `\\usepackage[T1]{fontenc}`."""
_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""A table that is wider than the text is shrunk to it, and no other."""
_NOT_IN_T1 = "ĦħĸĿŀŉŦŧſ"
"""Letters of Latin Extended-A that LaTeX has no glyph for in the T1 encoding."""


def escaped(text: str) -> str:
    """`text` as TeX prints it. Letters that pdfLaTeX may not have are named by their code point."""
    return "".join(_character(one) for one in " ".join(clean(text).split(" ")).replace("\n", " ").replace("\t", " "))


def _character(one: str) -> str:
    if one in _SPECIAL:
        return _SPECIAL[one]
    return one if one.isascii() or (one.isalpha() and ord(one) < 0x180 and one not in _NOT_IN_T1) else f"[U+{ord(one):04X}]"


def number(text: str) -> str:
    """A number of ours: true minus, times sign, dashes in ranges."""
    if text == "-":
        return "--"
    text = _TIMES.sub("×", _MINUS.sub("−", _RANGE.sub("–", text)))
    return escaped(text.replace("<=", "≤").replace(">=", "≥"))


def latex_table(table: Table) -> str:
    """A floating table. What each number is from stands in comments below it."""
    return "\n".join([*_lines(table), ""])


def _lines(table: Table) -> Iterator[str]:
    columns = "".join("r" if column.numeric else "l" for column in table.columns)
    yield from (r"\begin{table}[htbp]", r"\centering", rf"\caption{{{escaped(table.caption)}}}", rf"\label{{tab:{table.key}}}")
    yield r"\small"
    yield from (_FIT, rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}", r"\toprule")
    yield f"{_first(' & '.join(escaped(column.title) for column in table.columns))} \\\\"
    yield r"\midrule"
    for place, row in enumerate(table.rows):
        if place and place in table.groups:
            yield r"\addlinespace"
        yield f"{_first(' & '.join(_cell(one) for one in row))} \\\\"
    yield from (r"\bottomrule", r"\end{tabular}}")
    if table.notes:
        notes = r" \\ ".join(_first(escaped(note)) for note in table.notes)
        yield rf"\par\smallskip{{\footnotesize\raggedright {notes}\par}}"
    yield r"\end{table}"
    for where, cell in table.traced():
        assert cell.trace is not None
        said = f"{where}: {cell.text}; {cell.trace.in_words()}; {cell.trace.command}"
        yield f"% {' '.join(clean(said).split())}"


def _first(text: str) -> str:
    """`text` where a row or a line begins: `[` and `*` there would be an argument of the `\\\\` or the rule before it."""
    return f"{{}}{text}" if text.lstrip(" ~")[:1] in ("[", "*") else text


def _cell(one: Cell) -> str:
    return number(one.text) if one.number else escaped(one.text)


def latex_files(document: Document) -> dict[str, str]:
    """Name -> content of a file for each table that a paper would print, and `all.tex`, which shows them."""
    tables = [table for table in document.tables() if table.latex]
    found = {f"{table.key}.tex": latex_table(table) for table in tables}
    head = [
        f"% Made by `ablation report`. In a paper: \\usepackage[T1]{{fontenc}}, "
        f"\\usepackage{{{','.join(PACKAGES)}}}, then \\input{{...}} each table.",
        r"\documentclass[a4paper]{article}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[utf8]{inputenc}",
        rf"\usepackage{{{','.join(PACKAGES)}}}",
        r"\usepackage[margin=22mm]{geometry}",
        r"\begin{document}",
        rf"\section*{{{escaped(document.title)}: {escaped(document.label.text)}}}",
        rf"{escaped(document.question)}\par\medskip",
        rf"\noindent Plan digest: \texttt{{\footnotesize {document.digest}}}",
    ]
    found["all.tex"] = "\n".join([*head, *(rf"\input{{{table.key}}}" for table in tables), r"\end{document}", ""])
    return found
