import json
import os

import pytest

from ablation.problems import template as module
from ablation.problems.template import WITH_TOOLS, PlainTemplate, Refused, chat_template, effort_fault
from ablation.problems.workers import Limits, close_workers

EFFORTS = ["low", "medium", "xhigh"]
SAYS_IT = "{% for m in messages %}{{ m.content }}{% endfor %} effort: {{ reasoning_effort }}"
TWO_LEVELS = "{% if reasoning_effort == 'low' %}short{% else %}long{% endif %}"


def folder(tmp_path, template):
    (tmp_path / "chat_template.jinja").write_text(template)
    return tmp_path


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        (SAYS_IT, None),
        ("{{ messages[0]['content'] }}", "medium"),
        (TWO_LEVELS, "xhigh"),
        ("{{ raise_exception('never') }}", None),  # left to the run
        ("{{ strftime_now('%Y') }}{% break %}", None),  # not a template
        ("{% for e in [1, 2] %}{% if e == 2 %}{% break %}{% endif %}{{ e | tojson }}{% endfor %}", "medium"),
        (SAYS_IT + "{% if reasoning_effort == 'medium' %}{{ raise_exception('no') }}{% endif %}", "medium"),
    ],
)
def test_efforts_that_a_template_cannot_tell_apart(tmp_path, template, fault):
    found = effort_fault(folder(tmp_path, template), EFFORTS)
    assert (found and found[0]) == fault


def test_one_effort_is_always_fine(tmp_path):
    assert effort_fault(folder(tmp_path, "?"), ["low"]) is None


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"chat_template": "a"}, "a"),
        ({"chat_template": [{"name": "tools", "template": "b"}, {"name": "default", "template": "c"}]}, "c"),
        ({}, None),
        ([], None),
    ],
)
def test_where_templates_are_kept(tmp_path, config, found):
    assert chat_template(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert chat_template(tmp_path) == found
    assert chat_template(folder(tmp_path, "own file")) == "own file"


def test_the_template_for_tools_where_there_are_several(tmp_path):
    assert chat_template(folder(tmp_path, "one"), WITH_TOOLS) is None
    several = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert chat_template(tmp_path, WITH_TOOLS) == "b"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("c")
    assert chat_template(tmp_path, WITH_TOOLS) == "c"


@pytest.fixture(autouse=True, scope="module")
def _no_worker_is_left():
    yield
    close_workers()


LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
FILLS = "{% set n = namespace(t='xxxxxxxxxxxxxxxx') %}{% for a in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}"
PRINTS = "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOOPS, "takes more than 2 s of processor time"),
        (FILLS, "takes more than 2 (GiB of memory|s of processor time)"),
        ("{{ 'x' * 99999999999 }}", "takes more than 2 GiB of memory"),
        ("{{ 9 ** (9 ** 9) }}", "takes more than 2 s of processor time"),
    ],
)
def test_a_template_without_end_is_ended(monkeypatch, text, said):
    monkeypatch.setattr(module, "LIMITS", Limits(seconds=2, memory=2 << 30))
    with pytest.raises(Refused, match=said):
        PlainTemplate(text).apply_chat_template([{"role": "user", "content": "?"}])


def test_a_prompt_of_any_length_is_not_taken(tmp_path):
    with pytest.raises(ValueError, match="makes a text of more than 16,777,216 characters"):
        PlainTemplate(PRINTS).apply_chat_template([])
    assert effort_fault(folder(tmp_path, PRINTS), EFFORTS) is None


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('touch MARK') }}",
        "{{ raise_exception.__globals__['os'].system('touch MARK') }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
        "{{ ('%s' | attr('format'))('x') }}{{ '{0.__class__}'.format(messages) }}",
    ],
)
def test_a_template_reaches_nothing(tmp_path, text):
    mark = tmp_path / "mark"
    try:
        found = PlainTemplate(text.replace("MARK", str(mark))).apply_chat_template([])
    except ValueError:
        found = ""
    assert "class" not in found and "root:" not in found and not mark.exists()


def test_a_pipe_is_no_template(tmp_path):
    os.mkfifo(tmp_path / "chat_template.jinja")
    assert chat_template(tmp_path) is None
