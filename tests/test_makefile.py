import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLD = f"""#!/bin/sh
[ "$1" = -c ] && exec {sys.executable} -c "import sys; sys.version_info = (3, 10, 4, 'final', 0)
$2"
exit 7
"""
"""Says that it is Python 3.10, and can do nothing else."""


def test_an_older_python_is_named_and_leaves_no_environment(tmp_path):
    for name in ("Makefile", "pyproject.toml", ".constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    old = tmp_path / "old"
    old.write_text(OLD)
    old.chmod(0o755)
    (tmp_path / "left" / "bin").mkdir(parents=True)
    shutil.copy(old, tmp_path / "left" / "bin" / "python")  # what an earlier version of the Makefile left
    for words in (["PYTHON=./old"], ["VENV=left"]):
        made = subprocess.run(["make", "study", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert made.returncode == 2
        assert "ablation needs Python 3.11 or later, this is 3.10; name another one: make PYTHON=python3.11" in made.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [".constraints.txt", "Makefile", "old", "pyproject.toml"]
