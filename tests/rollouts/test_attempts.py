"""What a journal tells of twice, and whether it came out the same."""

import pytest

from ablation.audit.attempts import Attempts as AuditsOwn
from ablation.audit.findings import Findings
from ablation.rollouts.attempts import Attempts, redone


def told(event: str, time: int, **fields) -> dict:
    return {"event": event, "time": f"2026-12-01T00:{time:02}:00+00:00", **fields}


def sampled(stage: str, time: int, digest: str | None, event: str = "stage_sampled") -> dict:
    return told(event, time, stage=stage, stage_sha256=digest)


def part(stage: str, time: int, digest: str, name: str = "part-000.parquet") -> dict:
    return told("part_written", time, stage=stage, part=name, part_sha256=digest)


def trained(arm: str, time: int, digest: str | None, update: int = 1) -> dict:
    return told("update_trained", time, arm=arm, update=update, audit_sha256=digest)


def saved(arm: str, time: int, digest: str) -> dict:
    return told("checkpoint_saved", time, arm=arm, update=1, checkpoint_sha256=digest)


def streamed(stage: str, time: int, **fields) -> dict:
    return told("stage_streamed", time, stage=stage, **fields)


class History:
    """The events as the audit asks for them."""

    def __init__(self, events: list[dict]) -> None:
        self.events = events

    def of(self, *kinds: str) -> list[tuple[int, dict]]:
        return [(number, one) for number, one in enumerate(self.events, start=1) if one["event"] in kinds]


def again(events: list[dict]) -> Attempts:
    return Attempts(tuple(redone(events)))


U, R, X = "main/C/update-1", "main/C/readout", "evaluations/held-out/N@5/subject"
SAME = {
    "nothing": [],
    "once": [part(R, 1, "a"), sampled(R, 2, "b"), trained("main/C", 3, "c"), saved("main/C", 4, "d")],
    "killed before stage.json": [part(R, 1, "a"), sampled(R, 2, "b"), told("runner_started", 3), sampled(R, 4, "b")],
    "trained again, to the same byte": [trained("main/C", 1, "a"), saved("main/C", 2, "b"), trained("main/C", 3, "a")],
    "removed and sampled again, to the same byte": [part(R, 1, "a"), sampled(R, 2, "b"), part(R, 3, "a"), sampled(R, 4, "b")],
    "two parts, two stages, two arms, two updates": [
        part(R, 1, "a"),
        part(R, 2, "b", "part-001.parquet"),
        sampled(R, 3, "c"),
        sampled(U, 4, "d"),
        trained("main/C", 5, "e"),
        trained("main/N", 6, "f"),
        trained("main/C", 7, "g", update=2),
    ],
    "graded again": [
        told("stage_graded", 1, stage=R, grades_sha256="a"),
        told("stage_graded", 2, stage=R, grades_sha256="b"),
        told("check_judged", 3, arm="main/C", update=1, check_sha256="a"),
        told("check_judged", 4, arm="main/C", update=1, check_sha256="b"),
    ],
    "streamed by two workers of a cluster": [streamed(R, 1, worker="a"), streamed(R, 2, worker="b"), sampled(R, 3, "c")],
    "streamed, whole, removed, and the same again": [streamed(R, 1), sampled(R, 2, "a"), streamed(R, 3), sampled(R, 4, "a")],
}
OTHER = {  # events -> what is found: name, what, times, outcomes, first and last
    "sampled again": ([sampled(R, 1, "a"), sampled(R, 2, "b")], [(R, "stage", 2, 2, 1, "a", 2, "b")]),
    "there and back": ([sampled(R, 1, "a"), sampled(R, 2, "b"), sampled(R, 3, "a")], [(R, "stage", 3, 2, 1, "a", 3, "a")]),
    "a stage before its parts": (
        [part(R, 1, "a"), sampled(R, 2, "b"), part(R, 3, "c"), sampled(R, 4, "d")],
        [(R, "stage", 2, 2, 2, "b", 4, "d")],
    ),
    "a part of a stage that was not whole": (
        [part(R, 1, "a"), part(R, 2, "b"), sampled(R, 3, "c")],
        [(R, "part", 2, 2, 1, "a", 2, "b")],
    ),
    "rollouts in flight": (
        [streamed(R, 1), told("runner_started", 2), streamed(R, 3), sampled(R, 4, "a")],
        [(R, "in flight", 2, None, 1, None, 3, None)],
    ),
    "an import replaced": (
        [sampled(R, 1, "a", "stage_imported"), sampled(R, 2, "b", "stage_imported")],
        [(R, "stage", 2, 2, 1, "a", 2, "b")],
    ),
    "sampled in place of what was taken over": (
        [sampled(X, 1, "a", "stage_reused"), sampled(X, 2, "b")],
        [(X, "stage", 2, 2, 1, "a", 2, "b")],
    ),
    "an update, and its rollouts": (
        [sampled(U, 1, "a"), trained("main/C", 2, "b"), sampled(U, 3, "c"), trained("main/C", 4, "d")],
        [(U, "stage", 2, 2, 1, "a", 3, "c"), (U, "update", 2, 2, 2, "b", 4, "d")],
    ),
    "only the checkpoint": (
        [trained("main/C", 1, "a"), saved("main/C", 2, "b"), trained("main/C", 3, "a"), saved("main/C", 4, "c")],
        [(U, "checkpoint", 2, 2, 2, "b", 4, "c")],
    ),
    "without digests": ([trained("main/C", 1, None), trained("main/C", 2, None)], [(U, "update", 2, None, 1, None, 2, None)]),
    "digests that are no text": ([sampled(R, 1, {"a": 1}), sampled(R, 2, [2])], [(R, "stage", 2, 2, 1, "{'a': 1}", 2, "[2]")]),
}


