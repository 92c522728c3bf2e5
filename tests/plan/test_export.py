import hashlib
import json
import re
from datetime import UTC, datetime
from uuid import UUID

import pytest
import yaml

from ablation.errors import UsageError
from ablation.plan.export import export, in_toto_statement, prml_bytes, prml_manifests
from ablation.plan.lock import lock_plan, verify_lock
from tests.plan.conftest import PROBLEMS, TEXT, write_plan

# TV-001 of the PRML 0.1 test vectors (spec.falsify.dev), whose hash begins with 1a3466cc08ee.
MINIMAL = {
    "version": "prml/0.1",
    "claim_id": "01900000-0000-7000-8000-000000000000",
    "created_at": "2026-05-01T12:00:00Z",
    "metric": "accuracy",
    "comparator": ">=",
    "threshold": 0.85,
    "dataset": {"id": "imagenet-val-2012", "hash": hashlib.sha256(b"").hexdigest()},
    "seed": 42,
    "producer": {"id": "studio-11.co"},
}
PHASE_2 = """\
  held_out:
    rollouts: 144
    rules: [{name: few_loops, measure: looping, compare: value, op: "<=", limit: 8}]
    blinded_read: {pairs: 12, passes: 10}
  release: {guards: [{name: short_turns, measure: agent_turn, compare: ratio_high, op: "<=", limit: 1.25}]}
"""


@pytest.fixture
def locked(plan_path):
    lock_plan(plan_path)
    return verify_lock(plan_path)


def test_canonical_bytes_are_those_of_the_specifications_test_vector():
    assert hashlib.sha256(prml_bytes(MINIMAL)).hexdigest().startswith("1a3466cc08ee")
    assert prml_bytes(dict(reversed(MINIMAL.items()))) == prml_bytes(MINIMAL)  # TV-002


def test_one_manifest_a_rule(locked, tmp_path):
    written, left_out = export(locked, "prml", tmp_path / "out")
    assert left_out == []
    names = ["damage.clean_lost", "damage.logprob_lost", "stop.logprob_fell"]
    assert sorted(path.name for path in written) == sorted(
        f"small.{name}.prml.{end}" for name in names for end in ("yaml", "sha256")
    )
    text = (tmp_path / "out" / "small.damage.clean_lost.prml.yaml").read_bytes()
    manifest = yaml.safe_load(text)
    assert (manifest["metric"], manifest["comparator"], manifest["threshold"]) == ("ablation:clean/change", "<=", -21.0)
    assert manifest["dataset"] == {"id": "problems.jsonl", "hash": hashlib.sha256(PROBLEMS.encode()).hexdigest()}
    assert manifest["metric_args"]["plan"] == locked.digest and manifest["seed"] == 1
    assert "lost 21 or more clean rollouts" in manifest["notes"]
    moment = datetime.fromisoformat(locked.lock.locked_at)
    assert datetime.fromisoformat(manifest["created_at"]) == moment
    claim = UUID(manifest["claim_id"])
    assert claim.version == 7 and datetime.fromtimestamp((claim.int >> 80) / 1000, UTC) == moment
    recorded = (tmp_path / "out" / "small.damage.clean_lost.prml.sha256").read_text()
    assert recorded == hashlib.sha256(text).hexdigest() + "\n"
    again, _ = export(locked, "prml", tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def test_the_reference_implementation_accepts_them_and_finds_the_same_hash(locked):
    falsify = pytest.importorskip("falsify_prml", reason="the reference implementation of PRML (`falsify`) is not installed")
    manifests, _ = prml_manifests(locked)
    assert len(manifests) == 3
    for manifest in manifests.values():
        assert falsify.validate_manifest(manifest) == []
        assert falsify.manifest_hash(manifest) == hashlib.sha256(prml_bytes(manifest)).hexdigest()


def test_rules_on_unnamed_problems_are_left_out_and_named(tmp_path):
    path = write_plan(tmp_path, TEXT + PHASE_2)
    lock_plan(path)
    manifests, left_out = prml_manifests(verify_lock(path))
    assert len(manifests) == 3
    assert [re.match(r"(\w+) rule (\w+)", line).groups() for line in left_out] == [
        ("held_out", "few_loops"),
        ("release", "short_turns"),
    ]


def test_the_in_toto_statement(locked, tmp_path):
    (path,), _ = export(locked, "in-toto", tmp_path / "out")
    statement = json.loads(path.read_bytes())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    data = locked.path.read_bytes()
    assert statement["subject"] == [{"name": "small.yaml", "digest": {"sha256": hashlib.sha256(data).hexdigest()}}]
    predicate = statement["predicate"]
    assert predicate["plan"]["canonicalDigest"]["sha256"] == locked.digest
    assert predicate["lockedAt"] == locked.lock.locked_at
    lock_bytes = locked.lock.path.read_bytes()
    assert predicate["lock"]["digest"]["sha256"] == hashlib.sha256(lock_bytes).hexdigest()
    assert {one["name"]: one["digest"]["sha256"] for one in predicate["resources"]}["model.base"] == hashlib.sha256(
        b"weights"
    ).hexdigest()


def test_the_reference_types_of_in_toto_accept_it(locked):
    package = pytest.importorskip("in_toto_attestation.v1.statement", reason="in-toto-attestation is not installed")
    from google.protobuf.json_format import ParseDict
    from in_toto_attestation.v1 import statement_pb2

    statement = ParseDict(in_toto_statement(locked), statement_pb2.Statement())
    package.Statement.copy_from_pb(statement).validate()


def test_an_unknown_format(locked, tmp_path):
    with pytest.raises(UsageError, match="`xml` is not one of prml, in-toto"):
        export(locked, "xml", tmp_path)
    assert list(tmp_path.glob("*.xml")) == []
