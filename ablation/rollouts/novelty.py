"""Does a text go on without saying anything new? A check on its words, so it is the same for any tokenizer.

Words are runs of letters, numbers, and single characters of scripts that write no blanks; capitals do not count. A word is new if
the `GRAM` words that end with it, each number read as the same number, were not in the text before. Where they were, a number is
new all the same if it did not follow these words and the two numbers before it already. So a sentence that comes again with
another counter says one new thing, and a case of a proof says several.
"""

from __future__ import annotations

import re
from fractions import Fraction

LAST = 200
"""Words at the end of the text that are looked at; a shorter text has no novelty."""
GRAM = 4
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[\u2e80-\uffdc\U00020000-\U0003ffff]|[^\W\d_\u2e80-\uffdc\U00020000-\U0003ffff]+")


def novelty(text: str) -> Fraction | None:
    """The share of the last `LAST` words that are new; None for a text of fewer words."""
    words = _WORD.findall(text.lower())
    if len(words) < LAST:
        return None
    grams: set[tuple[str, ...]] = set()
    facts: set[tuple[tuple[str, ...], str, str, str]] = set()
    masked = ["0" if word[0].isdecimal() else word for word in words]
    older = old = ""
    new = 0
    for place, word in enumerate(words):
        gram, is_number = tuple(masked[max(0, place - GRAM + 1) : place + 1]), masked[place] == "0"
        fact = (gram, older, old, word)
        if place >= len(words) - LAST:
            new += gram not in grams or (is_number and fact not in facts)
        grams.add(gram)
        if is_number:
            facts.add(fact)
            older, old = old, word
    return Fraction(new, LAST)
