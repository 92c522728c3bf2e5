"""Locking a plan, once, and proving later that it is the plan that was locked.

The lock file is JSON beside the plan: both digests, the plan's text and its resolved form, the digest of every file
that the plan names, of the engine's source, the package versions, who, when and the git commit. It carries its
own digest, which finds damage and careless edits; it does not stop somebody who rewrites plan and lock together.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ablation.errors import IntegrityError, UsageError
from ablation.files import CRLF_HINT, TEMPORARY_PREFIX, disk_errors, json_bytes, sha256_bytes, sync_folder, write_bytes
from ablation.plan.canonical import canonical_tree, tree_digest
from ablation.plan.choose import lock_path
from ablation.plan.diff import added_only, diff_trees, shortened
from ablation.plan.load import LoadedPlan, PlanError, load_plan, parse_plan, read_plan_file
from ablation.plan.locate import changed_resources, resource_digests
from ablation.plan.model import Plan
from ablation.plan.provenance import engine_changes, engine_files, git_state, package_versions, shortlist, whoami

LOCK_VERSION = 1
_LOCK_HINT = "Put back the lock file as it was written (from version control, a run folder, or a reviewer)."
_FIELDS = {
    "ablation_lock": int,
    "plan_file": str,
    "bytes_sha256": str,
    "digest": str,
    "text": str,
    "plan": dict,
    "resources": dict,
    "owed": dict,
    "engine": dict,
    "packages": dict,
    "locked": dict,
    "lock_sha256": str,
}


@dataclass(frozen=True)
class Lock:
    """What a lock file says."""

    path: Path
    content: dict[str, Any]

    @property
    def digest(self) -> str:
        """The locked plan's identity."""
        return self.content["digest"]

    @property
    def bytes_sha256(self) -> str:
        return self.content["bytes_sha256"]

    @property
    def data(self) -> bytes:
        """The plan file as it was locked."""
        return self.content["text"].encode()

    @property
    def resources(self) -> dict[str, dict[str, Any]]:
        """Field path -> `at`, `sha256`, `owed`."""
        return self.content["resources"]

    @property
    def owed(self) -> dict[str, str]:
        """Field path -> why the file is owed."""
        return self.content["owed"]

    @property
    def sampler(self) -> dict[str, Any] | None:
        """`asked`, and what the sampling engine did, or `why` it was not; None for a plan without one, and in older locks."""
        return self.content.get("sampler")

    @property
    def locked_at(self) -> str:
        """UTC time, ISO 8601 with offset."""
        return self.content["locked"]["utc"]

    @property
    def locked_by(self) -> str:
        return self.content["locked"]["by"]


@dataclass(frozen=True)
class LockedPlan:
    """A plan that is byte for byte the one that was locked."""

    plan: Plan
    path: Path
    data: bytes
    lock: Lock
    warnings: list[str] = field(default_factory=list)
    """What differs from the time of locking and does not change the plan: engine source, package versions."""

    @property
    def digest(self) -> str:
        """The plan's identity."""
        return self.lock.digest

    @property
    def bytes_sha256(self) -> str:
        return self.lock.bytes_sha256


def lock_plan(path: Path, loaded: LoadedPlan | None = None, sampler: dict[str, Any] | None = None) -> Lock:
    """Lock the plan at `path`, once. `loaded` saves reading it again and locks exactly the bytes that were checked.

    `sampler`: for a plan with a sampling engine, whether that was asked and what it did.

    Raises `PlanError` for a plan that is not valid, `UsageError` for missing or other files, `IntegrityError` if
    there is a lock already.
    """
    target = lock_path(path)
    if target.exists():
        raise already_locked(path)
    loaded = loaded or load_plan(path)
    _refuse_second_name(target, loaded)
    resources = resource_digests(loaded)
    content: dict[str, Any] = {
        "ablation_lock": LOCK_VERSION,
        "plan_file": loaded.path.name,
        "bytes_sha256": loaded.bytes_sha256,
        "digest": loaded.digest,
        "text": loaded.data.decode("utf-8"),
        "plan": canonical_tree(loaded.plan),
        "resources": resources,
        "owed": {name: entry["owed"] for name, entry in resources.items() if entry["owed"] is not None},
        "engine": engine_files(),
        "packages": package_versions(),
        "locked": {
            "utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "by": whoami(loaded.path),
            "git": git_state(loaded.path),
        },
    }
    if sampler is not None:
        content["sampler"] = sampler
    content["lock_sha256"] = tree_digest(content)
    if not _write_once(target, json_bytes(content)):
        raise already_locked(path)
    return Lock(target, content)


