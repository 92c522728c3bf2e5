"""The text that each token adds, with a vocabulary of bytes: a character of several tokens is the last one's."""

from hypothesis import given
from hypothesis import strategies as st

from ablation.problems.pieces import aligned, token_pieces


def decode(ids) -> str:
    return bytes(ids).decode("utf-8", "replace")


@given(st.text(st.characters(exclude_characters="\N{REPLACEMENT CHARACTER}", exclude_categories=("Cs",))))
def test_pieces_of_bytes_are_the_characters_at_their_last_byte(text):
    pieces = token_pieces(decode, list(text.encode()))
    assert [piece for piece in pieces if piece] == list(text)
    assert "".join(pieces) == text
    assert len(pieces) == len(text.encode())


def test_a_word_that_is_joined_by_what_comes_before_keeps_its_blank():
    words = {1: "to", 2: "be", 3: "or"}

    def joined(ids):
        return " ".join(words[id_] for id_ in ids)  # as a tokenizer that drops the first blank

    assert token_pieces(joined, [1, 2, 3, 1, 2, 1, 1, 1, 1, 2]) == [
        "to",
        " be",
        " or",
        " to",
        " be",
        " to",
        " to",
        " to",
        " to",
        " be",
    ]


def test_aligned_but_for_blanks_at_the_ends():
    assert aligned([" a", "b "], "ab")
    assert not aligned(["a", "b"], "a b")
