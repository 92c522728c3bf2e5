"""Strict reading of one YAML document: plain data, the place of every value, and every fault at once.

PyYAML's events are used, not its constructors: they carry line and column, and nothing is guessed from a scalar
before it is looked at here by the core rules of YAML 1.2 (section 10.3.2 of the specification), so `2e-5` is a number
and `no` a word. Refused as a whole: tags, anchors, aliases, merge keys, keys that are not text, keys that appear
twice, a second document, NaN and infinities, and anything larger or deeper than a plan can be.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from ablation.unseen import UNSEEN

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
MAX_FAULTS = 100
TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
MAX_DIGITS = 40
PLACEHOLDER = re.compile(r"TODO\b")
"""A value or name that begins with the word TODO is still to be filled in."""

Path = tuple[str | int, ...]

_NULL = re.compile(r"(?:null|Null|NULL|~|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?[0-9]+\Z")
_OCTAL = re.compile(r"0o[0-7]+\Z")
_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_UNSEEN = "".join(f"{chr(codes[0])}-{chr(codes[-1])}" for codes in UNSEEN)
# U+0085, U+2028 and U+2029 end a line for YAML 1.1 (PyYAML) but not for 1.2.
_UNSAFE_TEXT = re.compile(f"[\u0085\u2028\u2029{_UNSEEN}]")
_UNSAFE_VALUE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff{_UNSEEN}]")


@dataclass(frozen=True, order=True)
class Fault:
    """One thing that is wrong with the document. `line` and `column` count from 1."""

    line: int
    column: int
    path: Path = field(compare=False)
    text: str


@dataclass
class Document:
    """What was read, as far as it could be read."""

    value: Any
    """dict, list, str, int, float, bool or None."""
    values: dict[Path, tuple[int, int]]
    """Path -> line and column of the value there."""
    keys: dict[Path, tuple[int, int]]
    """Path -> line and column of the key that introduces the value there."""
    quoted: set[Path]
    """Paths of the scalars that are quoted or in block style."""
    faults: list[Fault]
    """All faults, in the order of the file."""
    unread: set[Path]
    """Paths whose value could not be read or is a placeholder; what is there is `None`."""


class _Stop(Exception):
    """Reading cannot go on after this fault."""


def read_yaml(data: bytes) -> Document:
    """Read `data` as one strict YAML document. Never raises for bad input: look at `faults`."""
    reader = _Reader()
    try:
        text = reader.decode(data)
        reader.read(text)
    except _Stop:
        pass
    reader.document.faults.sort()
    return reader.document


def resolve_scalar(text: str) -> Any:
    """The value of a plain scalar by the core rules of YAML 1.2; raises ValueError for a number that cannot be kept."""
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    if _NOT_FINITE.match(text):
        raise ValueError(f"`{text}` is not a finite number")
    if len(text) > MAX_DIGITS and (_INT.match(text) or _HEX.match(text) or _OCTAL.match(text) or _FLOAT.match(text)):
        raise ValueError(f"a number of {len(text)} characters; at most {MAX_DIGITS} can be read")
    if _INT.match(text):
        return int(text)
    if _OCTAL.match(text) or _HEX.match(text):
        return int(text, 0)
    if _FLOAT.match(text):
        value = float(text)
        mantissa = re.split("[eE]", text)[0]
        if math.isinf(value) or (value == 0 and re.search("[1-9]", mantissa)):
            raise ValueError(f"`{text}` is beyond the range of a 64-bit float")
        return value
    return text


class _Loader(yaml.SafeLoader):
    """PyYAML's parser, which looks ahead for up to 1,024 characters: `[[[[...` must not get that far."""

    def fetch_flow_collection_start(self, token_class):
        if self.flow_level > MAX_DEPTH:
            raise yaml.scanner.ScannerError(None, None, TOO_DEEP, self.get_mark())
        super().fetch_flow_collection_start(token_class)


