"""Making parts: once, in order, complete or not at all."""

import pytest

from ablation.errors import IntegrityError, UsageError
from ablation.files import MARKER, sha256_bytes
from ablation.recipes import RECIPES
from ablation.recipes.recipe import Part, find_part, is_made, make_parts, only_one, parts_of

HELLO = sha256_bytes(b"hello\n")


def parts(log: list[str]) -> dict[str, Part]:
    def letter(path, finished, say):
        log.append("letter")
        path.write_bytes(b"hello\n")

    def box(folder, finished, say):
        log.append("box")
        say("packing")
        (folder / "copy").write_bytes((finished / "letter.txt").read_bytes())

    return {"letter.txt": Part("file", letter), "box": Part("folder", box, needs=("letter.txt",))}


def test_what_a_part_needs_is_made_first_and_nothing_is_made_twice(tmp_path):
    log, said = [], []
    made = make_parts(tmp_path, parts(log), {"box": None}, said.append)
    assert log == ["letter", "box"]
    assert (tmp_path / "box" / "copy").read_bytes() == b"hello\n"
    assert "box: packing" in said
    assert made["box"].fresh
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name != ".making"}
    again = make_parts(tmp_path, parts(log), {"letter.txt": HELLO, "box": made["box"].sha256}, said.append)
    assert log == ["letter", "box"]
    assert not any(part.fresh for part in again.values())
    assert again["letter.txt"].sha256 == HELLO
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.name != ".making"}


@pytest.mark.parametrize("name", ["letter.txt", "box"])
def test_a_part_made_with_another_digest_is_not_kept(tmp_path, name):
    with pytest.raises(IntegrityError, match=f"{name}: was made with the digest [0-9a-f]{{64}}, but the plan says 0000"):
        make_parts(tmp_path, parts([]), {name: "0" * 64}, lambda line: None)
    assert not (tmp_path / name).exists()
    assert not list(tmp_path.glob(".partial-*"))


def test_a_part_that_is_there_with_another_digest_stays(tmp_path):
    make_parts(tmp_path, parts([]), {"box": None}, lambda line: None)
    with pytest.raises(IntegrityError, match="box: has the digest"):
        make_parts(tmp_path, parts([]), {"box": "0" * 64}, lambda line: None)
    assert (tmp_path / "box" / "copy").exists()


@pytest.mark.parametrize("damage", ["no marker", "cut file", "lost file"])
def test_an_incomplete_folder_is_made_again(tmp_path, damage):
    log = []
    make_parts(tmp_path, parts(log), {"box": None}, lambda line: None)
    if damage == "no marker":
        (tmp_path / "box" / MARKER).unlink()
    elif damage == "cut file":
        (tmp_path / "box" / "copy").write_bytes(b"hel")
    else:
        (tmp_path / "box" / "copy").unlink()
    assert not is_made(tmp_path / "box", parts(log)["box"])
    make_parts(tmp_path, parts(log), {"box": None}, lambda line: None)
    assert log == ["letter", "box", "box"]
    assert (tmp_path / "box" / "copy").read_bytes() == b"hello\n"


def test_a_failure_leaves_nothing_and_what_a_killed_process_left_is_removed(tmp_path):
    def fails(folder, finished, say):
        (folder / "half").write_bytes(b"x")
        raise UsageError("no network")

    (tmp_path / ".partial-old").mkdir()
    (tmp_path / ".partial-old" / "half").write_bytes(b"x")
    with pytest.raises(UsageError, match="no network"):
        make_parts(tmp_path, {"broken": Part("folder", fails)}, {"broken": None}, lambda line: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".making"]


def test_two_at_once_are_refused_and_a_lock_file_alone_blocks_nobody(tmp_path):
    with only_one(tmp_path), pytest.raises(UsageError, match="another `ablation prepare` is at work"):
        make_parts(tmp_path, parts([]), {"box": None}, lambda line: None)
    assert (tmp_path / ".making").exists()
    assert make_parts(tmp_path, parts([]), {"box": None}, lambda line: None)["box"].fresh


def test_find_part():
    assert find_part("smollm2/base") == ("smollm2", "base")
    with pytest.raises(UsageError, match="there is no recipe `smolm2`; there are: .*smollm2.*did you mean `smollm2`"):
        find_part("smolm2/base")
    with pytest.raises(UsageError, match="makes no `bass`; it makes: base, .*did you mean `base`"):
        find_part("smollm2/bass")
    for outside in ("smollm2/", "smollm2", "smollm2/../smollm2/base", "../x"):
        with pytest.raises(UsageError):
            find_part(outside)


def test_every_recipe_has_parts_whose_needs_it_makes():
    for recipe in RECIPES:
        made = parts_of(recipe)
        assert made
        assert all(needed in made for part in made.values() for needed in part.needs)
