"""Git as a proof of time: the commit that added the lock, and signed tags that hold it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ablation.plan.lock import Lock
from ablation.plan.proofs import FAILED, NOT_PROVEN, PROVEN, Proof, before_first_event, one_line, parse_time
from ablation.plan.repository import GitError, NoRepository, Repository, opened

_COMMIT_LIMITS = "that the date is true: it is what the committer's machine said, and counts once others have a copy"
_TAG_LIMITS = "that the date is true: it is what the signer's machine said"


def check_git(lock: Lock, began: str | None, allowed_signers: Path | None = None) -> list[Proof]:
    """A line for the commit that added this lock, and one for each tag with a lock at this path.

    `began` is the time of the run's first event. A history or a tag that holds another lock at this path is a failure: a plan
    is locked once, so somebody wrote plan and lock again.
    """
    proofs: list[Proof] = []
    try:
        with opened(lock.path.parent) as repository:
            found = _LockInGit.of(lock, repository)
            proofs.append(found.commit(began))
            proofs.extend(found.tags(began, allowed_signers))
    except NoRepository:
        return [Proof("git", NOT_PROVEN, "the lock is not in a git repository")]
    except GitError as error:
        proofs.append(Proof("git", NOT_PROVEN, str(error)))
    return proofs


@dataclass(frozen=True)
class _LockInGit:
    """A lock, and the repository that it lies in."""

    repository: Repository
    path: str
    """Of the lock, from the repository's root."""
    blob: str | None
    """Git's id of the lock file's bytes."""

    @classmethod
    def of(cls, lock: Lock, repository: Repository) -> _LockInGit:
        path = lock.path.resolve().relative_to(repository.root)
        repository.load(len(path.parts))
        blob = repository.git("hash-object", "--stdin", stdin=lock.path.read_bytes())
        return cls(repository, path.as_posix(), blob and blob.strip())

    def commit(self, began: str | None) -> Proof:
        if self.repository.git("rev-parse", "--verify", "--quiet", "HEAD") is None:
            return Proof("git", NOT_PROVEN, f"{self.path} is not committed")
        order = ("--full-history", "--reverse", "--format=%H %cI")
        code, out, error = self.repository.call("rev-list", *order, "HEAD", "--", self.path)
        if code != 0:
            return Proof("git", NOT_PROVEN, f"git could not read the history ({one_line(error)})")
        commits = [line.split(" ", 1) for line in out.splitlines()[1::2]]  # each after a line `commit ID`
        blobs = [(name, time, self._blob(name)) for name, time in commits]
        for name, time, blob in blobs:
            if blob not in (None, self.blob):
                return Proof("git", FAILED, f"commit {name[:12]} of {time} {self._another()}")
        added = next(((name, time) for name, time, blob in blobs if blob == self.blob), None)
        if added is None:
            return Proof("git", NOT_PROVEN, f"{self.path} is not committed")
        name, time = added
        holds, words = _before(time, began)
        says = f"commit {name[:12]} of {time} added this lock, {words}"
        return Proof("git", PROVEN if holds else NOT_PROVEN, says, _COMMIT_LIMITS)

    def tags(self, began: str | None, allowed_signers: Path | None) -> Iterator[Proof]:
        fields = "%(refname:strip=2)%09%(objecttype)%09%(creatordate:iso-strict)"
        for line in (self.repository.git("for-each-ref", f"--format={fields}", "refs/tags") or "").splitlines():
            tag, kind, time = line.split("\t")
            blob = self._blob(f"refs/tags/{tag}")
            if blob is None:
                continue  # made before the lock, or of something else
            if blob != self.blob:
                yield Proof("tag", FAILED, f"tag {tag} of {time} {self._another()}")
            elif kind == "tag":
                yield self._signed(tag, time, began, allowed_signers)

    def _signed(self, tag: str, time: str, began: str | None, allowed_signers: Path | None) -> Proof:
        code, out, error = self.repository.verify_tag(tag, allowed_signers)
        holds, words = _before(time, began)
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
        found = self.repository.git("rev-parse", "--verify", "--quiet", f"{revision}:{self.path}")
        return found and found.strip()


def _before(time: str, began: str | None) -> tuple[bool, str]:
    try:
        return before_first_event(parse_time(time), began)
    except (ValueError, TypeError):  # a tag without a tagger, a time zone of 99 hours
        return False, "with a date that cannot be read"
