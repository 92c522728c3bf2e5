from datetime import UTC, datetime

from ablation.rollouts.comparisons import comparison_hours, earlier_references, reused_from, stage_name


def journal(*rows):
    """Events at the given hours of one day: (hour, event, fields)."""
    return [
        {"seq": seq, "time": f"2026-11-29T{int(hour):02d}:{round(hour % 1 * 60):02d}:00.000+00:00", "event": event} | fields
        for seq, (hour, event, fields) in enumerate(rows)
    ]


def opened(subject="N@5", reference=0, own=0):
    return {"set": "held-out", "subject": subject, "there": {"reference": reference, "subject": own}}


def of(side, subject="N@5", **more):
    return {"stage": stage_name("held-out", subject, side)} | more


WHOLE = [
    (1, "evaluation_opened", opened()),
    (1.5, "part_written", of("reference")),
    (2, "stage_sampled", of("reference")),
    (3, "part_written", of("subject")),
    (3.5, "stage_sampled", of("subject")),
]


def test_hours_are_counted_from_the_start_of_sampling_to_the_last_rollout():
    assert comparison_hours(journal(*WHOLE), "held-out", "N@5") == 2.5
    assert comparison_hours(journal(*WHOLE[:3]), "held-out", "N@5") == 1
    assert comparison_hours(journal(*WHOLE[:3]), "held-out", "N@5", datetime(2026, 11, 29, 11, tzinfo=UTC)) == 10
    assert comparison_hours(journal(*WHOLE[:1]), "held-out", "N@5") is None
    assert comparison_hours(journal(*WHOLE[:1]), "held-out", "N@5", datetime(2026, 11, 29, 11, tzinfo=UTC)) is None
    assert comparison_hours(journal(*WHOLE), "held-out", "C@5") is None


def test_a_session_that_was_killed_before_its_first_part_does_not_count_and_one_that_lost_an_event_does():
    late = [(hour + 10, event, fields) for hour, event, fields in WHOLE]
    assert comparison_hours(journal((1, "evaluation_opened", opened()), *late), "held-out", "N@5") == 2.5
    went_on = [(1, "evaluation_opened", opened()), (11, "evaluation_opened", opened(reference=1)), *late[2:]]
    assert comparison_hours(journal(*went_on), "held-out", "N@5") == 12.5  # the part of the first session has no event


def test_a_folder_that_was_removed_and_sampled_again_counts_anew():
    again = [(hour + 12, event, fields) for hour, event, fields in WHOLE]
    assert comparison_hours(journal(*WHOLE, *again), "held-out", "N@5") == 2.5
    alone = journal(*WHOLE, (20, "evaluation_opened", opened(own=1)), (21, "stage_sampled", of("reference")))
    assert comparison_hours(alone, "held-out", "N@5") == 20  # the subject is still the one of hour 1 to 3.5


def test_a_reference_that_was_taken_over_counts_from_its_own_sampling():
    later = [
        (8, "evaluation_opened", opened("C@5")),
        (8, "stage_reused", of("reference", "C@5", of="N@5")),
        (9, "part_written", of("subject", "C@5")),
        (9.5, "stage_sampled", of("subject", "C@5")),
    ]
    events = journal(*WHOLE, *later)
    assert reused_from(events, "held-out", "C@5") == "N@5" and reused_from(events, "held-out", "N@5") is None
    assert comparison_hours(events, "held-out", "C@5") == 8.5
    third = (10, "stage_reused", of("reference", "X@5", of="C@5")), (11, "stage_sampled", of("subject", "X@5"))
    assert comparison_hours(journal(*WHOLE, *later, *third), "held-out", "X@5") == 10


def test_earlier_references_are_those_that_were_sampled_before_in_that_order():
    rows = [(hour, "stage_sampled", of("reference", subject)) for hour, subject in ((1, "N@5"), (2, "C@5"), (3, "X@5"))]
    rows += [(4, "stage_reused", of("reference", "Y@5", of="C@5")), (5, "stage_sampled", of("reference", "Z@5"))]
    rows += [(6, "stage_sampled", {"stage": "evaluations/main/Q@5/reference"})]
    events = journal(*rows)
    assert earlier_references(events, "held-out", "N@5") == []
    assert earlier_references(events, "held-out", "X@5") == ["N@5", "C@5"]
    assert earlier_references(events, "held-out", "Y@5") == ["N@5"]  # against the one that it is, there is nothing to compare
    assert earlier_references(events, "held-out", "Z@5") == ["N@5", "C@5", "X@5"]
    assert earlier_references(events, "main", "Q@5") == []
