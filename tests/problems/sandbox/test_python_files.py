import os
import sys
from pathlib import Path

from ablation.problems.sandbox.python_files import python_files


def test_the_interpreter_its_library_and_what_it_links_to():
    files = python_files()
    targets = {target: source for source, target in files.mounts}
    assert os.path.samefile(targets[files.executable], sys.executable)
    library = f"/python/lib/python{sys.version_info.major}.{sys.version_info.minor}"
    assert os.path.samefile(targets[library], Path(os.__file__).parent)
    assert any(target.startswith("/lib/libc.so") for target in targets)
    assert any("/ld-" in target for target in targets)
    assert all(os.path.exists(source) for source in targets.values())


def test_no_package_and_no_home_is_among_them():
    files = python_files()
    homes = ("/home", "/root", "/tmp", "/etc", "/proc", "/sys", "/var")
    assert not any(target.startswith(homes) for _, target in files.mounts)
    packages = [target for _, target in files.mounts if target.endswith("-packages")]
    assert packages == []
    for source, target in files.mounts:
        for name in ("site-packages", "dist-packages"):
            if (Path(source) / name).is_dir():
                assert f"{target}/{name}" in files.hidden
