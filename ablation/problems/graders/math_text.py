r"""The writing of mathematics: what is not LaTeX becomes LaTeX, and what only looks different becomes the same.

1. Emphasis around the whole (`**73**`, `__73__`, a code mark) goes. Full-width and styled characters are plain ones. Unicode
   minus, times, pi, infinity, degree, root, superscripts and the like become their commands.
2. `\left`, `\right` and other sizes, fonts (`\mathbf`, `\bf`, `\underline`, a colour) go, and so do `\text` and `\mathrm`
   around what has no letter. `\dfrac`, `\tfrac` and `\nicefrac` are `\frac`. `**` is `^`. Every LaTeX and Unicode space is one
   blank; math delimiters and a dot, comma or semicolon at the end go.
3. Words: `pi`, `sqrt`, `infinity` (`inf`), `sin`, `ln`, `theta` and the like, on their own, are their commands; `3 x 10^8` is a
   product. `sqrt(...)` and `^(...)` hold what is in the brackets, `2^10` and `2^-0.5` the whole number, `\frac12` one digit each.
   The degrees in `\sin 30^\circ` are degrees. `3e8` is a power of ten.
4. `$` as a math delimiter goes. As a currency (`\$`, or one that is not closed) it stays, and so do €, £ and ¥; `US`, `USD` and
   the like before an amount go.
5. `5 million` is a product with a power of ten. Dots behind digits that repeat (`0.333...`) are a period. A prime makes another
   letter (`f'` is not `f`), and `^T` is a power like that of any letter.
"""

from __future__ import annotations

import re
import unicodedata

from ablation.problems.extract import strip_groups

