import hashlib

from hypothesis import given
from hypothesis import strategies as st

from ablation.seeds import derive_seed


def test_a_seed_by_hand():
    digest = hashlib.sha256(b"1:77:rollout1:3").hexdigest()
    assert derive_seed(7, "rollout", 3) == int(digest[:16], 16) >> 1


parts = st.lists(st.text(max_size=6), min_size=1, max_size=4)


@given(parts, parts)
def test_different_purposes_have_different_seeds(one, other):
    assert (derive_seed(1, *one) == derive_seed(1, *other)) == (one == other)
