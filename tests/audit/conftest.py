"""Finished runs of hand-made rollouts, each made once and copied by whoever edits it."""

import shutil
from pathlib import Path

import pytest

from tests.audit.build import make_run, write_verdict


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A run that keeps a deviation, and one that keeps none (so that nothing outside the chain remembers its head)."""
    folders = {}
    for name in ("plain", "forged"):
        folders[name] = tmp_path_factory.mktemp(name)
        made = make_run(folders[name], deviation=name == "plain")
        write_verdict(made)
        made.journal.close()
    return folders


@pytest.fixture
def copied(whole, tmp_path):
    def copy(name: str) -> tuple[Path, Path]:
        shutil.copytree(whole[name], tmp_path, dirs_exist_ok=True)
        return tmp_path / "runs" / "small", tmp_path / "plans" / "small.yaml"

    return copy