_UNICODE = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "∗": "*", "÷": "/", "⁄": "/",
        "∕": "/", "∞": r"\infty ", "°": r"^\circ ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∩": r"\cap ",
        "±": r"\pm ", "∓": r"\mp ", "∨": r"\lor ", "∧": r"\land ", "∖": r"\setminus ", "∣": "|", "…": r"\ldots ",
        "﹣": "-", "′": "'", "\u2019": "'", "″": "''", "¢": r"\text{ cent}", "∛": r"\sqrt[3]", "∅": r"\emptyset ",
        "∈": r"\in ", "≈": r"\approx ", "、": ",", "。": ".", "\u200b": None,
        "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℚ": r"\mathbb{Q}", "ℕ": r"\mathbb{N}", "ℂ": r"\mathbb{C}",
        "π": r"\pi ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "θ": r"\theta ", "λ": r"\lambda ",
        "μ": r"\mu ", "ρ": r"\rho ", "σ": r"\sigma ", "φ": r"\phi ", "ω": r"\omega ",
    }
)  # fmt: skip
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "₀₁₂₃₄₅₆₇₈₉"
_PLAIN = str.maketrans(_RAISED + _LOWERED, "0123456789+-n0123456789")
_EMPHASIS = re.compile(r"(\*\*|__|[*`])\s*([^*`]+?)\s*\1", re.DOTALL)
_FONTS = "mathbf|boldsymbol|bm|mathit|mathsf|mathtt|mathnormal|textbf|textit|textsf|texttt|textnormal|emph|underline|fbox"
# `\\` is a line break: it is matched first, so that no command is read out of its second half.
_SPACE = re.compile(
    r"(\\\\)|\\[,;:> ]|\\(?:quad|qquad|thinspace|enspace)(?![A-Za-z])|[~\s\u00a0\u2000-\u200a\u202f\u205f\u3000]", re.ASCII
)
_NOTHING = re.compile(
    r"(\\\\)|\\checkmark(?![A-Za-z])|\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits)(?![A-Za-z])\.?|\\[!()\[\]]"
    r"|\\(?:bf|rm|it|sf|tt|em|bfseries|normalfont|tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![A-Za-z])"
    r"|\\(?:textcolor|colorbox|color)\s*\{[A-Za-z]+\}"
    rf"|\\(?:{_FONTS})(?:\s*(?=[{{\d])|\s+(?=[A-Za-z]))|\\phantom\s*\{{[^{{}}]*\}}"
)
_NUMBER_AS_TEXT = re.compile(rf"\\(?:text|mathrm|textrm|mbox|{_FONTS})\s*\{{\s*([^{{}}A-Za-z\\]*\d[^{{}}A-Za-z\\]*?)\s*\}}")
_WORD_AS_TEXT = re.compile(
    r"\\(?:text|mathrm|textrm|mbox|operatorname)\s*\{\s*"
    r"(pi|[Ii]nfinity|infty|inf|(?:arc)?(?:sin|cos|tan)|csc|cot|sinh|cosh|tanh|ln|log|exp|\\[A-Za-z]+|:)\s*\}"
)
_ALL_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox)\s*\{\s*((?:[A-Za-z] *= *)?[-+$€£¥]*[\d.][^{}]*)\}")
_CURRENCY = re.compile(r"\\\$|\\(?:euro|pounds|yen)(?![A-Za-z])")
_SIGNS = {r"\$": "$", r"\euro": "€", r"\pounds": "£", r"\yen": "¥"}
_CODE = re.compile(r"(?:(?:\\(?:text|mathrm)\s*\{\s*)?\b(USD?|AUD?|CAD?|EUR|GBP|HKD?)\s*(\}\s*)?)(?=[$€£¥]|\d)")
_LARGE = re.compile(
    r"(?<=\d) ?(\\(?:text|mathrm|textrm|mbox)\s*\{)? ?(hundred|thousand|million|billion|trillion)(?![A-Za-z]) ?(\})?"
)
_ZEROS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_PERIOD = re.compile(r"(?<![\d.])(\d{0,20}\.\d{0,20}?)(\d{1,6}?)\2{2,}(?:\.\.\.|\\[lcd]?dots(?![A-Za-z]))")  # 0.333...
_PRIMED = re.compile(r"([A-Za-z])(?:_(?:\{(\w+)\}|(\w)))?((?:'|\^\s*\\prime(?![A-Za-z])|\^\s*\{\s*(?:\\prime\s*)+\})+)")
_TRANSPOSED = re.compile(r"(?<!\})\s*\^\s*(?:T|\\(?:top|intercal)(?![A-Za-z])|\{\s*(?:T|\\top|\\intercal)\s*\})")
_LETTER_UNDER = re.compile(r"\\(overline|bar|dot|ddot|hat|vec|tilde)\s*(\d|(?<=\s)[A-Za-z])(?![A-Za-z])")
_WORD = re.compile(
    r"(?<![A-Za-z\\])(?:(?P<pi>[Pp]i|PI)|(?P<infty>[Ii]nfinity|infty|[Ii]nf|INF|oo)|(?P<sqrt>[Ss]qrt)|(?P<arc>arc|a)?(?P<trig>sin|cos|tan)"
    r"|(?P<same>csc|cot|sinh|cosh|tanh|ln|log|exp|theta|alpha|beta|gamma|delta|lambda|phi|omega))(?![A-Za-z])"
)
_TEN = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)")
# 3e8, 1.5e-7, 2E-3, 1e-05; 3e-5 is three times e, minus five, but see `without_e`.
_SCIENTIFIC = re.compile(
    r"(?<![A-Za-z\\\d.])(\d+(?:\.\d*)?|\.\d+) ?(e|E|\\(?:text|mathrm)\s*\{\s*[eE]\s*\})\s*\{?([+-]?)(\d+)\}?(?![\d.A-Za-z^])"
)
_IN_DEGREES = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\s*\^\s*(?:\d|\{\d+\}))?\s*)([({]?\s*)(\d+(?:\.\d+)?)\s*\^\s*(?:\\circ|\{\s*\\circ\s*\})(\s*[)}]?)"
)
_POWER = re.compile(
    r"\^\s*(?:([+-]\s*(?:\d+(?:\.\d+)?|[A-Za-z]|\\[A-Za-z]+)|\d+\.\d+|\d{2,}|e(?![A-Za-z])|\\(?!circ)[A-Za-z]+(?![A-Za-z{]))|(?=\())"
)
_ROOT = re.compile(r"\\sqrt(?![A-Za-z])\s*(\[[^\[\]]*\])?\s*(?:(?=\()|(\d|[A-Za-z]|\\[A-Za-z]+(?![A-Za-z{])))")
_CHOOSE = re.compile(r"(?:\{|^)\s*([^{}]+?)\s*\\choose\s*([^{}]+?)\s*(?:\}|$)|(?<![A-Za-z\\])C\((\d+), ?(\d+)\)")
_FRACTION = re.compile(r"(\\(?:frac|binom))(?![A-Za-z])\s*")
# 2(\frac{1}{2}) and (2)\frac{1}{2} are no mixed numbers.
_BESIDE_BRACKET = re.compile(r"((?<![_^.\dA-Za-z\\])\d+(?:\.\d+)?(?= ?\()|\)(?= ?(?:\(|\\frac(?![A-Za-z])))) ?")
_OTHER_NAMES = (
    (re.compile(r"\\(?:[dtc]|nice|s)frac(?![A-Za-z])"), r"\frac"),
    (re.compile(r"\\[dt]binom(?![A-Za-z])"), r"\binom"),
    (re.compile(r"\\ast(?![A-Za-z])"), "*"),
    (re.compile(r"\\(?:vee)(?![A-Za-z])"), r"\lor"),
    (re.compile(r"\\(?:wedge)(?![A-Za-z])"), r"\land"),
    (re.compile(r"\\backslash(?![A-Za-z])"), r"\setminus"),
    (re.compile(r"(?<=\\mathbb\{R\}) ?- ?(?=\\\{)"), r"\setminus "),
    (re.compile(r"\\log ?_ ?(?:e(?![A-Za-z])|\{ ?e ?\})"), r"\ln "),
    (re.compile(r"\\lg(?![A-Za-z])"), r"\log"),
    (re.compile(r"\{:\}|\\colon(?![A-Za-z])|(?<=\d) ?\\(?:text|mathrm)\s*\{ ?to ?\} ?(?=\d)"), ":"),
    (re.compile(r"\b[Aa]\.? ?[Mm]\.(?![A-Za-z])"), "AM"),
    (re.compile(r"\b[Pp]\.? ?[Mm]\.(?![A-Za-z])"), "PM"),
)
"""What is written in two ways, and the one that is read."""
_ARGUMENT = re.compile(r"\s*(\d|[A-Za-z]|\\[A-Za-z]+(?![A-Za-z]|\s*[{\[]))")


