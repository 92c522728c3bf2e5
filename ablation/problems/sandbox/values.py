"""Plain values as JSON, in test cases and between processes. Only the standard library: this file also runs in the sandbox.

None, bool, int, float, str, list and dict with text keys are themselves. The rest is an object with one key that begins with `$`:

    {"$tuple": [1, 2]}  {"$set": [1, 2]}  {"$frozenset": [1, 2]}  {"$bytes": "00ff"}  {"$complex": [1.0, 2.0]}
    {"$float": "nan"}  (or "inf", "-inf")  {"$int": "-0xff"}  {"$dict": [[1, "one"], [2, "two"]]}

A value of a subclass (Counter, defaultdict, a named tuple, an IntEnum) is the plain value that it holds. Anything else is no
plain value: no class, function or object ever travels, and reading a value never runs code.
"""

from __future__ import annotations

try:
    from _json import encode_basestring_ascii as quoted
except ImportError:
    from json.encoder import py_encode_basestring_ascii as quoted

MAX_DEPTH = 100
_SMALL = 1 << 63


class NotPlain(Exception):
    """There is no JSON form for this value; the message is the name of its type, or what is wrong with it."""


def encode(value, depth: int = 0):
    """`value` in the form above. Raises NotPlain."""
    if depth > MAX_DEPTH:
        raise NotPlain("nested too deeply")
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if issubclass(kind, int):
        number = int.__index__(value)
        return number if -_SMALL <= number < _SMALL else {"$int": hex(number)}
    if issubclass(kind, float):
        number = float.__float__(value)
        return number if number - number == 0 else {"$float": float.__repr__(number)}
    if issubclass(kind, str):
        return str.__str__(value)
    if kind is complex:
        return {"$complex": [encode(value.real), encode(value.imag)]}
    if issubclass(kind, bytes | bytearray):
        return {"$bytes": bytes(memoryview(value)).hex()}
    if issubclass(kind, list):
        return [encode(item, depth + 1) for item in list.__iter__(value)]
    if issubclass(kind, tuple):
        return {"$tuple": [encode(item, depth + 1) for item in tuple.__iter__(value)]}
    if issubclass(kind, set):
        return {"$set": [encode(item, depth + 1) for item in set.__iter__(value)]}
    if issubclass(kind, frozenset):
        return {"$frozenset": [encode(item, depth + 1) for item in frozenset.__iter__(value)]}
    if issubclass(kind, dict):
        pairs = [[encode(key, depth + 1), encode(item, depth + 1)] for key, item in dict.items(value)]
        plain = all(isinstance(key, str) for key, _ in pairs) and not (len(pairs) == 1 and pairs[0][0].startswith("$"))
        return dict(pairs) if plain else {"$dict": pairs}
    raise NotPlain(type.__repr__(kind)[:100])


def dump(value) -> bytes:
    """`value` in the form above, as JSON text. Raises NotPlain.

    Not by `json`: to load that takes a fresh Python as long as it takes to start.
    """
    return _text(encode(value)).encode()


def _text(form) -> str:
    if form is None:
        return "null"
    if form is True:
        return "true"
    if form is False:
        return "false"
    if isinstance(form, str):
        return quoted(form)
    if isinstance(form, list):
        return f"[{','.join([_text(item) for item in form])}]"
    if isinstance(form, dict):
        return f"{{{','.join([f'{quoted(key)}:{_text(item)}' for key, item in form.items()])}}}"
    return repr(form)  # a number of fewer than 20 digits, or a finite float


def tagged(value) -> tuple[str, object] | None:
    """Tag and content of an object with one `$` key, None for any other value."""
    if isinstance(value, dict) and len(value) == 1:
        ((tag, content),) = value.items()
        if tag.startswith("$"):
            return tag, content
    return None


def decode(value, depth: int = 0):
    """The value of a form that `encode` made, or that somebody wrote. Raises NotPlain."""
    if depth > MAX_DEPTH:
        raise NotPlain("nested too deeply")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [decode(item, depth + 1) for item in value]
    found = tagged(value)
    if found is None:
        return {key: decode(item, depth + 1) for key, item in value.items()}
    tag, content = found
    try:
        if tag == "$int":
            return int(content, 16)
        if tag == "$float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if tag == "$bytes":
            return bytes.fromhex(content)
        if tag in _SEQUENCES and isinstance(content, list):
            return _SEQUENCES[tag](decode(item, depth + 1) for item in content)
        if tag == "$complex":
            real, imaginary = (decode(part, depth + 1) for part in content)
            return complex(real, imaginary)
        if tag == "$dict":
            return {decode(key, depth + 1): decode(item, depth + 1) for key, item in content}
    except (TypeError, ValueError, OverflowError) as error:
        raise NotPlain(f"{tag}: {error}") from error
    raise NotPlain(f"{tag} is not such a value")


_SEQUENCES = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}