def _refuse_second_name(target: Path, loaded: LoadedPlan) -> None:
    """Raise `IntegrityError` if the same plan was locked beside under another file name: it would be a second lock of it."""
    for other in sorted(target.parent.glob("*.lock")):
        try:
            content = json.loads(other.read_bytes()) if other != target else None
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(content, dict) and content.get("digest") == loaded.digest:
            raise IntegrityError(
                f"{loaded.path} is a plan that was locked already: {other} has its digest {loaded.digest}",
                hint="A plan is locked once, whatever its file is called. Another study has at least another `name`.",
            )


def read_lock(plan_path: Path) -> Lock:
    """The lock of the plan at `plan_path`. Raises `IntegrityError` if there is none or it is damaged or edited."""
    path = lock_path(plan_path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise IntegrityError(f"{path}: is a link to {os.readlink(path)}, which is not there", hint=_LOCK_HINT) from None
        hint = f"Review it, then run `ablation plan lock {plan_path}`."
        raise IntegrityError(f"{plan_path} is not locked", hint=hint) from None
    except OSError as error:
        raise IntegrityError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        content = json.loads(data)
        problem = _lock_problem(content)
    except (ValueError, RecursionError) as error:
        content, problem = None, f"it is not JSON ({error})"
    if problem:
        raise IntegrityError(
            f"{path}: the lock file is damaged or was edited: {problem}",
            hint=_LOCK_HINT,
        )
    if json_bytes(content) != data:  # whoever signed or dated the lock did so for its bytes
        raise IntegrityError(
            f"{path}: cosmetic edit: only the layout of the lock file changed; every value in it is as it was written",
            hint=CRLF_HINT if data.replace(b"\r\n", b"\n") == json_bytes(content) else _LOCK_HINT,
        )
    return Lock(path, content)


def verify_lock(path: Path, *, resources: bool = False) -> LockedPlan:
    """The plan at `path` if it is byte for byte the locked one; otherwise an `IntegrityError` that says what changed.

    With `resources`, every file that the plan names and that is at hand must have its locked digest, too.
    """
    path = Path(path)
    if not path.exists() and not lock_path(path).exists():
        read_plan_file(path)  # says that there is no such plan, and which there are
    lock = read_lock(path)
    if not path.exists():
        raise IntegrityError(f"{path}: the locked plan is gone", hint=_restore_hint(path))
    data = read_plan_file(path)
    if sha256_bytes(data) != lock.bytes_sha256:
        raise _changed(path, data, lock)
    warnings = []
    try:
        plan = parse_plan(path, data).plan
    except PlanError as error:
        raise IntegrityError(
            f"{path}: this version of the program refuses the locked plan: {error.message}",
            hint=f"Use the version that locked it: ablation {lock.content['packages'].get('ablation')}.",
        ) from error
    differences = diff_trees(lock.content["plan"], canonical_tree(plan))
    if differences and not added_only(lock.content["plan"], canonical_tree(plan)):
        raise IntegrityError(
            f"{path}: this version of the program reads the locked plan differently:\n" + "\n".join(shortened(differences)),
            hint=f"Use the version that locked it: ablation {lock.content['packages'].get('ablation')}.",
        )
    if differences:
        names = [line.strip().split(":")[0] for line in differences]
        warnings.append(f"fields that did not exist when the plan was locked, each at its default: {shortlist(names)}")
    warnings += _engine_warnings(lock)
    locked = LockedPlan(plan, path, data, lock, warnings)
    if resources:
        changed = changed_resources(locked, lock)
        if changed:
            raise IntegrityError("\n".join(changed), hint="Put back the files that the plan was locked with.")
    return locked


def restore_plan(path: Path) -> Path | None:
    """Put the locked bytes back at `path`; what was there is kept beside it, and its new path is returned."""
    lock = read_lock(path)
    path = Path(path)
    kept = None
    if path.exists():
        if path.read_bytes() == lock.data:
            return None
        kept = path.with_suffix(".edited.txt")
        if kept.exists():
            raise UsageError(f"{kept} is in the way: it keeps an earlier edit", hint="Move it away and run the command again.")
        os.rename(path, kept)
    write_bytes(path, lock.data)
    return kept


def _lock_problem(content: Any) -> str | None:
    if not isinstance(content, dict):
        return "it is not a JSON object"
    for name, kind in _FIELDS.items():
        if not isinstance(content.get(name), kind):
            return f"`{name}` is missing or of the wrong type"
    if content["ablation_lock"] != LOCK_VERSION:
        return f"version {content['ablation_lock']} of the lock file is not known to this program (it knows {LOCK_VERSION})"
    try:
        body = {name: value for name, value in content.items() if name != "lock_sha256"}
        if tree_digest(body) != content["lock_sha256"]:
            return "its content does not have the digest that it carries"
        if tree_digest(content["plan"]) != content["digest"]:
            return "the resolved plan in it does not have its digest"
        if sha256_bytes(content["text"].encode()) != content["bytes_sha256"]:
            return "the plan's text in it does not have its digest"
    except (ValueError, RecursionError) as error:  # values that RFC 8785 does not have
        return str(error)
    return None


def already_locked(path: Path) -> IntegrityError:
    """The error that a second lock ends with; it names the first one."""
    lock = read_lock(path)
    return IntegrityError(
        f"{path} was locked already, at {lock.locked_at}: {lock.path} has the digest {lock.digest}",
        hint="A plan is locked once. For another study, copy the plan under another name.",
    )


def _changed(path: Path, data: bytes, lock: Lock) -> IntegrityError:
    try:
        loaded = parse_plan(path, data)
    except PlanError as error:
        return IntegrityError(
            f"{path} was changed after it was locked, and is no longer a valid plan:\n{error.message}", hint=_restore_hint(path)
        )
    if loaded.digest == lock.digest:
        return IntegrityError(
            f"{path}: cosmetic edit: only comments or layout changed after locking; every value is as it was locked",
            hint=_restore_hint(path),
        )
    lines = [f"{path} was changed after it was locked (locked -> now):"]
    lines += shortened(diff_trees(_as_read_now(path, lock), canonical_tree(loaded.plan)))
    return IntegrityError("\n".join(lines), hint=_restore_hint(path))


def _as_read_now(path: Path, lock: Lock) -> dict[str, Any]:
    """The locked plan with the fields that have come since, so that none of them is told as an edit."""
    try:
        return canonical_tree(parse_plan(path, lock.data).plan)
    except PlanError:
        return lock.content["plan"]


def _restore_hint(path: Path) -> str:
    return f"`ablation plan restore {path}` puts the locked text back."


def _engine_warnings(lock: Lock) -> list[str]:
    warnings = engine_changes(lock.content["engine"].get("files", {}))
    installed = package_versions()
    for name, version in lock.content["packages"].items():
        if version is not None and installed.get(name) not in (None, version):
            warnings.append(f"package {name} is {installed[name]}; the plan was locked with {version}")
    return warnings


def _write_once(path: Path, data: bytes) -> bool:
    """Write `path` complete or not at all; False if somebody was first, however close the race."""
    with disk_errors(path):
        handle, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            try:
                os.link(temporary, path)  # unlike a rename, never replaces
            except FileExistsError:
                return False
            except OSError:  # a file system without hard links
                if path.exists():
                    return False
                os.replace(temporary, path)
            sync_folder(path.parent)
            return True
        finally:
            temporary.unlink(missing_ok=True)
