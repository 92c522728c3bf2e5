"""Is a stage the one that the plan asks for: its settings, its rollouts, their seeds, prompts and texts?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablation.audit.counts import Span
from ablation.audit.findings import Findings
from ablation.audit.locked import LockedTree
from ablation.audit.schedule import Key, dealt, rollout_seed, rollouts_of
from ablation.audit.stages import Rows

START = "start"
NEUTRAL = {
    "min_p": 0,
    "min_tokens": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "ignore_eos": True,
}
"""What no plan has a field for, and no rollout may have otherwise."""


@dataclass(frozen=True)
class Place:
    """What the folder of a stage says it is."""

    family: str
    arm: str
    stage: str
    update: int


def place_of(name: str, tree: LockedTree) -> Place | None:
    """The stage of a training family at `FAMILY/ARM/STAGE`; None if the plan has no such stage."""
    family, arm, last = name.split("/")
    kind, _, number = last.partition("-")
    if family not in tree.families:
        return None
    if arm == START:
        return Place(family, START, "sweep", 0) if last == "sweep" else None
    if arm not in tree.arms:
        return None
    if last == "readout":
        return Place(family, arm, "readout", tree.updates)
    if kind not in ("update", "check") or not number.isascii() or not number.isdecimal() or number != str(int(number)):
        return None
    extension, update = tree.plan.get("extension"), int(number)
    longest = extension["updates"] if extension else tree.updates
    allowed = 1 <= update <= longest if kind == "update" else extension is not None and update in extension["checks"]
    return Place(family, arm, kind, update) if allowed else None


@dataclass
class Partner:
    """What of a stage its partners must share."""

    info: dict[str, Any]
    seeds: dict[Key, int]
    prompts: dict[Key, tuple[str, int]]
    ids: dict[Key, int]
    """Hash of the sampled ids."""
    parts: dict[str, tuple[int, int]]
    """Name -> its rollouts and tokens."""


@dataclass
class Texts:
    """Equal token ids must have equal texts, in all of a run: one tokenizer decoded them."""

    known: dict[tuple[str, int], int] = field(default_factory=dict)

    def check(self, rows: Rows, spans: Sequence[Span], found: Findings) -> None:
        if rows.imported is not None:
            return  # texts as somebody gave them
        ids, end_ids = rows.tokens["token_ids"], set(rows.info["end_ids"])
        for row, span in enumerate(spans):
            begin, end = rows.ends[row], rows.ends[row + 1]
            parts = {"thinking_text": ids[begin + span.start : begin + span.stop], "answer_text": ids[begin + span.answer : end]}
            for column, own in parts.items():
                text = rows.columns[column][row]
                if len(own) and int(own[-1]) in end_ids:
                    own = own[:-1]
                key = (column[0], hash(own.tobytes()))
                if column == "answer_text" and not span.visible:
                    if text:
                        found.differ(rows.name, f"rollout {rows.who(row)} has an answer text, but its thinking was never closed")
                elif self.known.setdefault(key, hash(text)) != hash(text):
                    found.differ(rows.name, f"rollout {rows.who(row)}: the same token ids have another {column} elsewhere")
        found.count("texts against equal token ids", 2 * len(rows))


def check_info(rows: Rows, place: Place, tree: LockedTree, found: Findings) -> None:
    """The settings of the stage against its folder and the plan's."""
    info, where = rows.info, f"{rows.name}/stage.json"
    if info["plan_digest"] != tree.digest:
        found.differ(where, f"was sampled under another plan ({str(info['plan_digest'])[:12]}, not {tree.digest[:12]})")
    said = Place(info["family"], info["arm"], info["stage"], info["update"])
    if said != place:
        found.differ(where, f"holds the rollouts of {said.family}/{said.arm} {said.stage} {said.update}: they were moved here")
    for name, value in tree.plan["sampling"].items():
        if info["sampling"].get(name) != value:
            found.differ(where, f"was sampled with {name} {info['sampling'].get(name)!r}; the plan says {value!r}")
    wanted = {name: value for name, value in tree.plan["sampling"].items() if name not in ("batch_rollouts", "top_logprobs")}
    for text in {text for text in rows.columns["sampling"] if text}:
        own = json.loads(text)
        for name, value in (wanted | NEUTRAL | {"end_ids": info["end_ids"]}).items():
            if own.get(name) != value:
                found.differ(rows.name, f"has rollouts that were sampled with {name} {own.get(name)!r}; it should be {value!r}")
        found.count("sampling values of rows against the plan", len(wanted) + len(NEUTRAL) + 1)
    if info["max_tokens"] != tree.plan["sampling"]["max_tokens"]:
        found.differ(where, f"was sampled with the cap {info['max_tokens']}; the plan says {tree.plan['sampling']['max_tokens']}")
    policy, engine = tree.plan["policy"], info["engine"].get("name")
    if rows.imported is None and engine not in (allowed := [policy["backend"], *policy.get("also", [])]):
        found.differ(where, f"was sampled by the backend {engine!r}; the plan allows {', '.join(allowed)}")
    if info["schema_version"] != 1:
        found.differ(where, f"has schema version {info['schema_version']!r}; runs/README.md describes version 1")
    found.count("sampling settings against the plan", len(tree.plan["sampling"]) + 2)