def clean(text: str) -> str:
    """`text` by the rules above."""
    text = text.strip()
    while found := _EMPHASIS.fullmatch(text):
        text = found[2]
    text = re.sub(f"[{_RAISED}]+", lambda found: f"^{{{found[0].translate(_PLAIN)}}}", text)
    text = re.sub(f"[{_LOWERED}]+", lambda found: f"_{{{found[0].translate(_PLAIN)}}}", text)
    text = _rooted("".join(map(_unstyled, text.translate(_UNICODE)))).replace("**", "^")
    text = _NUMBER_AS_TEXT.sub(_without_braces, text)
    text = _with_currency(text)
    for pattern, written in ((_NOTHING, ""), (_SPACE, " ")):
        text = pattern.sub(lambda found, written=written: found[1] or written, text)
    for pattern, command in _OTHER_NAMES:
        text = pattern.sub(lambda _, command=command: command, text)
    text = re.sub(r"\\(?:langle|lbrack)(?![A-Za-z])", "(", re.sub(r"\\(?:rangle|rbrack)(?![A-Za-z])", ")", text))
    text = re.sub(r"\\lbrace(?![A-Za-z])", r"\\{", re.sub(r"\\rbrace(?![A-Za-z])", r"\\}", text))
    text = strip_groups(strip_groups(re.sub(r"(?:\\\\| )+$", "", re.sub(r" +", " ", text))))
    text = _PERIOD.sub(r"\1\\overline{\2}", text)
    text = text if text.endswith("...") else strip_groups(text.rstrip(".,; "))
    return _braced(_spelled(_without_text(_LARGE.sub(_with_zeros, _PRIMED.sub(_primed, text)))))


def _with_zeros(found: re.Match[str]) -> str:
    opened, word, closed = found.groups()
    return rf"\times 10^{{{_ZEROS[word]}}}{opened if opened and not closed else '' if opened else closed or ''}"


def _primed(found: re.Match[str]) -> str:
    """`f'` as the letter `f_{p}`."""
    letter, index, short, marks = found.groups()
    return f"{letter}_{{{index or short or ''}{'p' * (marks.count(chr(39)) + marks.count('prime'))}}}"


def _with_currency(text: str) -> str:
    """Without dollars that delimit mathematics, and with one character for each currency."""
    if len(re.findall(r"(?<!\\)\$", text)) % 2 == 0:
        text = re.sub(r"(?<!\\)\$", "", text)
    return _CODE.sub("", _CURRENCY.sub(lambda found: _SIGNS[found[0]], text))


def _unstyled(character: str) -> str:
    """The plain character of a full-width or a mathematical bold, italic or script one."""
    if unicodedata.decomposition(character).startswith(("<wide>", "<font>")):
        return unicodedata.normalize("NFKC", character)
    return character


