import pytest

from ablation.errors import UsageError
from ablation.plan.load import PlanError, load_plan, parse_plan
from ablation.plan.phase2 import EvaluationSet, evaluation_family, evaluation_sets, guard_set
from ablation.plan.resources import Resource
from ablation.plan.tables import labels_of, rows_of
from tests.plan.conftest import TEXT, write_plan

FILE = '{at: x.jsonl, sha256: "' + "0" * 64 + '"}'
REPLICATION = "  replication: {control: C, family: replication}\n"
RULE = "{name: kept, measure: correct, compare: change, op: '>=', limit: -8}"
HELD_OUT = f"  held_out: {{rollouts: 144, rules: [{RULE}], blinded_read: {{pairs: 12, passes: 10}}, problems: {FILE}}}\n"
NEVER = f"  never_used: {{rollouts: 72, rules: [{RULE}], efforts: [xhigh], problems: {FILE}}}\n"
GUARD = "{name: turn, measure: agent_turn, compare: ratio, op: '<=', limit: 1.25}"
AGENT = f"agent: {{states: {FILE}, rollouts_per_state: 4}}"


def with_verdict(more: str, replication: str = REPLICATION) -> str:
    assert TEXT.count(REPLICATION) == 1
    return TEXT.replace(REPLICATION, replication + more)


def faults(text: str, tmp_path) -> list[str]:
    with pytest.raises(PlanError) as caught:
        parse_plan(tmp_path / "plan.yaml", text.encode())
    return [line.split(": ", 1)[1] for line in caught.value.lines()]


def test_sets_by_name(tmp_path):
    plan = load_plan(write_plan(tmp_path, with_verdict(HELD_OUT + NEVER + f"  release: {{guards: [{GUARD}], {AGENT}}}\n"))).plan
    sets = evaluation_sets(plan)
    assert list(sets) == ["held-out", "never-used", "agent"]
    assert sets["held-out"].efforts == ("low", "medium", "xhigh") and sets["never-used"].efforts == ("xhigh",)
    assert sets["held-out"].per_cell(24) == 2 and sets["never-used"].per_cell(24) == 3 and sets["agent"].per_cell(5) == 4
    assert evaluation_family(plan) == "main"
    assert guard_set(plan.verdict.release.guards[0]) == "agent"


def test_rollouts_that_cannot_be_dealt_evenly():
    one = EvaluationSet("held-out", "verdict.held_out.problems", Resource(at="x", owed="later"), ("low", "xhigh"), 144, 1)
    with pytest.raises(UsageError, match="144 rollouts cannot be dealt over 25 problems at 2 efforts"):
        one.per_cell(25)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (f"  release: {{guards: [{GUARD}]}}\n", None),
        (
            f"  release: {{guards: [{GUARD.replace('limit: 1.25', 'limit: 1.25, on: main')}], {AGENT}}}\n",
            "verdict.release.guards[0].on: `agent_turn` is measured on `agent` alone",
        ),
        (
            f"  release: {{guards: [{RULE.replace('limit: -8', 'limit: -8, on: agent')}], {AGENT}}}\n",
            "verdict.release.guards[0].on: `correct` is not measured on `agent`",
        ),
        (
            f"  release: {{guards: [{RULE.replace('limit: -8', 'limit: -8, on: held_out')}]}}\n",
            "verdict.release.guards[0].on: the plan has no set `held_out`",
        ),
        (
            f"  held_out: {{rollouts: 144, rules: [{GUARD}], blinded_read: {{pairs: 12, passes: 10}}}}\n",
            "verdict.held_out.rules[0].measure: `agent_turn` is measured for a release's guards alone; known here: cjk_share, "
            "tokens_per_correct, clean_length, jointly_correct_length",
        ),
        (
            "  claims: {better: {subjects: [N, Y], reference: C, measure: clean, side: greater}}\n",
            "verdict.claims.better.subjects[1]: there is no arm `Y`; arms: C, N, XK",
        ),
        (
            "  claims: {better: {subjects: [N], reference: C, measure: clean, side: greater, method: welch}}\n",
            "verdict.claims.better.families: `welch` compares training seeds, so it needs two families or more",
        ),
        (
            "  claims: {better: {subjects: [N], reference: N, measure: clean, side: greater}}\n",
            "verdict.claims.better.subjects[0]: `N` is the reference",
        ),
        ("  claims: {better: {subjects: [N], reference: start, measure: clean, side: greater}}\n", None),
    ],
)
def test_between_sections(tmp_path, more, expected):
    if expected is None:
        assert parse_plan(tmp_path / "plan.yaml", with_verdict(more).encode()).plan
    else:
        assert faults(with_verdict(more), tmp_path) == [expected]


