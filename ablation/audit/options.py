"""The option that an answer to a `choice` problem states, read with this audit's own code.

The rules are those of plans/README.md ("How an option is read"). Here the text is cut in two, what stands before the option and
what stands behind it, and each side is asked what it says, word by word.
"""

from __future__ import annotations

import re

DENY = {"not", "cannot", "never", "no", "nor", "neither", "wrong", "incorrect", "false", "impossible", "invalid"}
DENY_BEGIN = ("ruled", "reject", "eliminat", "exclud")
UNSURE = {"if", "whether", "unless", "maybe", "perhaps", "possibly", "probably", "might", "could", "may", "suppose", "doubt"}
JOINED = {"or", "and", "either", "both", "but"}
VERBS = {
    "is",
    "are",
    "was",
    "were",
    "has",
    "have",
    "does",
    "do",
    "can",
    "will",
    "would",
    "should",
    "seem",
    "seems",
    "look",
    "looks",
}
VERBS |= {"fit", "fits", "work", "works", "also", "too"}
TAKES_BACK = {
    "no",
    "nope",
    "wait",
    "no wait",
    "wait no",
    "no wait no",
    "oops",
    "actually",
    "sorry",
    "scratch that",
    "on second thought",
}
TAKES_BACK |= {"i take that back", "i take it back"}
TAKES_BACK |= {
    f"{this}{verb} {wrong}"
    for this in ("that", "this", "it")
    for verb in ("'s", " is", " was")
    for wrong in ("wrong", "incorrect", "false", "not right", "not correct")
}
TURNS = "because|since|but|so|while|whereas|thus|hence|therefore"
ALONE = r"(?<![\w'])[A-Za-z](?![\w'])"
LETTER = rf"\(\s*[A-Za-z]\s*\)|{ALONE}"
LONG = 1000
"""Characters that are looked at for the next word."""
MARKS = " \n\t.):,;!-\u2013\u2014"
LAYOUT = str.maketrans("", "", '*`$_"\u201c\u201d')
WIDE = str.maketrans("".join(map(chr, range(0xFF01, 0xFF5F))) + "。、", "".join(map(chr, range(0x21, 0x7F))) + ".,")


def option(answer: str, prompt: str) -> str | None:
    """The one option that `answer` states, in upper case, or None."""
    opened, inside = box(answer)
    if opened and not inside:
        return None
    if inside is not None and is_joined(answer[: answer.rindex("\\boxed")]):
        return None
    text = plain(answer if inside is None else inside)
    link = r"(?:\s+(?:is|must\s+be|should\s+be|would\s+be)\b\s*:?|\s*[:=是]|[^\S\n]*\n)\s*"
    last, letters, seen = None, set(), 0
    for called in re.finditer(rf"(?i:(\bfinal\s+)?(?:\b(?:answer|choice|option)|答案){link})", text):
        if called.start() < seen:
            continue
        named = after_a_name(text, called.end())
        clause = clauses(text[seen : called.start()])[-1]
        seen = named.end() if named else called.end()
        last = None if named is None or any(denies(word) or doubts(word) for word in words(clause)) else named
        letters.add(letter_of(last))
        final = bool(called[1])
    if seen == 0:
        last, final = after_a_name(text, len(text) - len(text.lstrip())), False
    if last is None or (len(letters - {None}) > 1 and not final):
        return None
    return letter_of(last) if left_alone(last[0], text[last.end() :], listed(prompt)) else None


def is_joined(before: str) -> bool:
    """Whether the text before a box ends with another box and a word or mark that joins the two."""
    before = before[-40:].rstrip(" $\n")
    if before.endswith((",", "/", "&")):
        rest = before[:-1]
    else:
        joined = re.search(r"(?i)(?:\\text\s*\{\s*)?\b(?:or|and)\b\s*\}?$", before)
        if not joined:
            return False
        rest = before[: joined.start()]
    return bool(re.search(r"\}\s*\$?\s*$", rest))


def after_a_name(text: str, place: int) -> re.Match[str] | None:
    """The letter at `place`, behind the word `option` or the like if there is one."""
    name = re.compile(r"(?:option|choice|letter|answer)\s+", re.I).match(text, place)
    letter = re.compile(LETTER)
    return (letter.match(text, name.end()) if name else None) or letter.match(text, place)


def letter_of(found: re.Match[str] | None) -> str | None:
    return found[0].strip("()").strip().upper() if found else None


def words(text: str) -> list[str]:
    return re.findall(r"\w+n't\b|\w+", text.lower())


def denies(word: str) -> bool:
    return word in DENY or word.startswith(DENY_BEGIN) or (word.endswith("n't") and len(word) > 3)


def unsure(word: str) -> bool:
    return word in UNSURE or word.startswith("assum")


def doubts(word: str) -> bool:
    return word in JOINED or unsure(word)


def clauses(text: str) -> list[str]:
    return re.split(rf"[.!?;:,\n]|\b(?i:{TURNS})\b", text)


