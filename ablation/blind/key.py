"""The sealed key: a secret, and which answer is whose.

Every order comes from the secret by HMAC-SHA256, so nobody can choose one, and whoever has the key can check all of it. The
commitment is the SHA-256 of the key file; 32 random bytes in it keep anybody from guessing the file from the commitment.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.errors import IntegrityError, UsageError
from ablation.files import TEMPORARY_PREFIX, disk_errors, json_bytes, parse_json, sha256_bytes, sync_folder
from ablation.plan.lock import LockedPlan
from ablation.rollouts.blind_record import BlindFolder

KEY_VERSION = 1
SECRET_BYTES = 32
SUBJECT, REFERENCE = "subject", "reference"


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def draw(secret: bytes, purpose: str, *parts: str | int) -> int:
    """A number that looks random to whoever has no secret: HMAC-SHA256 of the length-prefixed parts."""
    text = "".join(f"{len(part)}:{part}" for part in map(str, (purpose, *parts)))
    return int.from_bytes(hmac.new(secret, text.encode(), hashlib.sha256).digest(), "big")


def shuffled(secret: bytes, names: Sequence[Sequence[str | int]]) -> list[int]:
    """The places of `names` in secret order."""
    return sorted(range(len(names)), key=lambda place: draw(secret, "order", *names[place]))


def subject_first(secret: bytes, names: Sequence[Sequence[str | int]]) -> list[bool]:
    """For each pair whether X is the subject: so for half of them, the lower draws; the draw of `odd` decides of a last one."""
    first = len(names) // 2 + (len(names) % 2) * (draw(secret, "odd") & 1)
    order = sorted(range(len(names)), key=lambda place: draw(secret, "side", *names[place]))
    chosen = set(order[:first])
    return [place in chosen for place in range(len(names))]


@dataclass(frozen=True)
class Key:
    """What a key file says."""

    secret: bytes
    batch_sha256: str
    items: list[dict[str, Any]]
    """For each item its number, which model is whose (`X`, `Y`, or `model`) and which rollout it is."""

    @property
    def data(self) -> bytes:
        content = {"ablation_key": KEY_VERSION, "secret": self.secret.hex(), "batch_sha256": self.batch_sha256}
        return json_bytes(content | {"items": self.items})

    @property
    def commitment(self) -> str:
        return sha256_bytes(self.data)


def key_path(locked: LockedPlan, folder: BlindFolder, given: Path | None) -> Path:
    """Where the key lies: `given`, or `NAME.keys/SET-SUBJECT.json` beside the plan. Raises `UsageError` inside the run folder."""
    path = given
    if path is None:
        plan = locked.path
        path = plan.parent / f"{plan.stem}.keys" / f"{folder.name}-{folder.subject}.json"
    root = folder.run.root.resolve()
    if path.resolve().is_relative_to(root):
        raise UsageError(
            f"{path}: lies in the run folder, which a rater may see",
            hint="Name another place with --key, or the plan with --plan.",
        )
    return path


def write_key(path: Path, key: Key) -> None:
    """Write the key so that its owner alone can read it. Raises `UsageError` if there is one: a key is never replaced."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)  # readable by its owner alone
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(key.data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
            sync_folder(path.parent)
        except FileExistsError:
            raise UsageError(
                f"{path}: there is a key already", hint="A key is never replaced: name another place with --key."
            ) from None
        finally:
            temporary.unlink(missing_ok=True)


def read_key(path: Path, commitment: str) -> Key:
    """The key in `path`. Raises `IntegrityError` if it is not the one that was sealed, `UsageError` if there is none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path}: the key cannot be read: {error.strerror or error}", hint="Name the place of the sealed key with --key."
        ) from None
    if sha256_bytes(data) != commitment:
        raise IntegrityError(
            f"{path}: is not the key that was sealed (its SHA-256 is not the commitment in the journal)",
            hint="Put back the key file as it was written; without it this read cannot be unsealed.",
        )
    try:
        content = parse_json(data)
        return Key(bytes.fromhex(content["secret"]), content["batch_sha256"], list(content["items"]))
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"{path}: is not a key ({type(error).__name__}: {error})") from None
