"""A model folder's chat template, looked at before locking: without a tokenizer, so without transformers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ablation.plan.section import did_you_mean
from ablation.problems.tokenizer import LIMITS, WORK
from ablation.problems.workers import Failure, run_items

FILE, CONFIG, OTHERS = "chat_template.jinja", "tokenizer_config.json", "additional_chat_templates"
WITH_TOOLS = "tool_use"
"""The template that a tokenizer with several takes where there are tools."""


def effort_fault(folder: Path, efforts: Iterable[str]) -> tuple[str, str] | None:
    """The first of `efforts` that the template does not know, and what to say of it: it renders the same text as for an earlier
    one, so it ignores `reasoning_effort` or does not know one; or it refuses this effort and takes another.

    None if all are well, and if the template cannot be rendered here: the run renders it again, with its tokenizer, and refuses
    the same (`render.refuse_equal_prompts`).
    """
    template = chat_template(folder)
    if template is None:
        return None
    seen: dict[str, str] = {}
    refused: dict[str, str] = {}
    for effort in efforts:
        try:
            text = PlainTemplate(template).apply_chat_template(
                [{"role": "user", "content": "?"}], add_generation_prompt=True, reasoning_effort=effort
            )
        except Refused as error:
            refused[effort] = str(error)
            continue
        except ValueError:  # what it needs may not be here
            return None
        if text in seen:
            return (
                effort,
                f"`{seen[text]}` and `{effort}` are rendered as the same prompt by the model's chat template; use one of them",
            )
        seen[text] = effort
    for effort, why in refused.items() if seen else ():
        return effort, f"the model's chat template refuses effort `{effort}`{did_you_mean(effort, seen.values())}: {why}"
    return None


class Refused(ValueError):
    """The template itself raised an error, as opposed to one that only its surroundings here lead to."""


class PlainTemplate:
    """A chat template without its tokenizer: renders texts as `render_chat` asks for them, in a process that can be killed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def apply_chat_template(self, messages: list[dict[str, Any]], **options: Any) -> str:
        """The text; `options` go to the template. Raises `ValueError`; `Refused` for what does not depend on what is here: its
        own error, or more time, memory or text than a prompt may take."""
        [found] = run_items(WORK, [["render", self.text, messages, options]], limits=LIMITS)
        if isinstance(found, Failure):
            limit = {"time": f"{LIMITS.seconds:g} s of processor time", "memory": f"{LIMITS.memory >> 30} GiB of memory"}
            raise Refused(f"takes more than {limit[found.kind]}") if found.kind in limit else ValueError(found.detail)
        if "refused" in found:
            raise Refused(found["refused"])
        if "failed" in found:
            raise ValueError(found["failed"])
        return found["found"]


def chat_template(folder: Path, name: str = "default") -> str | None:
    """The template in `folder`, None if there is none that can be read. `name`: which one, where there are several."""
    file = folder / (FILE if name == "default" else f"{OTHERS}/{name}.jinja")
    try:
        if file.is_file():
            return file.read_text(encoding="utf-8")
        found = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("chat_template")
    except (OSError, ValueError, AttributeError):
        return None
    if isinstance(found, list):
        found = next((one.get("template") for one in found if isinstance(one, dict) and one.get("name") == name), None)
    elif name != "default":
        found = None
    return found if isinstance(found, str) else None
