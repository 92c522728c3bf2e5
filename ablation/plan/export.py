"""A lock in the formats of other tools, so that they can check it without this program.

PRML (Pre-Registered ML Manifest, version 0.1, https://spec.falsify.dev/v0.1): one manifest a rule, with its digest beside it.
in-toto (Statement v1, https://in-toto.io/Statement/v1): one unsigned statement on the plan file; sign it with a tool of yours.

An export is a function of the lock alone: the same lock gives the same bytes.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from ablation.errors import UsageError
from ablation.files import json_bytes, sha256_bytes, write_bytes
from ablation.plan.lock import LockedPlan
from ablation.plan.proofs import parse_time
from ablation.plan.rules import Rule, StopRule
from ablation.plan.words import rule_in_words

FORMATS = ("prml", "in-toto")
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:ablation:plan-lock:v1"
"""A name of ours; nobody has registered it."""


def export(locked: LockedPlan, form: str, folder: Path) -> tuple[list[Path], list[str]]:
    """(files written to `folder`, a line for each rule that the format cannot say). Raises `UsageError`."""
    if form == "in-toto":
        path = folder / f"{locked.plan.name}.intoto.json"
        write_bytes(path, json_bytes(in_toto_statement(locked)))
        return [path], []
    if form != "prml":
        raise UsageError(f"--format: `{form}` is not one of {', '.join(FORMATS)}")
    manifests, left_out = prml_manifests(locked)
    written = []
    for name, manifest in manifests.items():
        data = prml_bytes(manifest)
        for path, content in (
            (folder / f"{name}.prml.yaml", data),
            (folder / f"{name}.prml.sha256", f"{sha256_bytes(data)}\n".encode()),
        ):
            write_bytes(path, content)
            written.append(path)
    return written, left_out


def in_toto_statement(locked: LockedPlan) -> dict[str, Any]:
    """The statement: the plan file is the subject; the predicate says what was locked, when, by whom and with which files."""
    lock = locked.lock
    descriptors = [
        {"name": name, "uri": entry["at"] if ":" in entry["at"] else f"file:{entry['at']}"}
        | ({"digest": {"sha256": entry["sha256"]}} if entry["sha256"] else {})
        | ({"annotations": {"owed": entry["owed"]}} if entry["owed"] is not None else {})
        for name, entry in sorted(lock.resources.items())
    ]
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": lock.content["plan_file"], "digest": {"sha256": lock.bytes_sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "plan": {"name": locked.plan.name, "question": locked.plan.question, "canonicalDigest": {"sha256": lock.digest}},
            "lockedAt": lock.locked_at,
            "lockedBy": lock.locked_by,
            "gitCommit": (lock.content["locked"].get("git") or {}).get("commit"),
            "lock": {"name": lock.path.name, "digest": {"sha256": sha256_bytes(lock.path.read_bytes())}},
            "ruleEngine": {"digest": {"sha256": lock.content["engine"]["sha256"]}},
            "resources": descriptors,
        },
    }


def prml_manifests(locked: LockedPlan) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """(name -> manifest, a line for each rule that has none).

    A manifest needs the digest of the data that its metric is computed on, so a rule on problems that the plan does not
    name has none. Its PASS means that the rule holds: for a damage rule, that the run is damaged.
    """
    plan, manifests, left_out = locked.plan, {}, []
    sections: list[tuple[str, list[Any], str]] = [
        ("stop", plan.stop_rules, "problems.training"),
        ("damage", plan.verdict.damage, "problems.training"),
    ]
    for name in ("held_out", "never_used"):
        section = getattr(plan.verdict, name)
        if section is not None:
            sections.append((name, section.rules, f"verdict.{name}.problems"))
    if plan.verdict.release is not None:
        sections.append(("release", plan.verdict.release.guards, "verdict.release.problems"))
    for section, rules, resource in sections:
        data = locked.lock.resources.get(resource, {})
        for rule in rules:
            if not data.get("sha256"):
                left_out.append(f"{section} rule {rule.name}: the plan does not name the digest of the problems that it is about")
                continue
            name = f"{plan.name}.{section}.{rule.name}"
            manifests[name] = _manifest(locked, section, rule, {"id": data["at"], "hash": data["sha256"]})
    return manifests, left_out


def prml_bytes(manifest: dict[str, Any]) -> bytes:
    """The canonical bytes of a manifest, whose SHA-256 is its hash (PRML 0.1, section 3)."""
    # Section 3 and its grammar describe PyYAML's block style with sorted keys and unlimited width.
    text = yaml.safe_dump(manifest, default_flow_style=False, sort_keys=True, width=float("inf"), allow_unicode=True)
    return text.encode()


def _manifest(locked: LockedPlan, section: str, rule: Rule | StopRule, data: dict[str, str]) -> dict[str, Any]:
    lock = locked.lock
    moment = parse_time(lock.locked_at).astimezone(UTC)
    reference = "the starting model" if section in ("held_out", "never_used") else None
    manifest = {
        "version": "prml/0.1",
        "claim_id": str(_uuid7(moment, f"{lock.digest}/{section}/{rule.name}")),
        "created_at": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "metric": f"ablation:{rule.measure}/{rule.compare}",
        "metric_args": {"section": section, "rule": rule.name, "plan": lock.digest, "engine": lock.content["engine"]["sha256"]},
        "comparator": rule.op,
        "threshold": float(rule.limit),
        "dataset": data,
        "seed": locked.plan.families[locked.plan.main_family].seed,
        "producer": {"id": lock.locked_by},
        "notes": f"PASS means that the rule holds: {rule_in_words(rule, reference)}",
    }
    return _composed(manifest)


def _uuid7(moment: datetime, name: str) -> UUID:
    """A UUIDv7 (RFC 9562) with the time of `moment`, whose other bits are a digest of `name` instead of chance."""
    bits = int(sha256_bytes(name.encode())[:20], 16)
    milliseconds = int(moment.timestamp() * 1000)
    high, low = bits & 0xFFF, (bits >> 12) & ((1 << 62) - 1)
    return UUID(int=(milliseconds << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low)


def _composed(value: Any) -> Any:
    """Text in normal form C, which PRML 0.1 (section 3.4) demands."""
    if isinstance(value, dict):
        return {key: _composed(item) for key, item in value.items()}
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value
