"""`verdict.json` of a run folder, held against what the rollouts give now: every statement of the file, wherever it stands."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ablation.files import parse_json
from ablation.plan.deviations import bare
from ablation.verdict.model import INCOMPLETE

_OF_THE_READER = frozenset({"command", "next_command", "notes", "also_run"})
"""What is said to whoever asks, on their machine, when they ask: no label, outcome or number of the run."""
_LATER = frozenset({"unread"})
"""What an earlier version of this program did not write: it is compared where it is there."""
_ROUNDING = 1e-9
"""Another processor may round a sum differently; whether a rule holds is compared as it is."""
_NAMED = 3
"""Places that are named one by one."""


_NOTHING = object()
"""Where one of the two has no value."""


@dataclass(frozen=True)
class Stored:
    """What is to be said of a `verdict.json`."""

    wrong: str | None = None
    """It is of this state of the run, and states something else than the rollouts give."""
    note: str | None = None
    """Why it was not compared."""


def check_stored(path: Path, own: Mapping[str, Any]) -> Stored:
    """The verdict in `path`, if there is one, against `own`: that of the run as JSON, computed now."""
    if not path.is_file():
        return Stored()
    left = "it is left as it is (remove it to have it written anew)"
    try:
        stored = parse_json(path.read_bytes(), names_once=True)
        if _is_older(stored, own):
            why = "is of an earlier state of the run, so it was not compared with what the rollouts give"
            return Stored(note=f"note: {path} {why}")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Stored(f"{path}: is not a verdict as this program writes it, so it was edited; {left}")
    found = list(differences(stored, json.loads(json.dumps(own))))
    if not found:
        return Stored()
    why = "it was edited, or another version of this program wrote it"
    if any(isinstance(given, str) and bare(given) == INCOMPLETE for _, _, given in found):
        why = "what that rests on is not there now: it was removed"
    places = [f"{at} says {_shown(told)}, and the rollouts give {_shown(given)}" for at, told, given in found[:_NAMED]]
    places += [f"and {len(found) - _NAMED} more"] if len(found) > _NAMED else []
    return Stored(f"{path}: {'; '.join(places)}: {why}; {left}")


def _is_older(stored: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether events or deviations have come since. That the journal's head is of this journal is for `check_journal` to say."""
    lines, deviations = stored["journal"]["length"], stored["deviations"]
    if type(lines) is not int or lines < 1:  # true is not 1
        raise ValueError("a verdict is of a journal that has lines")
    added = own["deviations"][len(deviations) :]
    return lines < own["journal"]["length"] or (bool(added) and deviations == own["deviations"][: len(deviations)])


def differences(stored: Any, own: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(JSON pointer, what is stored there, what is found), depth first in the order of `own`, for each place that differs."""
    if isinstance(stored, dict) and isinstance(own, dict):
        for name in dict.fromkeys((*own, *stored)):
            if name not in _OF_THE_READER and not (name in _LATER and name not in stored):
                place = f"{at}/{json.dumps(name)[1:-1].replace('~', '~0').replace('/', '~1')}"
                yield from differences(stored.get(name, _NOTHING), own.get(name, _NOTHING), place)
    elif isinstance(stored, list) and isinstance(own, list):
        for i, (one, other) in enumerate(zip_longest(stored, own, fillvalue=_NOTHING)):
            yield from differences(one, other, f"{at}/{i}")
    elif not _agree(stored, own):
        yield at, stored, own


def _agree(one: Any, other: Any) -> bool:
    kinds = {type(one), type(other)}
    if kinds <= {int, float} and float in kinds:
        return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=_ROUNDING)
    return len(kinds) == 1 and one == other  # false is not 0


def _shown(value: Any) -> str:
    """On a terminal, too: whatever was put into the file is escaped."""
    text = "nothing" if value is _NOTHING else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
