"""Edits by somebody who made every digest and the journal anew: what the content itself says is found all the same."""

import re
import shutil
from datetime import datetime, timedelta

import pytest

from ablation.audit.run import audit_run
from ablation.report.audit_run_page import summary
from tests.audit.faults import (
    CHECK,
    READOUT,
    SWEEP,
    UPDATE,
    at,
    edit_info,
    edit_json,
    edit_rows,
    json_fault,
    plus,
    rechain,
    replaced,
    reseal,
    row_fault,
    set_row,
    some_slow,
)
from tests.verdict.study import CLOSE, DIGITS, END


def swapped(rows):
    """Two rollouts of two cells change places, but not their names."""
    for name in rows[0]:
        if name not in ("problem", "effort", "index", "source", "prompt_sha256"):
            rows[0][name], rows[2][name] = rows[2][name], rows[0][name]


def longer(rows):
    """A token after the end token."""
    row = rows[0]
    row["token_ids"] = [*row["token_ids"], END]
    for name in ("logprobs", "top_entropy", "top_mass"):
        row[name] = [*row[name], row[name][-1]]


def another_answer(rows):
    """A wrong answer made right, in ids and text."""
    row = next(row for row in rows if row["answer_text"] == "9")
    gold = int(row["problem"][1:])
    place = row["token_ids"].index(CLOSE) + 1
    row["token_ids"][place], row["answer_text"] = DIGITS + gold, str(gold)


def regrade(root):
    edit_rows(root / "main/C/readout", another_answer, "part-001.parquet")


def events_moved(records):
    """The training of update 1 of C comes before its rollouts."""
    trained = next(place for place, one in enumerate(records) if one["event"] == "update_trained")
    sampled = next(place for place, one in enumerate(records) if one.get("stage") == "main/C/update-1")
    records.insert(sampled, records.pop(trained))


def readout_first(records):
    """The readout of N comes before its last update was trained."""
    place = next(i for i, one in enumerate(records) if one["event"] == "stage_sampled" and one["stage"] == READOUT)
    event = records.pop(place)
    trained = next(
        i for i, one in enumerate(records) if one["event"] == "update_trained" and one["arm"] == "main/N" and one["update"] == 2
    )
    records.insert(trained, event)


FORGED = {
    "seed": (row_fault(SWEEP, set_row(1, seed=plus(1))), r"rollout p0@low #1 has seed \d+; the function gives"),
    "a seed twice": (row_fault(SWEEP, lambda rows: rows[1].update(seed=rows[0]["seed"])), r"seed \d+ was used for 2 rollouts"),
    "rollouts change places": (row_fault(READOUT, swapped), r"rollout p1@low #0 has seed \d+; the function gives"),
    "goes on after its end": (row_fault(READOUT, longer), "rollout p0@low #0 goes on after an end token"),
    "an end that was none": (
        row_fault(READOUT, set_row(0, finish_reason="length")),
        "has finish reason `length`, 15 tokens of 64",
    ),
    "one logprob lower": (
        row_fault(READOUT, set_row(0, logprobs=at(0, -3.0))),
        "measures.json: logprob is .*; the rollouts give",
    ),
    "a logprob above zero": (
        row_fault(READOUT, set_row(0, logprobs=at(0, 0.7))),
        r"rollout p0@low #0 has logprobs 0.21, which cannot be",
    ),
    "a mass above one": (row_fault(READOUT, set_row(0, top_mass=at(0, 0.5))), "has top_mass 1.49, which cannot be"),
    "logprobs of nothing": (
        row_fault(READOUT, set_row(0, logprobs=lambda own: [float("nan")] * len(own))),
        "measures.json: logprob is .*; the rollouts give None",
    ),
    "text of an answer": (
        row_fault(READOUT, set_row(0, answer_text="9")),
        "the same token ids have another answer_text elsewhere",
    ),
    "an answer made right": (
        regrade,
        r"grades.json: rollout p0@medium #0 is stored as `incorrect` \('9'\); the answer is `correct` \('0'\)",
    ),
    "a grade": (json_fault(f"{READOUT}/grades.json", "rollouts", 2, "status", to="incorrect"), "is stored as `incorrect`"),
    "source": (row_fault(READOUT, set_row(0, source="sums")), "source is `sums`, its problem's is `products`"),
    "prompt": (
        row_fault(READOUT, set_row(0, prompt_sha256="0" * 64)),
        "has another prompt than in main/start/sweep: the two are not paired",
    ),
    "prompt opens thinking": (
        row_fault(READOUT, set_row(0, prompt_opens_thinking=False)),
        "(?:thinking_text|answer_text) elsewhere|measures.json",
    ),
    "cap": (lambda root: edit_info(root / READOUT, max_tokens=65), "was sampled with the cap 65; the plan says 64"),
    "another plan": (lambda root: edit_info(root / READOUT, plan_digest="e" * 64), "was sampled under another plan"),
    "another adapter": (
        lambda root: edit_info(root / READOUT, adapter_sha256="0" * 64),
        "was sampled with another adapter than the one in",
    ),
    "another start": (
        lambda root: edit_info(root / SWEEP, adapter_sha256="0" * 64),
        "sweeps and first updates were sampled with 2 adapters",
    ),
    "ids of tags": (
        lambda root: edit_info(root / READOUT, think_close_id=7),
        "think_close_id is 7, in main/start/sweep 2: they cannot be compared",
    ),
    "stop id of another token": (
        row_fault(READOUT, lambda rows: rows[0].update(stop_id=4)),
        r"rollout p\d+@\w+ #0 has stop id 4, but its last token is 3",
    ),
    "a repetition penalty": (
        row_fault(READOUT, lambda rows: rows[0].update(sampling=rows[0]["sampling"].replace('penalty":1.0', 'penalty":1.1'))),
        r"has rollouts that were sampled with repetition_penalty 1\.1; it should be 1",
    ),
    "an end token that ended nothing": (
        row_fault(READOUT, lambda rows: rows[0].update(sampling=rows[0]["sampling"].replace('eos":true', 'eos":false'))),
        "sampled with ignore_eos False; it should be True",
    ),
    "a temperature of one row": (
        row_fault(READOUT, lambda rows: rows[0].update(sampling=rows[0]["sampling"].replace('ture":1.0', 'ture":0.6'))),
        r"sampled with temperature 0\.6; it should be 1",
    ),
    "a row of another kind of logprob": (
        row_fault(READOUT, lambda rows: rows[0].update(logprob_kind="processed")),
        "has processed logprobs, the stage raw",
    ),
    "processed logprobs": (lambda root: edit_info(root / READOUT, logprob_kind="processed"), "logprob_kind is 'processed'"),
    "weights of a checkpoint": (
        replaced(f"{UPDATE}/checkpoint/adapter_model.safetensors", b"\x00\x00\x08\x43", b"\x00\x00\x09\x43"),
        "main/C/readout: was sampled with another adapter than the one in",
    ),
    "a readout in the place of another": (
        lambda root: [
            shutil.copytree(root / "main/N/readout", root / "main/C/readout", dirs_exist_ok=True),
            edit_info(root / "main/C/readout", arm="C"),
        ],
        "main/C/readout: was sampled with another adapter than the one in",
    ),
    "share of an audit": (
        json_fault(f"{UPDATE}/audit.json", "weights", "truncated_share", to=plus(0.01)),
        "weights.truncated_share is",
    ),
    "weighted tokens": (json_fault(f"{UPDATE}/audit.json", "weights", "weighted_tokens", to=plus(1)), "weighted_tokens"),
    "cells without a signal": (
        json_fault(f"{UPDATE}/audit.json", "weights", "no_signal_cells", to=[]),
        "no_signal_cells is \\[\\]",
    ),
    "label of a check": (json_fault(f"{CHECK}/check.json", "label", to="DAMAGED"), "check.json: label is `DAMAGED`"),
}
"""The same of edits after which every digest in the run folder was made good again."""