def left_alone(stated: str, rest: str, options: dict[str, str]) -> bool:
    """Whether the text behind an option can follow an answer, and takes it neither back nor names another."""
    letter, bare = stated.strip("()").strip(), rest.lstrip()
    spaces, marks = rest[: len(rest) - len(bare)], len(rest) - len(rest.lstrip(".):,;!"))
    reason = re.match(r"(?i)(?:because|since|as|is)\b", rest.removeprefix(",").lstrip())
    follows = not bare or "\n" in spaces or (marks and rest[marks : marks + 1].strip() == "")
    follows = follows or (spaces and re.match(r"(?i)\(not\b", bare))
    follows = follows or (spaces and (stated[0] == "(" or (bare[0] in "-\u2013\u2014" and bare[1:2].isspace())))
    if not follows and not (reason and rest.removeprefix(",")[0].isspace()):
        return False
    behind = rest.lstrip(MARKS)
    texts = [(len(said), name) for name, said in options.items() if begins(behind, said)]
    longest = max((length for length, _ in texts), default=0)
    if texts and (longest, letter.upper()) not in texts:
        return False
    behind = behind[longest:]
    if against(behind.lstrip(MARKS)):
        return False
    known = {*(options or "ABCDEFGHJK"), letter.upper()}
    for clause in clauses(behind):
        if takes_back(clause):
            return False
        named = options_named(clause, small=letter.islower()) & known
        rejects = any(map(denies, words(clause))) and not any(map(unsure, words(clause)))
        if named and (letter.upper() in named or not rejects):
            return False
    return True


def takes_back(clause: str) -> bool:
    said = re.sub(r"^\W+|\W+$", "", clause).lower()
    return said in TAKES_BACK or re.fullmatch("hmm*", said) is not None


def begins(text: str, said: str) -> bool:
    return text[: len(said)].casefold() == said.casefold() and not text[len(said) : len(said) + 1].isalnum()


def against(text: str) -> bool:
    """Whether the text begins with a mark that joins, or with a word that speaks against the option (`not B` is of another)."""
    of_another = re.match(rf"(?i:not)\s+(?:{LETTER})", text)
    return text[:1] in tuple("/&?+") or (bool(re.match(r"\w", text)) and not of_another and speaks_of_option(text))


def speaks_of_option(text: str) -> bool:
    """Whether the first word denies, doubts, or makes what is before it the subject of a sentence other than `is correct`."""
    first = re.match(r"\w+n't\b|\w+", text)[0].lower()
    right = re.match(r"(?i)is\s+(?:correct|right|the\s+(?:correct\s+|right\s+|best\s+)?(?:answer|choice|option))\b", text)
    return denies(first) or doubts(first) or (first in VERBS and not right)


def options_named(clause: str, *, small: bool) -> set[str]:
    """Letters in brackets and alone; an `A` before a plain word is an article."""
    found = set()
    for one in re.finditer(LETTER, clause):
        after = clause[one.end() : one.end() + LONG]
        word = after.lstrip()
        article = one[0] in "aA" and after != word and word[:1].isascii() and word[:1].isalpha() and not speaks_of_option(word)
        if one[0][0] == "(" or ((small or one[0].isupper()) and not article):
            found.add(one[0].strip("()").strip().upper())
    return found


def box(text: str) -> tuple[bool, str | None]:
    """(whether a box is opened, what is in the one that closes last, with the boxes inside it opened)."""
    opened, stack, last, place = False, [], None, 0
    while place < len(text):
        begun = re.compile(r"\\boxed\s*\{").match(text, place)
        if begun:
            opened = True
            stack.append(begun.end())
        elif text[place] == "{":
            stack.append(-1)
        elif text[place] == "}" and stack and (start := stack.pop()) >= 0:
            last = text[start:place]
        place = begun.end() if begun else place + (2 if text[place] == "\\" else 1)
    return opened, None if last is None else unbraced(re.sub(r"(\\\\)|\\boxed\s*(?=\{)", r"\1", last))


def unbraced(text: str) -> str:
    """Without white space around it and the braces that hold all of it."""
    stack, closes = [], {}
    for one in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if one[0] == "{":
            stack.append(one.start())
        elif one[0] == "}" and stack:
            closes[stack.pop()] = one.start()
    start, stop = 0, len(text)
    while True:
        while start < stop and text[start].isspace():
            start += 1
        while start < stop and text[stop - 1].isspace():
            stop -= 1
        if start == stop or closes.get(start) != stop - 1:
            return text[start:stop]
        start, stop = start + 1, stop - 1


def plain(text: str) -> str:
    """`text` without layout."""
    text = re.sub("(?i)</answer>", "\n", re.sub("(?i)<answer>", "\nanswer: ", text.translate(WIDE)))
    text = re.sub(r"\\(?:text(?:bf|rm|it)?|math(?:rm|bf|sf))\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\[ ,;:!]|\\quad\b|\\qquad\b|~", " ", text)
    return unbraced(re.sub(r"\\([()\[\]])", r"\1", text.translate(LAYOUT)).replace("\u2019", "'"))


def listed(prompt: str) -> dict[str, str]:
    """Letter -> first line of the text of each option that the prompt lists last: two or more, from A on."""
    pieces = re.split(r"(?<!\S)(?:\(([A-Z])\)|([A-Z])[.):])(?=\s)", plain(prompt))[1:]
    best: dict[str, str] = {}
    run: dict[str, str] = {}
    for one, two, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        name = one or two
        if name == "A" or ord(name) != ord("A") + len(run):
            run = {}
        if name == "A" or run:
            run[name] = text.strip().split("\n")[0].rstrip(" .;,")
        if len(run) > 1 and all(run.values()):
            best = dict(run)
    return best
