"""A git repository that somebody else may have made, read as data.

Git obeys the configuration of the repository that it works in: it starts programs for signatures, hooks, filters, file
monitors and remotes, and it believes replaced objects, grafts and an object's file name. So git never works in that repository.
It works in a new folder with a configuration of its own. HEAD, branches and tags are copied into it as plain text. Objects come
as a pack, of which git works out every name anew from the content: an object with another name than its own is not there.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ablation.plan.proofs import one_line, run_tool

SECONDS = 120.0
"""For all calls of git together."""
_LIMITS = "ulimit -f 2097152; ulimit -v 4194304 2>/dev/null"
"""Of a call: 1 GiB on disk and 4 GiB of address space. A few kilobytes can be a commit of a terabyte."""
_KEPT = ("core.filemode", "core.symlinks", "core.ignorecase", "core.autocrlf", "core.eol", "extensions.objectformat")
"""The settings that say how files and objects are written. None is the name of a program or a path."""
_PROTECTED = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_MOST = {"index": 1 << 30, "packed-refs": 1 << 28}
_SMALL = 1 << 20


class GitError(Exception):
    """There is no repository, or git cannot read it; the message is why."""


class NoRepository(GitError):
    """No folder from here up is in a git repository."""


class Repository:
    """The repository that a folder lies in. Made by `opened`."""

    def __init__(self, folder: Path, copy: Path) -> None:
        self.root, own, common = _find(folder.resolve())
        self._objects, self._copy = common / "objects", copy
        self._deadline = time.monotonic() + SECONDS
        (copy / "objects").mkdir()
        (copy / "refs").mkdir()
        for source, names in ((own, ("HEAD", "index")), (common, ("packed-refs", "shallow"))):
            for name in names:
                self._take(source / name, copy / name)
        for shared in own.glob("sharedindex.*"):
            self._take(shared, copy / shared.name)
        for kind in ("heads", "tags"):
            for inside, _, names in os.walk(common / "refs" / kind):
                for name in names:
                    path = Path(inside, name)
                    self._take(path, copy / path.relative_to(common))
        (copy / "config").write_text(self._settings(_read(common / "config", _SMALL) or b""))
        if (common / "reftable").is_dir():
            raise GitError("its branches and tags are in git's reftable form, which is not read here")

    def git(self, *arguments: str, stdin: bytes | IO[bytes] | None = None, **more: str) -> str | None:
        """What git says, with nobody's configuration; None if its exit code is not 0. Raises GitError if it did not end."""
        code, out, _ = self.call(*arguments, stdin=stdin, **more)
        return out if code == 0 else None

    def verify_tag(self, tag: str, allowed_signers: Path | None) -> tuple[int, str, str]:
        """Of `git verify-tag`, with the configuration of who runs this: their keys, their programs, their allowed signers."""
        option = [] if allowed_signers is None else ["-c", f"gpg.ssh.allowedSignersFile={allowed_signers.resolve()}"]
        own = {name: os.environ.get(name) for name in _PROTECTED}
        return self.call(*option, "verify-tag", f"refs/tags/{tag}", **own)

    def load(self, depth: int) -> None:
        """Take the commits, the tags, and the trees of `depth` levels. Files are left out. Raises GitError."""
        with tempfile.TemporaryFile(dir=self._copy) as pack:
            select = ("--all", "--stdout", "--quiet", "--window=0", "--filter=blob:none", f"--filter=tree:{depth}")
            settings = ("-c", "core.commitGraph=false", "-c", "core.packedGitWindowSize=32m", "-c", "core.packedGitLimit=512m")
            said = self.call(*settings, "pack-objects", "--threads=1", *select, stdout=pack, **self._theirs())
            if said[0] == 0:
                pack.seek(0)
                said = self.call("index-pack", "--stdin", "--threads=1", stdin=pack)
        if said[0] != 0:
            raise GitError(f"git could not read its objects ({one_line(said[2])})")

    def changed(self) -> bool:
        """Whether files that git knows differ from HEAD. Raises GitError."""
        look = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
        code, out, error = self.call(*look, GIT_WORK_TREE=str(self.root), **self._theirs())
        if code != 0:
            raise GitError(one_line(error))
        return bool(out)

    def call(
        self,
        *arguments: str,
        stdin: bytes | IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        **more: str | None,
    ) -> tuple[int, str, str]:
        """Exit code, output and errors of one call. Raises GitError if it did not begin or did not end."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {
            "GIT_DIR": str(self._copy),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }
        environment = {name: value for name, value in (environment | more).items() if value is not None}
        # not in their folder: a `.` in PATH, or a path without a beginning in somebody's settings, would find their files
        command = ("sh", "-c", f'{_LIMITS}; exec git "$@"', "git", "--literal-pathspecs", "--no-pager", *arguments)
        left = max(self._deadline - time.monotonic(), 0.1)
        said = run_tool(*command, cwd=self._copy, stdin=stdin, stdout=stdout, timeout=left, env=environment)
        if said[0] == 127:
            raise GitError("git is not installed")
        if said[0] in (124, 126):
            raise GitError(f"git did not end within {SECONDS:g} s" if said[0] == 124 else said[2])
        return said

    def _theirs(self) -> dict[str, str]:
        return {"GIT_OBJECT_DIRECTORY": str(self._objects)}

    def _take(self, source: Path, target: Path) -> None:
        content = _read(source, _MOST.get(source.name, _SMALL))
        if content is not None:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def _settings(self, theirs: bytes) -> str:
        listed = self.git("config", "--file", "-", "--no-includes", "--list", "-z", stdin=theirs)
        lines = ["[core]\n\trepositoryformatversion = 1\n\tbare = false\n"]
        for entry in (listed or "").split("\0"):
            name, _, value = entry.partition("\n")
            if name in _KEPT and value.isalnum():
                lines.append("[{}]\n\t{} = {}\n".format(*name.split("."), value))
        return "".join(lines)


@contextmanager
def opened(folder: Path) -> Iterator[Repository]:
    """The repository that `folder` lies in. Raises GitError."""
    with tempfile.TemporaryDirectory(prefix="ablation-git-") as copy:
        try:
            yield Repository(folder, Path(copy))
        except OSError as error:
            raise GitError(str(error)) from error


def _find(folder: Path) -> tuple[Path, Path, Path]:
    """Root of the work tree, its git folder, and the folder that holds what work trees share."""
    for root in (folder, *folder.parents):
        own = root / ".git"
        if own.is_file():  # of a linked work tree or a submodule
            own = root / _line(own).removeprefix("gitdir: ")
        if (own / "HEAD").is_file():
            return root, own, own / _line(own / "commondir") if (own / "commondir").is_file() else own
    raise NoRepository("not in a git repository")


def _line(path: Path) -> str:
    return os.fsdecode(_read(path, _SMALL) or b"").rstrip("\n")


def _read(path: Path, most: int) -> bytes | None:
    """The content of a plain file; None if it is not there or something else. A pipe does not hold it up. Raises GitError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(most + 1)
    if len(content) > most:
        raise GitError(f"{path} is larger than {most >> 20} MiB")
    return content
