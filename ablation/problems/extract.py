"""Where the answer is in a visible answer: the last complete `\\boxed{...}`.

- A box is the command `\\boxed`, white space if any, and braces that balance; escaped braces (`\\{`, `\\}`) are skipped, and
  `\\\\` is a line break, so `\\\\boxed{1}` is no box. A box that never closes is no answer; one that comes later hides no
  complete box before it.
- The last box is the one that closes last, so of nested boxes the outermost counts. It is opened: every box inside it becomes the
  group `{...}`, and white space and groups around the whole go.
"""

from __future__ import annotations

import re

from ablation.problems.outcome import Grade

_TOKEN = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
_BOXED = re.compile(r"(\\\\)|\\boxed\s*(?=\{)")


def last_box(text: str) -> str | None:
    """What is in the last complete box, opened; None if there is none. Time is linear in the length of `text`."""
    open_braces: list[tuple[int, bool]] = []
    found: tuple[int, int] | None = None
    for token in _TOKEN.finditer(text):
        kind = token[0]
        if kind.startswith("\\boxed"):
            open_braces.append((token.end(), True))
        elif kind == "{":
            open_braces.append((token.end(), False))
        elif kind == "}" and open_braces:
            start, is_box = open_braces.pop()
            if is_box:
                found = (start, token.start())
    if found is None:
        return None
    inside = _BOXED.sub(lambda match: match[1] or "", text[found[0] : found[1]])
    return strip_groups(inside)


def boxed_answer(text: str) -> str | Grade:
    """What is in the last complete box, or the grade `no_answer` with the reason: no_box, unclosed_box, empty_box."""
    found = last_box(text)
    if found:
        return found
    if found is not None:
        return Grade("no_answer", None, "empty_box")
    opened = any(token[0].startswith("\\boxed") for token in _TOKEN.finditer(text))
    return Grade("no_answer", None, "unclosed_box" if opened else "no_box")


def strip_groups(text: str) -> str:
    """`text` without white space around it and without the braces of groups that hold all of it."""
    opened: list[int] = []
    closes: dict[int, int] = {}
    for token in _TOKEN.finditer(text):
        if token[0] == "}":
            if opened:
                closes[opened.pop()] = token.start()
        elif not token[0].startswith("\\") or token[0].startswith("\\boxed"):
            opened.append(token.end() - 1)
    start, stop = 0, len(text)
    while True:
        while start < stop and text[start].isspace():
            start += 1
        while start < stop and text[stop - 1].isspace():
            stop -= 1
        if start < stop and text[start] == "{" and closes.get(start) == stop - 1:
            start, stop = start + 1, stop - 1
        else:
            return text[start:stop]
