"""What was done more than once, and what else was run of the plan: journal and ledger read again, with no code of the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ablation.audit.chained import Lines
from ablation.audit.findings import Findings
from ablation.audit.history import COMPLETED, History
from ablation.audit.locked import LockedTree

REDONE, ALSO_RUN, SAME_PROBLEMS, CUT_BACK = "REDONE", "ALSO_RUN", "SAME_PROBLEMS", "CUT_BACK"
"""Codes of the notes."""


class Attempts:
    """Stages and updates with more than one outcome in the journal, and other runs that it tells of."""

    def __init__(self, history: History) -> None:
        outcomes: dict[tuple[str, ...], list[Mapping[str, Any]]] = defaultdict(list)
        for _, one in history.of(*COMPLETED, "part_written", "stage_streamed", "update_trained", "checkpoint_saved"):
            kind, stage, update = one["event"], str(one.get("stage")), f"{one.get('arm')}/update-{one.get('update')}"
            if kind == "stage_streamed":
                done = len(outcomes[stage, "stage_sha256"])
                if one.get("worker") is None:
                    outcomes[stage, f"in flight before completion {done + 1}"].append(one)
            elif kind == "part_written":
                outcomes[stage, "part_sha256", str(one.get("part"))].append(one)
            elif kind in COMPLETED:
                outcomes[stage, "stage_sha256"].append(one)
            else:
                outcomes[update, "audit_sha256" if kind == "update_trained" else "checkpoint_sha256"].append(one)
        self._found = {key: events for key, events in outcomes.items() if _differ(key[1], events)}
        self.names = sorted({key[0] for key in self._found})
        told = [one.get("other_runs") for _, one in history.of("runner_started")]
        listed = (other for others in told if isinstance(others, list) for other in others)
        self.runs = {(str(one.get("run")), str(one.get("folder"))): one for one in listed if isinstance(one, dict)}
        """(first line of its journal, folder) -> what was known of it last."""

    def marks(self) -> list[str]:
        """Behind a label of the whole run."""
        owners = dict.fromkeys(self._owner(name) for name in self._by_time())
        return [*([f"redone: {', '.join(owners)}"] if owners else []), *self._of_runs()]

    def marks_of(self, arm: str) -> list[str]:
        """Behind the label of `arm` (`main/C`), which rests on its family's sweep, too."""
        again = {self._owner(name) for name in self.names} & {arm, arm.split("/")[0] + "/start"}
        return [*(["redone"] if again else []), *self._of_runs()]

    def _of_runs(self) -> list[str]:
        sampled = [one for one in self.runs.values() if type(one.get("stages")) is int and one["stages"] > 0]
        return [f"one of {len(sampled) + 1} runs"] if sampled else []

    def say(self, found: Findings) -> None:
        """A note for each, with what was first and what stands now."""
        for (name, field, *part), events in sorted(self._found.items()):
            ends = " -> ".join(f"{one['time']} {str(one.get(field, 'no digest'))[:16]}" for one in (events[0], events[-1]))
            of = " ".join([field.removesuffix("_sha256"), *part])
            found.note(f"{REDONE} {name} ({of}), {len(events)} times: {ends}")
        for (run, folder), one in sorted(self.runs.items()):
            began, stages = one.get("began"), one.get("stages")
            found.note(f"{ALSO_RUN} {folder or 'run that no mark names'}: {run[:16]}, {began}, {stages} stages: by the journal")

    def _by_time(self) -> Iterable[str]:
        first = {name: min(str(one[0]["time"]) for key, one in self._found.items() if key[0] == name) for name in self.names}
        return sorted(self.names, key=lambda name: first[name])

    def _owner(self, name: str) -> str:
        pieces = name.split("/")
        return "/".join(pieces[1:3] if pieces[0] == "evaluations" else pieces[:2])


def _differ(field: str, events: list[Mapping[str, Any]]) -> bool:
    """Whether something came out in more than one way, or cannot be shown to have come out in one."""
    digests = [one.get(field) for one in events]
    return len(events) > 1 and (None in digests or len(set(map(str, digests))) > 1)


def check_runs(lines: Lines, sets: Mapping[str, set[str]], tree: LockedTree, history: History, found: Findings) -> None:
    """The run's own mark in the ledger, and a note for each other run of the plan and each plan with the same problems."""
    own, first = history.lines.head_at(1), next(iter(history.lines.records), {})
    runs = [one for one in lines.records if "folder" in one and one.get("plan") == tree.digest]
    if any("other_runs" in one for _, one in history.of("runner_started")) and own not in {one.get("run") for one in runs}:
        found.differ(lines.path, "has no mark that this run began")
    _check_heads(lines, own, history, found)
    for one in runs:
        if one.get("journal") is None and one.get("run") != own:
            found.note(f"{ALSO_RUN} {one['folder']}: {str(one.get('run'))[:16]}, {one.get('time')}: by the ledger")
    used: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    names: dict[str, str] = {}
    older = []
    for one in lines.records:
        if "set" in one:
            plan = str(one.get("plan"))
            names.setdefault(plan, str(one.get("study")))
            used[plan][str(one.get("use"))] |= sets.get(str(one["set"]), set())
            if plan == tree.digest and one.get("run") is None and str(one.get("time"))[:19] < str(first.get("time"))[:19]:
                older.append(one)
    if older:
        text = f"{len({str(one.get('stage')) for one in older})} stages have marks that are older than the journal"
        found.note(f"{ALSO_RUN} run that no mark names: {text}, from {older[0].get('time')} on")
    for plan in sorted(used.keys() - {tree.digest, ""}):
        shared = {use: len(texts & used[plan][use]) for use, texts in used[tree.digest].items()}
        said = ", ".join(f"{use} {count}" for use, count in sorted(shared.items()) if count)
        if said:
            found.note(f"{SAME_PROBLEMS} {names[plan]} ({plan[:12]}): {said}")


def _check_heads(lines: Lines, run: str | None, history: History, found: Findings) -> None:
    """Whether the journal goes on from each head of it that the ledger kept; after a copy of the folder it need not."""
    own = [one for one in lines.records if run is not None and one.get("run") == run]
    copied = len({str(one["folder"]) for one in own if "folder" in one}) > 1
    for one in own:
        length, _, digest = str(one.get("journal") or "").partition(":")
        if length and history.lines.head_at(int(length) if length.isdecimal() else 0) != digest:
            when = f"mark {one.get('number')} of the ledger ({one.get('time')})"
            text = f"{CUT_BACK} it had {length} lines that are not there, by {when}"
            if copied:
                found.note(f"{text}, or the folder was copied and both went on")
            else:
                found.differ(history.lines.path, text)
