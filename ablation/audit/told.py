"""A verdict as JSON, the engine's or the stored one, held against this audit's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablation.audit.blinded import compare_read
from ablation.audit.chained import Lines, check_kept
from ablation.audit.claims import compare_claims
from ablation.audit.findings import Findings
from ablation.audit.judged import OwnVerdict, bare, compare_arm, compare_ratios, compare_rules
from ablation.audit.locked import LockedTree
from ablation.audit.sections import NOT_RUN, OwnSection


def compare_verdict(where: str, told: Mapping[str, Any], own: OwnVerdict, tree: LockedTree, found: Findings, source: str) -> None:
    """A whole verdict as JSON against this audit's own."""
    found.same(where, "plan.digest", told["plan"]["digest"], tree.digest, source="the lock has")
    found.same(where, "bare_label", told["bare_label"], own.headline.label, source=source)
    found.same(where, "stable_arm", told["stable_arm"], own.headline.stable_arm, source=source)
    found.same(where, "reasons", [one["code"] for one in told["reasons"]], own.headline.codes, source=source)
    compare_arms(where, told, own, found, source)
    by_name = {f"{one['family']}/{one['arm']}" for one in told["arms"]}
    for one in own.arms:
        if one.name not in by_name:
            found.differ(where, f"{one.name} has a result and no place in it")
    if "sections" in told:
        compare_sections(where, told["sections"], own.sections, found, source)
    if "claims" in told:
        compare_claims(where, told["claims"], own.claims, found, source)
    # A comparison that no section takes (of an arm that is no candidate, say) is in no verdict.
    unread = {
        name: one for name, one in own.unread.items() if name in told.get("unread", ()) or not name.startswith("evaluations/")
    }
    for name, numbers in (("sweeps", own.sweeps), ("audits", own.audits), ("unread", unread)):
        if name in told:
            found.same(where, name, {key: told[name].get(key) for key in numbers}, numbers, source=source)
            for key in sorted(told[name].keys() - numbers.keys()):
                found.differ(where, f"{name} has {key}, of which nothing is here")
    found.count("labels", 1 + len(own.arms))


def compare_arms(where: str, told: Mapping[str, Any], own: OwnVerdict, found: Findings, source: str) -> None:
    known = {one.name: one for one in own.arms}
    for one in told["arms"]:
        name = f"{one['family']}/{one['arm']}"
        if name in known:
            compare_arm(f"{where}, {name}", one, known[name], found, source)
        else:
            found.differ(where, f"has {name}, which has no result here")


def compare_stored(
    path: Path, own: OwnVerdict, tree: LockedTree, lines: Lines, fresh: Mapping[str, Any] | None, found: Findings
) -> None:
    """`verdict.json` of the run folder, if there is one. One that is older than the journal tells of what was there then."""
    if not path.is_file():
        found.note(f"{path.name} is not there: `ablation verdict --plan PLAN` writes it")
        return
    told = json.loads(path.read_bytes())
    kept = told["journal"]
    if kept is not None:
        check_kept(lines, kept["length"], kept["head"], path.name, found)
    source = "this audit finds"
    if kept is not None and kept["length"] < len(lines.digests):
        found.note(
            f"{path.name} was written when the journal had {kept['length']} of its {len(lines.digests)} lines: only its arms are "
            "compared"
        )
        known = {one.name for one in own.arms}
        part = {"arms": [one for one in told["arms"] if f"{one['family']}/{one['arm']}" in known]}
        compare_arms(path.name, part, own, found, source)
        return
    compare_verdict(path.name, told, own, tree, found, source)
    if fresh is not None:
        for name in ("label", "labels", "deviations", "audits", "steps", "sweeps", "external", "imported"):
            if name in told:  # an earlier version of this program did not write all of them
                found.same(path.name, name, told[name], fresh.get(name), source="the engine says now")


def compare_sections(
    where: str, told: Mapping[str, Any], own: Mapping[str, Sequence[OwnSection]], found: Findings, source: str
) -> None:
    """The sections of a verdict as JSON against this audit's own, subject by subject."""
    if set(told) != set(own):
        found.differ(where, f"has the sections {', '.join(told) or 'none'}; the plan has {', '.join(own) or 'none'}")
    for name in told.keys() & own.keys():
        theirs = {one["subject"]: one for one in (told[name], *told[name].get("others", []))}
        mine = {one.subject: one for one in own[name]} or {None: OwnSection(NOT_RUN, None)}
        if set(theirs) != set(mine):
            shown = [", ".join(map(str, sorted(map(str, one)))) for one in (theirs, mine)]
            found.differ(where, f"{name} is of {shown[0]}; {source} {shown[1]}")
        for subject in theirs.keys() & mine.keys():
            _compare_section(
                f"{where}, {name}{f' of {subject}' if subject else ''}", theirs[subject], mine[subject], found, source
            )


def _compare_section(where: str, told: Mapping[str, Any], own: OwnSection, found: Findings, source: str) -> None:
    found.same(where, "label", told.get("bare_label", bare(told["label"])), own.label, source=source)
    compare_rules(where, told["rules"], own.rules, found, source)
    found.same(where, "wrong", sorted({one["code"] for one in told["wrong"]}), sorted(set(own.wrong)), source=source)
    for one in told["compared"]:
        mine = own.compared.get(one["set"])
        if mine is not None and "subject_measures" in one:
            found.same(where, f"{one['set']}: subject_measures", one["subject_measures"], dict(mine.subject), source=source)
            found.same(where, f"{one['set']}: reference_measures", one["reference_measures"], dict(mine.reference), source=source)
            compare_ratios(where, one["ratios"], mine, found, source)
    if own.read is not None:
        compare_read(where, told["blinded_read"], own.read, found)
    rows = [(one["subject"], one["keeps"]) for one in told["candidates"]]
    if own.candidates and rows != [(one["subject"], one["keeps"]) for one in own.candidates]:
        found.differ(where, f"has the candidates {rows}")
    found.count("labels of phase 2")
