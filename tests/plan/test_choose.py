from __future__ import annotations

from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.plan.choose import choose_plan, lock_path


def message(folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        choose_plan(None, folder)
    return "\n".join(caught.value.lines())


def test_the_only_locked_plan(tmp_path):
    assert "ablation plan new" in message(tmp_path / "none")
    assert "there is no plan" in message(tmp_path)
    (tmp_path / "a.yaml").touch()
    (tmp_path / "b.yaml").touch()
    text = message(tmp_path)
    assert "no plan" in text
    assert f"{tmp_path / 'a.yaml'}, {tmp_path / 'b.yaml'}" in text
    (tmp_path / "stray.lock").touch()  # a lock without a plan counts for nothing
    (tmp_path / "b.lock").touch()
    assert choose_plan(None, tmp_path) == tmp_path / "b.yaml"
    (tmp_path / "a.lock").touch()
    text = message(tmp_path)
    assert text.startswith("2 plans are locked")
    assert "--plan" in text


def test_an_option_is_taken_as_it_is(tmp_path):
    assert choose_plan(Path("x.yaml"), tmp_path) == Path("x.yaml")


def test_a_lock_or_a_folder_is_not_taken_for_a_plan(tmp_path):
    with pytest.raises(UsageError, match=r"x\.lock: is the name of a lock, not of a plan"):
        lock_path(Path("plans/x.lock"))
    with pytest.raises(UsageError, match="is a folder; --plan names one plan file in it"):
        choose_plan(tmp_path, tmp_path)


def test_inside_a_run_folder_the_project_above_is_named(tmp_path, monkeypatch):
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "a.yaml").touch()
    (tmp_path / "runs" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "runs" / "a")
    with pytest.raises(UsageError, match=r"there is no plan in plans/, but in .*/plans$") as caught:
        choose_plan(None)
    assert caught.value.hint == f"Go there: cd {tmp_path}"
