"""The files that a Python needs: interpreter, standard library and their shared libraries, by where they go in a sandbox."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from ablation.problems.sandbox.failure import SandboxError

HOME = "/python"
LIBRARIES = "/lib"
# Extension modules whose shared libraries are not mounted: screens, networks, old databases. Importing them fails.
_LEFT_OUT = (
    "_tkinter.",
    "_curses",
    "readline.",
    "_ssl.",
    "nis.",
    "_uuid.",
    "_dbm.",
    "_gdbm.",
    "_crypt.",
    "_test",
    "_ctypes_test.",
    "xx",
)


@dataclass(frozen=True)
class PythonFiles:
    """What to mount (source, target), which folders in it to hide, and where the interpreter then is."""

    mounts: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]
    executable: str


@functools.cache
def python_files() -> PythonFiles:
    """The files of the Python that runs this.

    Raises:
        SandboxError: its standard library is not made of files, or `ldd` could not list its shared libraries.
    """
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    base = Path(sys.base_prefix)
    where = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix, "installed_base": sys.base_prefix}
    folders = {Path(sysconfig.get_path(name, vars=where)) for name in ("stdlib", "platstdlib")}
    mounts, hidden, extensions = [], [], []
    for folder in sorted(folders):
        if not (folder / "os.py").is_file() and not (folder / "lib-dynload").is_dir():
            raise SandboxError(
                f"{folder}: there is no standard library", hint="Use a Python whose standard library is plain files."
            )
        target = f"{HOME}/{folder.relative_to(base) if folder.is_relative_to(base) else Path('lib') / folder.name}"
        mounts.append((os.path.realpath(folder), target))
        hidden += [f"{target}/{name}" for name in ("site-packages", "dist-packages", "test") if (folder / name).is_dir()]
        extensions += [str(file) for file in (folder / "lib-dynload").glob("*.so") if not file.name.startswith(_LEFT_OUT)]
    inner = f"{HOME}/bin/{Path(executable).name}"
    return PythonFiles(((executable, inner), *mounts, *_libraries([executable, *sorted(extensions)])), tuple(hidden), inner)


def _libraries(files: list[str]) -> list[tuple[str, str]]:
    try:
        found = subprocess.run(["ldd", *files], check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"ldd could not list the shared libraries of {files[0]}: {error}") from error
    libraries = dict(re.findall(r"^\s+(\S+) => (/\S+) \(0x", found.stdout, re.MULTILINE))
    if libc := libraries.get("libc.so.6"):  # threads that end need this one, and load it by themselves
        unwinder = Path(libc).with_name("libgcc_s.so.1")
        if unwinder.exists():
            libraries.setdefault(unwinder.name, str(unwinder))
    loaders = set(re.findall(r"^\s+(/\S*/ld[-.\w]*) \(0x", found.stdout, re.MULTILINE))
    mounts = [(os.path.realpath(path), f"{LIBRARIES}/{name}") for name, path in sorted(libraries.items())]
    return mounts + [(os.path.realpath(path), path) for path in sorted(loaders)]
