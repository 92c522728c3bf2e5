import json

import pytest

from ablation.problems.template import WITH_TOOLS, chat_template, efforts_that_look_the_same

EFFORTS = ["low", "medium", "xhigh"]
SAYS_IT = "{% for m in messages %}{{ m.content }}{% endfor %} effort: {{ reasoning_effort }}"
TWO_LEVELS = "{% if reasoning_effort == 'low' %}short{% else %}long{% endif %}"


def folder(tmp_path, template):
    (tmp_path / "chat_template.jinja").write_text(template)
    return tmp_path


@pytest.mark.parametrize(
    ("template", "same"),
    [
        (SAYS_IT, None),
        ("{{ messages[0]['content'] }}", ("low", "medium")),
        (TWO_LEVELS, ("medium", "xhigh")),
        ("{{ raise_exception('never') }}", None),  # left to the run
        ("{{ strftime_now('%Y') }}{% break %}", None),  # not a template
        ("{% for e in [1, 2] %}{% if e == 2 %}{% break %}{% endif %}{{ e | tojson }}{% endfor %}", ("low", "medium")),
    ],
)
def test_efforts_that_a_template_cannot_tell_apart(tmp_path, template, same):
    assert efforts_that_look_the_same(folder(tmp_path, template), EFFORTS) == same


def test_one_effort_is_always_fine(tmp_path):
    assert efforts_that_look_the_same(folder(tmp_path, "?"), ["low"]) is None


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
