"""A real tokenizer, word by word, and templates that show everything or leave something out."""

import pytest

from ablation.errors import UsageError
from ablation.plan.resources import ThinkingTokens
from ablation.problems.render_chat import render_chat
from ablation.problems.tool_schemas import read_tools

TOKENS = ThinkingTokens(end=["<end>"])
WORDS = ["<unk>", "<think>", "</think>", "<end>", "<go>"]

TEMPLATE = """\
{%- for tool in tools or [] %}[{{ tool.function | tojson }}] {% endfor %}
{%- for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think> {{ m.reasoning_content }} </think> {% endif %}{{ m.content | trim }}
{%- for call in m.tool_calls or [] %} call {{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %} <end> {% endfor %}
{%- if add_generation_prompt %}<go> {{ reasoning_effort }}{{ opens }}{% endif %}"""

MESSAGES = [
    {"role": "system", "content": "careful"},
    {"role": "user", "content": "what is here?"},
    {"role": "assistant", "content": "", "reasoning_content": "ls it", "tool_calls": [
        {"type": "function", "function": {"name": "ls", "arguments": {"path": "."}}}]},
    {"role": "tool", "content": "a <think> b", "name": "ls"},
]  # fmt: skip
TOOLS = read_tools([{"name": "ls", "description": "List."}, {"name": "cat"}], "tools")


def tokenizer(template):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>")
    made.chat_template = template
    return made


class Texts:
    """A tokenizer that remembers what it encoded: the prompts as texts."""

    def __init__(self, template):
        self.real, self.encoded = tokenizer(template), []
        self.chat_template, self.bos_token_id, self.unk_token_id = template, None, 0

    def encode(self, text, *, add_special_tokens):
        self.encoded.append(text)
        return self.real.encode(text, add_special_tokens=add_special_tokens)

    def apply_chat_template(self, *args, **options):
        return self.real.apply_chat_template(*args, **options)


def prompt_text(template=TEMPLATE, messages=MESSAGES, tools=TOOLS, **options):
    spy = Texts(template)
    prompt = render_chat(spy, messages, "low", TOKENS, what="agent state `a`", tools=tools, **options)
    text = next(text for text in spy.encoded if "<go>" in text)
    assert prompt.ids == tokenizer(template).encode(text, add_special_tokens=False)
    return text, prompt


def test_a_whole_chat_with_tools():
    text, prompt = prompt_text()
    assert text == (
        '[{"name": "ls", "description": "List.", "parameters": {"type": "object", "properties": {}}}] '
        '[{"name": "cat", "description": "", "parameters": {"type": "object", "properties": {}}}] '
        'system: careful <end> user: what is here? <end> assistant:  call ls {"path": "."} <end> tool: a <think> b <end> <go> low'
    )
    assert prompt.ids.count(3) == 4  # every <end>
    # the tool's output has an open tag, and the model's turn does not begin inside of thinking for that
    assert not prompt.opens_thinking


def test_thinking_is_open_where_the_generation_prompt_opens_it():
    assert prompt_text(TEMPLATE.replace("{{ opens }}", " <think>"))[1].opens_thinking
    assert not prompt_text(TEMPLATE.replace("{{ opens }}", " <think> </think>"))[1].opens_thinking


def test_past_thinking_is_dropped_or_kept():
    assert "ls it" not in prompt_text()[0]
    assert "assistant: <think> ls it </think>  call ls" in prompt_text(keep_thinking=True)[0]


def test_past_thinking_inside_of_a_content_is_dropped_or_kept_too():
    said = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nwell"}
    chat = [MESSAGES[1], said, {"role": "user", "content": "go on"}]
    assert "assistant: well <end>" in prompt_text(messages=chat)[0]
    assert "assistant: <think> hm </think> well <end>" in prompt_text(messages=chat, keep_thinking=True)[0]


def test_thinking_that_never_closes_is_refused():
    chat = [MESSAGES[1], {"role": "assistant", "content": "<think> hm"}, MESSAGES[1]]
    with pytest.raises(UsageError, match=r"agent state `a`: messages\[1\]: content: thinking that never closes"):
        prompt_text(messages=chat)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tools or []", "[]", "does not render tools: `ls` is not in the prompt"),
        ("tools or []", "(tools or [])[:1]", "does not render tools: `cat` is not in the prompt"),
        ("m.tool_calls or []", "[]", r"leaves out calls of tools: those of messages\[2\]"),
        ("{%- for m in messages %}", "{%- for m in messages if m.role != 'tool' %}", r"leaves out messages of role tool: messages\[3\]"),
        ("{%- for m in messages %}", "{%- for m in messages[1:] %}", r"leaves out messages of role system: messages\[0\]"),
        ("{%- for m in messages %}", "{{ raise_exception('no tools here') }}{%- for m in messages %}", "failed: no tools here"),
    ],
)  # fmt: skip
def test_a_template_that_leaves_something_out_is_refused(old, new, said):
    assert old in TEMPLATE
    with pytest.raises(UsageError, match="agent state `a` at effort `low`: the chat template " + said):
        prompt_text(TEMPLATE.replace(old, new))


def test_a_template_that_keeps_no_thinking_serves_only_states_that_drop_it():
    template = TEMPLATE.replace("{% if m.reasoning_content %}", "{% if false %}")
    prompt_text(template)
    with pytest.raises(UsageError, match=r"keeps no past thinking: that of messages\[2\]"):
        prompt_text(template, keep_thinking=True)


def test_a_name_that_is_in_the_messages_alone_does_not_count_as_rendered():
    """`ls` is called in the messages, so its name is in the prompt of a template without tools, too."""
    with pytest.raises(UsageError, match="`ls` is not in the prompt"):
        prompt_text(TEMPLATE.replace("tools or []", "[]"), tools=TOOLS[:1])


def test_a_chat_without_tools_needs_no_template_for_them():
    text, _ = prompt_text(TEMPLATE.replace("tools or []", "[]"), [MESSAGES[1]], ())
    assert text == "user: what is here? <end> <go> low"


def test_no_template_and_an_empty_one():
    with pytest.raises(UsageError, match="has no chat template"):
        render_chat(tokenizer(None), MESSAGES, "low", TOKENS, what="x")
    with pytest.raises(UsageError, match="leaves out messages of role user"):
        render_chat(tokenizer("{# #}"), [MESSAGES[1]], "low", TOKENS, what="x")