def _rooted(text: str) -> str:
    """The root sign: of the number, letter or bracket that follows it."""
    return re.sub(
        r"√\s*(\d+(?:\.\d+)?|[A-Za-z]|(?=[({\\]))", lambda found: rf"\sqrt{{{found[1]}}}" if found[1] else r"\sqrt", text
    )


def _without_text(text: str) -> str:
    found = _ALL_TEXT.fullmatch(text)
    return strip_groups(found[1] if found else _WORD_AS_TEXT.sub(r"\1", text))


def _without_braces(found: re.Match[str]) -> str:
    """The digits alone beside others (`\\mathbf{1}3`), else a group."""
    before, after = found.string[: found.start()].rstrip()[-1:], found.string[found.end() :][:1]
    return found[1] if before in tuple("0123456789.") or after in tuple("0123456789.") else f"{{{found[1]}}}"


def _spelled(text: str) -> str:
    """Step 3 up to the brackets."""

    def command(found: re.Match[str]) -> str:
        if found["pi"]:
            return r"\pi "
        if found["infty"]:
            return r"\infty "
        if found["sqrt"]:
            number = re.match(r"\s*(\d+(?:\.\d+)?)", text[found.end() :])
            return r"\sqrt<" if number else r"\sqrt"
        return rf"\{'arc' if found['arc'] else ''}{found['trig'] or found['same']} "

    spelled = re.sub(r"\\sqrt<\s*(\d+(?:\.\d+)?)", r"\\sqrt{\1}", _WORD.sub(command, text))
    spelled = _IN_DEGREES.sub(lambda found: rf"{found[1]}{found[2]}\frac{{{found[3]}\pi}}{{180}}{found[4]}", spelled)
    return re.sub(" +", " ", _TEN.sub(r"\\times ", _SCIENTIFIC.sub(_power_of_ten, spelled))).strip()


def _power_of_ten(found: re.Match[str]) -> str:
    digits, mark, sign, power = found.groups()
    if sign and mark == "e" and "." not in digits and not power.startswith("0"):
        return found[0]
    written = rf"{digits}\times 10^{{{sign.strip('+')}{power}}}"
    return written if found.string[: found.start()].rstrip()[-1:] in ("", "+", "-", "=", "(", "[", ",") else f"{{{written}}}"


def without_e(text: str) -> str:
    """`text` as one writes it who never means the number e: 3e-5 is a power of ten."""
    return re.sub(r"(?<![A-Za-z\\\d.])(\d+)e([+-]\d+)(?![\d.A-Za-z^])", r"\1E\2", text)


def _braced(text: str) -> str:
    """Braces around what a command takes without them."""
    text = _LETTER_UNDER.sub(r"\\\1{\2}", _TRANSPOSED.sub("^{T+0}", text))
    text = _POWER.sub(lambda found: f"^{{{found[1]}}}" if found[1] else "^", text)
    text = _ROOT.sub(lambda found: rf"\sqrt{found[1] or ''}" + (f"{{{found[2]}}}" if found[2] else ""), text)
    for command in ("^", r"\sqrt"):
        text = _brackets_to_braces(text, command + "(")
    text = _CHOOSE.sub(lambda found: rf"\binom{{{found[1] or found[3]}}}{{{found[2] or found[4]}}}", text)
    pieces = _FRACTION.split(text)
    for place in range(2, len(pieces), 2):
        rest, taken = pieces[place], ""
        for _ in range(2):
            if found := _ARGUMENT.match(rest):
                taken, rest = f"{taken}{{{found[1]}}}", rest[found.end() :]
            elif end := _group_end(rest):
                taken, rest = taken + rest[:end].strip(), rest[end:]
            else:
                break
        pieces[place] = taken + rest
    return _BESIDE_BRACKET.sub(r"\1\\cdot ", "".join(pieces))


def _brackets_to_braces(text: str, opening: str) -> str:
    start = text.find(opening)
    while start >= 0:
        first, depth = start + len(opening), 1
        for place in range(first, len(text)):
            depth += (text[place] == "(") - (text[place] == ")")
            if depth == 0:
                text = f"{text[: first - 1]}{{{text[first:place]}}}{text[place + 1 :]}"
                break
        start = text.find(opening, first)
    return text


def _group_end(text: str) -> int:
    """Where the group in braces that begins `text` ends; 0 if there is none."""
    if not text.lstrip().startswith("{"):
        return 0
    depth = 0
    for token in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        depth += (token[0] == "{") - (token[0] == "}")
        if depth == 0 and token[0] == "}":
            return token.end()
    return 0
