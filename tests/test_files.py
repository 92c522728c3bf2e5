import json

import pytest

from ablation import files
from ablation.files import DiskError


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
