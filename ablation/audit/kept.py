"""What lies beside the rollouts and was written before them: deviations, and the ledger's marks."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ablation.audit.attempts import check_runs
from ablation.audit.chained import Lines, check_kept, read_lines
from ablation.audit.findings import Findings
from ablation.audit.history import COMPLETED, History
from ablation.audit.locked import LockedTree, sha256

SEEN = ("nothing", "progress", "results")
USES = {"sweep": "sampled", "update": "trained"}


def check_deviations(
    root: Path, tree: LockedTree, history: History, found: Findings, beside: Path | None
) -> list[dict[str, Any]]:
    """The run's deviations: their chain, the journal's events, the heads that they kept, and the plan's own file (`beside`)."""
    lines = read_lines(root / "deviations.jsonl", "number", 1, found, "file of deviations")
    told = [record for _, record in history.of("deviation")]
    if len(told) > len(lines.records):
        found.differ(
            lines.path, f"has {len(lines.records)} deviations, but the journal tells of {len(told)}: its tail was cut off"
        )
    for number, (event, digest) in enumerate(zip(told, lines.digests, strict=False), start=1):
        if event.get("line_sha256") != digest:
            found.differ(f"{lines.path}:{number}", f"is not deviation {number} as the journal has it")
    own = lines
    if beside is not None and beside.is_file():
        own = read_lines(beside, "number", 1, found, "file of deviations")
        if own.digests[: len(lines.digests)] != lines.digests:
            found.differ(beside, f"does not begin with the deviations in {lines.path}")
    elif beside is not None and lines.records:
        found.differ(beside, f"is not there, but {lines.path} has {len(lines.records)} deviations")
    for number, record in enumerate(own.records, start=1):
        if not record:
            continue
        where = f"{own.path}:{number}"
        if record.get("plan") != tree.digest or record.get("seen") not in SEEN:
            found.differ(where, "is no deviation from this plan")
        head = record.get("journal")
        if head is not None and _is_of(root, history, record.get("run")):
            length, _, digest = str(head).partition(":")
            check_kept(history.lines, int(length) if length.isdecimal() else None, digest, f"deviation {number}", found)
            _check_seen(history, int(length) if length.isdecimal() else 0, record, where, found)
        found.count("deviations")
    return [record for record in own.records if record]


def _is_of(root: Path, history: History, run: Any) -> bool:
    """Whether a deviation kept the head of this run's journal: a plan may have runs with other backends, in other folders."""
    own = {"folder": root.resolve().name, "first": history.lines.head_at(1)}
    return not isinstance(run, dict) or any(run.get(name) == value for name, value in own.items())


def _check_seen(history: History, length: int, record: Mapping[str, Any], where: str, found: Findings) -> None:
    """What it says had been seen, against what the journal had told of by then."""
    before = history.lines.records[:length]
    events = {event.get("event") for event in before}
    readout = any(event.get("event") in COMPLETED and str(event.get("stage")).endswith("/readout") for event in before)
    seen = "nothing"
    if events & {"stage_streamed", "part_written", *COMPLETED, "update_trained"}:
        seen = "progress"
    if readout or events & {"arm_finished", "arm_stopped"}:
        seen = "results"
    said = record.get("seen")
    if said in SEEN and SEEN.index(said) < SEEN.index(seen):
        found.differ(where, f"says that {said} had been seen; by then the journal told of {seen}")


def check_ledger(
    root: Path, tree: LockedTree, history: History, sampled: Mapping[str, set[str]], found: Findings
) -> Lines | None:
    """Each stage has a mark of its problems, with its use, not later than its rollouts. `sampled`: stage -> digests of texts."""
    path = root.resolve().parent / "ledger.jsonl"
    if not path.is_file():
        found.leave("marks of the ledger, and other runs of the plan beyond those that its journal names: none is beside the run")
        return None
    lines = read_lines(path, "number", 1, found, "ledger")
    sets = read_sets(lines, found)
    check_runs(lines, sets, tree, history, found)
    own = (None, history.lines.head_at(1))
    times = {str(record.get("stage")): str(record.get("time")) for _, record in history.of(*COMPLETED)}
    set_back = _set_back([str(record["time"]) for record in history.lines.records if record and "time" in record])
    marks: dict[str, list[Mapping[str, Any]]] = {}
    for record in lines.records:
        if record.get("plan") == tree.digest and record.get("run") in own:
            marks.setdefault(str(record.get("stage")), []).append(record)
    for name, wanted in sampled.items():
        use = USES.get(name.rpartition("/")[2].partition("-")[0], "evaluated")
        fitting = [
            mark for mark in marks.get(name, []) if mark.get("use") == use and wanted <= sets.get(str(mark.get("set")), set())
        ]
        if not fitting:
            found.differ(path, f"has no mark that the problems of {name} were {use}")
        elif name in times and (late := _seconds(times[name], fitting[0].get("time"))) >= 1:
            text = f"marks {name} at {fitting[0].get('time')}, after its rollouts ({times[name]})"
            if late > set_back + 1:
                found.differ(path, text)
            else:
                found.note(f"{path}: {text}; the journal's clock was set back by {set_back:.0f} s, which explains it")
        found.count("stages marked in the ledger")
    return lines


def _seconds(first: Any, last: Any) -> float:
    """From one time to another, both as they are written: whole seconds in the ledger, parts of them in the journal."""
    ends = [datetime.fromisoformat(str(one)).replace(microsecond=0) for one in (first, last)]
    return (ends[1] - ends[0]).total_seconds()


def _set_back(times: Sequence[str]) -> float:
    """Seconds by which the clock went back at most while a journal was written: 0 if each event is later than those before it."""
    most, latest = 0.0, times[0] if times else ""
    for time in times:
        most = max(most, _seconds(time, latest))
        latest = time if _seconds(latest, time) > 0 else latest
    return most


def read_sets(lines: Lines, found: Findings) -> dict[str, set[str]]:
    """Digest of each set of problems -> digests of their texts, each set's digest computed again."""
    sets: dict[str, set[str]] = {}
    for number, record in enumerate(lines.records, start=1):
        listed = record.get("problems")
        if isinstance(listed, list):
            laid_out = json.dumps(listed, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
            if sha256(laid_out.encode()) != record.get("set"):
                found.differ(f"{lines.path}:{number}", "its problems do not have the digest that it names")
            sets[str(record.get("set"))] = {str(one[1]) for one in listed if isinstance(one, list) and len(one) == 3}
    return sets


def text_digest(prompt: str) -> str:
    """A problem is its text: NFKC, case folded, white space collapsed."""
    return sha256(re.sub(r"\s+", " ", unicodedata.normalize("NFKC", prompt).casefold()).strip().encode("utf-8", "surrogatepass"))


def decorated(label: str, deviations: Sequence[Mapping[str, Any]], marks: Sequence[str] = ()) -> str:
    """The label with what it was computed under: `NOT_REPLICATED (deviation 1; imported)`."""
    numbers = [str(one.get("number")) for one in deviations]
    parts = [f"deviation{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"] if numbers else []
    parts += marks
    return f"{label} ({'; '.join(parts)})" if parts else label
