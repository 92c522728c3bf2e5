import pytest

from ablation.plan.model import Loops
from ablation.rollouts.text_measures import measure_text

TAGS = ("<think>", "</think>")


def measured(text, **options):
    return measure_text(text, Loops(), tags=TAGS, **options)


def words(text):
    """A tokenizer: every word with the blank before it."""
    spans, start = [], 0
    for piece in text.split(" "):
        spans.append((max(start - 1, 0), start + len(piece)))
        start += len(piece) + 1
    return spans


def test_thinking_and_answer():
    found = measured("<think>a b</think>\n5")
    assert (found.thinking, found.answer, found.opened, found.closed) == ("a b", "\n5", True, True)
    assert (found.thinking_length, found.answer_length, found.unit) == (3, 2, "character")


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("aa bb </think> 5", True, ("aa bb ", " 5", True, True)),  # the prompt opened it
        ("so x is 7, wait", True, ("so x is 7, wait", "", True, False)),  # cut inside: no answer
        ("5", False, ("", "5", False, False)),  # no thinking at all
        ("a</think>b", False, ("", "a</think>b", False, False)),  # closed, but never opened
        ("x<think>a</think>b</think>c", False, ("a", "b</think>c", True, True)),  # the first closing tag counts
    ],
)
def test_tags(text, opened, expected):
    found = measured(text, opened=opened)
    assert (found.thinking, found.answer, found.opened, found.closed) == expected


def test_a_loop_is_told_with_its_unit_and_its_place():
    text = "<think>Start. " + "Wait, check. " * 9 + "Wait"
    found = measured(text)
    assert found.looping and found.loop.period == 13
    assert sorted(found.loop.unit) == sorted("Wait, check. ")
    assert text[found.loop.start : found.loop.end].count("Wait, check. ") == 9
    assert found.loop.repeats == pytest.approx((found.loop.end - found.loop.start) / 13)


def test_a_loop_in_tokens():
    text = "<think>we begin" + " again and" * 30
    found = measured(text, tokenize=words)
    assert found.unit == "token" and found.thinking_length == 62
    assert found.loop.period == 2 and found.loop.unit in (" again and", " and again")
    assert text[found.loop.start : found.loop.end] == " again and" * 30


def test_regular_text_has_no_loop():
    assert not measured("<think>" + "\n".join(f"{k} does not divide 997" for k in range(2, 32)) + "</think>997 is prime").looping


def test_cjk():
    found = measured("<think>ab 漢字</think>答")
    assert found.cjk_share == 0.5 and found.answer_cjk
    assert not measured("<think>漢</think>1").answer_cjk


def test_an_empty_text():
    found = measured("")
    assert (found.thinking_length, found.answer_length, found.looping, found.cjk_share) == (0, 0, False, 0.0)


def test_characters_are_measured_as_tokens_of_one_character():
    text = "<think>" + "é漢\U0001f600a" * 40 + "</think>\U00020bb7"
    found = measured(text)
    tokens = measured(text, tokenize=lambda part: [(place, place + 1) for place in range(len(part))])
    assert (found.loop, found.thinking_length, found.answer_length) == (tokens.loop, tokens.thinking_length, tokens.answer_length)
    assert (found.loop.start, found.loop.end, found.loop.period) == (7, 167, 4)
