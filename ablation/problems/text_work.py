"""What a worker process does with a model folder's files, which may be anybody's: render a chat template, ask a tokenizer.

A template is a program without files and network (jinja's sandbox), but with loops; a tokenizer's rules are regular expressions.
Either can take for ever and fill the memory, so both work under the limits of `problems.workers`.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any

LONGEST = 1 << 24
"""Characters of what is sent back, all texts together."""


def prepare() -> None:
    """Import what `work` needs, once for all children."""
    import jinja2.sandbox

    assert jinja2.sandbox
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        import tokenizers
    except ImportError:  # templates are rendered without it
        return
    assert tokenizers


def work(item: list[Any]) -> dict[str, Any]:
    """["render", template, messages, options], ["pieces", path, mark, ids] or ["encode", path, mark, text] ->
    {"found": text, texts or ids}, or {"failed": why}, or {"refused": what the template itself raised}."""
    try:
        found = {"render": _render, "pieces": _pieces, "encode": _encode}[item[0]](*item[1:])
    except _Refused as error:
        return {"refused": str(error)[:LONGEST]}
    except MemoryError:
        raise
    except BaseException as error:  # a template can fail in any way, and a tokenizer panics with an exception of its own
        return {"failed": str(error)[:1000] or type(error).__name__}
    if (len(found) if item[0] != "pieces" else sum(map(len, found))) > LONGEST:
        return {"failed": f"it makes a text of more than {LONGEST:,} characters"}
    return {"found": found}


class _Refused(Exception):
    pass


def _render(template: str, messages: list[dict[str, Any]], options: dict[str, Any]) -> str:
    return _compiled(template).render(messages=messages, bos_token="", eos_token="", **options)


def _pieces(path: str, mark: int, ids: list[int]) -> list[str]:
    from ablation.problems.pieces import token_pieces

    tokenizer = _tokenizer(path, mark)
    return token_pieces(lambda some: tokenizer.decode(list(some), skip_special_tokens=False), ids)


def _encode(path: str, mark: int, text: str) -> list[int]:
    return _tokenizer(path, mark).encode(text, add_special_tokens=False).ids


@lru_cache(maxsize=8)
def _tokenizer(path: str, mark: int) -> Any:
    """`mark` changes with the file."""
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(path)
    found.no_truncation()
    found.no_padding()
    return found


@lru_cache(maxsize=8)
def _compiled(template: str) -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise _Refused(message)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = lambda form: form  # the same for every effort
    made.filters["tojson"] = _tojson
    return made.from_string(template)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """The filter that tokenizers give to templates, with its defaults."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
