"""Which updates of an arm took a step: without one, what comes after them is of the unchanged model."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ablation.errors import IntegrityError
from ablation.files import parse_json
from ablation.rollouts.folder import RunFolder

STEPPED, NO_STEP = "stepped", "no_step"
"""`NO_STEP`: an audit of an earlier version of this program, which does not say why there was none."""


def steps_taken(run: RunFolder, family: str, arm: str, updates: int) -> dict[str, Any] | None:
    """`stepped` of `updates`, and how many updates came to each outcome, by the audits of updates 1 to `updates`.

    None if no audit tells of a step. Raises `IntegrityError` for one that is not readable.
    """
    outcomes: Counter[str] = Counter()
    for path in filter(lambda path: path.is_file(), (run.audit(family, arm, k) for k in range(1, updates + 1))):
        try:
            step = parse_json(path.read_bytes()).get("step")
            if step is None or not step.keys() & {"outcome", "stepped"}:
                continue
            outcome = step["outcome"] if "outcome" in step else STEPPED if step["stepped"] else NO_STEP
            if not isinstance(outcome, str):
                raise ValueError("an outcome that is no name")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise IntegrityError(f"{path}: does not tell whether the update took a step") from None
        outcomes[outcome] += 1
    if not outcomes:
        return None
    return {"stepped": outcomes[STEPPED], "updates": outcomes.total(), "outcomes": dict(sorted(outcomes.items()))}
