from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.errors import UsageError
from ablation.power.effects import move, parse_effects, parse_spread
from ablation.power.kinds import MEMBERS

SPLIT = np.array([0.7, 0.3, 0.0])


def test_effects_are_read(quickstart):
    options = ["C.clean=-25", "C.logprob = -0.2", "others.clean=5", "XK.clean=8", "XK.looping=-1e0"]
    others = {"clean": 5.0}
    assert parse_effects(options, quickstart.plan) == {
        "C": {"clean": -25.0, "logprob": -0.2},
        "N": others,
        "X": others,
        "XP": others,
        "XK": {"clean": 8.0, "looping": -1.0},
    }


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("clean=-25", "is not ARM.MEASURE=CHANGE"),
        ("C.clean", "is not ARM.MEASURE=CHANGE"),
        ("C.clean=", "found ``, which is not a number"),
        ("C.clean=nan", "found `nan`, which is not a number"),
        ("C.clean=1e999", "found `1e999`"),
        ("C.claen=3", "`claen` is no effect; known: looping, truncated, clean, logprob; did you mean `clean`"),
        ("C.truncated_or_looping=3", "`truncated_or_looping` is no effect"),
        ("XQ.clean=3", "there is no arm `XQ`; known: C, N, X, XP, XK, others; did you mean `X"),
        ("held_out.clean=3", "there is no arm `held_out`"),
    ],
)
def test_effects_that_cannot_be(quickstart, option, text):
    with pytest.raises(UsageError) as caught:
        parse_effects([option], quickstart.plan)
    assert f"--effect {option}: " in caught.value.message
    assert text in caught.value.message


def test_an_effect_given_twice_is_refused(quickstart, tessera):
    with pytest.raises(UsageError, match="C.clean is given twice"):
        parse_effects(["C.clean=1", "C.clean=2"], quickstart.plan)
    assert parse_effects(["held_out.clean=3"], tessera.plan) == {"held_out": {"clean": 3.0}}


def test_spread_is_read():
    assert parse_spread(["clean=8", "logprob=0.05"]) == {"clean": 8.0, "logprob": 0.05}
    for option, text in [("clean", "is not"), ("correct=3", "has none"), ("clean=-1", "0 or more"), ("clean=x", "not a number")]:
        with pytest.raises(UsageError, match=text):
            parse_spread([option])
    with pytest.raises(UsageError, match="twice"):
        parse_spread(["clean=1", "clean=1"])


cells = st.lists(st.lists(st.floats(0.01, 1), min_size=12, max_size=12), min_size=1, max_size=4)
change = st.floats(-0.2, 0.2)


@given(cells, st.fixed_dictionaries({}, optional={"looping": change, "truncated": change, "clean": change}))
def test_moved_rates_stay_rates_and_change_by_what_was_asked_where_it_fits(weights, shares):
    rates = np.array(weights)[None]
    rates /= rates.sum(axis=-1, keepdims=True)
    moved, cut = move(rates, SPLIT, shares)
    assert (moved > -1e-12).all()
    assert moved.sum(axis=-1) == pytest.approx(1)
    if not cut[0]:
        for name, share in shares.items():
            found = (moved - rates)[..., MEMBERS[name]].sum(axis=-1).mean()
            assert found == pytest.approx(share, abs=1e-9), name
    if not shares:
        assert moved == pytest.approx(rates)


def test_a_change_that_does_not_fit_is_cut_and_said_to_be():
    rates = np.zeros((1, 1, 12))
    rates[..., [0, 1]] = (0.1, 0.9)
    moved, cut = move(rates, SPLIT, {"clean": -0.2})
    assert cut.tolist() == [True]
    assert moved[0, 0, :2] == pytest.approx([0, 1])


def test_rollouts_that_no_longer_hit_the_cap_answer_as_the_finished_ones_do():
    rates = np.zeros((1, 1, 12))
    rates[..., [0, 8]] = (0.5, 0.5)  # clean; truncated without an answer
    moved, _ = move(rates, SPLIT, {"truncated": -0.25})
    assert moved[0, 0, [0, 1, 8]] == pytest.approx([0.5 + 0.25 * 0.7, 0.25 * 0.3, 0.25])
