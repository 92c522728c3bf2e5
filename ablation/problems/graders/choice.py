r"""`choice`: the one option that an answer states, a letter A to Z in either case.

1. What is read is the inside of the last complete box, and nothing around it; without a box the whole visible answer.
   `*`, `_`, backticks, quotes, dollars, `\text{...}` and the like, and LaTeX's spaces are layout; full-width characters are
   plain ones. A box that `or`, `and` or a comma joins to the one before it is no answer.
2. The option stands behind `answer`, `choice`, `option` or `答案` and one of `is`, `must be`, `should be`, `would be`, `:`, `=`,
   `是` or a line end (`Final answer: D`), or behind `<answer>`. If there is no such place, it begins the text (`B`, `(B)`,
   `B. Paris`, `(C) because ...`).
3. The last such place counts. It must name an option, with no word of denial or doubt before it in its clause. If others
   name another option, there is no answer, unless the last is called `final`.
4. The text goes on with nothing, a mark, a reason, `is correct` or the option's text. The text that the prompt lists for
   another option is no answer. Nor is a word of denial or doubt (`B is wrong`, `A or ...`).
5. Another option named behind it is no answer, unless its clause rejects it (`not B`, `B is wrong`); nor is the same one
   rejected. Nor is one that is taken back (`No.`, `Wait`, `That is wrong.`).

So several options, and one that is named to be rejected, are no answer. What is in doubt is `no_answer`, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from ablation.problems.extract import boxed_answer, strip_groups
from ablation.problems.graders.text import grade_read
from ablation.problems.outcome import Grade
from ablation.problems.problem import Problem

_WRAPPED = re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mathsf)\s*\{([^{}]*)\}")
_SPACES = re.compile(r"\\(?:[ ,;:!]|q?quad\b)|~")
_WIDE = str.maketrans({0xFEE0 + code: chr(code) for code in range(0x21, 0x7F)} | {"。": ".", "、": ","})
_TAG = re.compile(r"<(/?)answer>", re.I)
_JOINED = re.compile(r"\}\s*\$?\s*(?:[,/&]|(?:\\text\s*\{\s*)?\b(?:or|and)\b\s*\}?)$", re.I)
_LAYOUT = re.compile(r"[*`$_\"\u201c\u201d]|\\(?=[()\[\]])")
_LISTED = re.compile(r"(?:(?<=\s)|^)(?:\(([A-Z])\)|([A-Z])[.):])(?=\s)")

_DENIED = (
    r"\b(?:not|\w+n't|cannot|never|no|nor|neither|wrong|incorrect|false|impossible|invalid|(?:ruled|reject|eliminat|exclud)\w*)\b"
)
_UNSURE = r"\b(?:if|whether|unless|maybe|perhaps|possibly|probably|might|could|may|suppose|assum\w*|doubt)\b"
_DOUBTED = rf"(?:\b(?:or|and|either|both|but)\b|{_UNSURE})"
_CORRECT = r"(?:correct|right|the\s+(?:(?:correct|right|best)\s+)?(?:answer|choice|option))\b"
_VERB = rf"\b(?:is(?!\s+{_CORRECT})|are|was|were|has|have|does|do|can|will|would|should|seems?|looks?|fits?|works?|also|too)\b"
_TAKEN_BACK = re.compile(
    r"\W*(?:hmm*|no|nope|(?:no )?wait(?: no)?|oops|actually|sorry|scratch that|i take (?:that|it) back|on second thought"
    r"|(?:that|this|it)(?:'s| is| was) (?:wrong|incorrect|false|not (?:right|correct)))\W*",
    re.I,
)
_LETTER = r"(?:\(\s*(?-i:[A-Za-z])\s*\)|(?<![\w'])(?-i:[A-Za-z])(?![\w']))"
_OPTION = rf"(?:(?:option|choice|letter|answer)\s+)?(?P<letter>{_LETTER})"
_PLACE = re.compile(
    r"(?P<final>\bfinal\s+)?(?:\b(?:answer|choice|option)|答案)"
    rf"(?:\s+(?:is|(?:must|should|would)\s+be)\b\s*:?|\s*[:=是]|[^\S\n]*\n)\s*(?:{_OPTION})?",
    re.I,
)
_FIRST = re.compile(rf"\s*{_OPTION}", re.I)
_GOES_ON = re.compile(r"\s*$|\s*\n|[.):,;!]+(?=\s|$)|\s+[-\u2013\u2014]\s|\s+\(not\b|,?\s+(?:because|since|as|is)\b", re.I)
_MARKS = " \n\t.):,;!-\u2013\u2014"
_AGAINST = re.compile(rf"(?!not\s+{_LETTER}){_DENIED}|{_DOUBTED}|{_VERB}|[/&?+]", re.I)  # `B, not A` speaks of A
_CLAUSE = re.compile(r"[.!?;:,\n]|\b(?:because|since|but|so|while|whereas|thus|hence|therefore)\b", re.I)
_NAMED = re.compile(_LETTER)
_ARTICLE = re.compile(rf"\s+(?!{_DENIED}|{_DOUBTED}|{_VERB})(?-i:[A-Za-z])", re.I)
_UNLISTED = "ABCDEFGHJK"  # no I: it is a word of its own


def read_letter(text: str, prompt: str = "") -> str | None:
    """The option that `text` states by the rules above, in upper case; None if there is not exactly one."""
    boxed = boxed_answer(text)
    if isinstance(boxed, Grade) and boxed.reason != "no_box":
        return None
    before = text[: text.rindex("\\boxed")] if isinstance(boxed, str) else ""
    if _JOINED.search(before[-40:].rstrip(" $\n")):
        return None
    text = _plain(text if isinstance(boxed, Grade) else boxed)
    places = list(_PLACE.finditer(text))
    starts = [0, *(place.end() for place in places)]
    clauses = [_CLAUSE.split(text[start : place.start()])[-1] for start, place in zip(starts, places, strict=False)]
    named = [_stated(place, clause) for place, clause in zip(places, clauses, strict=True)]
    last = places[-1] if places else _FIRST.match(text)
    if last is None or (places and named[-1] is None):
        return None
    if len(set(named) - {None}) > 1 and not last["final"]:
        return None
    return _left_alone(last["letter"], text[last.end() :], listed_options(prompt))


def _plain(text: str) -> str:
    """`text` without what is layout."""
    text = _TAG.sub(lambda found: "\n" if found[1] else "\nanswer: ", text.translate(_WIDE))
    text = _SPACES.sub(" ", _WRAPPED.sub(r"\1", text))
    return strip_groups(_LAYOUT.sub("", text).replace("\u2019", "'"))


def _stated(place: re.Match[str], before: str) -> str | None:
    """The letter that a place names, None if there is none or if the clause before it denies or doubts."""
    if not place["letter"] or re.search(f"{_DENIED}|{_DOUBTED}", before, re.I):
        return None
    return place["letter"].strip("()").strip().upper()


def _left_alone(stated: str, rest: str, listed: Mapping[str, str]) -> str | None:
    """The letter that is stated, if `rest`, the text behind it, leaves it as it is."""
    small = stated.strip("()").strip()
    letter = small.upper()
    if not (_GOES_ON.match(rest) or (stated.endswith(")") and rest[0].isspace())):
        return None
    behind = rest.lstrip(_MARKS)
    begins = [(len(text), name == letter) for name, text in listed.items() if _begins_with(behind, text)]
    if begins:
        length, own = max(begins)
        if not own:
            return None
        behind = behind[length:]
    if _AGAINST.match(behind.lstrip(_MARKS)):
        return None
    for clause in _CLAUSE.split(behind):
        if _TAKEN_BACK.fullmatch(clause):
            return None
        named = _options_named(clause, lower=small != letter) & {*(listed or _UNLISTED), letter}
        rejects = re.search(_DENIED, clause, re.I) and not re.search(_UNSURE, clause, re.I)
        if named and (letter in named or not rejects):
            return None
    return letter


def _options_named(clause: str, *, lower: bool) -> set[str]:
    """Letters in brackets, and capital letters that stand alone (small ones too, if `lower`); an article is none."""
    found = set()
    for one in _NAMED.finditer(clause):
        article = one[0] in "Aa" and _ARTICLE.match(clause, one.end())
        if one[0].startswith("(") or ((lower or one[0].isupper()) and not article):
            found.add(one[0].strip("()").strip().upper())
    return found


def _begins_with(behind: str, text: str) -> bool:
    return behind[: len(text)].casefold() == text.casefold() and not behind[len(text) : len(text) + 1].isalnum()


@cache
def listed_options(prompt: str) -> dict[str, str]:
    """Letter -> first line of the text of each option that the prompt lists last (`A. ...`, `(A) ...`): two or more."""
    prompt = _plain(prompt)
    marks = list(_LISTED.finditer(prompt))
    found: dict[str, str] = {}
    run: dict[str, str] = {}
    for mark, after in zip(marks, [*marks[1:], None], strict=False):
        name, text = mark[1] or mark[2], prompt[mark.end() : after.start() if after else None].strip()
        run = run if ord(name) == ord("A") + len(run) else {}
        if name == "A" or run:
            run[name] = text.split("\n")[0].rstrip(" .;,")
        if len(run) > 1 and all(run.values()):
            found = dict(run)
    return found


def grade_many(pairs: Sequence[tuple[Problem, str]], workers: int = 1) -> list[Grade]:
    """Both sides read as letters and compared."""
    read = cache(read_letter)  # a gold and most answers come many times
    return [
        grade_read(lambda text, prompt=problem.prompt: read(text, prompt), problem, answer, "not_one_letter")
        for problem, answer in pairs
    ]


def gold_answer(problem: Problem) -> str | None:
    """The gold itself."""
    return problem.gold
