"""Every event of the journal, field by field: against the files that it tells of, the plan, and the events before it.

What no file repeats cannot be checked: seconds, what a runner tidied up, machines, programs and their versions, reasons in words.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ablation.audit.evaluated import Evaluated
from ablation.audit.history import COMPLETED, History
from ablation.audit.locked import file_sha256
from ablation.audit.read_run import Run
from ablation.audit.sampled import Partner, place_of

EVENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "runner_started": (("removed_partial_files",), ()),
    "cluster_joined": (("ray", "nodes", "cpus", "gpus", "places"), ()),
    "worker_lost": (("unit", "worker", "why"), ()),
    "deviation": (("number", "seen", "opens", "reason", "line_sha256"), ()),
    "model_loaded": (("base", "adapter", "environment"), ()),
    "stage_streamed": (("stage",), ()),
    "part_written": (("stage", "part", "rollouts", "part_sha256"), ()),
    "stage_sampled": (("stage", "rollouts", "tokens", "seconds", "stage_sha256"), ()),
    "stage_imported": (("stage", "rollouts", "tokens", "source", "source_sha256", "stage_sha256"), ()),
    "stage_reused": (("stage", "of", "rollouts", "stage_sha256"), ()),
    "stage_graded": (("stage", "rollouts", "grader_errors", "changed", "grades_sha256"), ()),
    "update_trained": (
        ("arm", "update", "stepped", "seconds"),
        ("tokens", "trained_tokens", "scored_tokens", "outcome", "audit_sha256"),
    ),
    "checkpoint_saved": (("arm", "update", "checkpoint_sha256"), ()),
    "command_started": (("arm", "update", "log", "command", "program"), ()),
    "command_ended": (("arm", "update", "log", "exit_code", "ended", "seconds", "log_sha256"), ()),
    "arm_stopped": (("arm", "rule", "update", "reason"), ("stopped_sha256",)),
    "arm_finished": (("arm",), ()),
    "check_judged": (("arm", "update", "label", "pauses"), ("check_sha256",)),
    "extension_stopped": (("arm", "rule", "update", "reason"), ("stopped_sha256",)),
    "extension_reached": (("arm", "update"), ()),
    "engine_changed": (("began", "now", "deviation"), ()),
    "evaluation_opened": (("set", "subject", "reference", "reused", "deviation", "there"), ()),
    "same_day_exceeded": (("set", "subject", "hours", "deviation"), ()),
    "evaluation_finished": (("set", "subject", "evaluation_sha256"), ()),
    "blind_sealed": (("set", "subject", "kind", "items", "key_sha256"), ()),
    "blind_rated": (("set", "subject", "rater", "first", "lines"), ()),
    "blind_unsealed": (("set", "subject"), ()),
}
"""Event -> (fields that it always had, fields that an earlier version of this program did not write)."""
ONCE = ("part_written", "stage_sampled", "update_trained", "checkpoint_saved", "arm_finished", "arm_stopped", "check_judged")
"""What one runner does once: a second time needs another runner, or a worker that was lost."""
AGAIN = ("runner_started", "worker_lost", "stage_imported")


class Events:
    """The journal's events beside all that was read of the run."""

    def __init__(self, run: Run, evaluated: Evaluated, history: History) -> None:
        self.run, self.evaluated, self.history = run, evaluated, history
        self.tree, self.found, self.lines = run.tree, run.found, history.lines
        self.partners: dict[str, Partner] = {name: one.partner for name, one in run.stages.items()}
        sides = (side for one in evaluated.comparisons.values() for side in one.sides.values())
        self.partners |= {side.rows.name: side.partner for side in sides}

    def check_all(self, deviations: Iterable[Mapping[str, Any]]) -> None:
        self.deviations = {one.get("number"): one for one in deviations}
        self._check_fields()
        self._check_repeated()
        for kind in EVENTS:
            check = getattr(self, f"_{kind}", None)
            for number, record in self.history.of(kind) if check is not None else ():
                with self.found.guard(f"{self.lines.path}:{number}"):
                    check(number, record)
                    self.found.count("events of the journal, field by field")
        self._check_saved()
        self._check_engines()

    def _differ(self, number: int, text: str) -> None:
        self.found.differ(f"{self.lines.path}:{number}", text)

    def _same(self, number: int, record: Mapping[str, Any], name: str, own: Any, source: str) -> None:
        if name in record:
            self.found.same(f"{self.lines.path}:{number}", f"{record['event']}.{name}", record[name], own, source=source)

    def _check_fields(self) -> None:
        """Each event is one that a runner writes, has its fields, and names what the plan has."""
        had: dict[tuple[str, bool], set[str]] = defaultdict(set)
        for number, record in enumerate(self.lines.records, start=1):
            kind = str(record.get("event"))
            if record and kind not in EVENTS:
                self._differ(number, f"`{kind[:60]}` is no event that a runner writes")
            if kind not in EVENTS:
                continue
            always, later = EVENTS[kind]
            own = (kind, self._is_external(record.get("arm")))
            gone = {name for name in always if name not in record} | (had[own] & set(later)) - record.keys()
            if gone:
                self._differ(number, f"{kind} has no {', '.join(sorted(gone))}")
            had[own] |= record.keys()
            self._check_names(number, record)

    def _is_external(self, arm: Any) -> bool:
        return self.tree.arms.get(str(arm).rpartition("/")[2], {}).get("external") is not None

    def _check_names(self, number: int, record: Mapping[str, Any]) -> None:
        """The stage, arm, update, set and subject are ones that the plan has."""
        stage, arm, name = record.get("stage"), record.get("arm"), record.get("set")
        subject = record.get("subject")
        if stage is not None:
            pieces = stage.split("/")
            if len(pieces) == 4 and pieces[0] == "evaluations" and pieces[3] in ("reference", "subject"):
                name, subject = pieces[1:3]
            elif len(pieces) != 3 or place_of(stage, self.tree) is None:
                self._differ(number, f"{record['event']} names the stage `{stage[:60]}`, which the plan does not have")
        if arm is not None:
            family, _, own = arm.partition("/")
            longest = (self.tree.plan.get("extension") or {}).get("updates") or self.tree.updates
            if family not in self.tree.families or own not in self.tree.arms:
                self._differ(number, f"{record['event']} names the arm `{arm[:60]}`, which the plan does not have")
            elif "update" in record and not 1 <= (record["update"] or 0) <= longest:
                self._differ(number, f"{record['event']} names update {record['update']}; the plan has {longest}")
        if name is not None:
            model, _, update = str(subject).partition("@")
            if name not in self.evaluated.specs or model not in self.tree.arms or not update.isdecimal():
                self._differ(number, f"{record['event']} names the comparison `{name}/{subject}`, which the plan does not have")

    def _check_repeated(self) -> None:
        """One runner does nothing twice."""
        seen: set[tuple[Any, ...]] = set()
        for number, record in enumerate(self.lines.records, start=1):
            kind = record.get("event")
            if kind in AGAIN:
                seen.clear()
            elif kind in ONCE:
                key = (kind, *(str(record.get(name)) for name in ("stage", "part", "arm", "update")))
                if key in seen:
                    self._differ(number, f"{' '.join(key).replace('None', '').strip()}: once more, by the same runner")
                seen.add(key)

    def _model_loaded(self, number: int, record: dict[str, Any]) -> None:
        first = self.history.of("model_loaded")[0][1]
        self._same(number, record, "base", first.get("base"), "the first model_loaded has")
        sweep = self.run.stages.get(f"{self.tree.main_family}/start/sweep")
        if sweep is not None and sweep.imported is None:
            self._same(number, record, "adapter", sweep.partner.info["adapter_sha256"], "the sweep was sampled with")

    def _part_written(self, number: int, record: dict[str, Any]) -> None:
        partner = self.partners.get(record["stage"])
        if partner is None:
            return
        rows, _ = partner.parts.get(record["part"], (None, None))
        if rows is None:
            self._differ(number, f"tells of {record['stage']}/{str(record['part'])[:60]}, which is no part of that stage")
        else:
            self._same(number, record, "rollouts", rows, "the part has")

    def _stage_sampled(self, number: int, record: dict[str, Any]) -> None:
        partner = self._partner(record, number)
        if partner is None:
            return
        self._same(number, record, "rollouts", len(partner.seeds), "the stage has")
        own, exact = self._tokens(number, record["stage"], partner)
        told = record.get("tokens")
        if told is not None and (told != own if exact else told > own):
            self._differ(number, f"stage_sampled.tokens is {told}; the parts have {own}{'' if exact else ' at most'}")

    def _tokens(self, number: int, stage: str, partner: Partner) -> tuple[int, bool]:
        """(tokens of the parts that this runner wrote before line `number`, whether it sampled all of them)."""
        before = self.lines.records[: number - 1]
        began = max((n for n, one in enumerate(before) if one.get("event") == "runner_started"), default=0)
        own = [one for one in before[began:] if one.get("stage") == stage and one.get("event") == "part_written"]
        streamed = any(one.get("event") == "stage_streamed" and one.get("stage") == stage for one in before[:began])
        lost = any(one.get("event") == "worker_lost" for one in before[began:])
        names = {one.get("part") for one in own}
        return sum(tokens for name, (_, tokens) in partner.parts.items() if name in names), not (streamed or lost)

    def _stage_imported(self, number: int, record: dict[str, Any]) -> None:
        partner = self._partner(record, number)
        if partner is not None:
            self._same(number, record, "rollouts", len(partner.seeds), "the stage has")
            self._same(number, record, "tokens", sum(tokens for _, tokens in partner.parts.values()), "the stage has")
            self._same(number, record, "source", partner.info["engine"].get("source"), "stage.json has")
            self._same(number, record, "source_sha256", partner.info["engine"].get("sha256"), "stage.json has")

    def _stage_reused(self, number: int, record: dict[str, Any]) -> None:
        partner = self._partner(record, number)
        if partner is not None:
            self._same(number, record, "rollouts", len(partner.seeds), "the stage has")
        pieces = record["stage"].split("/")
        source = "/".join([*pieces[:2], str(record["of"]), "reference"])
        told = [one for n, one in self.history.of(*COMPLETED) if n < number and one.get("stage") == source]
        if record["stage"] == source or record.get("stage_sha256") not in {one.get("stage_sha256") for one in told}:
            self._differ(number, f"takes {record['stage']} over from {source}, which was not sampled so before")
        opened = [one for n, one in self.history.of("evaluation_opened") if n < number and self._stage_of(one) == record["stage"]]
        if opened and opened[-1].get("reused") != record["of"]:
            self._differ(number, f"takes a reference over from {record['of']}; the comparison was opened otherwise")

    def _partner(self, record: Mapping[str, Any], number: int) -> Partner | None:
        """The stage on disk, if this event is the last one that completed it."""
        last = max(n for n, one in self.history.of(*COMPLETED) if one.get("stage") == record["stage"])
        return self.partners.get(record["stage"]) if last == number else None

    def _stage_graded(self, number: int, record: dict[str, Any]) -> None:
        partner = self.partners.get(record["stage"])
        path = self.run.root / record["stage"] / "grades.json"
        told = [n for n, one in self.history.of("stage_graded") if one.get("stage") == record["stage"]]
        if number == told[0]:
            self._same(number, record, "changed", 0, "of rollouts that are graded for the first time")
        if partner is not None:
            self._same(number, record, "rollouts", len(partner.seeds), "the stage has")
        if number == told[-1] and path.is_file() and file_sha256(path) == record.get("grades_sha256"):
            rows = json.loads(path.read_bytes())["rollouts"]
            self._same(number, record, "grader_errors", sum(one["status"] == "grader_error" for one in rows), "grades.json has")

    def _update_trained(self, number: int, record: dict[str, Any]) -> None:
        arm, update = record["arm"], record["update"]
        stored = self.run.audits.get(arm, {}).get(update)
        last = max(n for n, one in self.history.of("update_trained") if (one.get("arm"), one.get("update")) == (arm, update))
        if stored is None or last != number:
            return
        step = stored["step"]
        for name in ("stepped", "outcome"):
            self._same(number, record, name, step.get(name), "audit.json has")
        if "tokens" in record:
            self._same(number, record, "tokens", step.get("weighted_tokens"), "audit.json has")
        passes = self.run.passes.get((arm, update))
        if passes is None:
            return
        self._same(number, record, "scored_tokens", passes.scored, "the rollouts give")
        told = record.get("trained_tokens")
        if told is not None and (told != passes.trained if passes.exact else told > passes.trained):
            most = "" if passes.exact else " at most"
            self._differ(number, f"update_trained.trained_tokens is {told}; the rollouts give {passes.trained}{most}")

    def _checkpoint_saved(self, number: int, record: dict[str, Any]) -> None:
        wanted = (record["arm"], record["update"])
        if not any(n < number and (one.get("arm"), one.get("update")) == wanted for n, one in self.history.of("update_trained")):
            self._differ(number, f"tells of a checkpoint of {wanted[0]}/update-{wanted[1]}, which was not trained before")

    def _check_saved(self) -> None:
        """Once a runner tells of checkpoints, it tells of each one; those of a command are told of with their training."""
        saved = {(one.get("arm"), one.get("update")): number for number, one in reversed(self.history.of("checkpoint_saved"))}
        for number, record in self.history.of("update_trained") if saved else ():
            key = (record.get("arm"), record.get("update"))
            there = self.run.root / str(key[0]) / f"update-{key[1]}" / "checkpoint" / "complete.json"
            if number > min(saved.values()) and key not in saved and not self._is_external(key[0]) and there.is_file():
                self._differ(number, f"trains {key[0]}/update-{key[1]}, and nothing tells of its checkpoint")

    def _arm_finished(self, number: int, record: dict[str, Any]) -> None:
        readout = f"{record['arm']}/readout"
        if not any(n < number and one.get("stage") == readout for n, one in self.history.of(*COMPLETED)):
            self._differ(number, f"tells that {record['arm']} was finished before its readout")

    def _extension_reached(self, number: int, record: dict[str, Any]) -> None:
        told = [one for n, one in self.history.of("update_trained") if n < number and one.get("arm") == record["arm"]]
        if record["update"] not in {one.get("update") for one in told}:
            self._differ(number, f"tells that {record['arm']} reached update {record['update']}, which was not trained before")

    def _arm_stopped(self, number: int, record: dict[str, Any]) -> None:
        self._told_in_file(number, record, f"{record['arm']}/stopped.json", ("rule", "update", "reason"))

    def _extension_stopped(self, number: int, record: dict[str, Any]) -> None:
        self._told_in_file(number, record, f"{record['arm']}/extension-stopped.json", ("rule", "update", "reason"))

    def _check_judged(self, number: int, record: dict[str, Any]) -> None:
        self._told_in_file(number, record, f"{record['arm']}/check-{record['update']}/check.json", ("label", "pauses"))

    def _told_in_file(self, number: int, record: Mapping[str, Any], path: str, names: Iterable[str]) -> None:
        if (self.run.root / path).is_file():
            content = json.loads((self.run.root / path).read_bytes())
            for name in names:
                self._same(number, record, name, content.get(name), f"{path} has")

    def _deviation(self, number: int, record: dict[str, Any]) -> None:
        line = self.deviations.get(record["number"], {})
        for name in ("seen", "opens", "reason"):
            self._same(number, record, name, line.get(name), "deviations.jsonl has")

    def _engine_changed(self, number: int, record: dict[str, Any]) -> None:
        sweep = self.run.stages.get(f"{self.tree.main_family}/start/sweep")
        if sweep is not None:
            self._same(number, record, "began", sweep.partner.info["engine"], "the sweep has")
        self._opened(number, record, "engine")

    def _evaluation_opened(self, number: int, record: dict[str, Any]) -> None:
        self._same(number, record, "reference", "start", "it is always")
        stage, reused = self._stage_of(record), record["reused"]
        taken = {one.get("of") for _, one in self.history.of("stage_reused") if one.get("stage") == stage}
        if reused is not None and stage in self.partners and reused not in taken:
            self._differ(number, f"evaluation_opened.reused is {reused!r}, but {stage} was not taken over from there")
        if record["deviation"] is not None:
            self._opened(number, record, None)
        for side in ("reference", "subject"):
            self._check_there(number, record, side)

    def _stage_of(self, record: Mapping[str, Any]) -> str:
        return f"evaluations/{record['set']}/{record['subject']}/reference"

    def _check_there(self, number: int, record: Mapping[str, Any], side: str) -> None:
        """How many parts were on disk: those told of before, unless somebody removed some, which are then told of again."""
        stage = f"evaluations/{record['set']}/{record['subject']}/{side}"
        told = [(n, one.get("part")) for n, one in self.history.of("part_written") if one.get("stage") == stage]
        before, after = {part for n, part in told if n < number}, {part for n, part in told if n > number}
        begun = any(n < number and one.get("stage") == stage for n, one in self.history.of("stage_streamed", "stage_reused"))
        there = record["there"].get(side)
        if not begun and (there != len(before) if not before & after else there not in range(len(before) + 1)):
            self._differ(number, f"says that {there} parts of {stage} were on disk; by then {len(before)} had been written")

    def _same_day_exceeded(self, number: int, record: dict[str, Any]) -> None:
        self._opened(number, record, "same-day")

    def _opened(self, number: int, record: Mapping[str, Any], gate: str | None) -> None:
        """The deviation that it names is one that came before, and opens `gate`."""
        told = [one for n, one in self.history.of("deviation") if n < number and one.get("number") == record["deviation"]]
        if not told or (gate is not None and gate not in (told[-1].get("opens") or ())):
            self._differ(number, f"{record['event']} names deviation {record['deviation']}, which does not allow it")

    def _command_started(self, number: int, record: dict[str, Any]) -> None:
        external = self.tree.arms[record["arm"].partition("/")[2]].get("external") or {}
        self._same(number, record, "command", external.get("command"), "the plan has")

    def _command_ended(self, number: int, record: dict[str, Any]) -> None:
        started = [one for n, one in self.history.of("command_started") if n < number]
        if not any(all(one.get(name) == record[name] for name in ("arm", "update", "log")) for one in started):
            self._differ(number, "tells of the end of a command that was not started")
        path = self.run.root / str(record["log"])
        if path.resolve().is_relative_to(self.run.root.resolve()) and path.is_file():
            self._same(number, record, "log_sha256", file_sha256(path), "the log has")
        trained = [one for n, one in self.history.of("update_trained") if n > number and one.get("arm") == record["arm"]]
        if trained and trained[0].get("update") == record["update"] and not self._ended_again(number, record):
            self._same(number, record, "exit_code", 0, "its update was taken, so it is")

    def _ended_again(self, number: int, record: Mapping[str, Any]) -> bool:
        later = [one for n, one in self.history.of("command_ended") if n > number]
        return any((one.get("arm"), one.get("update")) == (record["arm"], record["update"]) for one in later)

    def _check_engines(self) -> None:
        """A stage's engine has the packages that a runner had loaded; another engine than the sweep's needs a deviation."""
        loaded = [(n, one["environment"].get("packages") or {}) for n, one in self.history.of("model_loaded")]
        sweep = self.run.stages.get(f"{self.tree.main_family}/start/sweep")
        allowed = any("engine" in (one.get("opens") or ()) for one in self.deviations.values())
        for number, record in self.history.of("stage_sampled"):
            partner = self._partner(record, number)
            if partner is None:
                continue
            engine, stage = partner.info["engine"], record["stage"]
            for name, version in engine.items():
                had = {packages[name] for n, packages in loaded if n < number and name in packages}
                if had and version not in had:
                    self._differ(number, f"{stage} was sampled with {name} {version}; runners had {', '.join(map(str, had))}")
            if sweep is not None and sweep.imported is None and sweep.partner.info["engine"] != engine and not allowed:
                self._differ(number, f"{stage} was sampled with another engine than the sweep, and no deviation allows it")
