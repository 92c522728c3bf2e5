"""What is in a file of agent states or safety prompts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ablation.problems.agent_states import load_states
from ablation.problems.safety_prompts import CATEGORIES, load_safety_prompts


def count_states(path: Path) -> dict[str, Any]:
    """States, states by task, and the names of all tools. Raises as `load_states`."""
    states = load_states(path)
    tools = {tool.name: None for state in states.values() for tool in state.tools}
    return {"states": len(states), "tasks": dict(Counter(state.task for state in states.values())), "tools": list(tools)}


def count_safety(path: Path) -> dict[str, Any]:
    """Prompts, and prompts by category, those without one included. Raises as `load_safety_prompts`."""
    found = Counter(prompt.category for prompt in load_safety_prompts(path).values())
    return {"prompts": found.total(), "categories": {category: found[category] for category in CATEGORIES}}
