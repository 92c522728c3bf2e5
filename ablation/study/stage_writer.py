"""Where the finished rollouts of a stage go: to a log until their batch is whole, and then into its Parquet part.

A log is also what holds them meanwhile, so a stage of any size needs the memory of one batch, and what is read back after a kill
is read back always.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ablation.errors import IntegrityError
from ablation.policy.base import SampledTokens
from ablation.rollouts.folder import inflight_file, inflight_folder, part_file
from ablation.rollouts.inflight import append_rollouts, read_log, refuse_strays, remove_folder, remove_log, take_up
from ablation.rollouts.schema import Rollout, StageInfo
from ablation.rollouts.store import part_info, stage_parts, write_part
from ablation.study.journal import Journal

if TYPE_CHECKING:
    from ablation.study.sampler import Item

Finished = tuple[int, SampledTokens]
"""Place among the stage's items, and what was sampled for it."""


class StageWriter:
    """The stage in `folder`, which is not complete. Part `number` holds items `number * size` up to the next one's first."""

    def __init__(
        self,
        folder: Path,
        info: StageInfo,
        items: Sequence[Item],
        size: int,
        rollout_of: Callable[[Item, SampledTokens], Rollout],
        journal: Journal,
        title: str,
        only: Collection[int] | None = None,
    ) -> None:
        """Take up what is there. `only`: the numbers of the batches that are this writer's to fill; left out, all.

        Raises `IntegrityError` if any of it is of another stage, or was sampled under other settings, or was edited.
        """
        self.folder, self.info, self.items, self.size = folder, info, items, size
        self._rollout_of, self._journal, self._title = rollout_of, journal, title
        count = -(-len(items) // size)
        self.names = [part_file(folder, number).name for number in range(count)]
        self.own = [number for number in range(count) if only is None or number in only]
        parts = {path.name for path in stage_parts(folder)}
        self._whole = {number for number, name in enumerate(self.names) if name in parts}
        for number in sorted(self._whole):
            self._check_info(part_info(folder / self.names[number]), folder / self.names[number])
        self._logged: dict[int, set[int]] = defaultdict(set)
        """Batch -> places of its items that its log has."""
        self._take_up_logs()

    @property
    def wanted(self) -> int:
        """Rollouts of its batches."""
        return sum(len(self.batch(number)) for number in self.own)

    @property
    def done(self) -> int:
        """Those of them that are on disk."""
        return sum(len(self.batch(one) if one in self._whole else self._logged.get(one, ())) for one in self.own)

    @property
    def missing(self) -> list[int]:
        """Places of the items that are not on disk."""
        return [
            place
            for number in self.own
            if number not in self._whole
            for place in self.batch(number)
            if place not in self._logged[number]
        ]

    def batch(self, number: int) -> range:
        """Places of its items."""
        return range(number * self.size, min((number + 1) * self.size, len(self.items)))

    def keep(self, finished: Sequence[Finished]) -> None:
        """Put rollouts on disk, none of which was there, and make parts of the batches that are whole with them."""
        batches: dict[int, dict[int, Rollout]] = defaultdict(dict)
        for place, sampled in finished:
            batches[place // self.size][place] = self._rollout_of(self.items[place], sampled)
        for number, rollouts in batches.items():
            assert number not in self._whole and not self._logged[number] & rollouts.keys(), (number, self._logged[number])
            if len(rollouts) == len(self.batch(number)):
                self._write_part(number, [rollouts[place] for place in self.batch(number)])
                continue
            if not inflight_folder(self.folder).exists():
                self._journal.append("stage_streamed", stage=self._title)  # the first event of the stage, before a part is
            append_rollouts(inflight_file(self.folder, number), self.info, list(rollouts.values()))
            self._logged[number] |= rollouts.keys()
            self._write_if_whole(number)

    def close(self) -> None:
        """All rollouts are in parts."""
        assert len(self._whole) == len(self.names), self.missing
        remove_folder(self.folder)

    def write_whole(self) -> None:
        """Make parts of the batches whose logs were whole when the runner was killed."""
        for number in sorted(self._logged):
            self._write_if_whole(number)

    def _write_if_whole(self, number: int) -> None:
        if len(self._logged[number]) < len(self.batch(number)):
            return
        path = inflight_file(self.folder, number)
        _, rollouts = read_log(path)
        by_place = dict(zip(self._places(number, rollouts, path), rollouts, strict=True))
        self._write_part(number, [by_place[place] for place in self.batch(number)])
        remove_log(path)
        del self._logged[number]

    def _write_part(self, number: int, rollouts: list[Rollout]) -> None:
        name = self.names[number]
        told = {"stage": self._title, "part": name, "rollouts": len(rollouts)}
        # The event goes first: a kill in between leaves an event without its part, which is written again with the same bytes.
        write_part(
            self.folder / name,
            self.info,
            rollouts,
            tell=lambda digest: self._journal.append("part_written", **told, part_sha256=digest),
        )
        self._whole.add(number)

    def _take_up_logs(self) -> None:
        inflight = inflight_folder(self.folder)
        if not inflight.is_dir():
            return
        paths = [inflight_file(self.folder, number) for number in range(len(self.names))]
        there = set(inflight.iterdir())
        refuse_strays(there, paths)
        for number, path in enumerate(paths):
            found = take_up(path) if path in there else None
            if found is None:
                continue
            info, rollouts = found
            self._check_info(info, path)
            places = self._places(number, rollouts, path)
            if number in self._whole:  # killed after the part and before this
                remove_log(path)
            else:
                self._logged[number] = set(places)

    def _places(self, number: int, rollouts: Sequence[Rollout], path: Path) -> list[int]:
        """Of each rollout the item that it is of. Raises `IntegrityError` if it is of none, or of one that another is of."""
        wanted = {(self.items[place].cell, self.items[place].index): place for place in self.batch(number)}
        places: dict[int, None] = {}
        fixed = ("family", "arm", "stage", "update", "logprob_kind")
        for one in rollouts:
            other = [field for field in fixed if getattr(one, field) != getattr(self.info, field)]
            if other:
                raise IntegrityError(
                    f"{path}: rollout {one.cell.id} #{one.index} has another {', '.join(other)} than its stage",
                    hint="Move this file away and run the same command again.",
                )
            name, place = f"{one.cell.id} #{one.index}", wanted.get((one.cell, one.index))
            if place is None or one.seed != self.items[place].seed:
                what = "is not of this batch" if place is None else f"has seed {one.seed}, not {self.items[place].seed}"
                raise IntegrityError(f"{path}: rollout {name} {what}", hint="Move this file away and run the same command again.")
            if place in places:
                raise IntegrityError(f"{path}: rollout {name} is there more than once")
            places[place] = None
        return list(places)

    def _check_info(self, found: StageInfo, path: Path) -> None:
        if found == self.info:
            return
        names = ("plan_digest", "adapter_sha256", "engine", "sampling")
        changed = ", ".join(name for name in names if getattr(found, name) != getattr(self.info, name)) or "tokens"
        raise IntegrityError(
            f"{path}: was sampled under other settings ({changed}) than this machine would use now",
            hint="A stage never mixes engines: go on with the machine and versions that it began with, or delete its folder.",
        )
