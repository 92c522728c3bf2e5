import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.rollouts.cjk import cjk_share
from ablation.rollouts.columns import Texts


@pytest.mark.parametrize(
    ("text", "share"),
    [
        # case D05
        ("\U00020bb7\u91ce\u5bb6", 1),
        ("\u30ab\u30bf\u30ab\u30ca", 1),
        ("\ud55c\uad6d\uc5b4", 1),
        ("\u3005\u3007", 1),
        ("\u4e2d\uff0c\u6587\uff0c", 1),
        ("\uff11\uff12\uff13", 0),
        ("", 0),
        ("```\nprint('\u4e2d\u6587')\n```", 2 / 7),  # code counts: p r i n t and two Han letters
        ("\u30e9\u30fc\u30e1\u30f3", 1),  # the long-vowel mark is shared by two scripts
        ("ab \u4e2d\u6587 12 + $x$", 2 / 5),
        ("\uff21\uff22\u4e2d\u6587", 1 / 2),  # full-width Latin letters are letters
        ("\u3001\u3002\u300c\u300d", 0),  # CJK punctuation
        ("Привет", 0),
    ],
)
def test_share(text, share):
    assert cjk_share(["other", text, "", "\u4e2d"]).tolist() == [0, share, 0, 1]


def test_no_texts():
    assert cjk_share([]).tolist() == []


@settings(max_examples=100)
@given(
    st.lists(st.text(st.sampled_from(["a", "1", " ", "é", "中", "あ", "\U00020000", "々", "×"]), max_size=6)),
    st.sampled_from([1, 7, 1 << 18]),
)
def test_shares_do_not_depend_on_what_is_looked_at_together(texts, together):
    expected = [
        sum(one in "中あ\U00020000々" for one in text) / max(1, sum(one in "aé中あ\U00020000々" for one in text))
        for text in texts
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablation.rollouts.cjk._TOGETHER", together)
        assert cjk_share(texts).tolist() == expected
        assert cjk_share(Texts(pa.array(texts, type=pa.string()))).tolist() == expected
