"""Units that `math` can tell apart: name -> the ways to write it. They are compared, never converted."""

from __future__ import annotations

import re

_WRITTEN = {
    "millimetre": "mm millimetre millimeter",
    "centimetre": "cm centimetre centimeter",
    "metre": "m metre meter",
    "kilometre": "km kilometre kilometer",
    "inch": "in inch inches",
    "foot": "ft foot feet",
    "yard": "yd yard",
    "mile": "mi mile",
    "milligram": "mg milligram",
    "gram": "g gram",
    "kilogram": "kg kilogram",
    "pound": "lb lbs pound",
    "ounce": "oz ounce",
    "millilitre": "ml mL millilitre milliliter",
    "litre": "l L litre liter",
    "second": "s sec second",
    "minute": "min minute",
    "hour": "h hr hrs hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "yr year",
    "degree": "deg degree °",
    "radian": "rad radian",
    "celsius": "°C",
    "fahrenheit": "°F",
    "cent": "cent",
    "dollar": "USD dollar",
    "euro": "EUR euro",
    "joule": "J joule",
    "watt": "W watt",
    "newton": "N newton",
    "km/h": "km/h kph kmh",
    "mile/h": "mph mi/h",
    "m/s": "m/s",
    "unit": "unit",
}
_NAMES = {way: name for name, ways in _WRITTEN.items() for way in ways.split()}
_POWER = re.compile(r"\^\{?(-?\d)\}?$")
_IN_WORDS = {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}


def unit_name(written: str) -> str | None:
    """The unit's name with its power, for instance `centimetre^2` for `cm^2` or `square centimeters`; None if it is not known."""
    written = " ".join(written.replace("\\", " ").split()).rstrip(".")
    power = "1"
    if found := _POWER.search(written.replace(" ", "")):
        power, written = found[1], written[: written.index("^")].strip()
    first, _, rest = written.partition(" ")
    if rest and first.lower() in _IN_WORDS:
        power, written = _IN_WORDS[first.lower()], rest
    name = _NAMES.get(written) or _NAMES.get(written.lower()) or _NAMES.get(written.lower().removesuffix("s"))
    return name and (name if power == "1" else f"{name}^{power}")
