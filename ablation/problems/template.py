"""A model folder's chat template, looked at before locking: without a tokenizer, so without transformers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

FILE, CONFIG, OTHERS = "chat_template.jinja", "tokenizer_config.json", "additional_chat_templates"
WITH_TOOLS = "tool_use"
"""The template that a tokenizer with several takes where there are tools."""


def efforts_that_look_the_same(folder: Path, efforts: Iterable[str]) -> tuple[str, str] | None:
    """The first two of `efforts` for which the template renders the same text: it ignores `reasoning_effort`, or does not know
    one.

    None if all differ, and if the template cannot be rendered here: the run renders it again, with its tokenizer, and refuses the
    same (`render.refuse_equal_prompts`).
    """
    template = chat_template(folder)
    if template is None:
        return None
    seen: dict[str, str] = {}
    for effort in efforts:
        try:
            text = (
                _environment()
                .from_string(template)
                .render(
                    messages=[{"role": "user", "content": "?"}],
                    add_generation_prompt=True,
                    reasoning_effort=effort,
                    bos_token="",
                    eos_token="",
                )
            )
        except Exception:  # a template is a program; what it needs may not be here
            return None
        if text in seen:
            return seen[text], effort
        seen[text] = effort
    return None


class Refused(ValueError):
    """The template itself raised an error, as opposed to one that only its surroundings here lead to."""


class PlainTemplate:
    """A chat template without its tokenizer: renders texts as `render_chat` asks for them."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _compiled(self) -> Any:
        return _environment().from_string(self.text)

    def apply_chat_template(self, messages: list[dict[str, Any]], **options: Any) -> str:
        """The text; `options` go to the template. Raises `Refused`, or whatever a template can fail with."""
        return self._compiled.render(messages=messages, bos_token="", eos_token="", **options)


def chat_template(folder: Path, name: str = "default") -> str | None:
    """The template in `folder`, None if there is none that can be read. `name`: which one, where there are several."""
    file = folder / (FILE if name == "default" else f"{OTHERS}/{name}.jinja")
    try:
        if file.exists():
            return file.read_text(encoding="utf-8")
        found = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return None
    if isinstance(found, list):
        found = next((one.get("template") for one in found if isinstance(one, dict) and one.get("name") == name), None)
    elif name != "default":
        found = None
    return found if isinstance(found, str) else None


def _environment() -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise Refused(message)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = lambda form: form  # the same for every effort
    made.filters["tojson"] = _tojson
    return made


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """The filter that tokenizers give to templates, with its defaults."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
