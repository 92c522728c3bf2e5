"""The journal against what is on disk: every stage, update, checkpoint, grade, stop and check that it tells of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from ablation.audit.chained import Lines
from ablation.audit.findings import Findings
from ablation.audit.locked import LockedTree, file_sha256

COMPLETED = ("stage_sampled", "stage_imported", "stage_reused")
_STARTS = {"runner_started", "deviation", "cluster_joined", "model_loaded"}
"""Events of a runner that has not sampled anything yet."""


class History:
    """The events of a journal, by kind. Places in it are line numbers."""

    def __init__(self, root: Path, tree: LockedTree, lines: Lines, found: Findings) -> None:
        self.root, self.tree, self.lines, self.found = root, tree, lines, found
        self.events: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        for number, record in enumerate(lines.records, start=1):
            if not record:
                continue
            odd = _odd_fields(record)
            if odd:  # no check below could use it
                found.differ(f"{lines.path}:{number}", f"has a field that no event can have: {', '.join(odd)}")
                continue
            if record.get("plan") != tree.digest:
                found.differ(
                    f"{lines.path}:{number}", f"belongs to plan {str(record.get('plan'))[:12]}, not to {tree.digest[:12]}"
                )
            self.events[str(record.get("event"))].append((number, record))

    def of(self, *kinds: str) -> list[tuple[int, dict[str, Any]]]:
        return sorted((one for kind in kinds for one in self.events.get(kind, [])), key=lambda one: one[0])

    def check_stages(self, stages: Iterable[str]) -> None:
        """Each complete stage is the last one that was told of, and each one that was told of is there."""
        told = {record.get("stage"): (number, record) for number, record in self.of(*COMPLETED)}
        parts = {(record.get("stage"), record.get("part")): record for _, record in self.of("part_written")}
        copied = {record.get("stage") for _, record in self.of("stage_imported", "stage_reused")}
        on_disk = set(stages)
        for name in sorted(on_disk):
            folder = self.root / name
            if name not in told:
                self._differ(f"does not tell of the stage {name}, which is complete")
                continue
            self._digest(told[name][1].get("stage_sha256"), folder / "stage.json")
            for path in sorted(folder.glob("part-*.parquet")):
                part = parts.get((name, path.name))
                if part is not None:
                    self._digest(part.get("part_sha256"), path)
                elif name not in copied:
                    self._differ(f"does not tell of {name}/{path.name}")
        for name, (number, _) in sorted(told.items(), key=lambda one: one[1][0]):
            if name not in on_disk and not self._was_cut_short(str(name), number):
                self._differ(f"line {number} tells that {name} was sampled; it is not there: it was removed", number)
            if name in on_disk:
                self.found.count("stages in the journal")

    def _was_cut_short(self, name: str, number: int) -> bool:
        """Whether a runner can have been killed after the event and before `stage.json`: nothing follows but new starts."""
        later = [record.get("event") for record in self.lines.records[number:]]
        return set(later) <= _STARTS and any((self.root / name).glob("part-*.parquet"))

    def check_updates(self) -> None:
        trained = {(record.get("arm"), record.get("update")): (number, record) for number, record in self.of("update_trained")}
        saved: dict[tuple[Any, Any], set[str]] = defaultdict(set)
        for _, record in self.of("checkpoint_saved"):
            saved[record.get("arm"), record.get("update")].add(str(record.get("checkpoint_sha256")))
        for (arm, update), (number, record) in trained.items():
            path = self.root / str(arm) / f"update-{update}" / "audit.json"
            if path.is_file():
                self._digest(record.get("audit_sha256"), path)
                self.found.count("updates in the journal")
            elif number != len(self.lines.records):
                self._differ(
                    f"line {number} tells of the training of {arm}/update-{update}, whose audit.json is not there", number
                )
        for marker in sorted(self.root.glob("*/*/update-*/checkpoint/complete.json")):
            folder = marker.parent.parent
            key = (folder.parent.relative_to(self.root).as_posix(), int(folder.name.removeprefix("update-")))
            if key not in trained:
                self._differ(f"does not tell of the training of {key[0]}/update-{key[1]}, which has a checkpoint")
            if key in saved and file_sha256(marker) not in saved[key]:
                self._differ(f"tells of another {key[0]}/update-{key[1]}/checkpoint than the one that is there")
        gone = [key for key in saved if not (self.root / str(key[0]) / f"update-{key[1]}" / "checkpoint").is_dir()]
        if gone:
            self.found.leave(f"{len(gone)} checkpoints: they are not in the folder, the journal has their digests")

    def check_records(self) -> None:
        """Grades, stops and judged checks."""
        grades: dict[str, list[str]] = defaultdict(list)
        for _, record in self.of("stage_graded"):
            grades[f"{record.get('stage')}/grades.json"].append(str(record.get("grades_sha256")))
        for path in self._files("grades.json"):
            name = path.relative_to(self.root).as_posix()
            if name not in grades:
                self._differ(f"does not tell of the grades in {name}")
            elif file_sha256(path) != grades[name][-1]:
                if file_sha256(path) in grades[name]:
                    self.found.lacks(f"{name}: was being graded again, and that was not finished")
                else:
                    self._differ(f"tells of another {name} than the one that is there")
            self.found.count("files of grades in the journal")
        for name in grades:
            if not (self.root / name).is_file() and (self.root / name).with_name("stage.json").is_file():
                self._differ(f"tells of the grades in {name}, which is not there")
        self._check_stops()
        told = {f"{record.get('arm')}/check-{record.get('update')}/check.json": record for _, record in self.of("check_judged")}
        self._same_files(told, "check_sha256", "*/*/check-*/check.json")
        told = {
            f"evaluations/{record.get('set')}/{record.get('subject')}/evaluation.json": record
            for _, record in self.of("evaluation_finished")
        }
        self._same_files(told, "evaluation_sha256", "evaluations/*/*/evaluation.json")

    def _check_stops(self) -> None:
        """What a stop rule ended stays ended. A runner that was killed after the event writes the record when it is back."""
        for kind, file in {"arm_stopped": "stopped.json", "extension_stopped": "extension-stopped.json"}.items():
            told = {str(record.get("arm")): (number, record) for number, record in self.of(kind)}
            there = {path.parent.relative_to(self.root).as_posix(): path for path in sorted(self.root.glob(f"*/*/{file}"))}
            for arm in sorted(there.keys() - told.keys()):
                self._differ(f"does not tell of {arm}/{file}")
            for arm, (number, record) in told.items():
                on = [n for n, one in self._about(arm) if n > number and one["event"] not in (kind, "stage_graded")]
                if on:
                    self._differ(f"line {number} tells that a stop rule ended {arm}, and line {on[0]} goes on with it")
                if arm in there:
                    self._digest(record.get("stopped_sha256"), there[arm])
                elif (self.root / arm / f"update-{record.get('update')}" / "audit.json").is_file():
                    self.found.lacks(f"{arm}/{file}: a stop rule ended the arm, and a runner was killed before it wrote that")
                else:
                    self._differ(f"tells of {arm}/{file}, which is not there")
                self.found.count("stops, checks and comparisons in the journal")

    def _about(self, arm: str) -> list[tuple[int, dict[str, Any]]]:
        """Every event of one arm, and of its stages."""
        return [
            (number, one)
            for number, one in enumerate(self.lines.records, start=1)
            if one and (one.get("arm") == arm or str(one.get("stage")).rpartition("/")[0] == arm)
        ]

    def _same_files(self, told: dict[str, dict[str, Any]], field: str, pattern: str) -> None:
        for path in sorted(self.root.glob(pattern)):
            name = path.relative_to(self.root).as_posix()
            if name not in told:
                self._differ(f"does not tell of {name}")
            else:
                self._digest(told[name].get(field), path)
            self.found.count("stops, checks and comparisons in the journal")
        for name in told:
            if not (self.root / name).is_file() and told[name].get("seq") != len(self.lines.records) - 1:
                self._differ(f"tells of {name}, which is not there")

    def check_order(self) -> None:
        """What must come before what: a sweep before the updates of its family, an update's rollouts before its training, that
        before the next one's rollouts, the last one's before the readout.
        """
        sampled = {str(record.get("stage")): number for number, record in self.of(*COMPLETED)}
        trained = {(str(record.get("arm")), record.get("update")): number for number, record in self.of("update_trained")}
        for name, number in sampled.items():
            pieces = name.split("/")
            if len(pieces) == 4 and pieces[0] == "evaluations":
                self._check_opened(name, number)
            if len(pieces) != 3 or pieces[1] == "start":
                continue
            family, arm, last = pieces
            before = {f"{family}/start/sweep": sampled.get(f"{family}/start/sweep")}
            kind, _, k = last.partition("-")
            own = f"{family}/{arm}"
            if kind == "update" and k.isdecimal():
                before |= {f"the training of {own}/update-{int(k) - 1}": trained.get((own, int(k) - 1))} if int(k) > 1 else {}
                if (own, int(k)) in trained and trained[own, int(k)] < number:
                    self._differ(f"line {trained[own, int(k)]} trains {name} before it was sampled", number)
            elif kind == "readout" and (own, self.tree.updates) in trained:
                before[f"the training of {own}/update-{self.tree.updates}"] = trained[own, self.tree.updates]
            elif kind == "check" and k.isdecimal():
                before[f"the training of {own}/update-{k}"] = trained.get((own, int(k)))
            for what, place in before.items():
                if place is None or place > number:
                    self._differ(f"line {number} tells of {name} before {what}", number)
            self.found.count("stages in the order of the plan")
        times = [str(record.get("time")) for record in self.lines.records if record]
        if times != sorted(times):
            self.found.note(
                "the journal's times do not only go forward: its machine's clock was set back, or there were several machines"
            )
        if times and times[0] < str(self.tree.content["locked"]["utc"])[:19]:
            self.found.note(
                f"by its clock the journal begins ({times[0]}) before the plan was locked ({self.tree.content['locked']['utc']})"
            )

    def _check_opened(self, name: str, number: int) -> None:
        """A comparison is opened before its rollouts are sampled."""
        _, of, subject, _ = name.split("/")
        opened = [n for n, one in self.of("evaluation_opened") if (one.get("set"), one.get("subject")) == (of, subject)]
        if not opened or min(opened) > number:
            self._differ(f"line {number} tells of {name} before its comparison was opened")

    def _files(self, name: str) -> list[Path]:
        return sorted([*self.root.glob(f"*/*/*/{name}"), *self.root.glob(f"evaluations/*/*/*/{name}")])

    def _digest(self, told: Any, path: Path) -> None:
        """An event of an earlier version of this program names no digest."""
        if told is None:
            self.found.leave("some files that the journal has no digest of: an earlier version of this program wrote it")
        elif file_sha256(path) != told:
            self._differ(f"tells of another {path.relative_to(self.root).as_posix()} than the one that is there")
        else:
            self.found.count("digests in the journal against files")

    def _differ(self, text: str, line: int | None = None) -> None:
        self.found.differ(self.lines.path, text)


def _odd_fields(record: dict[str, Any]) -> list[str]:
    """Fields of an event that are not of their kind, with what is there."""

    def whole(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**15

    def number(value: Any) -> bool:
        return whole(value) or (isinstance(value, float) and 0 <= value <= 10**15)

    wanted = dict.fromkeys(("rollouts", "tokens", "update", "deviation", "items"), whole)
    wanted |= dict.fromkeys(("seconds", "hours"), number)
    wanted |= dict.fromkeys(("stage", "arm", "set", "subject", "kind"), lambda value: isinstance(value, str))
    wanted |= dict.fromkeys(("environment", "there"), lambda value: isinstance(value, dict))
    odd = [name for name, right in wanted.items() if record.get(name) is not None and not right(record[name])]
    if not isinstance(record.get("event"), str) or not record["event"].strip():
        odd.insert(0, "event")
    try:
        zoned = datetime.fromisoformat(record["time"]).tzinfo is not None
    except (KeyError, TypeError, ValueError):
        zoned = False
    if not zoned:
        odd.insert(0, "time")
    return [f"`{name}` = {repr(record.get(name))[:60]}" for name in odd]
