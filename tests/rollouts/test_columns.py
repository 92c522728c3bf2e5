import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.rollouts.columns import Coded, Texts, numbered

NAMES = st.lists(st.sampled_from(["p1", "p10", "p1-b", "", "é", "\U0001f600", "z"]), max_size=12)


@given(NAMES)
def test_a_coded_column_is_its_rows(rows):
    column = Coded.of(rows)
    assert column == rows and list(column) == rows and len(column) == len(rows)
    assert [column[place] for place in range(len(rows))] == rows
    assert column[1:4] == rows[1:4] and column != [*rows, "p1"]
    assert column.values == list(dict.fromkeys(rows))
    assert np.array(column).tolist() == rows


@given(NAMES, st.lists(st.sampled_from(["unused", "p1", "z"]), max_size=3))
def test_sorted_values_are_different_and_in_use_and_their_codes_compare_as_they_do(rows, more):
    """Values as another writer may have stored them: some twice, some never used."""
    values = [*more, *rows, *rows]
    column = Coded.sorted(np.arange(len(rows)) + len(more), values)
    assert column == rows
    assert column.values == sorted(set(rows))
    order = sorted(range(len(rows)), key=rows.__getitem__)
    assert np.argsort(column.codes, kind="stable").tolist() == order


def test_among_and_map_ask_once_for_each_value():
    asked = []
    column = Coded.of(["a", "b", "a", "c"])
    assert column.among(["c", "a"]).tolist() == [1, -1, 1, 0]
    assert column.map(lambda value: asked.append(value) or value == "a", bool).tolist() == [True, False, True, False]
    assert asked == ["a", "b", "c"]
    assert Coded.of([], key=id).map(len, bool).shape == (0,)


@given(st.lists(st.text(max_size=5)), st.integers(0, 3))
def test_texts_are_their_rows_and_know_which_are_not_ascii(rows, cut):
    rows = [row.encode("utf-8", "replace").decode() for row in rows]
    texts = Texts(pa.array(rows, type=pa.string()))[cut:]
    rows = rows[cut:]
    assert texts == rows and len(texts) == len(rows)
    assert [texts[place] for place in range(len(rows))] == rows
    assert texts.beyond_ascii.tolist() == [place for place, row in enumerate(rows) if not row.isascii()]
    assert texts.sizes.tolist() == [len(row.encode()) for row in rows]
    some = [place for place, row in enumerate(rows) if row][::2]
    if some:
        text, lengths = texts.joined(np.array(some))
        assert text == "".join(rows[place] for place in some) and lengths.tolist() == [len(rows[place]) for place in some]


def test_columns_are_not_equal_to_one_text():
    assert Coded.of(["a", "b"]) != "ab"
    with pytest.raises(TypeError):
        hash(Coded.of(["a"]))


@given(NAMES)
def test_numbered_is_unique_with_its_inverse(rows):
    labels = np.array(rows, dtype=str)
    names, place = numbered(labels)
    expected, inverse = np.unique(labels, return_inverse=True)
    assert names.tolist() == expected.tolist() and place.tolist() == inverse.tolist()
