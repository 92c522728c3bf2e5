import time

import pytest

from ablation.blind.texts import neutral


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<think>a < b</think>", "a < b"),
        ("\n<thinking>\na\n</THINKING>\n", "a"),
        ("a<|im_end|>", "a"),
        ("[BEGIN]a[STOP]", "a"),  # the plan's own
        ("so it is\n\n[truncated]", "so it is"),
        ("so it is... (cut off)", "so it is"),
        ("so it is [...]", "so it is"),
        ("so it is [Output truncated at 32768 tokens] [cut]\n", "so it is"),
        ("so it is <truncated>", "so it is"),
        ("the truncated cone (cut) has a volume", "the truncated cone (cut) has a volume"),
        ("the list [1, 2, ...]", "the list [1, 2, ...]"),
        ("a  \r\nb\rc\t\n", "a\nb\nc"),
        ("  indented\n    more", "indented\n    more"),
        ("<|a|b|>", "<|a|b|>"),
        ("", ""),
    ],
)
def test_tags_and_marks_of_a_cut_go_and_nothing_else(text, shown):
    assert neutral(text, ["[BEGIN]", "[STOP]"]) == shown


def test_it_is_the_same_the_second_time():
    text = neutral("<think>a [truncated]</think> [cut off]")
    assert text == neutral(text) == "a"


def test_a_long_text_costs_no_more_than_reading_it():
    began = time.perf_counter()
    neutral(" " * 200_000 + "[" * 200_000 + "<think" * 50_000 + "\n" * 100_000)
    assert time.perf_counter() - began < 5
