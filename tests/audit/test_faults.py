"""Fault injection: one edit of a finished run after the other, each found and named by the audit, none ending in a traceback."""

import json
import re
import shutil
from pathlib import Path

import pytest

from ablation.audit.run import audit_run
from ablation.report.audit_run_page import page, summary
from tests.audit.faults import (
    CHECK,
    PART,
    READOUT,
    SWEEP,
    UPDATE,
    at,
    edit_json,
    json_fault,
    line_fault,
    plus,
    remove,
    replaced,
    row_fault,
    set_row,
    some_slow,
    swap,
    swap_lines,
    write,
)


def relock(root: Path, time: str) -> None:
    """The plan's own lock is another one than the run began with: locked anew at another time."""
    beside = root.parents[1] / "plans" / "small.lock"
    edit_json(beside, lambda content: content["locked"].update(utc=time))


PLAIN = {
    # rollouts
    "token id": (row_fault(READOUT, set_row(3, token_ids=at(2, 1))), f"{READOUT}/{PART}: was changed after it was sampled"),
    "logprob": (row_fault(UPDATE, set_row(0, logprobs=at(0, -1e-9))), f"{UPDATE}/{PART}: was changed after it was sampled"),
    "seed": (row_fault(SWEEP, set_row(1, seed=plus(1))), r"main/start/sweep: rollout p0@low #1 has seed \d+; the function gives"),
    "finish reason": (
        row_fault(SWEEP, set_row(0, finish_reason="length")),
        r"#0 has finish reason `length`, 15 tokens of 64 and an end",
    ),
    "answer text": (row_fault(READOUT, set_row(0, answer_text="9")), "the same token ids have another answer_text elsewhere"),
    "problem of a rollout": (
        row_fault(READOUT, set_row(0, problem="p5")),
        "is not one that the plan asks for here|is there 2 times",
    ),
    "entropies are one too few": (
        row_fault(READOUT, set_row(0, top_entropy=lambda own: own[1:])),
        "another number of `top_entropy`",
    ),
    "swapped parts": (swap(f"{READOUT}/{PART}", f"{READOUT}/part-001.parquet"), f"{READOUT}/{PART}: was changed"),
    "a part removed": (remove(f"{READOUT}/{PART}"), f"{PART}: is named in stage.json but is not there"),
    "a part added": (write(f"{READOUT}/part-002.parquet", f"{READOUT}/{PART}"), "part-002.parquet: is not named in stage.json"),
    "a part cut short": (write(f"{READOUT}/{PART}", b"PAR1"), f"{PART}: cannot be read as what it should be"),
    # stages
    "count in stage.json": (json_fault(f"{SWEEP}/stage.json", "rollouts", to=23), "rollouts is 23; the parts have 24"),
    "temperature": (
        json_fault(f"{SWEEP}/stage.json", "info", "sampling", "temperature", to=0.5),
        "sampled with temperature 0.5; the plan",
    ),
    "backend": (
        json_fault(f"{SWEEP}/stage.json", "info", "engine", "name", to="vllm"),
        "was sampled by the backend 'vllm'; the plan allows local",
    ),
    "cap": (json_fault(f"{READOUT}/stage.json", "info", "max_tokens", to=65), "sampled with the cap 65; the plan says 64"),
    "stage.json is no JSON": (write(f"{READOUT}/stage.json", b"{"), f"{READOUT}: cannot be read as what it should be"),
    "stage.json removed": (remove(f"{READOUT}/stage.json"), "tells that main/N/readout was sampled; it is not there"),
    "a stage removed": (remove("main/X/readout"), "tells that main/X/readout was sampled; it is not there: it was removed"),
    "two readouts swapped": (
        swap("main/N/readout", "main/C/readout"),
        "holds the rollouts of main/C readout 2: they were moved here",
    ),
    "a stage of no arm": (
        lambda root: shutil.copytree(root / "main/N", root / "main/Z"),
        "main/Z/readout: is no stage that the plan has",
    ),
    "an update too many": (
        lambda root: shutil.copytree(root / "main/N/update-2", root / "main/N/update-5"),
        "main/N/update-5: is no stage that the plan has",
    ),
    # measures, grades, audits, checks
    "clean off by one": (
        json_fault(f"{READOUT}/measures.json", "clean", to=plus(1)),
        "measures.json: clean is 14; the rollouts give 13",
    ),
    "a mean of one effort": (
        json_fault("main/C/update-1/measures.json", "by_effort", "low", "logprob", to=plus(1e-6)),
        "measures.json: by_effort.low.logprob is",
    ),
    "a measure left out": (
        lambda root: edit_json(root / SWEEP / "measures.json", lambda content: content.pop("correct") and None),
        "measures.json: correct is None; the rollouts give 12",
    ),
    "measures of an effort more": (
        lambda root: edit_json(root / SWEEP / "measures.json", lambda content: content["by_effort"].update(xhigh={})),
        "measures.json: by_effort has low, medium, xhigh; the rollouts have low, medium",
    ),
    "measures are a list": (write(f"{SWEEP}/measures.json", b"[]"), "measures.json:.* is \\[\\]"),
    "a grade": (
        json_fault(f"{READOUT}/grades.json", "rollouts", 2, "status", to="incorrect"),
        r"grades.json: rollout p1@low #0 is stored as `incorrect` \('1'\); the answer is `correct` \('1'\)",
    ),
    "an extracted answer": (
        json_fault(f"{READOUT}/grades.json", "rollouts", 2, "extracted", to="7"),
        r"is stored as `correct` \('7'\)",
    ),
    "grades in another order": (
        lambda root: edit_json(root / READOUT / "grades.json", lambda content: content["rollouts"].reverse()),
        "its rollouts are not those of the stage, in their order",
    ),
    "grades of another stage": (write(f"{READOUT}/grades.json", f"{SWEEP}/grades.json"), "grades.json: stage_sha256 is"),
    "grades removed": (remove(f"{READOUT}/grades.json"), "tells of the grades in main/N/readout/grades.json, which is not there"),
    "share of an audit": (
        json_fault(f"{UPDATE}/audit.json", "weights", "negative_share", to=plus(0.01)),
        "audit.json: weights.negative_share is",
    ),
    "net weight of a source": (
        json_fault(f"{UPDATE}/audit.json", "weights", "by_source", "sums", "net_weight", to=plus(0.5)),
        "weights.by_source.sums.net_weight is",
    ),
    "s0": (json_fault(f"{UPDATE}/audit.json", "s0", to=20.0), "audit.json: s0 is 20.0; the rollouts give"),
    "learning rate": (
        json_fault(f"{UPDATE}/audit.json", "learning_rate", to=0.1),
        "learning_rate is 0.1; the rollouts give 0.001",
    ),
    "mean reward": (json_fault(f"{UPDATE}/audit.json", "reward_mean", to=plus(0.1)), "audit.json: reward_mean is"),
    "stop metric": (
        json_fault(f"{UPDATE}/audit.json", "metrics", "logprob", to=-1.5),
        "stop rule `logprob_fell` holds at update 2",
    ),
    "an audit removed": (remove(f"{UPDATE}/audit.json"), "main/C/update-2, whose audit.json is not there"),
    "label of a check": (
        json_fault(f"{CHECK}/check.json", "label", to="DAMAGED"),
        "check.json: label is `DAMAGED`; the rollouts give `STABLE`",
    ),
    "a check is eligible": (json_fault(f"{CHECK}/check.json", "eligible", to=False), "check.json: eligible is False"),
    "number of a check": (
        json_fault(f"{CHECK}/check.json", "rules", 0, "value", to=1),
        "check.json: clean_lost.value is 1; the rollouts give 0",
    ),
    "a stop that was none": (
        write("main/X/stopped.json", b'{"rule": "logprob_fell", "update": 2}'),
        "does not tell of main/X/stopped.json",
    ),
    # journal, deviations, ledger
    "journal: a line edited": (
        line_fault("journal.jsonl", lambda lines: lines.__setitem__(5, lines[5].replace(b"2", b"3", 1))),
        "journal.jsonl:6: ",
    ),
    "journal: a line removed": (
        line_fault("journal.jsonl", lambda lines: lines.pop(7) and None),
        "journal.jsonl:8: the chain is broken here",
    ),
    "journal: two lines swapped": (line_fault("journal.jsonl", swap_lines), "journal.jsonl:11: the chain is broken here"),
    "journal: a line twice": (
        line_fault("journal.jsonl", lambda lines: lines.insert(4, lines[4])),
        "journal.jsonl:6: the chain is broken here",
    ),
    "journal: cut": (
        line_fault("journal.jsonl", lambda lines: lines[:-3]),
        "verdict.json was written when it had .*: its tail was cut off",
    ),
    "journal: not text": (
        line_fault("journal.jsonl", lambda lines: lines.__setitem__(3, b"\xff\xfe")),
        "journal.jsonl:4: is not a line",
    ),
    "journal: removed": (remove("journal.jsonl"), "journal.jsonl: is not there"),
    "deviation edited": (replaced("deviations.jsonl", b"opens nothing", b"opens plenty"), "deviations.jsonl:1: "),
    "deviations removed": (remove("deviations.jsonl"), "deviations.jsonl: has 0 deviations, but the journal tells of 1"),
    "ledger: a line edited": (
        replaced("../ledger.jsonl", b'"trained"', b'"sampled"'),
        r"ledger.jsonl:\d+: is not a line of a ledger",
    ),
    "ledger: cut": (
        line_fault("../ledger.jsonl", lambda lines: lines[:-1]),
        "has no mark that the problems of main/N/check-4 were evaluated",
    ),
    # plan and problems
    "plan: a limit": (
        replaced("plan.yaml", b'"limit": -3', b'"limit": -2'),
        "plan.yaml: is not byte for byte the plan that was locked",
    ),
    "plan: a comment": (replaced("plan.yaml", b"{", b"# fine\n{"), "plan.yaml: is not byte for byte the plan that was locked"),
    "lock: a limit": (replaced("plan.lock", b'"limit": -3', b'"limit": -2'), "plan.lock: digest is"),
    "lock: its digest": (json_fault("plan.lock", "lock_sha256", to="0" * 64), "plan.lock: lock_sha256 is"),
    "lock: white space": (replaced("plan.lock", b"{\n", b"{ \n"), "its layout is not the one that a lock is written with"),
    "lock: removed": (remove("plan.lock"), "plan.lock: is not there, so nothing says what was promised"),
    "lock: no plan in it": (json_fault("plan.lock", "plan", to={}), "plan.lock: "),
    "plan locked again": (lambda root: relock(root, "2030-01-01T00:00:00+00:00"), "plan.lock: is not the lock of"),
    "a gold": (
        replaced("problems.jsonl", b'"gold": "3"', b'"gold": "4"'),
        "problems.jsonl: is not the file of training problems",
    ),
    # verdict and checkpoints
    "verdict: headline": (
        json_fault("verdict.json", "bare_label", to="NOT_REPLICATED"),
        "verdict.json: bare_label is `NOT_REPLICATED`; this audit finds `REPLICATED`",
    ),
    "verdict: label without its deviation": (
        json_fault("verdict.json", "label", to="REPLICATED"),
        r"label is `REPLICATED`; .* \(deviation 1\)`",
    ),
    "verdict: label of an arm": (
        json_fault("verdict.json", "arms", 0, "label", to="STABLE"),
        "main/C: label is `STABLE`; this audit finds `DAMAGED`",
    ),
    "verdict: number of a rule": (
        json_fault("verdict.json", "arms", 0, "rules", 0, "value", to=-4),
        "clean_lost.value is -4; this audit finds -5",
    ),
    "verdict: a rule holds": (
        json_fault("verdict.json", "arms", 1, "rules", 0, "holds", to=True),
        "clean_lost.holds is True; this audit finds False",
    ),
    "verdict: end of an interval": (
        json_fault("verdict.json", "arms", 1, "ratios", "tokens_per_correct", "high", to=plus(0.001)),
        "main/N: ratios.tokens_per_correct.high is",
    ),
    "verdict: a sweep": (
        json_fault("verdict.json", "sweeps", "main", "clean", to=11),
        "sweeps.main.clean is 11; this audit finds 12",
    ),
    "verdict: range of an audit": (
        json_fault("verdict.json", "audits", "main/C", "negative_share", 1, to=0.9),
        r"audits.main/C.negative_share\[1\] is 0.9; this audit finds",
    ),
    "verdict: stable arm": (json_fault("verdict.json", "stable_arm", to="X"), "stable_arm is `X`; this audit finds `N`"),
    "verdict: reasons": (json_fault("verdict.json", "reasons", to=[]), "verdict.json: reasons is"),
    "verdict: an arm left out": (
        json_fault("verdict.json", "arms", to=lambda arms: arms[1:]),
        "main/C has a result and no place in it",
    ),
    "verdict: its journal": (
        json_fault("verdict.json", "journal", "head", to="0" * 64),
        "is not the one that verdict.json names",
    ),
    "verdict: no object": (write("verdict.json", b"null"), "verdict.json: cannot be read as what it should be"),
    "checkpoint: weights": (
        replaced(f"{UPDATE}/checkpoint/adapter_model.safetensors", b"\x00\x00\x08\x43", b"\x00\x00\x09\x43"),
        "adapter_model.safetensors: was changed after the checkpoint was saved",
    ),
    "checkpoint: another one": (
        swap("main/C/update-1/checkpoint", "main/C/update-2/checkpoint"),
        "main/C/readout: was sampled with another adapter than the one in .*main/C/update-2/checkpoint",
    ),
    "checkpoint: a file added": (
        write(f"{UPDATE}/checkpoint/more", b"x"),
        "more: is in the checkpoint and not in its complete.json",
    ),
}
"""Kind of edit -> (the edit, what the audit says)."""


@pytest.mark.parametrize("kind", some_slow(PLAIN))
def test_a_plain_edit_is_found_and_named(copied, kind):
    root, plan = copied("plain")
    change, expected = PLAIN[kind]
    change(root)
    found = audit_run(root, plan=plan)
    assert found.exit_code == 3
    assert any(re.search(expected, line) for line in found.found.differences), found.found.differences
    assert summary(found).startswith("DIFFERS")
    json.dumps(found.as_json(), allow_nan=False)
    assert page(found).isprintable() or "\n" in page(found)
