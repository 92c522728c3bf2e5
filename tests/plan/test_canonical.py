from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from ablation.plan.canonical import canonical_bytes, canonical_tree, plan_digest
from ablation.plan.load import parse_plan
from ablation.plan.resolved import resolved_yaml
from ablation.plan.section import Section
from tests.plan.conftest import OWN_TABLE, with_table

PLANS = Path(__file__).parents[2] / "plans"


def plan(text: str):
    return parse_plan(Path("x.yaml"), text.encode()).plan


def test_layout_comments_and_quotes_do_not_move_the_digest(plan_text):
    digest = plan_digest(plan(plan_text))
    for other in (
        plan_text + "# a comment\n\n",
        plan_text.replace("\n", "\r\n"),
        "\ufeff" + plan_text,
        plan_text.replace("name: small", "name: 'small'"),
        plan_text.replace("{seed: 1}", "{\n    seed: 1}"),
        plan_text.replace("limit: -21", "limit: -21.0"),
        plan_text.replace("beta: 0.05", "beta: 5e-2"),
        plan_text.replace("{max_tokens: 200}", "{temperature: 1, top_p: 1.0, max_tokens: 200}"),  # defaults written out
        plan_text.replace("{weighting: token}", "{kl: null, weighting: token}"),
        plan_text.replace("name: small\nquestion: Does it work?", "question: Does it work?\nname: small"),
    ):
        assert plan_digest(plan(other)) == digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("limit: -21", "limit: -22"),
        ("seed: 1}", "seed: 3}"),
        ("question: Does it work?", "question: Does it work"),
        ("beta: 0.05", "beta: 0.05000001"),
        ("{weighting: rollout}", "{weighting: rollout, note: x}"),
        ("max_tokens: 200", "max_tokens: 200, top_k: 1"),
        ("low: [p00, p01,", "low: [p01, p00,"),
    ],
)
def test_any_value_moves_the_digest(plan_text, old, new):
    assert old in plan_text
    assert plan_digest(plan(plan_text.replace(old, new, 1))) != plan_digest(plan(plan_text))


def test_the_order_of_arms_families_and_efforts_moves_the_digest(plan_text):
    arms = re.search(r"  N: .*\n  XK: .*\n", plan_text)[0]
    swapped = "".join(reversed(arms.splitlines(keepends=True)))
    efforts = re.search(r"    low: .*\n    medium: .*\n", plan_text)[0]
    for old, new in ((arms, swapped), (efforts, "".join(reversed(efforts.splitlines(keepends=True))))):
        assert plan_digest(plan(plan_text.replace(old, new))) != plan_digest(plan(plan_text))


def test_digest_is_sha256_of_rfc_8785(plan_text):
    """RFC 8785 for a tree without exotic numbers is sorted, compact JSON; numbers are checked by hand."""
    tree = canonical_tree(plan(plan_text))
    data = canonical_bytes(tree)
    assert plan_digest(plan(plan_text)) == hashlib.sha256(data).hexdigest()
    assert list(json.loads(data)) == sorted(tree)
    assert b'"learning_rate":0.00002,' in data  # ECMAScript's form of 2e-5
    assert b'"eps":1e-8,' in data
    assert b'"temperature":1,' in data
    assert b'"order":{"arms":["C","N","XK"],"families":["main","replication"],' in data


def test_a_later_field_is_in_the_form_only_with_another_value_than_its_default():
    class Part(Section):
        later = frozenset({"new"})
        old: int = 1
        new: int = 2

    assert canonical_tree(Part()) == canonical_tree(Part(new=2)) == {"old": 1, "order": {}}
    assert canonical_tree(Part(new=3)) == {"old": 1, "new": 3, "order": {}}


def test_seeds_beyond_2_to_53_keep_all_digits(plan_text):
    def digest(seed: int) -> str:
        return plan_digest(plan(plan_text.replace("seed: 2}", f"seed: {seed}}}")))

    assert digest(2**63 - 1) != digest(2**63 - 2)
    tree = canonical_tree(plan(plan_text.replace("seed: 2}", f"seed: {2**53}}}")))
    assert tree["families"]["replication"]["seed"] == "9007199254740992"


def test_resolved_yaml_reads_back_to_the_same_plan(plan_text):
    for text in ((PLANS / "tessera.yaml").read_text(), plan_text, with_table(OWN_TABLE)):
        before = plan(text)
        again = plan(resolved_yaml(before))
        assert again == before
        assert plan_digest(again) == plan_digest(before)
        assert resolved_yaml(again) == resolved_yaml(before)


def test_resolved_rows_of_tables_have_no_nulls():
    lines = resolved_yaml(plan(with_table(OWN_TABLE))).split("\n")
    place = lines.index("    table:")
    assert lines[place + 1] == '      - {"label": "INCONCLUSIVE", "when": {"reason": "CONTROL_NOT_DAMAGED"}}'
    assert lines[place + 3] == '      - {"label": "REPLICATED"}'
    assert "null" in resolved_yaml(plan(with_table(OWN_TABLE)))  # of fields that are not conditions
