r"""Units that `math` can tell apart: powers of names, each with its prefix, one side per another. Compared, never converted."""

from __future__ import annotations

import re
from collections import Counter

_WRITTEN = {
    "metre": "m metre meter",
    "inch": "in inch inches",
    "foot": "ft foot feet",
    "yard": "yd yard",
    "mile": "mi mile",
    "gram": "g gram",
    "pound": "lb lbs pound",
    "ounce": "oz ounce",
    "litre": "l L litre liter",
    "gallon": "gal gallon",
    "second": "s sec second",
    "minute": "min minute",
    "hour": "h hr hrs hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "yr year",
    "a.m.": "am AM",
    "p.m.": "pm PM",
    "degree": "deg degree °",
    "radian": "rad radian",
    "celsius": "°C",
    "fahrenheit": "°F",
    "kelvin": "K kelvin",
    "cent": "cent",
    "dollar": "USD dollar",
    "euro": "EUR euro",
    "poundsterling": "GBP poundsterling",
    "yen": "JPY yen",
    "joule": "J joule",
    "watt": "W watt",
    "newton": "N newton",
    "pascal": "Pa pascal",
    "volt": "V volt",
    "ampere": "A amp ampere",
    "ohm": "Omega Ω ohm",
    "hertz": "Hz hertz",
    "mole": "mol mole",
    "electronvolt": "eV electronvolt",
    "calorie": "cal calorie",
    "unit": "unit",
}
_PREFIXED = ("metre", "gram", "litre", "second", "joule", "watt", "newton", "pascal", "volt", "ampere", "ohm", "hertz", "mole")
_PREFIXED += ("electronvolt", "calorie")
_PREFIXES = dict(pico="p", nano="n", micro="µ", milli="m", centi="c", kilo="k", mega="M", giga="G")
_NAMES = {
    (prefix if len(way) > 3 else _PREFIXES[prefix]) + way: prefix + name
    for name in _PREFIXED
    for way in _WRITTEN[name].split()
    for prefix in _PREFIXES
}
_NAMES |= {way: name for name, ways in _WRITTEN.items() for way in ways.split()}
_SHORT = {"mile/hour": "mile/h", "kilometre/hour": "km/h", "metre/second": "m/s"}
_TOGETHER = {"mph": "mile/hour", "kph": "km/hour", "kmh": "km/hour", "mpg": "mile/gallon"}
_IN_WORDS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_FACTOR = re.compile(r"(°?[^\s\d^]+?)\s*(?:\^?\s*\{?(-?\d)\}?)?")


def unit_name(written: str) -> str | None:
    """The unit's name with its power, for instance `centimetre^2` for `cm^2` or `square centimeters`; None if it is not known."""
    written = re.sub(r"\bcdot\b|[·*]", " ", " ".join(written.replace("\\", " ").split())).rstrip(".")
    sides = re.split(r"\s*/\s*|\s*\bper\s+", _TOGETHER.get(written.lower(), written))
    powers: Counter[str] = Counter()
    for place, side in enumerate(sides):
        found = _powers(side)
        if not found:
            return None
        powers.update({name: -power if place else power for name, power in found.items()})
    if len(powers) == 1 or len(sides) == 1:
        return "*".join(_raised(*one) for one in sorted(powers.items()))
    top, bottom = (
        "*".join(_raised(name, sign * powers[name]) for name in sorted(powers) if sign * powers[name] > 0) for sign in (1, -1)
    )
    return _SHORT.get(f"{top}/{bottom}", f"{top}/{bottom}")


def _raised(name: str, power: int) -> str:
    return name if power == 1 else f"{name}^{power}"


def _powers(side: str) -> Counter[str] | None:
    """Each name in a product of units, and its power."""
    powers: Counter[str] = Counter()
    times, last = 1, ""
    for word in re.sub(r"\s*\^\s*", "^", side).split():
        if word.lower() in _IN_WORDS:
            if word.lower().endswith("ed") and last:
                powers[last] += _IN_WORDS[word.lower()] - 1
            times = 1 if word.lower().endswith("ed") else _IN_WORDS[word.lower()]
            continue
        found = _FACTOR.fullmatch(word)
        last = _known(found[1]) if found else ""
        if not found or not last:
            return None
        powers[last] += times * int(found[2] or 1)
        times = 1
    return powers


def _known(word: str) -> str:
    return next((_NAMES[way] for way in (word, word.lower(), word.lower().removesuffix("s")) if way in _NAMES), "")
