"""The prompt of a whole chat with tools, as the model sees it; what the chat template would leave out is an error.

A template is a program that may ignore a role, the tools, calls or past thinking without a word. Then two models would be
compared on something else than the frozen state, so each of them is looked for in what was rendered.

Thinking is open where the generation prompt (what the template adds for the model's turn) opens it; tags in messages, which a
tool's output may have, are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ablation.errors import UsageError
from ablation.plan.resources import ThinkingTokens
from ablation.problems.render import ChatTokenizer, Prompt, ends_inside_thinking, ids_sha256, one_start, token_ids
from ablation.problems.tool_schemas import Tool

_MARK = "0f6c2d41"
"""No text that a chat would have in it by chance."""


def render_chat(
    tokenizer: ChatTokenizer,
    messages: Sequence[dict[str, Any]],
    effort: str,
    tokens: ThinkingTokens,
    *,
    what: str,
    tools: Sequence[Tool] = (),
    keep_thinking: bool = False,
) -> Prompt:
    """The prompt of `messages` at `effort`, with `tools`; `what` begins messages, for instance "agent state `a`".

    Past thinking (`reasoning_content`, or what stands before the closing tag in an assistant's content) is left out, or handed to
    the template with `keep_thinking`.

    Raises:
        UsageError: there is no chat template, it fails, or it leaves out a tool, a message, a call or thinking to be kept.
    """
    ids = token_ids(tokenizer, tokens)
    if not tokenizer.chat_template:
        raise UsageError(
            "model.base: the tokenizer has no chat template", hint="Put a chat_template.jinja into the model folder."
        )
    text, start = chat_text(tokenizer, messages, effort, tokens, what=what, tools=tools, keep_thinking=keep_thinking)
    prompt = one_start(_encode(tokenizer, text), tokenizer.bos_token_id)
    return Prompt(prompt, ids_sha256(prompt), ends_inside_thinking(_encode(tokenizer, text[start:]), ids))


class Template(Protocol):
    """What renders: a tokenizer, or `template.PlainTemplate`."""

    def apply_chat_template(self, messages: list[dict[str, Any]], **options: Any) -> Any: ...


def chat_text(
    template: Template,
    messages: Sequence[dict[str, Any]],
    effort: str,
    tokens: ThinkingTokens,
    *,
    what: str,
    tools: Sequence[Tool] = (),
    keep_thinking: bool = False,
) -> tuple[str, int]:
    """The text of a prompt, and where in it the generation prompt begins (0 if that cannot be told). Raises as `render_chat`."""
    shown = [_split_thinking(message, tokens, keep_thinking, f"{what}: messages[{i}]") for i, message in enumerate(messages)]
    render = Render(template, effort, what)
    text = render(shown, tools)
    _check_tools(render, shown, tools, text)
    _check_messages(render, shown, tools)
    closed = render(shown, tools, generation=False)
    start = len(closed) if text.startswith(closed) else 0
    return text, start


class Render:
    """A template at one effort; `what` begins its errors."""

    def __init__(self, template: Template, effort: str, what: str) -> None:
        self.template, self.effort, self.what = template, effort, what

    def __call__(self, messages: list[dict[str, Any]], tools: Sequence[Tool], generation: bool = True) -> str:
        try:
            return self.template.apply_chat_template(
                messages,
                tools=[tool.for_template() for tool in tools] or None,
                add_generation_prompt=generation,
                tokenize=False,
                reasoning_effort=self.effort,
            )
        except Exception as error:  # a template is a program: it can fail in any way
            raise self.error(f"failed: {error}") from error

    def error(self, fault: str) -> UsageError:
        hint = "Agent states need a template that renders tools, calls and their results: put one into model.base."
        return UsageError(f"{self.what} at effort `{self.effort}`: the chat template {fault}", hint=hint)


def _check_tools(render: Render, messages: list[dict[str, Any]], tools: Sequence[Tool], text: str) -> None:
    """Each tool's name must be there more often than without tools: calls in the messages have it, too."""
    if not tools:
        return
    without = render(messages, ())
    for tool in tools:
        if text.count(tool.name) <= without.count(tool.name):
            raise render.error(f"does not render tools: `{tool.name}` is not in the prompt")


def _check_messages(render: Render, messages: list[dict[str, Any]], tools: Sequence[Tool]) -> None:
    """Render the messages again with a mark of its own in place of each content, thinking and called function."""
    marks: dict[str, str] = {}

    def mark(said: str, left_out: str) -> str:
        if not said.strip():
            return said
        made = f"{_MARK}{len(marks)}{_MARK}"
        marks[made] = left_out
        return made

    marked = []
    for place, message in enumerate(messages):
        role, at = message["role"], f"messages[{place}]"
        other = message | {"content": mark(message["content"], f"leaves out messages of role {role}: {at}")}
        if "reasoning_content" in message:
            other["reasoning_content"] = mark(message["reasoning_content"], f"keeps no past thinking: that of {at}")
        if "tool_calls" in message:
            left_out = f"leaves out calls of tools: those of {at}"
            names = [mark(call["function"]["name"], left_out) for call in message["tool_calls"]]
            calls = zip(message["tool_calls"], names, strict=True)
            other["tool_calls"] = [call | {"function": call["function"] | {"name": name}} for call, name in calls]
        marked.append(other)
    text = render(marked, tools)
    for made, left_out in marks.items():
        if made not in text:
            raise render.error(left_out)


def _split_thinking(message: dict[str, Any], tokens: ThinkingTokens, keep: bool, where: str) -> dict[str, Any]:
    """An assistant's message with its thinking in `reasoning_content`, or without it."""
    if message["role"] != "assistant":
        return message
    thinking, content = message.get("reasoning_content", ""), message["content"]
    before, closing, after = content.rpartition(tokens.close)
    if closing:
        thinking = "\n".join(filter(None, (thinking, before.replace(tokens.open, "").strip())))
        content = after.lstrip("\n")
    elif content.lstrip().startswith(tokens.open):
        raise UsageError(f"{where}: content: thinking that never closes", hint=f"Close it with {tokens.close}, or take it out.")
    rest = {name: value for name, value in message.items() if name != "reasoning_content"} | {"content": content}
    return rest | {"reasoning_content": thinking} if keep and thinking.strip() else rest


def _encode(tokenizer: ChatTokenizer, text: str) -> list[int]:
    return [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]
