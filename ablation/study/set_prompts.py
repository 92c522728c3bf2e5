"""Rendered prompts of agent states and safety prompts, for the sampler that samples problems: see `sampler.Prompts`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ablation.plan.model import Plan
from ablation.problems.agent_states import AgentState
from ablation.problems.call_format import counts_calls, refuse_unread_calls
from ablation.problems.problem import Problem
from ablation.problems.render import ChatTokenizer, refuse_equal_prompts
from ablation.problems.render_chat import render_chat
from ablation.problems.safety_prompts import SafetyPrompt
from ablation.rollouts.schema import Cell
from ablation.study.sampler import RenderedPrompts


class AgentPrompts(RenderedPrompts):
    """Agent states by cell. `Cell.problem` is the state's id; `problems[id].source`, and so a rollout's source, is its task."""

    def __init__(self, plan: Plan, states: Mapping[str, AgentState], effort: str, tokenizer: ChatTokenizer) -> None:
        """`effort`: of the states that name none."""
        self.problems: dict[str, Problem] = {name: state.as_problem() for name, state in states.items()}
        if counts_calls(plan.verdict.release):
            first = next(iter(states.values()))
            refuse_unread_calls(tokenizer, first.tools, effort, plan.model.tokens, f"agent state `{first.id}`")
        self._by_cell = {
            cell: render_chat(
                tokenizer,
                states[cell.problem].messages,
                cell.effort,
                plan.model.tokens,
                what=f"agent state `{cell.problem}`",
                tools=states[cell.problem].tools,
                keep_thinking=states[cell.problem].past_thinking == "keep",
            )
            for cell in agent_cells(states, effort)
        }


class SafetyPrompts(RenderedPrompts):
    """Safety prompts by cell. `problems[id].source`, and so a rollout's source, is the category."""

    def __init__(self, plan: Plan, prompts: Mapping[str, SafetyPrompt], efforts: Iterable[str], tokenizer: ChatTokenizer) -> None:
        self.problems: dict[str, Problem] = {name: prompt.as_problem() for name, prompt in prompts.items()}
        self._by_cell = {
            cell: render_chat(
                tokenizer,
                prompts[cell.problem].messages,
                cell.effort,
                plan.model.tokens,
                what=f"safety prompt `{cell.problem}`",
            )
            for cell in safety_cells(prompts, efforts)
        }
        refuse_equal_prompts({(cell.problem, cell.effort): prompt for cell, prompt in self._by_cell.items()})


def agent_cells(states: Mapping[str, AgentState], effort: str) -> list[Cell]:
    """The cells of a set of agent states; `effort` is that of the states that name none."""
    return [Cell(name, state.effort or effort) for name, state in states.items()]


def safety_cells(prompts: Mapping[str, SafetyPrompt], efforts: Iterable[str]) -> list[Cell]:
    """The cells of a set of safety prompts."""
    efforts = list(efforts)
    return [Cell(name, effort) for name in prompts for effort in efforts]
