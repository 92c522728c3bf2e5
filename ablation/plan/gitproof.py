"""Git as a proof of time: the commit that added the lock, and signed tags that hold it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ablation.plan.lock import Lock
from ablation.plan.proofs import FAILED, NOT_PROVEN, PROVEN, Proof, before_first_event, one_line, parse_time, run_tool

_COMMIT_LIMITS = "that the date is true: it is what the committer's machine said, and counts once others have a copy"
_TAG_LIMITS = "that the date is true: it is what the signer's machine said"


def check_git(lock: Lock, began: str | None, allowed_signers: Path | None = None) -> list[Proof]:
    """A line for the commit that added this lock, and one for each tag with a lock at this path.

    `began` is the time of the run's first event. A history or a tag that holds another lock at this path is a failure: a plan
    is locked once, so somebody wrote plan and lock again.
    """
    repository = _Repository.holding(lock)
    if isinstance(repository, str):
        return [Proof("git", NOT_PROVEN, repository)]
    return [repository.commit(began), *repository.tags(began, allowed_signers)]


@dataclass(frozen=True)
class _Repository:
    """The repository that a lock lies in."""

    lock: Lock
    folder: Path
    path: str
    """Of the lock, from the repository's root."""
    blob: str
    """Git's id of the lock file's bytes."""

    @classmethod
    def holding(cls, lock: Lock) -> _Repository | str:
        """The repository, or why there is none."""
        folder = lock.path.resolve().parent
        code, top, error = run_tool("git", "rev-parse", "--show-prefix", cwd=folder)
        if code != 0:
            absent = "not a git repository" in error
            return "the lock is not in a git repository" if absent else f"git did not answer ({one_line(error)})"
        # --no-filters: the bytes themselves, whatever line ends this checkout converts
        code, blob, error = run_tool("git", "hash-object", "--no-filters", lock.path.name, cwd=folder)
        if code != 0:
            return f"git could not read the lock ({one_line(error)})"
        return cls(lock, folder, top.strip() + lock.path.name, blob.strip())

    def commit(self, began: str | None) -> Proof:
        code, out, error = self._git("log", "--format=%H %cI", "--full-history", "--reverse", "--", f":(top){self.path}")
        if code != 0 and "does not have any commits" not in error:
            return Proof("git", NOT_PROVEN, f"git could not read the history ({one_line(error)})")
        commits = [line.split(" ", 1) for line in out.splitlines()] if code == 0 else []
        blobs = [(name, time, self._blob(name)) for name, time in commits]
        for name, time, blob in blobs:
            if blob not in (None, self.blob):
                return Proof("git", FAILED, f"commit {name[:12]} of {time} {self._another()}")
        added = next(((name, time) for name, time, blob in blobs if blob == self.blob), None)
        if added is None:
            return Proof("git", NOT_PROVEN, f"{self.path} is not committed")
        name, time = added
        holds, words = before_first_event(parse_time(time), began)
        says = f"commit {name[:12]} of {time} added this lock, {words}"
        return Proof("git", PROVEN if holds else NOT_PROVEN, says, _COMMIT_LIMITS)

    def tags(self, began: str | None, allowed_signers: Path | None) -> list[Proof]:
        fields = "%(refname:strip=2)%09%(objecttype)%09%(creatordate:iso-strict)"
        code, out, _ = self._git("for-each-ref", f"--format={fields}", "refs/tags")
        proofs = []
        for line in out.splitlines() if code == 0 else []:
            tag, kind, time = line.split("\t")
            blob = self._blob(f"refs/tags/{tag}")
            if blob is None:
                continue  # made before the lock, or of something else
            if blob != self.blob:
                proofs.append(Proof("tag", FAILED, f"tag {tag} of {time} {self._another()}"))
            elif kind == "tag":
                proofs.append(self._signed(tag, time, began, allowed_signers))
        return proofs

    def _signed(self, tag: str, time: str, began: str | None, allowed_signers: Path | None) -> Proof:
        options = []
        if allowed_signers is not None:
            options = ["-c", f"gpg.ssh.allowedSignersFile={allowed_signers.resolve()}"]
        code, out, error = self._git(*options, "verify-tag", tag)
        holds, words = before_first_event(parse_time(time), began)
        if code != 0:
            why = one_line(error or out)
            says = f"tag {tag} of {time} holds this lock, {words}, but has no signature that can be checked ({why})"
            return Proof("tag", NOT_PROVEN, says, _COMMIT_LIMITS)
        says = f"signed tag {tag} of {time} holds this lock, {words} ({one_line(error or out)})"
        return Proof("tag", PROVEN if holds else NOT_PROVEN, says, _TAG_LIMITS)

    def _another(self) -> str:
        return f"holds another lock at {self.path}: the plan was locked again since"

    def _blob(self, revision: str) -> str | None:
        """Git's id of the lock in `revision`; None if it is not there."""
        code, out, _ = self._git("rev-parse", "--verify", "--quiet", f"{revision}:{self.path}")
        return out.strip() if code == 0 else None

    def _git(self, *arguments: str) -> tuple[int, str, str]:
        return run_tool("git", *arguments, cwd=self.folder)