def table(rows: str) -> str:
    return f"  replication: {{control: C, family: replication, table: [{rows}]}}\n"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("{label: REPLICATED}", None),
        ("{label: OPEN, when: {reason: STOPPED}}, {label: REPLICATED}", None),
        (
            "{label: REPLICATED}, {label: OPEN}",
            "[0]: is always true, so the rows after it can never decide; `when` is missing",
        ),
        (
            "{label: REPLICATED, when: {reason: STOPPED}}",
            "[0].when: the last row decides what no other row does, so it has no condition",
        ),
        (
            "{label: OPEN, when: {reason: STOPED}}, {label: REPLICATED}",
            "[0].when.reason: `STOPED` is no reason; there are: CONTROL_NOT_DAMAGED, NO_STABLE_ARM, NOT_STABLE_AGAIN, STOPPED; "
            "did you mean `STOPPED`?",
        ),
        (
            "{label: OPEN, when: {any: [{rule: x}]}}, {label: REPLICATED}",
            "[0].when.any[0].rule: `x` is no rule of this section; there is none here",
        ),
        ("{label: UNDECIDED}", ": no row says `REPLICATED`, and phase 2 needs it"),
        (
            "{label: OPEN, when: {reason: STOPPED, rules: all}}, {label: REPLICATED}",
            "[0].when: found `rules` and `reason`; a condition is exactly one of all, any, none, rule, rules, reason, or of with label",
        ),
        (
            "{label: OPEN, when: {}}, {label: REPLICATED}",
            "[0].when: found nothing; a condition is exactly one of all, any, none, rule, rules, reason, or of with label",
        ),
        (
            "{label: OPEN, when: {of: held_out}}, {label: REPLICATED}",
            "[0].when.label: is missing: `of` and `label` go together, as in {of: blinded_read, label: PASSED}",
        ),
    ],
)
def test_tables(tmp_path, rows, expected):
    text = with_verdict(HELD_OUT, table(rows))
    if expected is None:
        assert parse_plan(tmp_path / "plan.yaml", text.encode()).plan
    else:
        assert f"verdict.replication.table{expected}" in faults(text, tmp_path)


def test_labels_that_cannot_be(tmp_path):
    rows = "{label: WIN_VERIFIED, when: {of: blinded_read, label: PASED}}, {label: NO_WIN}"
    text = with_verdict(HELD_OUT.replace("rollouts: 144", f"rollouts: 144, table: [{rows}]"))
    assert faults(text, tmp_path) == [
        "verdict.held_out.table[0].when.label: `blinded_read` can be PASSED, FAILED, UNDECIDED, NOT_RUN, not `PASED`; did you mean `PASSED`?"
    ]


def test_the_library_is_the_studys():
    assert labels_of("replication", "study") == ["NOT_REPLICATED", "REPLICATED"]
    assert labels_of("held_out", "study") == ["NO_WIN", "WIN_VERIFIED", "WIN_UNVERIFIED"]
    assert labels_of("never_used", "study") == ["CONFIRMED", "NOT_CONFIRMED"]
    assert labels_of("release", "study") == ["NO_RELEASE", "RELEASE"]
    for section in ("replication", "held_out", "never_used", "main", "release"):
        rows = rows_of(section, "study")
        assert rows[-1].when is None and all(row.when is not None for row in rows[:-1])