@pytest.mark.parametrize("kind", some_slow(FORGED))
def test_a_forged_edit_is_seen_from_the_content(copied, kind):
    root, plan = copied("forged")
    change, expected = FORGED[kind]
    change(root)
    reseal(root)
    found = audit_run(root, plan=plan)
    assert found.exit_code == 3
    assert any(re.search(expected, line) for line in found.found.differences), found.found.differences
    assert not any("was changed after" in line or "tells of another" in line for line in found.found.differences), "not resealed"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (events_moved, "trains main/C/update-1 before it was sampled"),
        (readout_first, "tells of main/N/readout before the training of main/N/update-2"),
    ],
)
def test_a_journal_in_another_order(copied, events, expected):
    root, plan = copied("forged")
    reseal(root, events)
    found = audit_run(root, plan=plan)
    assert found.exit_code == 3
    assert any(expected in line for line in found.found.differences), found.found.differences


def an_hour_back(records):
    """The machine's clock is set back by an hour in the middle of the run."""
    for record in records[len(records) // 2 :]:
        record["time"] = (datetime.fromisoformat(record["time"]) - timedelta(hours=1)).isoformat()


def all_an_hour_back(records):
    """Every event an hour earlier than it was, so that marks of the ledger seem to come after their rollouts."""
    for record in records:
        record["time"] = (datetime.fromisoformat(record["time"]) - timedelta(hours=1)).isoformat()


def test_a_clock_that_was_set_back_is_a_note_and_a_journal_that_was_dated_back_a_difference(copied):
    root, plan = copied("forged")
    reseal(root, an_hour_back)
    found = audit_run(root, plan=plan)
    assert (found.exit_code, found.found.differences) == (0, [])
    assert any("the journal's clock was set back by 3600 s" in line for line in found.found.notes)
    reseal(root, lambda records: [record | {"time": records[0]["time"]} for record in records])
    reseal(root, all_an_hour_back)
    found = audit_run(root, plan=plan)
    assert any("after its rollouts" in line for line in found.found.differences)


def test_a_deviation_that_says_less_than_had_been_seen(copied):
    root, plan = copied("plain")
    for path in (plan.with_suffix(".deviations.jsonl"), root / "deviations.jsonl"):
        rechain(path, lambda records: records[0].update(seen="nothing"), "number", 1)
    found = audit_run(root, plan=plan)
    assert any(
        "says that nothing had been seen; by then the journal told of progress" in line for line in found.found.differences
    )


def test_untouched_runs_pass(copied):
    for name in ("plain", "forged"):
        root, plan = copied(name)
        found = audit_run(root, plan=plan)
        assert found.found.differences == [] and found.found.missing == []
        assert summary(found).startswith("AGREES: ") and found.exit_code == 0
        assert found.labels["replication"] == ("REPLICATED (deviation 1)" if name == "plain" else "REPLICATED")
        shutil.rmtree(root.parents[1])
    root, plan = copied("forged")
    reseal(root)
    assert audit_run(root, plan=plan).exit_code == 0  # resealing alone is no fault


def test_rollouts_left_out_are_missing(copied):
    root, plan = copied("forged")
    edit_rows(root / "main/X/readout", lambda rows: rows[:-1])
    edit_json(root / "main/X/readout" / "grades.json", lambda content: content["rollouts"].pop(11) and None)
    reseal(root)
    found = audit_run(root, plan=plan)
    assert "main/X/readout: 1 of 24 rollouts, for instance p5@low #1" in found.found.missing
