import errno
import json
import os
import random
import re
import signal
import tempfile
import threading
import time
from itertools import groupby
from pathlib import Path

import pytest

from ablation import files
from ablation.errors import IntegrityError, UsageError
from ablation.files import DiskError, folder_is_complete, write_folder
from ablation.study.runlock import exclusive, runner_at_work


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "value.json"
    files.write_json(path, {"b": 1, "a": [2.5, "½"]})
    assert path.read_text() == '{\n  "a": [\n    2.5,\n    "½"\n  ],\n  "b": 1\n}\n'

    def fail(temporary):
        temporary.write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        files.write_with(path, fail)
    assert json.loads(path.read_text()) == {"a": [2.5, "½"], "b": 1}
    assert [entry.name for entry in path.parent.iterdir()] == ["value.json"]


def test_a_full_disk_is_one_error_and_the_old_file_stays(tmp_path):
    path = tmp_path / "value.txt"
    files.write_bytes(path, b"old")

    def full(temporary):
        temporary.write_bytes(b"x")
        with open("/dev/full", "wb") as device:
            device.write(b"x" * 10)

    with pytest.raises(DiskError, match=r"value.txt: could not be written: No space left on device"):
        files.write_with(path, full)
    assert path.read_bytes() == b"old"


def test_a_folder_is_complete_only_with_its_marker_and_its_bytes(tmp_path):
    folder = tmp_path / "checkpoint"
    files.write_folder(folder, lambda target: (target / "weights.bin").write_bytes(b"12345678"))
    assert files.folder_is_complete(folder)
    (folder / "weights.bin").write_bytes(b"1234567")  # truncated
    assert not files.folder_is_complete(folder)
    (folder / "weights.bin").write_bytes(b"12345679")  # same size
    assert not files.folder_is_complete(folder)
    (folder / "weights.bin").write_bytes(b"12345678")
    (folder / files.MARKER).unlink()
    assert not files.folder_is_complete(folder)
    assert not files.folder_is_complete(tmp_path / "none")


def test_a_folders_digest_is_told_before_the_folder_is_there(tmp_path):
    folder, told = tmp_path / "checkpoint", []

    def tell(digest):
        assert not folder.exists()
        told.append(digest)

    files.write_folder(folder, lambda target: (target / "weights.bin").write_bytes(b"1"), tell=tell)
    assert told == [files.sha256_file(folder / "complete.json")]


NAMES = ("index.json", "tables/a.tex", "figures/a.svg", "page.html")
"""What stands first and last, and two between."""


def version(letter: str, *more: str) -> dict[str, bytes]:
    return {name: letter.encode() * 5000 for name in (*NAMES[:-1], *more, NAMES[-1])}


def found_in(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and ".partial-" not in str(path)]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def of_one_version(found: dict[str, bytes], *versions: dict[str, bytes]) -> bool:
    """Whether all that is there is of one version, and that whole if what is opened first by a reader is there."""
    return any(found.items() <= one.items() and (NAMES[-1] not in found or found == one) for one in versions)


def test_files_that_belong_together_replace_earlier_ones(tmp_path):
    old, new = version("o", "tables/gone.tex"), version("n", "figures/b.svg")
    files.write_together(tmp_path, old)
    (tmp_path / "figures" / "mine.png").write_bytes(b"mine")
    (tmp_path / ".partial-set-killed").mkdir()
    files.write_together(tmp_path, new, earlier=["tables/gone.tex", "tables/never.tex"])
    assert found_in(tmp_path) == new | {"figures/mine.png": b"mine"}
    assert not list(tmp_path.glob(".partial-*"))
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o644


def test_files_that_others_are_writing_below_the_folder_stay(tmp_path):
    (tmp_path / "runs" / "a").mkdir(parents=True)
    mine = [tmp_path / ".partial-mine", tmp_path / "runs" / "a" / ".partial-part.parquet"]
    for path in mine:
        path.write_bytes(b"half")
    files.write_together(tmp_path, version("n"))
    assert [path.read_bytes() for path in mine] == [b"half", b"half"]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_in_the_place_of_a_file_leaves_all_that_was_there(tmp_path, name):
    old = {other: content for other, content in version("o").items() if other != name}
    files.write_together(tmp_path, old)
    (tmp_path / name / "mine").mkdir(parents=True)
    with pytest.raises(DiskError, match=f"{name} is a folder"):
        files.write_together(tmp_path, version("n"))
    assert found_in(tmp_path) == old
    assert not list(tmp_path.rglob(".partial-*"))


def test_a_folder_that_is_a_link_to_another_disk_is_written_as_any(tmp_path):
    disk = Path("/dev/shm")
    if not disk.is_dir() or disk.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second disk")
    with tempfile.TemporaryDirectory(dir=disk) as other:
        (tmp_path / "tables").symlink_to(other)
        for letter in "on":
            files.write_together(tmp_path, version(letter))
            found = {name: (tmp_path / name).read_bytes() for name in NAMES}
            assert found == version(letter)
        assert not list(Path(other).glob(".partial-*"))


