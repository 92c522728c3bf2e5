"""Phase 2: the stages of comparisons of a finished model with the start, read and checked like those of training."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablation.audit import counts, intervals, sampled
from ablation.audit.counts import Outcome
from ablation.audit.history import COMPLETED, History
from ablation.audit.kept import text_digest
from ablation.audit.locked import file_sha256, read_problems
from ablation.audit.rules import Compared
from ablation.audit.sampled import START, Partner, Place
from ablation.audit.schedule import Key, rollouts_of, seed_for
from ablation.audit.stages import Rows, check_rows, read_rows

if TYPE_CHECKING:
    from ablation.audit.read_run import Run

SIDES = ("reference", "subject")
FILES = {"agent": "states.jsonl", "safety": "prompts.jsonl"}
_SUBJECT = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)@([1-9][0-9]*)")


@dataclass(frozen=True)
class Spec:
    """One set of the plan."""

    name: str
    resource: str
    """Field of the plan that names its file."""
    efforts: list[str]
    section: Mapping[str, Any]

    @property
    def graded(self) -> bool:
        return self.name not in FILES

    @property
    def file(self) -> str:
        return FILES.get(self.name, "problems.jsonl")


@dataclass
class Side:
    """One stage of a comparison."""

    rows: Rows
    partner: Partner
    outcomes: list[Outcome] | None
    measures: dict[str, Any] | None
    whole: bool


@dataclass
class Comparison:
    """A model against the start on one set."""

    spec: Spec
    subject: str
    sides: dict[str, Side] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        return len(self.sides) == 2 and all(side.whole for side in self.sides.values())


class Evaluated:
    """Every comparison of a run."""

    def __init__(self, run: Run, history: History) -> None:
        self.run, self.tree, self.found, self.history = run, run.tree, run.found, history
        self.comparisons: dict[tuple[str, str], Comparison] = {}

    @cached_property
    def family(self) -> str:
        return (self.tree.plan.get("evaluation") or {}).get("family") or self.tree.main_family

    @cached_property
    def specs(self) -> dict[str, Spec]:
        verdict, own = self.tree.plan["verdict"], []
        own = [effort for effort in self.tree.order["problems.cells"] if self.tree.plan["problems"]["cells"][effort]]
        release, extension = verdict.get("release") or {}, self.tree.plan.get("extension") or {}
        sections = {
            "held-out": ("verdict.held_out", verdict.get("held_out"), "problems"),
            "never-used": ("verdict.never_used", verdict.get("never_used"), "problems"),
            "selection": ("extension.selection", extension.get("selection"), "problems"),
            "main": ("verdict.release.main", release.get("main"), "problems"),
            "agent": ("verdict.release.agent", release.get("agent"), "states"),
            "safety": ("verdict.release.safety", release.get("safety"), "prompts"),
        }
        return {
            name: Spec(name, f"{path}.{file}", self._efforts(section, own), section)
            for name, (path, section, file) in sections.items()
            if section is not None and section.get(file) is not None
        }

    def _efforts(self, section: Mapping[str, Any], own: list[str]) -> list[str]:
        return [section["effort"]] if "effort" in section else list(section.get("efforts") or own)

    def read_all(self) -> None:
        folders = [folder for folder in sorted(self.run.root.glob("evaluations/*/*")) if folder.is_dir()]
        for folder in folders:
            with self.found.guard(folder):
                self._read(folder)
        for folder in folders:
            one = self.comparisons.get((folder.parent.name, folder.name))
            if one is not None and len(one.sides) == 2:
                with self.found.guard(folder / "evaluation.json"):
                    self._check_record(folder, one)

    def _read(self, folder: Path) -> None:
        spec, subject = self.specs.get(folder.parent.name), folder.name
        match = _SUBJECT.fullmatch(subject)
        if spec is None or match is None or match[1] not in self.tree.arms:
            self.found.differ(folder, "is no comparison that the plan has")
            return
        one = self.comparisons.setdefault((spec.name, subject), Comparison(spec, subject))
        for side in SIDES:
            arm, update = (match[1], int(match[2])) if side == "subject" else (START, 0)
            with self.found.guard(folder / side):
                if (folder / side / "stage.json").is_file():
                    self._side(one, side, Place(self.family, arm, spec.name, update))
                else:
                    self.found.lacks(f"evaluations/{spec.name}/{subject}/{side}")
        if len(one.sides) == 2:
            name, other = (f"evaluations/{spec.name}/{subject}/{side}" for side in ("subject", "reference"))
            sampled.check_pair(name, one.sides["subject"].partner, other, one.sides["reference"].partner, self.found)
            self._check_adapters(one, match[1], int(match[2]))

    def _side(self, one: Comparison, side: str, place: Place) -> None:
        spec, found = one.spec, self.found
        rows = read_rows(self.run.root, self.run.root / "evaluations" / spec.name / one.subject / side, found)
        if rows is None:
            return
        check_rows(rows, found)
        sampled.check_info(rows, place, self.tree, found)
        wanted = self.wanted(spec)
        sampled.check_keys(rows, wanted, found)
        sampled.check_seeds(rows, spec.name, 0, self.tree.families[self.family], found, _seed)
        own = measured = None
        if spec.graded:
            own = self.run.graded(rows, self.problems(spec))
            measured = counts.measures(own) if own is not None else None
            self._compare_measures(rows, measured)
        elif sampled.check_sources(rows, self.problems(spec), found):
            self.run.texts.check(rows, counts.spans(rows), found)
        one.sides[side] = Side(rows, sampled.partner_of(rows), own, measured, set(wanted) == set(rows.keys))

    def _compare_measures(self, rows: Rows, measured: dict[str, Any] | None) -> None:
        path = self.run.root / rows.name / "measures.json"
        if measured is None:
            return
        if not path.is_file():
            self.found.lacks(f"{rows.name}: measures.json")
            return
        sampled.compare_measures(path, measured, self.found)

    def problems(self, spec: Spec) -> dict[str, dict[str, Any]]:
        """id -> `source`, and the fields of a problem; the run's copy of the set's file is the locked one."""
        if spec.name not in self._problems:
            path = self.run.root / "evaluations" / spec.name / spec.file
            wanted = self.tree.content["resources"].get(spec.resource, {}).get("sha256")
            if wanted is not None and file_sha256(path) != wanted:
                self.found.differ(path, "is not the file that the plan was locked with")
            problems = read_problems(path, self.found)
            source = {"agent": "task", "safety": "category"}.get(spec.name, "source")
            self._problems[spec.name] = {name: one | {"source": one[source]} for name, one in problems.items()}
            self.found.count("problem files of evaluation sets")
        return self._problems[spec.name]

    @cached_property
    def _problems(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {}

    def marked(self) -> dict[str, set[str]]:
        """Stage -> digests of the texts of its problems, which the ledger must have a mark of."""
        found = {}
        for one in self.comparisons.values():
            texts = self._texts(one.spec)
            for side in one.sides.values():
                found[side.rows.name] = {text_digest(texts[key[0]]) for key in side.rows.keys if key[0] in texts}
        return found

    def _texts(self, spec: Spec) -> dict[str, str]:
        """id -> what the ledger takes as the problem's text."""
        if spec.graded:
            return {name: one["prompt"] for name, one in self.problems(spec).items()}
        from ablation.problems.agent_states import load_states
        from ablation.problems.safety_prompts import load_safety_prompts

        self.found.borrow("the text of agent states and safety prompts")
        load = load_states if spec.name == "agent" else load_safety_prompts
        loaded = load(self.run.root / "evaluations" / spec.name / spec.file)
        return {name: one.as_problem().prompt for name, one in loaded.items()}

    def wanted(self, spec: Spec) -> list[Key]:
        """Every rollout of each model."""
        problems = self.problems(spec)
        if spec.name == "agent":
            cells = [(name, one.get("effort") or spec.efforts[0]) for name, one in problems.items()]
            return rollouts_of(cells, spec.section["rollouts_per_state"])
        cells = [(name, effort) for effort in spec.efforts for name in problems]
        each, rest = (1, 0) if spec.name == "safety" else divmod(spec.section["rollouts"], max(1, len(cells)))
        if rest:
            raise ValueError(f"{spec.section['rollouts']} rollouts cannot be dealt over {len(cells)} cells")
        return rollouts_of(cells, each)

    def _check_adapters(self, one: Comparison, arm: str, update: int) -> None:
        """The start's adapter is that of the family's sweep, the subject's that of its readout or check."""
        last = "readout" if update == self.tree.updates else f"check-{update}"
        for side, name in (("reference", f"{self.family}/{START}/sweep"), ("subject", f"{self.family}/{arm}/{last}")):
            there = self.run.stages.get(name)
            if there is None or there.imported is not None:
                continue
            rows = one.sides[side].rows
            if rows.info["adapter_sha256"] != there.partner.info["adapter_sha256"]:
                self.found.differ(rows.name, f"was sampled with another adapter than {name}")
            self.found.count("stages against the adapter that they were sampled with")

    def _check_record(self, folder: Path, one: Comparison) -> None:
        """`evaluation.json` against the rollouts and the journal."""
        path, rows = folder / "evaluation.json", one.sides["subject"].rows
        if not path.is_file():
            self.found.lacks(f"{path.relative_to(self.run.root)}")
            return
        told = json.loads(path.read_bytes())
        correct = None
        if one.spec.graded:
            own = {side: one.sides[side].measures for side in SIDES}
            correct = {side: None if numbers is None else numbers["correct"] for side, numbers in own.items()}
        opened = [record for _, record in self.history.of("evaluation_opened") if self._is(record, one)]
        numbers = sorted({record["deviation"] for record in opened} - {None})
        expected = {
            "set": one.spec.name,
            "subject": one.subject,
            "family": self.family,
            "rollouts": len(rows),
            "correct": correct,
        }
        expected |= {"deviations": numbers, "reused": self.reused(one), "reference": START}
        expected["per_cell"] = 1 + max(index for _, _, index in rows.keys)
        expected["drift"] = self._drift(one)
        for name, value in expected.items():
            self.found.same(path, name, told.get(name), value)
        self.found.count("records of comparisons")

    def _drift(self, one: Comparison) -> list[dict[str, Any]]:
        """The reference against each one that was sampled on the set before it: correct rollouts, and equal ones of one seed."""
        found, now = [], one.sides["reference"]
        prefix, source = f"evaluations/{one.spec.name}/", self._source(one)
        order = {str(record.get("stage")): n for n, record in self.history.of(*COMPLETED)}
        own = order.get(f"{prefix}{source.subject}/reference", len(self.history.lines.records) + 1)
        sampled_here = [(n, str(record.get("stage"))) for n, record in self.history.of("stage_sampled")]
        earlier = [name for n, name in sampled_here if n < own and n == order[name] and name.startswith(prefix)]
        for subject in (name.split("/")[2] for name in earlier if name.endswith("/reference")):
            other = self.comparisons.get((one.spec.name, subject))
            if subject == one.subject or other is None or "reference" not in other.sides:
                continue
            before = other.sides["reference"]
            numbers = [None if side.measures is None else side.measures["correct"] for side in (now, before)]
            moved = None if None in numbers else numbers[0] - numbers[1]
            same = sum(before.partner.ids.get(key) == value for key, value in now.partner.ids.items())
            limit = (self.tree.plan.get("evaluation") or {}).get("drift", 10)
            flagged = moved is not None and abs(moved) >= limit
            found.append({"against": subject, "correct": numbers[0], "correct_before": numbers[1], "change": moved})
            found[-1] |= {"flagged": flagged, "identical": same, "rollouts": len(now.rows)}
        return found

    def _source(self, one: Comparison) -> Comparison:
        """The comparison that the reference of this one was sampled for."""
        seen = {one.subject}
        while (other := self.reused(one)) is not None and other not in seen and (one.spec.name, other) in self.comparisons:
            seen.add(other)
            one = self.comparisons[one.spec.name, other]
        return one

    def _is(self, record: Mapping[str, Any], one: Comparison) -> bool:
        return (record.get("set"), record.get("subject")) == (one.spec.name, one.subject)

    def reused(self, one: Comparison) -> str | None:
        """The comparison that the reference was taken over from."""
        name = f"evaluations/{one.spec.name}/{one.subject}/reference"
        told = [record for _, record in self.history.of(*COMPLETED) if record.get("stage") == name]
        return str(told[-1].get("of")) if told and told[-1].get("event") == "stage_reused" else None

    def compared(self, name: str, subject: str, rules: list[Mapping[str, Any]]) -> Compared | None:
        """The two models of a graded set for `rules`, if both are whole."""
        one = self.comparisons.get((name, subject))
        if one is None or not one.whole or any(side.outcomes is None for side in one.sides.values()):
            return None
        own, other = one.sides["subject"], one.sides["reference"]
        ends = any(rule["measure"] == "cjk_share" and rule["compare"] in ("ratio_low", "ratio_high") for rule in rules)
        estimates = intervals.Estimates(own.outcomes or [], other.outcomes or [], self.run.settings, "problem", ends)
        refused = counts.too_unread(own.outcomes or [], other.outcomes or [], self.tree.plan)
        return Compared(own.measures or {}, other.measures or {}, estimates, refused=refused)

    def unread(self) -> dict[str, dict[str, Any]]:
        """Stage -> its unread answers, of each graded comparison that is whole."""
        whole = [one for one in self.comparisons.values() if one.whole]
        return {side.rows.name: counts.unread(side.outcomes) for one in whole for side in one.sides.values() if side.outcomes}

    def hours(self, name: str, subject: str) -> float | None:
        """From the first rollout of the two models to the last, by the journal: from when sampling began with nothing on disk."""
        one = self.comparisons.get((name, subject))
        if one is None:
            return None
        source, times = self._source(one), list[datetime]()
        for side, own in (("reference", source), ("subject", one)):
            stage = f"evaluations/{name}/{own.subject}/{side}"
            told = self.history.of("stage_streamed", "part_written", "stage_sampled")
            sampled_at = [(n, record) for n, record in told if record.get("stage") == stage]
            if not sampled_at:
                continue
            begun = [
                (n, record)
                for n, record in self.history.of("evaluation_opened")
                if self._is(record, own) and record.get("there", {}).get(side) == 0
            ]
            first = max((n for n, _ in begun if n < sampled_at[-1][0]), default=sampled_at[0][0])
            times += [datetime.fromisoformat(record["time"]) for n, record in [*begun, *sampled_at] if n >= first]
        return (max(times) - min(times)).total_seconds() / 3600 if times else None


def _seed(family_seed: int, stage: str, update: int, key: Key) -> int:
    """Both models of a comparison share their seeds, and every set has its own."""
    return seed_for(family_seed, "rollout", stage, f"{key[0]}@{key[1]}", key[2])
