"""The result of a blinded read: computed again from ratings, key and rollouts whenever it is asked for.

`result.json` is never trusted: with the key's secret the pairs, their texts, their order and the key itself are made again from
the rollouts and must come out byte for byte, and so must the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ablation.blind.batch import PAIRS
from ablation.blind.build import Built, build, read_sides
from ablation.blind.choose import TooFewPairs
from ablation.blind.key import Key, read_key
from ablation.blind.known import known_warnings
from ablation.blind.state import ReadState, read_state
from ablation.blind.tally import UNDECIDED, Reason, tally
from ablation.errors import IncompleteError, IntegrityError
from ablation.files import json_bytes
from ablation.plan.model import Plan
from ablation.plan.phase2 import BlindedRead
from ablation.rollouts.blind_record import BlindFolder
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.journal_chain import read_journal_chain
from ablation.rollouts.store import stage_is_complete


@dataclass(frozen=True)
class BlindResult:
    """What a blinded read of pairs came to."""

    label: str
    """`PASSED`, `FAILED` or `UNDECIDED`."""
    reasons: tuple[Reason, ...]
    pairs: int
    needed: int
    passes: int | None = None
    """None while the key is sealed."""
    unsealed: bool = False
    content: dict[str, Any] = field(default_factory=dict)
    """All of `result.json`, with warnings that come from other reads of the set; empty while the key is sealed."""

    def as_json(self) -> dict[str, Any]:
        own = {
            "label": self.label,
            "reasons": [one.as_json() for one in self.reasons],
            "pairs": self.pairs,
            "needed": self.needed,
        }
        return self.content | own | {"passes": self.passes, "unsealed": self.unsealed}


def read_result(run: RunFolder, name: str, subject: str, plan: Plan) -> BlindResult | None:
    """The blinded read of `subject` on the set `name` (`held-out`), None if none was begun.

    Without a batch the label is `UNDECIDED` where the rollouts hold too few pairs (`TOO_FEW_PAIRS`); while ratings are
    missing or the key is sealed, too (`SEALED`).

    Raises:
        IntegrityError: ratings, key, pairs or result are not what they were, or do not come out of the rollouts; a rating came
            after the key was opened.
        IncompleteError: a stage of the comparison is not complete, though a batch was made.
    """
    folder = BlindFolder(run, name, subject)
    events = read_journal_chain(run.journal).records
    if folder.kind != PAIRS:
        raise ValueError(f"the set `{name}` has labels, no pairs")
    if not folder.root.exists() and folder.sealing(events) is None:
        return _not_begun(folder, plan)
    try:
        state = read_state(folder, plan, events)
    except IncompleteError:
        return _not_begun(folder, plan)
    settings = state.settings
    assert isinstance(settings, BlindedRead)
    if state.unsealed is None:
        text = "; ".join(state.missing) or "all ratings are in, and the key was not opened yet"
        return BlindResult(UNDECIDED, (Reason("SEALED", text),), settings.pairs, settings.passes)
    key = key_of(state)
    _, content = checked(state, key, plan)
    check_kept(state, content)
    content = content | {"warnings": content["warnings"] + read_warnings(state, events)}
    reasons = tuple(Reason(**one) for one in content["reasons"])
    return BlindResult(content["label"], reasons, content["pairs"], content["needed"], content["passes"], True, content)


def read_warnings(state: ReadState, events: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader of the result has to know that is not in the ratings: who left, and texts that were known already."""
    return [*state.who_left, *known_warnings(state.folder, state.batch, state.ratings, events)]


def _not_begun(folder: BlindFolder, plan: Plan) -> BlindResult | None:
    """None, unless the rollouts say already that the plan's read cannot be made."""
    run, held_out = folder.run, plan.verdict.held_out
    places = (run.evaluated(folder.name, folder.subject), run.evaluated_reference(folder.name, folder.subject))
    if folder.name != "held-out" or held_out is None or not all(map(stage_is_complete, places)):
        return None
    try:
        build(folder, plan, bytes(32))
    except TooFewPairs as error:
        settings = held_out.blinded_read
        return BlindResult(UNDECIDED, (Reason(error.code, error.message),), settings.pairs, settings.passes)
    return None


def key_of(state: ReadState) -> Key:
    """The key that unsealing copied into the run folder. Raises `IntegrityError` if it is not there or another one."""
    if not state.folder.key.is_file():
        raise IntegrityError(
            f"{state.folder.key}: was unsealed, but the key is not there",
            hint="Run `ablation blind unseal` again, or put the file back from a copy.",
        )
    return read_key(state.folder.key, state.commitment)


def checked(state: ReadState, key: Key, plan: Plan) -> tuple[Built, dict[str, Any]]:
    """(the batch made again from the rollouts, the result). Raises `IntegrityError` if batch or key do not come out the same."""
    built = rebuilt(state, key, plan)
    settings = state.settings
    assert isinstance(settings, BlindedRead)
    return built, tally(state.batch, key, state.ratings, settings, state.left)


def rebuilt(state: ReadState, key: Key, plan: Plan) -> Built:
    """The batch and the key, made again from the rollouts with the key's secret."""
    folder = state.folder
    try:
        built = build(folder, plan, key.secret, read_sides(folder))
    except TooFewPairs as error:
        raise IntegrityError(f"{folder.batch}: does not come out of the rollouts: {error.message}") from None
    if built.batch.data != state.batch.data:
        raise IntegrityError(
            f"{folder.batch}: does not come out of the rollouts by the fixed rule and the key's secret",
            hint="The rollouts, their grades or the problems are not those that it was made from.",
        )
    if built.key.data != key.data:
        raise IntegrityError(f"{folder.key}: which answer is whose does not come out of the secret")
    return built


def check_kept(state: ReadState, content: dict[str, Any]) -> None:
    """Raise `IntegrityError` if `result.json` is there and says something else."""
    path = state.folder.result
    if path.is_file() and path.read_bytes() != json_bytes(content):
        raise IntegrityError(f"{path}: is not what ratings and key come to", hint="Put the file back from a copy.")