def test_a_disk_that_is_full_at_any_step_leaves_no_mix_and_says_so(tmp_path, monkeypatch):
    """Each call that can need space, or the last block of a disk, fails once."""
    old, new = version("o"), version("n", "figures/b.svg")
    steps = [(Path, "write_bytes"), (Path, "mkdir"), (os, "fsync"), (os, "replace"), (os, "mkdir")]
    ends = []
    for number in range(100):
        folder = tmp_path / str(number)
        for name, content in old.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        count = iter(range(100))
        with monkeypatch.context() as patch:
            for owner, name in steps:
                patch.setattr(owner, name, failing_at(number, count, getattr(owner, name)))
            try:
                files.write_together(folder, new)
            except DiskError as error:
                assert "No space left on device" in error.message
        found = found_in(folder)
        assert of_one_version(found, old, new)
        assert not list(folder.glob(".partial-*"))
        ends.append("old" if found == old else "new" if found == new else "part")
        if next(count) <= number:  # all steps have failed once
            break
    assert ends.index("part") > 2 * len(new) and ends[-1] == "new"  # until all is on the disk, what was there is there


def failing_at(number, count, call):
    def step(*arguments, **named):
        if next(count) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return call(*arguments, **named)

    return step


def test_a_kill_before_any_step_leaves_no_mix(tmp_path, monkeypatch):
    old, new = version("o", "tables/gone.tex"), version("n", "figures/b.svg")
    states, status = [], signal.SIGKILL
    while status == signal.SIGKILL:
        files.write_together(tmp_path, old, earlier=new)
        if not (child := os.fork()):
            count = iter(range(1000))
            for owner, name in ((Path, "write_bytes"), (Path, "unlink"), (os, "replace")):
                monkeypatch.setattr(owner, name, killed_at(len(states), count, getattr(owner, name)))
            files.write_together(tmp_path, new, earlier=old)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        found = found_in(tmp_path)
        assert of_one_version(found, old, new), (len(states), found.keys())
        assert not found or NAMES[0] in found
        states.append(len(found))
    assert status == 0 and found == new
    assert [one for one, _ in groupby(states)] == [5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5]
    assert not list(tmp_path.glob(".partial-*"))


def killed_at(number, count, call):
    def step(*arguments, **named):
        if next(count) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)

    return step


def test_kills_at_random_moments_leave_no_mix(tmp_path):
    versions, chance = [version("a"), version("b", "figures/b.svg")], random.Random(1)
    for _ in range(20):
        if not (child := os.fork()):
            for number in range(10**6):
                files.write_together(tmp_path, versions[number % 2], earlier=versions[1])
            os._exit(1)
        time.sleep(chance.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        found = found_in(tmp_path)
        assert of_one_version(found, *versions), found.keys()


def test_two_writers_at_once_leave_what_one_of_them_wrote(tmp_path):
    versions = [version(letter) for letter in "abcd"]
    writers = [
        threading.Thread(target=lambda one=one: [files.write_together(tmp_path, one) for _ in range(5)]) for one in versions
    ]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert found_in(tmp_path) in versions


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".partial-x.parquet").write_bytes(b"half")
    (tmp_path / ".partial-folder").mkdir()
    (tmp_path / ".partial-folder" / "weights").write_bytes(b"half")
    (tmp_path / "a" / "kept").write_bytes(b"whole")
    assert len(files.remove_partial(tmp_path)) == 2
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "kept"]


def test_a_folders_digest_is_of_names_and_bytes(tmp_path):
    import hashlib

    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_bytes(b"bee")
    (tmp_path / "sub" / "a.txt").write_bytes(b"ay")
    lines = f"b.txt\0{hashlib.sha256(b'bee').hexdigest()}\nsub/a.txt\0{hashlib.sha256(b'ay').hexdigest()}\n"
    assert files.sha256_path(tmp_path) == hashlib.sha256(lines.encode()).hexdigest()
    assert files.sha256_path(tmp_path / "b.txt") == hashlib.sha256(b"bee").hexdigest()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[" * 100_000, "NaN", "[-Infinity]", "1e999", "9" * 400, str(2**64), str(-(2**63) - 1), b"\xff"],
)
def test_json_that_nobody_could_calculate_with_is_none(text):
    with pytest.raises(ValueError):
        files.parse_json(text)


def test_json_of_a_program_is_read_as_it_is():
    assert files.parse_json(b'{"seed": 18446744073709551615, "least": -9223372036854775808, "share": 1e-320}') == {
        "seed": 2**64 - 1,
        "least": -(2**63),
        "share": 1e-320,
    }


@pytest.mark.parametrize("name", [".DS_Store", "Thumbs.db", "._adapter.safetensors", "below/.DS_Store"])
def test_a_file_that_was_not_saved_with_a_folder_is_named(tmp_path, name):
    write_folder(tmp_path / "saved", lambda folder: (folder / "adapter").write_bytes(b"x"))
    assert folder_is_complete(tmp_path / "saved")
    (tmp_path / "saved" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "saved" / name).write_bytes(b"")
    with pytest.raises(IntegrityError, match=re.escape(f"saved/{name}: is in a folder that was saved without it")):
        folder_is_complete(tmp_path / "saved")
    (tmp_path / "saved" / "adapter").write_bytes(b"y")
    assert not folder_is_complete(tmp_path / "saved")


def test_a_disk_without_locks_is_named_with_what_to_do(tmp_path, monkeypatch):
    def refuse(handle, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    (tmp_path / ".runner").touch()
    with pytest.raises(UsageError, match="cannot be locked: No locks available") as refused:
        runner_at_work(tmp_path)
    assert "NFS" in refused.value.hint
    with pytest.raises(UsageError, match="cannot be locked"), exclusive(tmp_path):
        pass


def test_a_run_folder_whose_name_is_not_utf_8_is_refused_before_anything_is_written(tmp_path):
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/r\xe4n"))
    with pytest.raises(UsageError, match=r"b'.*/r\\xe4n': a name in this path is not UTF-8"), exclusive(root):
        pass
    assert list(tmp_path.iterdir()) == []
