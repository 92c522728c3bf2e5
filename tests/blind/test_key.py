import hashlib
import hmac
import os
import stat

import pytest

from ablation.blind.key import Key, draw, key_path, new_secret, read_key, shuffled, subject_first, write_key
from ablation.errors import IntegrityError, UsageError
from tests.blind.made import SUBJECT, start

SECRET = bytes(range(32))
KEY = Key(SECRET, "b" * 64, [{"number": 1, "X": "subject", "Y": "reference"}])


def test_a_draw_is_hmac_sha256_of_the_length_prefixed_parts():
    expected = hmac.new(SECRET, b"4:side5:sum-33:low1:0", hashlib.sha256).hexdigest()
    assert draw(SECRET, "side", "sum-3", "low", 0) == int(expected, 16)
    assert draw(SECRET, "side", "a", "bc") != draw(SECRET, "side", "ab", "c")


def test_half_of_the_pairs_show_the_subject_as_x():
    names = [(f"p{place}", "low", 0) for place in range(12)]
    for number in range(30):
        assert sum(subject_first(bytes([number]) * 32, names)) == 6
    odd = {sum(subject_first(bytes([number]) * 32, names[:5])) for number in range(30)}
    assert odd == {2, 3}


def test_sides_and_order_come_from_the_lower_draws():
    names = [("a",), ("b",), ("c",), ("d",)]
    by_side = sorted(range(4), key=lambda at: draw(SECRET, "side", *names[at]))
    assert [at for at, first in enumerate(subject_first(SECRET, names)) if first] == sorted(by_side[:2])
    assert shuffled(SECRET, names) == sorted(range(4), key=lambda at: draw(SECRET, "order", *names[at]))


def test_every_secret_is_another_one_of_32_bytes():
    assert len(new_secret()) == 32 and len({new_secret() for _ in range(20)}) == 20


def test_a_key_file_is_its_owners_alone_and_never_replaced(tmp_path):
    path = tmp_path / "keys" / "held-out-N@5.json"
    old = os.umask(0)
    try:
        write_key(path, KEY)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == KEY.commitment
    assert read_key(path, KEY.commitment) == KEY
    with pytest.raises(UsageError, match="there is a key already"):
        write_key(path, Key(bytes(32), "b" * 64, []))
    assert path.read_bytes() == KEY.data


def test_another_key_than_the_sealed_one_is_refused(tmp_path):
    write_key(tmp_path / "key", KEY)
    with pytest.raises(IntegrityError, match="is not the key that was sealed"):
        read_key(tmp_path / "key", "a" * 64)
    with pytest.raises(UsageError, match="cannot be read"):
        read_key(tmp_path / "nothing", KEY.commitment)


def test_the_key_lies_beside_the_plan_and_never_in_the_run_folder(tmp_path):
    run, locked, folder = start(tmp_path)
    assert key_path(locked, folder, None) == tmp_path / "plans" / "small.keys" / f"held-out-{SUBJECT}.json"
    for inside in (run.root / "key.json", run.root / ".." / "small" / "key", folder.root / "k"):
        with pytest.raises(UsageError, match="lies in the run folder"):
            key_path(locked, folder, inside)
    link = tmp_path / "link"
    link.symlink_to(run.root)
    with pytest.raises(UsageError, match="lies in the run folder"):
        key_path(locked, folder, link / "key.json")
    outside = tmp_path / "small-2" / "key.json"
    assert key_path(locked, folder, outside) == outside
