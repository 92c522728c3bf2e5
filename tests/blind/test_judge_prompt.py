import json

import pytest

from ablation.blind.batch import PAIR_QUESTIONS, Item
from ablation.blind.judge_prompt import judge_messages, prompt_sha256, read_reply, template_sha256

PAIR = Item(3, "What is 2 + 2?", {"X": {"thinking": "xt", "answer": "xa"}, "Y": {"thinking": "yt", "answer": "ya"}})
ANSWER = Item(1, "user: Hello", {"answer": {"answer": "Hi"}}, ("fine", "bad"))
GOOD = {"same_answer": True, "same_method": True, "x_missing_checks": False, "y_missing_checks": True}


def test_what_a_judge_is_sent():
    system, user = judge_messages(PAIR)
    assert system["role"] == "system" and user["role"] == "user"
    for name, question in PAIR_QUESTIONS.items():
        assert f"- {name}: {question}" in system["content"]
    mark = user["content"][1:13]
    parts = [
        ("Problem", "What is 2 + 2?"),
        ("X, thinking", "xt"),
        ("X, answer", "xa"),
        ("Y, thinking", "yt"),
        ("Y, answer", "ya"),
    ]
    assert user["content"] == "\n\n".join(f"[{mark}] {name}\n{text}\n[{mark}] end" for name, text in parts)


def test_the_other_order_shows_y_as_x():
    swapped = Item(3, PAIR.prompt, {"X": PAIR.texts["Y"], "Y": PAIR.texts["X"]})
    assert judge_messages(PAIR, "YX") == judge_messages(swapped, "XY") != judge_messages(PAIR)
    values, _ = read_reply(PAIR, json.dumps(GOOD), "stop", "YX")
    assert values == GOOD | {"x_missing_checks": True, "y_missing_checks": False}


def test_every_prompt_has_its_digest_and_the_words_have_one():
    assert len({prompt_sha256(judge_messages(PAIR, order)) for order in ("XY", "YX")}) == 2
    assert template_sha256("pairs") != template_sha256("answers")


def test_labels_are_listed_with_their_meaning():
    system, user = judge_messages(ANSWER)
    assert "- fine: an answer that fits the question\n- bad: wrong, garbled" in system["content"]
    assert "Request\nuser: Hello" in user["content"]
    assert read_reply(ANSWER, '{"label": "bad"}', "stop") == ({"label": "bad"}, None)
    assert read_reply(ANSWER, '{"label": "refused"}', "stop") == (None, 'label: found "refused"; one of fine, bad')


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(GOOD),
        f"\n{json.dumps(GOOD, indent=2)}\n",
        f"<think>They differ {{\nno.</think>\n\n{json.dumps(GOOD)}",
        f"They differ.\n</think>{json.dumps(GOOD)}",  # where the template opens the thinking
        f"```json\n{json.dumps(GOOD)}\n```",
    ],
)
def test_one_object_is_read(reply):
    assert read_reply(PAIR, reply, "stop") == (GOOD, None)


@pytest.mark.parametrize(
    ("reply", "ended", "problem"),
    [
        (None, "stop", "is empty"),
        ("", "stop", "is empty"),
        ("  \n", "stop", "is empty"),
        ("NO", "stop", "is not one JSON object"),
        ("I cannot help with that.", "stop", "is not one JSON object"),
        ('{"score":', "length", "ended with `length`"),
        ('{"score":', "stop", "is not one JSON object"),
        ('<think>Both are the same {"same_answer": true', "length", "ended with `length`"),
        ('<think>Both are the same {"same_answer": true', "stop", "is not one JSON object"),
        ("true", "stop", "is not a JSON object"),
        ("[true, true, false, true]", "stop", "is not a JSON object"),
        (f"{json.dumps(GOOD)} That is all.", "stop", "is not one JSON object"),
        (f"Here: {json.dumps(GOOD)}", "stop", "is not one JSON object"),
        (f"{json.dumps(GOOD)}{json.dumps(GOOD)}", "stop", "is not one JSON object"),
        (json.dumps(GOOD), "length", "ended with `length`"),
        (json.dumps(GOOD), "content_filter", "ended with `content_filter`"),
        ('{"same_answer": true, ' + json.dumps(GOOD)[1:], "stop", "is not one JSON object"),
        (
            json.dumps({k: v for k, v in GOOD.items() if k != "same_method"}),
            "stop",
            "has not these fields: same_answer, same_method, x_missing_checks, y_missing_checks (`same_method`)",
        ),
        (
            json.dumps(GOOD | {"score": 7}),
            "stop",
            "has not these fields: same_answer, same_method, x_missing_checks, y_missing_checks (`score`)",
        ),
        (json.dumps(GOOD | {"same_answer": "yes"}), "stop", 'same_answer: found "yes", not true or false'),
        (json.dumps(GOOD | {"same_answer": 1}), "stop", "same_answer: found 1, not true or false"),
        (json.dumps(GOOD | {"same_answer": None}), "stop", "same_answer: found nothing, not true or false"),
        ("[" * 100_000, "stop", "is not one JSON object"),
    ],
)
def test_nothing_is_guessed_from_a_reply(reply, ended, problem):
    assert read_reply(PAIR, reply, ended) == (None, problem)
