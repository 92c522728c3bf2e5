"""Fault injection in what phase 2 leaves: comparisons, blinded reads, and the labels that rest on them."""

import json
import re
import shutil

import pytest

from ablation.audit.run import audit_run
from ablation.report.audit_run_page import page, summary
from tests.audit.build import write_verdict
from tests.audit.build_phase2 import make_phase2
from tests.audit.faults import (
    PART,
    at,
    edit_info,
    edit_json,
    edit_rows,
    json_fault,
    line_fault,
    plus,
    rechain,
    remove,
    replaced,
    reseal,
    row_fault,
    set_row,
    some_slow,
    swap,
    write,
)

HELD, NEVER, READ = "evaluations/held-out/N@2", "evaluations/never-used/N@2", "evaluations/held-out/N@2/blind"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phase2") / "study"
    made = make_phase2(folder)
    write_verdict(made)
    made.journal.close()
    return folder


@pytest.fixture
def copied(whole, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path / "runs" / "small", tmp_path / "plans" / "small.yaml"


def section(name, *where, to):
    return json_fault("verdict.json", "sections", name, *where, to=to)


def swap_sides(root):
    for item in (content := json.loads((root / READ / "key.json").read_bytes()))["items"]:
        item["X"], item["Y"] = item["Y"], item["X"]
    (root / READ / "key.json").write_text(json.dumps(content, sort_keys=True, indent=2) + "\n")


PLAIN = {
    "token id": (row_fault(f"{HELD}/subject", set_row(3, token_ids=at(2, 1))), f"{HELD}/subject/{PART}: was changed after"),
    "seed": (row_fault(f"{HELD}/subject", set_row(0, seed=plus(1))), r"rollout h0@low #0 has seed \d+; the function gives"),
    "measures": (
        json_fault(f"{HELD}/subject/measures.json", "correct", to=plus(1)),
        "measures.json: correct is 17; the rollouts give 16",
    ),
    "grade": (json_fault(f"{HELD}/subject/grades.json", "rollouts", 0, "status", to="incorrect"), "is stored as `incorrect`"),
    "measures of agent turns": (
        json_fault("evaluations/agent/N@4/subject/measures.json", "valid_tool_call", to=plus(1)),
        "measures.json: valid_tool_call is 1; the rollouts give 0",
    ),
    "measures of safety answers": (
        json_fault("evaluations/safety/N@4/reference/measures.json", "missing_answer", to=plus(1)),
        "measures.json: missing_answer is 2; the rollouts give 1",
    ),
    "the two models swapped": (
        swap(f"{HELD}/subject", f"{HELD}/reference"),
        "holds the rollouts of main/start held-out 0: they were moved",
    ),
    "the reference removed": (
        remove(f"{HELD}/reference"),
        "tells that evaluations/held-out/N@2/reference was sampled; it is not there",
    ),
    "a comparison of no arm": (
        lambda root: shutil.copytree(root / HELD, root / "evaluations/held-out/Z@2"),
        "Z@2: is no comparison",
    ),
    "a comparison on no set": (
        lambda root: shutil.copytree(root / HELD, root / "evaluations/other/N@2"),
        "other/N@2: is no comparison",
    ),
    "a gold of the set": (
        replaced("evaluations/held-out/problems.jsonl", b'"gold": "3"', b'"gold": "4"'),
        "evaluations/held-out/problems.jsonl: is not the file that the plan was locked with",
    ),
    "a state of the agent": (replaced("evaluations/agent/states.jsonl", b"task-1", b"task-2"), "states.jsonl: is not the file"),
    "a safety prompt": (replaced("evaluations/safety/prompts.jsonl", b"Ask 0", b"Ask 9"), "prompts.jsonl: is not the file"),
    "record: correct": (
        json_fault(f"{HELD}/evaluation.json", "correct", "subject", to=17),
        "evaluation.json: correct.subject is 17; .* 16",
    ),
    "record: drift": (
        json_fault("evaluations/held-out/N@4/evaluation.json", "drift", 0, "identical", to=23),
        r"evaluation.json: drift\[0\].identical is 23; the rollouts give 24",
    ),
    "record: deviations": (json_fault(f"{HELD}/evaluation.json", "deviations", to=[1]), r"evaluation.json: deviations is \[1\]"),
    "record removed": (
        remove(f"{HELD}/evaluation.json"),
        "tells of evaluations/held-out/N@2/evaluation.json, which is not there",
    ),
    "a rating": (
        replaced(f"{READ}/ratings/anna.jsonl", b'"same_answer": true', b'"same_answer": false'),
        "anna.jsonl:1: is not a line of a ratings file",
    ),
    "a rating removed": (
        line_fault(f"{READ}/ratings/anna.jsonl", lambda lines: lines[:-1]),
        "anna.jsonl: has 3 ratings that are not the 4",
    ),
    "ratings in another order": (
        line_fault(f"{READ}/ratings/ben.jsonl", lambda lines: lines[::-1]),
        "ben.jsonl:1: the chain is broken here",
    ),
    "a rater more": (
        write(f"{READ}/ratings/cleo.jsonl", f"{READ}/ratings/anna.jsonl"),
        "cleo.jsonl: has 4 ratings that are not the 0",
    ),
    "a rater's file removed": (remove(f"{READ}/ratings/ben.jsonl"), "ben.jsonl: has 0 ratings that are not the 4"),
    "key: whose is whose": (swap_sides, "key.json: is not the file that the journal tells of .the commitment from before"),
    "key removed": (remove(f"{READ}/key.json"), "key.json: is not there, and the journal tells of it"),
    "text of a pair": (replaced(f"{READ}/pairs.json", b"20 2", b"21 2"), "pairs.json: is not the file that the journal tells of"),
    "page of the pairs": (
        write(f"{READ}/pairs.html", b"<p>another</p>"),
        "pairs.html: is not the file that the journal tells of",
    ),
    "result": (json_fault(f"{READ}/result.json", "passes", to=4), "result.json: passes is 4; ratings and key give 3"),
    "a read that nobody sealed": (
        lambda root: shutil.copytree(root / READ, root / "evaluations/held-out/N@4/blind"),
        "held-out/N@4/blind: is there, and the journal tells of no sealing",
    ),
    "labels: a rating": (
        replaced("evaluations/safety/N@4/blind/ratings/anna.jsonl", b'"refused"', b'"partial_compliance"'),
        "is not a line of a ratings file",
    ),
    "verdict: label of a section": (
        section("held_out", "bare_label", to="NO_WIN"),
        "held_out of N@2: label is `NO_WIN`; this audit finds `WIN_VERIFIED`",
    ),
    "verdict: number of a rule": (
        section("held_out", "rules", 0, "value", to=2),
        "held_out of N@2: kept.value is 2; this audit finds 1",
    ),
    "verdict: end of a change": (section("held_out", "rules", 2, "value", to=-1), "held_out of N@2: surely_kept.value is -1"),
    "verdict: a guard": (
        section("release", "rules", 0, "holds", to=False),
        "release of N@4: few_looping.holds is False; this audit finds True",
    ),
    "verdict: the read": (section("held_out", "blinded_read", "passes", to=4), "blinded_read.passes is 4; this audit finds 3"),
    "verdict: the selected": (section("selection", "subject", to="N@3"), "selection is of N@3"),
    "verdict: measures of a set": (
        section("held_out", "compared", 0, "subject_measures", "correct", to=17),
        "held-out: subject_measures.correct is 17",
    ),
    "verdict: label of a claim": (
        json_fault("verdict.json", "claims", 0, "subjects", 0, "label", to="SHOWN"),
        "shorter of N: label is `SHOWN`; this audit finds `NOT_SHOWN`",
    ),
    "verdict: p of a claim": (
        json_fault("verdict.json", "claims", 4, "subjects", 0, "adjusted_p", to=0.5),
        "recipe of N: adjusted_p is 0.5",
    ),
    "verdict: a section left out": (
        lambda root: edit_json(root / "verdict.json", lambda content: content["sections"].pop("main") and None),
        "has the sections .*; the plan has .*main",
    ),
    "ledger: cut before the sets": (
        line_fault("../ledger.jsonl", lambda lines: lines[:-1]),
        "has no mark that the problems of evaluations/held-out/N@4/subject were",
    ),
}
"""Kind of edit -> (the edit, what the audit says)."""


@pytest.mark.parametrize("kind", some_slow(PLAIN))
def test_a_plain_edit_is_found_and_named(copied, kind):
    root, plan = copied
    change, expected = PLAIN[kind]
    change(root)
    found = audit_run(root, plan=plan)
    assert found.exit_code == 3
    assert any(re.search(expected, line) for line in found.found.differences), found.found.differences
    assert page(found) and summary(found).startswith("DIFFERS")


def rated_otherwise(root):
    """Anna does not let the first pair pass, chain and journal made good."""
    rechain(root / READ / "ratings" / "anna.jsonl", lambda lines: lines[0]["values"].update(same_method=False), "number", 1)


def a_day_later(records):
    """The never-used problems of the subject were sampled 30 hours after those of the start."""
    for record in records:
        if record.get("stage") == f"{NEVER}/subject":
            record["time"] = record["time"].replace(record["time"][:10], f"{int(record['time'][:4]) + 1}{record['time'][4:10]}")


def before_unsealing(records):
    """The never-used problems were begun before the key was opened."""
    place = next(i for i, one in enumerate(records) if one["event"] == "evaluation_opened" and one["set"] == "never-used")
    unsealed = next(i for i, one in enumerate(records) if one["event"] == "blind_unsealed")
    records.insert(unsealed, records.pop(place))


def rated_after(records):
    """A rating came after the key was opened."""
    place = next(i for i, one in enumerate(records) if one["event"] == "blind_rated" and one["rater"] == "ben")
    unsealed = next(i for i, one in enumerate(records) if one["event"] == "blind_unsealed")
    records.insert(unsealed, records.pop(place))


FORGED = {
    "a rating": (rated_otherwise, None, "result.json: passes is 3; ratings and key give 2"),
    "sides of the key": (swap_sides, None, "which answer is whose does not come out of the rollouts"),
    "an answer of a pair": (
        lambda root: edit_json(root / READ / "pairs.json", lambda content: content["pairs"][0]["X"].update(answer="8")),
        None,
        "pairs.json: item 1: X is not what the model wrote|batch_sha256",
    ),
    "a wrong answer": (
        row_fault(f"{HELD}/subject", set_row(0, finish_reason="length")),
        None,
        "h0@low #0 has finish reason `length`",
    ),
    "another adapter": (
        lambda root: edit_info(root / HELD / "subject", adapter_sha256="0" * 64),
        None,
        "was sampled with another adapter than main/N/readout",
    ),
    "another start": (
        lambda root: edit_info(root / HELD / "reference", adapter_sha256="0" * 64),
        None,
        "was sampled with another adapter than main/start/sweep",
    ),
    "another prompt": (
        row_fault(f"{HELD}/subject", set_row(0, prompt_sha256="0" * 64)),
        None,
        "has another prompt than in evaluations/held-out/N@2/reference",
    ),
    "another day": (lambda root: None, a_day_later, r"never_used of N@2: wrong is \[\]; this audit finds \['NOT_THE_SAME_DAY'\]"),
    "begun before unsealing": (lambda root: None, before_unsealing, r"wrong is \[\]; this audit finds \['GATE_WAS_SHUT'\]"),
    "rated after unsealing": (lambda root: None, rated_after, "held-out/N@2/blind: was rated after the key was opened"),
}
"""The same where every digest in the run folder was made good: (edit of files, of the journal's events, what the audit says)."""


@pytest.mark.parametrize("kind", some_slow(FORGED))
def test_a_forged_edit_is_seen_from_the_content(copied, kind):
    root, plan = copied
    change, events, expected = FORGED[kind]
    change(root)
    reseal(root, events or (lambda records: None))
    found = audit_run(root, plan=plan)
    assert found.exit_code == 3
    assert any(re.search(expected, line) for line in found.found.differences), found.found.differences


def test_untouched_and_resealed(copied):
    root, plan = copied
    found = audit_run(root, plan=plan)
    assert found.found.differences == [] and found.found.missing == [] and summary(found).startswith("AGREES")
    labels = {name: label for name, label in found.labels.items() if "/" not in name}
    assert labels == {
        "replication": "REPLICATED",
        "held_out N@2": "WIN_VERIFIED",
        "held_out N@4": "WIN_UNVERIFIED",
        "never_used N@2": "CONFIRMED",
        "selection N@4": "SELECTED",
        "main N@4": "WIN",
        "release N@4": "UNDECIDED",
        "claim shorter: N": "NOT_SHOWN",
        "claim shorter: X": "NOT_SHOWN",
        "claim steadier: N": "NOT_SHOWN",
        "claim steadier: C": "NOT_SHOWN",
        "claim likelier: X": "NOT_SHOWN",
        "claim longer: N": "NOT_SHOWN",
        "claim recipe: N": "UNDECIDED",
    }
    reseal(root)
    assert audit_run(root, plan=plan).exit_code == 0


def test_a_comparison_that_was_begun_is_missing(copied):
    root, plan = copied
    (root / "evaluations/held-out/N@4/subject/stage.json").unlink()
    found = audit_run(root, plan=plan)
    assert any(line.startswith("evaluations/held-out/N@4/subject") for line in found.found.missing)
    edit_rows(root / HELD / "subject", lambda rows: rows[:-1])
    reseal(root)
    assert any("evaluations/held-out/N@2/subject: 1 of 24 rollouts" in line for line in audit_run(root, plan=plan).found.missing)