class _Reader:
    def __init__(self) -> None:
        self.document = Document(None, {}, {}, set(), [], set())

    def fault(self, line: int, column: int, path: Path, text: str) -> None:
        self.document.faults.append(Fault(line, column, path, text))
        if len(self.document.faults) >= MAX_FAULTS:
            raise _Stop

    def decode(self, data: bytes) -> str:
        if len(data) > MAX_BYTES:
            self.stop(1, 1, f"the file has {len(data):,} bytes; a plan has at most {MAX_BYTES:,}")
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            self.stop(1, 1, "the file is in UTF-16; save it as UTF-8")
        data = data.removeprefix(b"\xef\xbb\xbf")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            before = data[: error.start]
            column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
            self.stop(before.count(b"\n") + 1, column, f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8")
        unsafe = _UNSAFE_TEXT.search(text)
        if unsafe:
            self.stop(*place(text, unsafe.start()), f"character U+{ord(unsafe[0]):04X} is invisible; remove it")
        return text

    def stop(self, line: int, column: int, text: str) -> None:
        self.fault(line, column, (), text)
        raise _Stop

    def read(self, text: str) -> None:
        events = yaml.parse(text, Loader=_Loader)
        try:
            self.stream(events)
        except yaml.reader.ReaderError as error:
            self.stop(*place(text, error.position), f"character U+{int(error.character):04X} is not allowed in YAML")
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            self.stop(line, column, _explain(error))
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            self.stop(1, 1, f"not valid YAML: {error}")  # for instance an escape beyond Unicode

    def stream(self, events) -> None:
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.stop(*_at(event), "a second document starts here; a plan is one document")
            elif isinstance(event, yaml.NodeEvent):
                self.document.value = self.node(event, events, (), 0)
        if self.document.value is None and not self.document.faults:
            self.stop(1, 1, "the file is empty; `ablation plan new NAME` writes a starting plan")
        if not isinstance(self.document.value, dict) and not self.document.faults:
            self.stop(*self.document.values[()], "a plan is a mapping of `field: value` lines")

    def node(self, event, events, path: Path, depth: int) -> Any:
        """The value that starts with `event`; takes its other events from `events`."""
        line, column = _at(event)
        self.document.values[path] = (line, column)
        if depth > MAX_DEPTH:
            self.fault(line, column, path, TOO_DEEP)
            raise _Stop
        if isinstance(event, yaml.AliasEvent):
            return self.unread(line, column, path, f"alias `*{event.anchor}`: aliases are not read; write the value out")
        if event.anchor is not None:
            self.fault(line, column, path, f"anchor `&{event.anchor}`: anchors are not read; remove it")
        if event.tag is not None:
            self.unread(line, column, path, f"tag `{event.tag}`: tags are not read; remove it")
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(events, path, depth)
        return self.mapping(events, path, depth)

    def unread(self, line: int, column: int, path: Path, text: str) -> None:
        self.document.unread.add(path)
        self.fault(line, column, path, text)

    def scalar(self, event, path: Path) -> Any:
        line, column = _at(event)
        text = event.value
        unsafe = _UNSAFE_VALUE.search(text)
        if unsafe:
            kind = "invisible" if re.match(f"[{_UNSEEN}]", unsafe[0]) else "control"
            return self.unread(line, column, path, f"the text holds the {kind} character U+{ord(unsafe[0]):04X}; remove it")
        if PLACEHOLDER.match(text):
            return self.unread(line, column, path, f"still the placeholder `{_short(text)}`; fill it in")
        if event.style is not None:  # quoted or block style: text, whatever it looks like
            self.document.quoted.add(path)
            return text
        try:
            return resolve_scalar(text)
        except ValueError as error:
            return self.unread(line, column, path, str(error))

    def sequence(self, events, path: Path, depth: int) -> list:
        items: list = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self.node(event, events, (*path, len(items)), depth + 1))
        return items

    def mapping(self, events, path: Path, depth: int) -> dict:
        result: dict[str, Any] = {}
        seen: dict[Any, int] = {}  # normalized key -> line
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            line, column = _at(event)
            key = self.key(event, events, path, depth)
            name = str(key) if key is not None else f"<{line}:{column}>"
            same = (isinstance(key, bool), key)  # `1` and `1.0` are one key, `1` and `true` are not
            if key is not None and same in seen:
                self.fault(line, column, (*path, name), f"key `{name}` appears twice: here and in line {seen[same]}")
                name = f"<{line}:{column}>"
                self.node(next(events), events, (*path, name), depth + 1)
                continue
            if key is not None:
                seen[same] = line
            self.document.keys[(*path, name)] = (line, column)
            value = self.node(next(events), events, (*path, name), depth + 1)
            if isinstance(key, str):
                result[key] = value
        return result

    def key(self, event, events, path: Path, depth: int) -> Any:
        """The key that starts with `event`, or None if it is no key (which is then a fault)."""
        line, column = _at(event)
        if not isinstance(event, yaml.ScalarEvent):
            self.node(event, events, (*path, f"<{line}:{column}>"), depth + 1)
            if not isinstance(event, yaml.AliasEvent):
                self.fault(line, column, path, "a key must be text; a template's `{{ ... }}` must be filled in, or quoted")
            return None
        if event.anchor is not None or event.tag is not None:
            self.fault(line, column, path, f"key `{_short(event.value)}` has an anchor or a tag; they are not read")
        if event.style is None and event.value == "<<":
            self.fault(line, column, path, "merge key `<<`: merge keys are not read; write the fields out")
            return None
        if PLACEHOLDER.match(event.value):
            self.fault(line, column, path, f"still the placeholder `{_short(event.value)}` as a name; fill it in")
            return None
        if _UNSAFE_VALUE.search(event.value):
            self.fault(line, column, path, "the key holds a control character; remove it")
            return None
        if event.style is not None:
            return event.value
        try:
            key = resolve_scalar(event.value)
        except ValueError:
            key = math.nan
        if not isinstance(key, str):
            self.fault(line, column, path, f"key `{event.value}` is not text; put quotes around it")
        return None if isinstance(key, float) and math.isnan(key) else key


def place(text: str, index: int) -> tuple[int, int]:
    """Line and column, counted from 1, of the character at `index`."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _at(event) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _short(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    return first if len(first) <= 40 else first[:37] + "..."


def _explain(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "unreadable"
    if problem == TOO_DEEP:
        return problem
    if "'\\t'" in problem:
        problem = "a tab; indent with spaces"
    elif "found character" in problem and "cannot start" in problem:
        problem = f"{problem}; put quotes around the text"
    elif "mapping values are not allowed" in problem:
        problem = "a second `: ` in one line; put quotes around the text, or check the indentation"
    else:
        problem = " ".join(part for part in (error.context, problem) if part)
    return f"not valid YAML: {problem}"
