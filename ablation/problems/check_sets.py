"""What is in a file of agent states or safety prompts, and whether a model's chat template shows all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.plan.resources import ThinkingTokens
from ablation.problems.agent_states import load_states
from ablation.problems.call_format import refuse_unread_calls
from ablation.problems.render_chat import chat_text
from ablation.problems.safety_prompts import CATEGORIES, load_safety_prompts
from ablation.problems.template import WITH_TOOLS, PlainTemplate, Refused, chat_template


def count_states(path: Path) -> dict[str, Any]:
    """States, states by task, and the names of all tools. Raises as `load_states`."""
    states = load_states(path)
    tools = {tool.name: None for state in states.values() for tool in state.tools}
    return {"states": len(states), "tasks": dict(Counter(state.task for state in states.values())), "tools": list(tools)}


def count_safety(path: Path) -> dict[str, Any]:
    """Prompts, and prompts by category, those without one included. Raises as `load_safety_prompts`."""
    found = Counter(prompt.category for prompt in load_safety_prompts(path).values())
    return {"prompts": found.total(), "categories": {category: found[category] for category in CATEGORIES}}


def states_left_out(path: Path, effort: str, base: Path | None, tokens: ThinkingTokens, calls: bool = False) -> str | None:
    """The first fault of a state that the template in the model folder `base` would not show whole; None if there is none.

    With `calls`, calls that would not be read as the template writes them are a fault, too. As the run finds it, but without a
    tokenizer; a template that cannot be rendered here, or is not at hand, is passed over. Raises as `load_states`.
    """
    states = load_states(path)
    text = base and (chat_template(base, WITH_TOOLS) or chat_template(base))
    template = PlainTemplate(text or "")
    for state in states.values() if text else ():
        options = {"what": f"agent state `{state.id}`", "tools": state.tools, "keep_thinking": state.past_thinking == "keep"}
        if found := _fault(chat_text, template, state.messages, state.effort or effort, tokens, **options):
            return found
    if text and calls:
        first = next(iter(states.values()))
        return _fault(refuse_unread_calls, template, first.tools, effort, tokens, f"agent state `{first.id}`")
    return None


def safety_left_out(path: Path, efforts: Iterable[str], base: Path | None, tokens: ThinkingTokens) -> str | None:
    """The same of safety prompts. Raises as `load_safety_prompts`."""
    prompts = load_safety_prompts(path)
    text = base and chat_template(base)
    template = PlainTemplate(text or "")
    for effort in efforts if text else ():
        for prompt in prompts.values():
            if found := _fault(chat_text, template, prompt.messages, effort, tokens, what=f"safety prompt `{prompt.id}`"):
                return found
    return None


def _fault(check: Callable[..., object], *values: Any, **options: Any) -> str | None:
    """What `check` refuses; None, too, for a failure that only the surroundings of the template here lead to."""
    try:
        check(*values, **options)
    except UsageError as error:
        if error.__cause__ is None or isinstance(error.__cause__, Refused):
            return " ".join(error.lines())
    return None
