"""What a tracker has to do, and which ones there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from ablation.errors import UsageError
from ablation.plan.model import Plan
from ablation.plan.section import did_you_mean
from ablation.trackers.metrics import Values
from ablation.trackers.points import Point

Known = set[tuple[str, int]]
"""(metric, step) pairs, or (group, step) of whole points."""


@dataclass(frozen=True)
class Series:
    """One arm in one family: what trackers call a run."""

    study: str
    """The plan's name."""
    digest: str
    """The plan's canonical digest."""
    name: str
    """`family/arm`."""
    about: dict[str, str | int | float | bool]
    """The plan's settings of the arm."""

    @property
    def key(self) -> str:
        """Names the series of this plan among all others, 24 hex digits."""
        from ablation.files import sha256_bytes

        return sha256_bytes(f"{self.digest}\0{self.name}".encode())[:24]


class Tracker(Protocol):
    """Where points go. Every method may raise whatever the tracker's own package raises."""

    where: str
    """How to look at it, in words."""

    def holds(self, series: Series) -> Known:
        """What `series` holds already, as far as that can be known without opening it."""

    def begin(self, series: Series) -> Known:
        """Open `series`, or go on with it; what it holds beside what `holds` said."""

    def send(self, point: Point, values: Values) -> None:
        """Write `values`, the part of the point of the newest series that is not there yet. Durable when it returns, as far as
        the tracker's package allows."""

    def end(self, how: str | None) -> None:
        """Nothing more comes of the newest series for now. `how`: `arm_finished`, `arm_stopped`, or None if it may go on."""


@dataclass(frozen=True)
class Target:
    """A tracker as it is named on the command line: `tensorboard=DIR`."""

    kind: str
    place: str | None

    def open(self, study: str) -> Tracker:
        """Make ready what can be made ready without a series; raises what the tracker's package raises."""
        module = import_module(f"ablation.trackers.to_{self.kind}")
        return module.open_tracker(self.place, study)


@dataclass(frozen=True)
class Kind:
    """A tracker that this program knows."""

    package: str
    install: str
    place: str
    """What stands behind the `=`."""


KINDS = {
    "tensorboard": Kind("tensorboard", "tensorboard", "DIR"),
    "wandb": Kind("wandb", "wandb", "PROJECT"),
    "mlflow": Kind("mlflow", "mlflow-skinny", "URI"),
    "trackio": Kind("trackio", "trackio", "PROJECT"),
}
FORMS = ", ".join(f"{name}[={kind.place}]" for name, kind in KINDS.items())


def parse_targets(texts: Iterable[str], option: str) -> list[Target]:
    """The trackers that `option` names. Raises `UsageError` for one that is unknown, named twice, or whose package is missing."""
    found: list[Target] = []
    for text in texts:
        kind, equals, place = text.partition("=")
        if kind not in KINDS:
            raise UsageError(f"{option}: there is no tracker `{kind}`{did_you_mean(kind, KINDS)}", hint=f"There are: {FORMS}.")
        if equals and not place.strip():
            raise UsageError(
                f"{option}: nothing stands behind the = of `{text}`", hint=f"Leave = out, or say {KINDS[kind].place}."
            )
        target = Target(kind, place if equals else None)
        if target in found:
            raise UsageError(f"{option}: `{text}` is named twice")
        if find_spec(KINDS[kind].package) is None:
            raise UsageError(
                f"{option}: the package of {kind} is not installed here, so nothing was started",
                hint=f"pip install {KINDS[kind].install} (or -e '.[trackers]', which has all of them)",
            )
        found.append(target)
    return found


def series_of(plan: Plan, digest: str, name: str) -> Series:
    """`name` is `family/arm`. Of the arm's settings only numbers, flags and single words are told."""
    family, _, arm_name = name.partition("/")
    arm = plan.arms[arm_name]
    about: dict[str, Any] = {"study": plan.name, "plan_digest": digest, "family": family, "arm": arm_name}
    about |= {"family_seed": plan.families[family].seed, "updates": plan.training.updates}
    about |= {
        key: value for key, value in arm.model_dump(exclude={"note", "external"}).items() if isinstance(value, (str, int, float))
    }
    return Series(plan.name, digest, name, about | {"learning_rate": plan.training.learning_rate_of(arm)})