def check_keys(rows: Rows, wanted: Sequence[Key], found: Findings) -> None:
    """Each rollout that the plan asks for once, and no other. What is missing is no difference."""
    have, need = set(rows.keys), set(wanted)
    for problem, effort, index in sorted(have - need)[:3]:
        found.differ(rows.name, f"rollout {problem}@{effort} #{index} is not one that the plan asks for here")
    gone = sorted(need - have)
    if gone:
        problem, effort, index = gone[0]
        found.lacks(f"{rows.name}: {len(gone)} of {len(need)} rollouts, for instance {problem}@{effort} #{index}")
    found.count("rollouts against the plan's cells", len(need))


def check_seeds(rows: Rows, stage: str, update: int, family_seed: int, found: Findings, seed_of: Any = rollout_seed) -> None:
    """Each seed against the documented function."""
    known = rows.imported.get("seeds") if rows.imported else "plan"
    if known != "plan":
        found.leave(f"seeds of {rows.name}: imported {'with seeds of its own' if known == 'own' else 'without seeds'}")
        return
    for row, key in enumerate(rows.keys):
        own = seed_of(family_seed, stage, update, key)
        if rows.columns["seed"][row] != own:
            found.differ(rows.name, f"rollout {rows.who(row)} has seed {rows.columns['seed'][row]}; the function gives {own}")
    found.count("seeds against the function", len(rows))


def wanted_rollouts(place: Place, tree: LockedTree) -> list[Key]:
    cells = dealt(tree, place.family, place.update) if place.stage == "update" else tree.cells
    return rollouts_of(cells, tree.per_cell)


def check_sources(rows: Rows, problems: Mapping[str, Mapping[str, Any]], found: Findings) -> bool:
    """Whether every rollout has a problem, and that problem's source."""
    known = True
    for row, name in enumerate(rows.columns["problem"]):
        problem = problems.get(name)
        if problem is None:
            found.differ(rows.name, f"rollout {rows.who(row)}: there is no problem `{name}`")
            known = False
        elif problem["source"] != rows.columns["source"][row]:
            found.differ(
                rows.name,
                f"rollout {rows.who(row)}: source is `{rows.columns['source'][row]}`, its problem's is `{problem['source']}`",
            )
    return known


def compare_measures(path: Path, own: Mapping[str, Any], found: Findings) -> None:
    """A `measures.json` against own counts; a field that they do not have is named."""
    with found.guard(path):
        told = json.loads(path.read_bytes())
        found.same(path, "", told, dict(own))
        for name, groups in own.items():
            if isinstance(groups, dict) and set(told[name]) != set(groups):
                found.differ(
                    path, f"{name} has {', '.join(told[name]) or 'nothing'}; the rollouts have {', '.join(groups) or 'nothing'}"
                )
        unknown = sorted(told.keys() - own.keys())
        if unknown:
            found.leave(f"fields of measures.json that this audit does not count: {', '.join(unknown)}")
        found.count("files of measures")


def partner_of(rows: Rows) -> Partner:
    ids, keys = rows.tokens["token_ids"], rows.keys
    hashes = [hash(ids[begin:end].tobytes()) for begin, end in zip(rows.ends, rows.ends[1:], strict=False)]
    prompts = zip(rows.columns["prompt_sha256"], rows.columns["prompt_length"], strict=True)
    return Partner(
        rows.info,
        dict(zip(keys, rows.columns["seed"], strict=True)),
        dict(zip(keys, prompts, strict=True)),
        dict(zip(keys, hashes, strict=True)),
        rows.parts,
    )


def check_pair(name: str, own: Partner, other_name: str, other: Partner, found: Findings) -> None:
    """Two stages that are compared rollout by rollout have the same seeds, prompts, ids of tags and kind of logprobs."""
    for field_name in ("logprob_kind", "think_open_id", "think_close_id", "end_ids", "max_tokens"):
        if own.info[field_name] != other.info[field_name]:
            found.differ(
                name,
                f"{field_name} is {own.info[field_name]!r}, in {other_name} {other.info[field_name]!r}: they cannot be compared",
            )
    engines = [one.info["engine"] for one in (own, other)]
    imported = [engine.get("name") == "imported" for engine in engines]
    without_seeds = any(old and engine.get("seeds") == "absent" for old, engine in zip(imported, engines, strict=True))
    kinds = {engine.get("prompts", "absent") if old else "ids" for old, engine in zip(imported, engines, strict=True)}
    for key in own.seeds.keys() & other.seeds.keys():
        who = f"rollout {key[0]}@{key[1]} #{key[2]}"
        if not without_seeds and own.seeds[key] != other.seeds[key]:
            found.differ(name, f"{who} has another seed than in {other_name}: the two are not paired")
        if len(kinds) == 1 and "absent" not in kinds and own.prompts[key] != other.prompts[key]:
            found.differ(name, f"{who} has another prompt than in {other_name}: the two are not paired")
    found.count("pairs of rollouts with one seed and prompt", len(own.seeds.keys() & other.seeds.keys()))
