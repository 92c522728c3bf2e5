"""The training stages of a run, read, counted and compared with what is stored beside them, up to the result of every arm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ablation.audit import counts, intervals, judged, sampled, trained, weights
from ablation.audit.adapters import check_adapter, check_config, check_files
from ablation.audit.answers import grades
from ablation.audit.counts import Outcome
from ablation.audit.findings import Findings
from ablation.audit.judged import OwnArm
from ablation.audit.kept import text_digest
from ablation.audit.locked import LockedTree, file_sha256, read_problems
from ablation.audit.rules import NO_STEP, STABLE, STOPPED, Compared, Ruled
from ablation.audit.sampled import START, Partner, Place, Texts
from ablation.audit.stages import Rows, check_rows, read_rows
from ablation.audit.weights import Passes


@dataclass
class Judged:
    """What is kept of one stage after it was read."""

    place: Place
    outcomes: list[Outcome] | None
    """None where a grade is missing or the rows are of unknown problems."""
    measures: dict[str, Any] | None
    partner: Partner
    whole: bool
    """Every rollout that the plan asks for is there."""
    imported: dict[str, Any] | None


@dataclass
class Run:
    """One run folder while it is audited."""

    root: Path
    tree: LockedTree
    found: Findings
    regrade: bool = False
    beside: Path | None = None
    """The plan's own file, where this is not the run's copy."""
    stages: dict[str, Judged] = field(default_factory=dict)
    audits: dict[str, dict[int, Mapping[str, Any]]] = field(default_factory=dict)
    """`family/arm` -> update -> its audit.json."""
    passes: dict[tuple[str, int], Passes] = field(default_factory=dict)
    """(`family/arm`, update) -> the tokens that it went through, where this audit has a path to them."""
    texts: Texts = field(default_factory=Texts)

    @cached_property
    def problems(self) -> dict[str, dict[str, Any]]:
        return read_problems(self.root / "problems.jsonl", self.found)

    @cached_property
    def settings(self) -> intervals.Settings:
        return judged.settings_of(self.tree)

    def read_all(self) -> list[str]:
        """Read every training stage, sweeps first; returns the names of all complete stages of the run, evaluations included."""
        names = [path.parent.relative_to(self.root).as_posix() for path in sorted(self.root.glob("*/*/*/stage.json"))]
        for name in sorted(names, key=lambda name: not name.endswith("/start/sweep")):
            with self.found.guard(self.root / name):
                self._read(name)
        inflight = {path.parent for path in self.root.glob("*/*/*/inflight")}
        for folder in sorted({path.parent for path in self.root.glob("*/*/*/part-*.parquet")} | inflight):
            if not (folder / "stage.json").is_file():
                self.found.lacks(f"{folder.relative_to(self.root)}: was begun and is not complete (it has no stage.json)")
            elif folder in inflight:
                self.found.differ(folder / "inflight", "is in a complete stage, which leaves no rollout in flight")
        return names + [
            path.parent.relative_to(self.root).as_posix() for path in sorted(self.root.glob("evaluations/*/*/*/stage.json"))
        ]

    def _read(self, name: str) -> None:
        found, place = self.found, sampled.place_of(name, self.tree)
        if place is None:
            found.differ(self.root / name, "is no stage that the plan has")
            return
        rows = read_rows(self.root, self.root / name, found)
        if rows is None:
            return
        check_rows(rows, found)
        sampled.check_info(rows, place, self.tree, found)
        wanted = sampled.wanted_rollouts(place, self.tree)
        sampled.check_keys(rows, wanted, found)
        sampled.check_seeds(rows, place.stage, place.update, self.tree.families[place.family], found)
        own = self.graded(rows, self.problems)
        measured = counts.measures(own) if own is not None else None
        self.stages[name] = Judged(place, own, measured, sampled.partner_of(rows), set(wanted) == set(rows.keys), rows.imported)
        if own is None:
            return
        path = self.root / name / "measures.json"
        if path.is_file():
            sampled.compare_measures(path, measured or {}, found)
        elif rows.imported is None:
            found.lacks(f"{name}: measures.json")
        if place.stage == "update":
            with found.guard(self.root / name / "audit.json"):
                self._update(rows, place, own)

    def graded(self, rows: Rows, problems: Mapping[str, Mapping[str, Any]]) -> list[Outcome] | None:
        """What became of every rollout; None, after saying why, if that cannot be said of all."""
        if not sampled.check_sources(rows, problems, self.found):
            return None
        spans = counts.spans(rows)
        self.texts.check(rows, spans, self.found)
        answers = zip(rows.columns["problem"], rows.columns["answer_text"], spans, strict=True)
        pairs = [(problems[problem], text) if span.visible else None for problem, text, span in answers]
        path = f"{rows.name}/grades.json"
        own = grades(pairs, self._stored_grades(rows), path, self.found, regrade=self.regrade)
        failed = [rows.who(row) for row, one in enumerate(own) if one is not None and one[0] == "grader_error"]
        if failed:
            self.found.lacks(f"{rows.name}: the grader failed on {len(failed)} rollouts, for instance {failed[0]}")
            return None
        return counts.outcomes(rows, own, self.tree.plan["loops"])

    def _stored_grades(self, rows: Rows) -> list[dict[str, Any]] | None:
        path = self.root / rows.name / "grades.json"
        if not path.is_file():
            return None
        stored = None
        with self.found.guard(path):
            content = json.loads(path.read_bytes())
            digest = file_sha256(self.root / rows.name / "stage.json")
            self.found.same(path, "grades_version", content["grades_version"], 1, source="this audit knows")
            self.found.same(path, "stage_sha256", content["stage_sha256"], digest, source="stage.json has")
            told = content["rollouts"]
            if [(one["problem"], one["effort"], one["index"]) for one in told] != rows.keys:
                self.found.differ(path, "its rollouts are not those of the stage, in their order")
            else:
                stored = [{name: one[name] for name in ("problem", "effort", "index", "status", "extracted")} for one in told]
        return stored

    def _update(self, rows: Rows, place: Place, own: list[Outcome]) -> None:
        sweep, main = self.sweep(place.family), self.sweep(self.tree.main_family)
        if sweep is None or main is None or not (self.root / rows.name / "audit.json").is_file():
            return
        s0 = weights.fixed_scale(self.tree.training, main)
        reference = weights.reference_lengths(sweep)
        path = self.root / rows.name / "audit.json"
        stored, passes = trained.check_audit(path, rows, own, self.tree, reference=reference, s0=s0, found=self.found)
        name = f"{place.family}/{place.arm}"
        self.audits.setdefault(name, {})[place.update] = stored
        if passes is not None:
            self.passes[name, place.update] = passes

    def marked(self) -> dict[str, set[str]]:
        """Stage -> digests of the texts of its problems, which the ledger must have a mark of."""
        return {
            name: {text_digest(self.problems[key[0]]["prompt"]) for key in one.partner.seeds if key[0] in self.problems}
            for name, one in self.stages.items()
        }

    def sweep(self, family: str) -> list[Outcome] | None:
        one = self.stages.get(f"{family}/{START}/sweep")
        return one.outcomes if one is not None else None

    def compared(self, subject: str, reference: str, cluster: str, rules: Sequence[Mapping[str, Any]]) -> Compared | None:
        """Two stages, if both are whole and graded, for `rules`."""
        own, other = self.stages.get(subject), self.stages.get(reference)
        if own is None or other is None or not (own.whole and other.whole):
            return None
        if own.outcomes is None or other.outcomes is None or own.measures is None or other.measures is None:
            return None
        ends = any(rule["measure"] == "cjk_share" and rule["compare"] in ("ratio_low", "ratio_high") for rule in rules)
        estimates = intervals.Estimates(own.outcomes, other.outcomes, self.settings, cluster, ends)
        refused = counts.too_unread(own.outcomes, other.outcomes, self.tree.plan)
        return Compared(own.measures, other.measures, estimates, refused=refused)

    def check_pairs(self) -> None:
        """Readouts and checks with their sweep; updates of all arms of a family with each other."""
        first_update: dict[tuple[str, int], str] = {}
        same = total = 0
        for name, one in self.stages.items():
            family, _, stage = name.split("/")
            other = f"{family}/{START}/sweep"
            if one.place.stage == "update":
                other = first_update.setdefault((family, one.place.update), name)
            if other == name or other not in self.stages:
                continue
            partner = self.stages[other].partner
            sampled.check_pair(name, one.partner, other, partner, self.found)
            if stage == "update-1":
                keys = one.partner.ids.keys() & partner.ids.keys()
                total += len(keys)
                same += sum(one.partner.ids[key] == partner.ids[key] for key in keys)
        if total:
            self.found.note(f"update 1: {same} of {total} rollouts are the same in all arms of a family, token by token")
        self._check_adapters()

    def _check_adapters(self) -> None:
        """Start adapter at every sweep and update 1; then the checkpoint before."""
        starts = {name: one.partner.info["adapter_sha256"] for name, one in self.stages.items() if one.imported is None}
        from_start = {name: digest for name, digest in starts.items() if name.endswith(("/sweep", "/update-1"))}
        if len(set(from_start.values())) > 1:
            self.found.differ(
                self.root,
                f"sweeps and first updates were sampled with {len(set(from_start.values()))} adapters, not with the start alone",
            )
        self.found.count("stages against the start adapter", len(from_start))
        for folder in sorted(self.root.glob("*/*/update-*/checkpoint")):
            with self.found.guard(folder):
                check_files(folder, self.found)
                check_config(folder, self.tree.plan["model"]["lora"], self.found)
                arm, update = (
                    folder.parent.parent.relative_to(self.root).as_posix(),
                    int(folder.parent.name.removeprefix("update-")),
                )
                after = [
                    f"{arm}/update-{update + 1}",
                    f"{arm}/check-{update}",
                    *([f"{arm}/readout"] if update == self.tree.updates else []),
                ]
                next_ones = {name: starts[name] for name in after if name in starts}
                check_adapter(folder, next_ones, self.found)
                step = self.audits.get(arm, {}).get(update, {}).get("step", {})
                if step.get("stepped") is False and set(next_ones.values()) - {starts.get(f"{arm}/update-{update}")}:
                    self.found.differ(folder, "is of an update that took no step, and holds another adapter than before")

    def own_arms(self) -> list[OwnArm]:
        """Every arm with a result, and what is missing of the others."""
        found = []
        for arm in self.tree.arms:
            found += self._arm(self.tree.main_family, arm)
        asked = self.tree.runs(judged.headline(self.tree, found).stable_arm)
        for family, arm in asked:
            found += self._arm(family, arm) if family != self.tree.main_family else []
        for family, arm in self._not_asked_for(asked):
            name = f"{family}/{arm}"
            if f"{name}/readout" in self.stages or (self.root / name / "stopped.json").is_file():
                found += self._arm(family, arm)
        return found

    def _not_asked_for(self, asked: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Runs that are in the folder though the plan does not ask for them: under a deviation, for instance."""
        every = [(family, arm) for family in self.tree.families for arm in self.tree.arms]
        return [run for run in every if run not in asked and (self.root / run[0] / run[1]).is_dir()]

    def _arm(self, family: str, arm: str) -> list[OwnArm]:
        rules = self.tree.plan["verdict"]["damage"]
        name, stopped = f"{family}/{arm}", self.root / family / arm / "stopped.json"
        if stopped.is_file():
            if f"{name}/readout" in self.stages:
                self.found.differ(stopped, f"says that the arm was ended, but {name}/readout is there")
            return [OwnArm(family, arm, STOPPED, stopped=json.loads(stopped.read_bytes()))]
        compared = self.compared(f"{name}/readout", f"{family}/{START}/sweep", "cell", rules)
        if compared is None:
            self.found.lacks(f"{name}: its readout, or the sweep of {family}")
            return []
        self._check_updates(name)
        label, ruled = judged.judge(rules, compared)
        return [OwnArm(family, arm, NO_STEP if self._took_no_step(name) else label, ruled, compared)]

    def _took_no_step(self, name: str) -> bool:
        """Whether the update of every audit before the readout left the model as it was."""
        external = self.tree.arms[name.partition("/")[2]].get("external")
        first = self.tree.updates if external and external["each"] == "arm" else 1
        paths = [self.root / name / f"update-{update}" / "audit.json" for update in range(first, self.tree.updates + 1)]
        if self.stages[f"{name}/readout"].imported is not None or not all(path.is_file() for path in paths):
            return False
        return not any(json.loads(path.read_bytes()).get("step", {}).get("stepped", True) for path in paths)

    def _check_updates(self, name: str) -> None:
        """An arm with a readout of its own has every update before it."""
        external = self.tree.arms[name.partition("/")[2]].get("external")
        if self.stages[f"{name}/readout"].imported is not None or (external and external["each"] == "arm"):
            return
        for update in range(1, self.tree.updates + 1):
            for what in ("stage.json", "audit.json"):
                if not (self.root / name / f"update-{update}" / what).is_file():
                    self.found.lacks(f"{name}/update-{update}: {what}, although the arm has its readout")

    def check_label(self, family: str, arm: str, update: int) -> str | None:
        """What the check of an arm after `update` says by this audit's own rules; None if it is not there."""
        name = f"{family}/{arm}/check-{update}"
        if name not in self.stages:
            return None
        found = self._judged_check(name, self.tree.plan["extension"])
        return None if found is None else found[0]

    def _judged_check(self, name: str, extension: Mapping[str, Any]) -> tuple[str, list[Ruled]] | None:
        rules = extension["damage"] or self.tree.plan["verdict"]["damage"]
        compared = self.compared(name, f"{self.stages[name].place.family}/{START}/sweep", "cell", rules)
        return None if compared is None else judged.judge(rules, compared)

    def sweeps(self) -> dict[str, Mapping[str, Any]]:
        """Family -> measures of its sweep, as far as a verdict looks at it."""
        asked = self.tree.runs(None)
        looked_at = {family for family, _ in [*asked, *self._not_asked_for(asked)]}
        found = {family: self.stages.get(f"{family}/{START}/sweep") for family in looked_at}
        return {family: one.measures for family, one in found.items() if one is not None and one.whole and one.measures}

    def unread(self, arms: Sequence[OwnArm]) -> dict[str, dict[str, Any]]:
        """Stage -> its unread answers, for the readouts that were judged and their sweeps."""
        judged_arms = [one for one in arms if one.compared is not None]
        names = [name for one in judged_arms for name in (f"{one.name}/readout", f"{one.family}/{START}/sweep")]
        return {name: counts.unread(self.stages[name].outcomes or []) for name in names}

    def audit_ranges(self, stable_arm: str | None) -> dict[str, dict[str, list[float]]]:
        """`family/arm` -> name of a share -> its lowest and highest over the updates before the readout."""
        found: dict[str, dict[str, list[float]]] = {}
        asked = self.tree.runs(stable_arm)
        for family, arm in [*asked, *self._not_asked_for(asked)]:
            if self.tree.arms[arm].get("external") is not None:
                continue
            audits = self.audits.get(f"{family}/{arm}", {})
            kept = [audit["weights"] for k, audit in sorted(audits.items()) if k <= self.tree.updates]
            ranges = {}
            for name in ("negative_share", "net_share", "truncated_share", "kl_share"):
                values = [weights[name] for weights in kept if weights[name] is not None]
                ranges |= {name: [min(values), max(values)]} if values else {}
            found |= {f"{family}/{arm}": ranges} if ranges else {}
        return found

    def check_extension(self) -> None:
        """`check.json` of each check, and stop rules."""
        extension = self.tree.plan.get("extension")
        for name, one in self.stages.items():
            if one.place.stage == "check" and extension is not None:
                with self.found.guard(self.root / name / "check.json"):
                    self._check_result(name, one, extension)
        for name, audits in self.audits.items():
            with self.found.guard(self.root / name):
                trained.check_stops(self.root, self.tree, *name.split("/"), audits, self.found)

    def _check_result(self, name: str, one: Judged, extension: Mapping[str, Any]) -> None:
        path = self.root / name / "check.json"
        found = self._judged_check(name, extension)
        if found is None or not path.is_file():
            self.found.lacks(f"{name}: check.json")
            return
        told, (label, ruled) = json.loads(path.read_bytes()), found
        for field_name in ("family", "arm", "update"):
            self.found.same(path, field_name, told[field_name], getattr(one.place, field_name), source="its folder says")
        self.found.same(path, "label", told["label"], label)
        eligible = extension["eligible"] if extension["eligible"] is not None else extension["checks"]
        self.found.same(path, "eligible", told["eligible"], label == STABLE and one.place.update in eligible)
        self.found.same(path, "pauses", told["pauses"] is not None, label != STABLE)
        judged.compare_rules(str(path), told["rules"], ruled, self.found, "the rollouts give")
        self.found.count("judged checks")
