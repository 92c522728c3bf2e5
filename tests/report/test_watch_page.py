"""How a run goes, compared with golden texts."""

from dataclasses import replace

import pytest

from ablation.report.watch_page import ArmLook, Look, bar, event_line, watch_page

from .test_arm_tables import text_page
from .test_rollout_page import HOSTILE, golden, widest

VALUES = {
    "update/correct_share": 0.6805,
    "update/clean_share": 0.66,
    "update/truncated_share": 0.0833,
    "update/looping_share": 0.05,
    "update/logprob": -0.0781,
    "stop/logprob_fell": 0.2134,
    "stop/mostly_unfinished": 0.0,
}
READOUT = {"cells/correct_share": 1.0, "cells/clean_share": 0.995, "cells/truncated_share": 0.0, "cells/logprob": -0.5}
LOOK = Look(
    name="mine",
    digest="ab" * 32,
    root="runs/mine",
    runner="process 12 on host",
    began="2026-11-29T21:45:17.000+00:00",
    sweeps={"main": "yes", "replication": "no"},
    arms=[
        ArmLook("main/C", 5, 5, "yes", False, "readout", READOUT),
        ArmLook("main/N", 3, 5, "no", False, "update-3", VALUES),
        ArmLook("main/X", 2, 5, "no", True, "update-2", {}),
        ArmLook("replication/C", 0, 5, "no", False),
    ],
    sampling=[("main/N/update-4", 36, 72), ("evaluations/held-out/N@5/subject", 20, None)],
    events=[
        {"time": f"2026-11-29T21:50:{second:02d}.125+00:00", "event": "part_written", "stage": "main/N/update-4", "rollouts": 9}
        for second in range(8)
    ]
    + [
        {
            "time": "2026-11-29T21:51:00+00:00",
            "event": "update_trained",
            "arm": "main/N",
            "update": 3,
            "tokens": 5000,
            "seconds": 2.5,
        },
        {"time": "2026-11-29T21:51:01+00:00", "event": "update_trained", "arm": "main/X", "update": 2, "outcome": "no_signal"},
    ],
    following="ablation run --all",
)


@pytest.mark.parametrize(("width", "height"), [(80, 30), (60, 24)])
def test_golden(width, height):
    page = text_page(watch_page(LOOK, height, width), width)
    golden(f"watch_{width}.txt", page)
    assert widest(page) <= width
    assert len(page.splitlines()) <= height


def test_a_run_that_has_not_begun():
    page = text_page(watch_page(replace(LOOK, runner=None, began=None, arms=[], sampling=[], events=[], sweeps={"main": "no"})))
    assert "none at work; not begun" in page


def test_what_cannot_be_read_is_said():
    assert "not to be read now: x" in text_page(watch_page(replace(LOOK, note="not to be read now: x")))


def test_bars_and_lines():
    assert [bar(done, 5, 5) for done in (0, 1, 5, 9)] == ["░░░░░", "█░░░░", "█████", "█████"]
    assert bar(1, 0, 3) == "░░░"
    assert event_line(LOOK.events[-2]) == "21:51:00  update trained main/N/update-3: 2.5 s, 2,000 tok/s"
    assert event_line(LOOK.events[-1]) == "21:51:01  update trained main/X/update-2: no_signal"


def test_names_of_others_are_harmless():
    page = text_page(watch_page(replace(LOOK, name=HOSTILE, root=HOSTILE, runner=HOSTILE, following=HOSTILE, note=HOSTILE)))
    assert not {mark for mark in page if ord(mark) < 0x20 and mark != "\n"} and "\u202e" not in page
    assert "\x1b" not in event_line({"time": "x" * 30, "event": HOSTILE, "stage": HOSTILE})
