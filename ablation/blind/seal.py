"""Making a batch, and opening its key: what is told to the journal, and in which order things are written.

Sealing: the event with all digests, the key outside the run folder, then page and form, and the batch last. Opening: the event,
then key and result. A kill between two of them is made good by the same command.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.blind.batch import ANSWERS, Batch
from ablation.blind.build import Built, build, read_sides
from ablation.blind.key import Key, key_path, new_secret, read_key, write_key
from ablation.blind.leaks import LEAK, Finding, leaks
from ablation.blind.ratings import Tell, form_bytes
from ablation.blind.result import check_kept, checked
from ablation.blind.safety_labels import labels_content
from ablation.blind.state import ReadState
from ablation.errors import GateError, IncompleteError, IntegrityError, UsageError
from ablation.files import disk_errors, json_bytes, sha256_bytes, write_bytes
from ablation.plan.deviations import rater_gate
from ablation.plan.lock import LockedPlan
from ablation.rollouts.blind_record import RATED, SEALED, UNSEALED, BlindFolder


@dataclass(frozen=True)
class Sealed:
    """What was made."""

    built: Built
    key: Path
    findings: list[Finding]


def seal(
    folder: BlindFolder,
    locked: LockedPlan,
    key: Path | None,
    page: Callable[[Batch], str],
    events: Sequence[dict[str, Any]],
    tell: Tell,
) -> Sealed:
    """Choose, shuffle, seal and write a batch. `page` makes what a rater reads in a browser.

    Raises:
        UsageError: the plan has no such read, it was made before, or the key's place is not one.
        IncompleteError: a stage is not complete, or too few pairs (`TooFewPairs`).
        GateError: the leak test found something.
        IntegrityError: a batch that had ratings is gone.
    """
    if folder.batch.is_file():
        raise UsageError(
            f"{folder.batch}: was made before", hint="It is made once; `ablation blind status` shows how far its ratings are."
        )
    if folder.events(events, RATED):
        raise IntegrityError(f"{folder.batch}: is gone, and had ratings", hint="Put the file back from a copy.")
    place = key_path(locked, folder, key)
    sides = read_sides(folder, locked.digest)
    earlier = folder.sealing(events)
    secret = _secret(place, earlier)
    built = build(folder, locked.plan, secret, sides)
    html, form = page(built.batch).encode(), form_bytes(built.batch)
    shown = {folder.batch.name: built.batch.data, folder.page.name: html, folder.form.name: form}
    findings = leaks(folder, locked.plan, built.batch, sides, built.key, shown)
    bad = [one for one in findings if one.state == LEAK]
    if bad:
        raise GateError(f"{folder.root}: the batch would tell whose answers are whose: {bad[0].name}: {bad[0].text}")
    digests = {
        "kind": folder.kind,
        "items": len(built.batch),
        "batch_sha256": built.batch.sha256,
        "page_sha256": sha256_bytes(html),
        "form_sha256": sha256_bytes(form),
        "key_sha256": built.key.commitment,
    }
    if earlier is None or any(earlier.get(name) != value for name, value in digests.items()):
        tell(SEALED, set=folder.name, subject=folder.subject, **digests)
    if not place.exists():
        write_key(place, built.key)
    for path, data in ((folder.page, html), (folder.form, form), (folder.batch, built.batch.data)):
        write_bytes(path, data)
    _one_time(folder)
    return Sealed(built, place, findings)


def _secret(place: Path, earlier: dict[str, Any] | None) -> bytes:
    """A new secret, or that of a key whose batch was interrupted before it was there."""
    if not place.exists():
        return new_secret()
    if earlier is None:
        raise UsageError(f"{place}: there is a key already", hint="A key is never replaced: name another place with --key.")
    return read_key(place, earlier["key_sha256"]).secret


def _one_time(folder: BlindFolder) -> None:
    now = time.time_ns()
    with disk_errors(folder.root):
        for path in (folder.page, folder.form, folder.batch):
            os.utime(path, ns=(now, now))


def unseal(state: ReadState, locked: LockedPlan, key: Path | None, tell: Tell) -> dict[str, Any]:
    """Open the key and write `key.json` and `result.json`; returns the result.

    Raises:
        IncompleteError: a rating is missing.
        IntegrityError: the key is not the one that was sealed, or the batch does not come out of the rollouts.
        UsageError: the key is not there.
    """
    folder = state.folder
    if state.missing:
        raise IncompleteError(
            f"{folder.root}: the key stays sealed: {'; '.join(state.missing)}",
            hint="It is opened when every rating is in. Who began and will not go on is let go by a deviation: `ablation plan "
            f"deviate PLAN --reason ... --seen results --opens {rater_gate(folder.name, folder.subject, 'RATER')}`.",
        )
    opened = read_key(folder.key if folder.key.is_file() else key_path(locked, folder, key), state.commitment)
    content = result_content(state, opened, locked)
    check_kept(state, content)
    data = json_bytes(content)
    digests = {
        "batch_sha256": state.batch.sha256,
        "key_sha256": state.commitment,
        "ratings": {rater: sha256_bytes(one.data) for rater, one in state.ratings.items()},
        "result_sha256": sha256_bytes(data),
    }
    if state.unsealed is None or any(state.unsealed.get(name) != value for name, value in digests.items()):
        tell(UNSEALED, set=folder.name, subject=folder.subject, **digests)
    for path, bytes_ in ((folder.key, opened.data), (folder.result, data)):
        if not path.is_file():
            write_bytes(path, bytes_)
    return content


def result_content(state: ReadState, key: Key, locked: LockedPlan) -> dict[str, Any]:
    """What the ratings come to."""
    if state.batch.kind == ANSWERS:
        return labels_content(state, key, locked.plan)
    return checked(state, key, locked.plan)[1]
