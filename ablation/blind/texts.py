"""What a rater sees of an answer: the text without what only tells how it was made, by one rule for both models.

Removed are the tags that frame thinking (the plan's, `<think>` and `<thinking>`, opening or closing), special tokens
(`<|...|>` and the plan's end tokens), and at the end of a text a mark that says it was cut: `[truncated]`, `(cut off)`, `[...]`
and the like. Line ends become newlines, and white space at the ends of lines and of the text goes. Nothing else is changed: a
name, for instance, stays, because a changed text is no longer what the model wrote. The leak test lists such names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ablation.plan.model import Plan

_TAG = re.compile(r"</?think(?:ing)?>|<\|[^|<>\n]{1,60}\|>", re.IGNORECASE)
_SAID = r"(?:the |this )?(?:text |output |response |answer )?(?:was |is )?(?:truncated|cut(?: off| short)?)(?: [^\])>\n]{0,60})?"
_CUT = re.compile(rf"(?:\.\.\.|…)?\s{{0,3}}[\[(<]\s?(?:\.\.\.|…|{_SAID})\s?[\])>]\Z", re.IGNORECASE)
_LONGEST_CUT = 150


def tags_of(plan: Plan) -> list[str]:
    """The plan's own tags and end tokens."""
    tokens = plan.model.tokens
    return [tokens.open, tokens.close, *tokens.end]


def neutral(text: str, tags: Iterable[str] = ()) -> str:
    """`text` without tags, special tokens and a mark of a cut at its end."""
    for tag in sorted(tags, key=len, reverse=True):
        text = text.replace(tag, "")
    text = _TAG.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    text = "\n".join(line.rstrip() for line in text.split("\n")).strip("\n ")
    while found := _CUT.search(text, max(0, len(text) - _LONGEST_CUT)):
        text = text[: found.start()].rstrip()
    return text