@pytest.mark.parametrize("events", SAME.values(), ids=SAME)
def test_what_came_out_the_same_is_not_named(events):
    assert again(events) == Attempts() and again(events).marks() == ()
    own = AuditsOwn(History(events))
    assert own.names == [] and own.marks() == [] and own.marks_of("main/C") == []


@pytest.mark.parametrize(("events", "wanted"), OTHER.values(), ids=OTHER)
def test_what_came_out_in_another_way_is_named(events, wanted):
    found = again(events).redone
    rows = [
        (
            one.name,
            one.what,
            one.times,
            one.outcomes,
            one.first_time[14:16],
            one.first_sha256,
            one.last_time[14:16],
            one.last_sha256,
        )
        for one in found
    ]
    assert rows == [(name, what, n, m, f"{a:02}", b, f"{c:02}", d) for name, what, n, m, a, b, c, d in wanted]
    own, said = AuditsOwn(History(events)), Findings()
    own.say(said)
    assert own.names == sorted({one.name for one in found}) and all(one.startswith("REDONE ") for one in said.notes)
    assert own.marks() == list(again(events).marks())


def test_whose_label_says_it():
    sweep = again([sampled("main/start/sweep", 1, "a"), sampled("main/start/sweep", 2, "b")])
    assert sweep.marks("main/C") == sweep.marks("main/N") == ("redone",) and sweep.marks("replication/C") == ()
    both = again([sampled(R, 1, "a"), sampled(X, 2, "b"), sampled(X, 3, "c"), sampled(R, 4, "d")])
    assert both.marks() == ("redone: main/C, held-out/N@5",)
    assert both.marks("main/C") == ("redone",) and both.marks("main/N") == ()
    assert both.lines()[0] == (
        f"Done again: {R} was sampled or imported 2 times, with 2 outcomes: first at 2026-12-01T00:01:00+00:00 (a), "
        "what stands now at 2026-12-01T00:04:00+00:00 (d)."
    )
