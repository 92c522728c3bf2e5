"""Rows that were made once are kept in the user's cache folder, never in a run.

A stage's rows are kept under a digest of all that they are made from: `stage.json` (which has the digest of every part), the
grades, the problems, the plan's loop settings, and the code that measures. Size and time of change of each part are kept beside
them: a part that was touched since is read again, and its digest compared with `stage.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ablation
from ablation.files import TEMPORARY_PREFIX, sha256_bytes, sha256_file
from ablation.plan.locate import cache_folder
from ablation.plan.model import Plan
from ablation.rollouts.folder import grades_file, stage_file
from ablation.rollouts.store import stage_parts
from ablation.view.rows import SCHEMA

_TOUCHED = b"ablation.view.touched"
_CODE = ("rollouts/*.py", "problems/*.py", "problems/graders/*.py", "view/rows.py")
_SUFFIX = ".rows"
"""A file is Parquet, and then the SHA-256 of that: a bit that a disk changed is another number, and Parquet does not see it."""
_DIGEST = 32
KEPT_DAYS = 60
"""Rows that nobody has read for so long are removed."""


def folder() -> Path:
    return cache_folder() / "view"


@cache
def code_sha256() -> str:
    """Digest of the code that measures and grades."""
    root = Path(ablation.__file__).parent
    paths = sorted(path for pattern in _CODE for path in root.glob(pattern))
    return sha256_bytes("".join(f"{path.relative_to(root)} {sha256_file(path)}\n" for path in paths).encode())


def stage_key(stage: Path, plan: Plan, problems_sha256: str) -> str:
    """What the rows of the complete stage in the folder `stage` are a function of."""
    grades = grades_file(stage)
    parts = {
        "stage": sha256_file(stage_file(stage)),
        "grades": sha256_file(grades) if grades.is_file() else None,
        "problems": problems_sha256,
        "loops": plan.loops.model_dump(),
        "code": code_sha256(),
        "place": "/".join(stage.parts[-4:]),
    }
    return sha256_bytes(json.dumps(parts, sort_keys=True).encode())


def touched(stage: Path) -> bytes:
    """Size and time of change of each part."""
    found = [(path.name, status.st_size, status.st_mtime_ns) for path in stage_parts(stage) if (status := path.stat())]
    return json.dumps(found).encode()


def read(key: str, stage: Path) -> pa.Table | None:
    """The rows under `key`, if there are any, whole as they were kept, and no part was touched since."""
    path = _file(key)
    try:
        content = path.read_bytes()
        data, digest = content[:-_DIGEST], content[-_DIGEST:]
        if hashlib.sha256(data).digest() != digest:
            return None
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    except (OSError, pa.ArrowException):
        return None
    metadata = table.schema.metadata or {}
    if metadata.get(_TOUCHED) != touched(stage) or not table.schema.equals(SCHEMA):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return table.replace_schema_metadata(None)


def keep(key: str, table: pa.Table, seen: bytes) -> None:
    """Keep the rows; a cache folder that cannot be written is no error. `seen`: what `touched` said before they were read."""
    path = _file(key)
    with contextlib.suppress(OSError, pa.ArrowException):
        made = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata({_TOUCHED: seen}), made, compression="zstd")
        data = made.getvalue().to_pybytes()
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, suffix=path.suffix, dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data + hashlib.sha256(data).digest())
            os.replace(temporary, path)  # not synced: what is lost is made again
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def forget(now: float) -> None:
    """Remove rows that nobody has read for `KEPT_DAYS`; `now`: seconds since the epoch."""
    with contextlib.suppress(OSError):
        for path in (*folder().glob(f"*{_SUFFIX}"), *folder().glob("*.parquet")):  # the latter: of earlier versions
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > KEPT_DAYS * 86400:
                    path.unlink()


def _file(key: str) -> Path:
    return folder() / f"{key}{_SUFFIX}"
