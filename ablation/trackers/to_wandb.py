"""Weights & Biases: one group a study, one run a series."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import wandb

from ablation.files import parse_json, write_json
from ablation.trackers.base import Known, Series
from ablation.trackers.metrics import Values
from ablation.trackers.points import Point

TOLD = "ablation/told"
"""In a run's summary: group and step of every point that was sent. It comes back when a run is resumed on the server."""
STEP = "updates"
"""The axis: updates done."""


def open_tracker(place: str | None, study: str) -> Wandb:
    return Wandb(place if place is not None else study)


class Wandb:
    """Numbers and the plan's settings alone: no console output, code, git state, machine or system metrics."""

    def __init__(self, project: str) -> None:
        entity, _, name = project.rpartition("/")
        self._settings = wandb.Settings(
            console="off",
            disable_code=True,
            disable_git=True,
            save_code=False,
            silent=True,
            init_timeout=20,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            x_save_requirements=False,
            host="",
            program="ablation",
        )
        self._project, self._entity = name, entity or None
        self._offline = os.environ.get("WANDB_MODE") == "offline"
        if not self._offline and not wandb.login(prompt=False):  # type: ignore[call-arg]
            raise RuntimeError("there is no API key: run `wandb login`, or set WANDB_MODE=offline")
        self.where = f"W&B, project {project}" + (", offline: `wandb sync --sync-all` sends it" if self._offline else "")
        self._run: Any = None
        self._told: list[tuple[str, int]] = []

    def holds(self, series: Series) -> Known:
        """Nothing of an offline run can be asked back, so what was sent is also kept beside it."""
        path = _memory(series)
        return {(str(group), int(step)) for group, step in parse_json(path.read_bytes())} if path.is_file() else set()

    def begin(self, series: Series) -> Known:
        self._run = wandb.init(
            project=self._project,
            entity=self._entity,
            id=series.key,
            name=series.name,
            group=series.study,
            job_type=series.name.partition("/")[0],
            config=series.about,
            resume="allow",
            settings=self._settings,
        )
        self._run.define_metric("*", step_metric=STEP)
        stored = {(str(group), int(step)) for group, step in self._run.summary.get(TOLD) or []}
        self._memory = _memory(series)
        self._told = sorted(stored | self.holds(series))
        return stored

    def send(self, point: Point, values: Values) -> None:
        self._told.append((point.group, point.step))
        self._run.log({**values, STEP: point.step})
        self._run.summary[TOLD] = [list(one) for one in self._told]
        write_json(self._memory, self._told)

    def end(self, how: str | None) -> None:
        if self._run is not None:
            if how is not None:
                self._run.summary["ablation/ended"] = how
            self._run.finish()
            self._run = None


def _memory(series: Series) -> Path:
    return Path(wandb.setup().settings.wandb_dir) / f"ablation-{series.key}.json"
