"""Which stages hold texts that nobody may look at yet, counted by the comparison that is read."""

from __future__ import annotations

import pytest

from ablation.blind.closed import closed_reads, closing, refuse_closed
from ablation.errors import GateError
from ablation.rollouts.blind_record import SEALED, UNSEALED
from tests.blind.made import SUBJECT, held_out_rows, safety_rows, start, write_evaluation
from tests.verdict.study import lock_small, start_run

OTHER = "C@2"


def told(kind: str, subject: str, name: str = "held-out") -> dict[str, str]:
    return {"event": kind, "set": name, "subject": subject}


@pytest.fixture
def two(tmp_path):
    """A run with two comparisons on held-out, and one on safety."""
    run, locked, _ = start(tmp_path)
    write_evaluation(run, locked, "held-out", held_out_rows(), OTHER)
    write_evaluation(run, locked, "safety", safety_rows())
    return run, locked.plan


def names(two, *events):
    return [(one.name, one.subject) for one in closed_reads(*two, lambda: events)]


def test_a_read_closes_its_comparison_until_it_is_opened(two):
    everything = [("held-out", OTHER), ("held-out", SUBJECT), ("safety", SUBJECT)]
    assert names(two) == everything
    assert names(two, told(SEALED, SUBJECT)) == everything
    opened = (told(SEALED, SUBJECT), told(UNSEALED, SUBJECT))
    assert names(two, *opened) == [("held-out", OTHER), ("safety", SUBJECT)]
    assert names(two, *opened, told(UNSEALED, SUBJECT, "safety")) == [("held-out", OTHER)]
    assert names(two, *opened, told(UNSEALED, SUBJECT, "safety"), told(UNSEALED, OTHER)) == []


def test_the_starts_answers_are_closed_while_any_read_of_the_set_is(two):
    reads = closed_reads(*two, lambda: [told(UNSEALED, SUBJECT), told(UNSEALED, SUBJECT, "safety")])

    def why(stage):
        return [one.subject for one in closing(stage, reads)]

    assert why(f"evaluations/held-out/{OTHER}/subject") == why(f"evaluations/held-out/{OTHER}/reference") == [OTHER]
    assert why(f"evaluations/held-out/{SUBJECT}/subject") == []
    assert why(f"evaluations/held-out/{SUBJECT}/reference") == [OTHER]  # the same answers as those of C@2's pairs
    assert why(f"evaluations/safety/{SUBJECT}/reference") == why("main/N/readout") == why("main/N/update-1") == []


def test_what_is_refused_names_the_set_why_and_how(two):
    run, plan = two
    refuse_closed(run, plan, ["main/N/readout"], " --run runs/small")
    with pytest.raises(GateError) as refused:
        refuse_closed(run, plan, ["main/N/readout", f"evaluations/held-out/{SUBJECT}/subject"], " --run runs/small")
    assert refused.value.message == (
        "held-out/N@2: the plan has answers of `held-out` read blind, and the read of N@2 was not opened: "
        "a person who has seen them is no blind rater"
    )
    assert refused.value.hint == (
        "`ablation blind unseal held-out --subject N@2 --run runs/small` opens it when every rating is in."
    )


def test_a_plan_without_a_read_closes_nothing_and_its_journal_is_not_asked(tmp_path):
    locked = lock_small(tmp_path / "plans")
    run = start_run(tmp_path / "runs" / "small", locked)
    write_evaluation(run, locked, "held-out", held_out_rows())

    def asked():
        raise AssertionError

    assert closed_reads(run, locked.plan, asked) == []
