"""How often 90% intervals of agent turns hold the truth, at the published size: 16 tasks, 4 states each, 4 turns at each state.

Thinking tokens are log-normal with effects of task, of state, and of the model at a task, so that few turns hold most of the
tokens. A ratio of sums rests on these few: its intervals are known to be too narrow, and the bench says by how much.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ablation.measures.agent import Turns, agent_ratios
from ablation.plan.model import Statistics
from ablation.problems.agent_states import AgentState

from .row import Row

TASKS, STATES, TURNS = 16, 4, 4
STUDIES, RESAMPLES, LARGE = 1500, 1000, 20_000
"""The standard error of a coverage of 0.90 is 0.8 points; the truth is that of a sample of 20,000 studies."""
METHODS = ("t", "expanded", "percentile")
LIMITS = {"agent_turn": (0.88, 0.92), "agent_tokens": (0.85, 0.92)}


def lengths(rng: np.random.Generator, tasks: int) -> tuple[np.ndarray, np.ndarray]:
    """Thinking tokens of subject and reference, int [tasks, STATES, TURNS]."""
    task = rng.normal(4, 0.8, (tasks, 1, 1))
    state = rng.normal(0, 0.6, (tasks, STATES, 1))
    longer = rng.normal(0.1, 0.3, (tasks, 1, 1)) + rng.normal(0, 0.3, (tasks, STATES, 1))
    own, other = (rng.normal(0, 0.7, (tasks, STATES, TURNS)) for _ in range(2))
    return np.exp(task + state + longer + own).round().astype(int), np.exp(task + state + other).round().astype(int)


def turns(thinking: np.ndarray) -> Turns:
    states = {
        f"{task:02}-{state}": AgentState(f"{task:02}-{state}", f"{task:02}", (), ()) for task, state in np.ndindex(TASKS, STATES)
    }
    keys = [(name, "xhigh", index) for name in states for index in range(TURNS)]
    tasks = [states[name].task for name, _, _ in keys]
    return Turns(None, np.arange(len(keys)), keys, tasks, thinking.ravel(), states)  # type: ignore[arg-type]  # no text is read


def truth(rng: np.random.Generator) -> dict[str, float]:
    own, other = lengths(rng, TASKS * LARGE)
    means = [np.maximum(1, one.mean(axis=2)) for one in (own, other)]
    return {"agent_turn": float(np.exp(np.log(means[0] / means[1]).mean())), "agent_tokens": float(own.sum() / other.sum())}


def rows() -> list[Row]:
    rng = np.random.default_rng(48)
    true = truth(rng)
    held: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(STUDIES):
        own, other = map(turns, lengths(rng, TASKS))
        for method in METHODS:
            for name, one in agent_ratios(own, other, Statistics(resamples=RESAMPLES, method=method)).items():
                assert one.low is not None and one.high is not None
                held[name][method].append(one.low <= true[name] <= one.high)
    found = []
    for name, (lowest, highest) in LIMITS.items():
        shares = {method: float(np.mean(one)) for method, one in held[name].items()}
        shown = ", ".join(f"{method} {100 * share:.1f}" for method, share in shares.items())
        limit = f"{100 * lowest:g}-{100 * highest:g}% (t)"
        found.append(Row(f"16 tasks x 4 x 4: {name}", f"covers {shown}%", limit, lowest <= shares["t"] <= highest))
    return found
