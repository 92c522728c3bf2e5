import pytest

from ablation.rollouts.cjk import cjk_share


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
