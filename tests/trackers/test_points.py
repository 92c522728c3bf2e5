"""What a run tells, on the SmolLM2 record and on parts of it as a run at work has them."""

import json
import shutil
from pathlib import Path

import pytest

from ablation.plan.lock import verify_lock
from ablation.trackers.points import open_source

RECORD = Path(__file__).parents[2] / "runs" / "records" / "smollm2"
SERIES = ("main/C", "main/N", "replication/C", "replication/N")


@pytest.fixture
def run(tmp_path) -> Path:
    shutil.copytree(RECORD, tmp_path / "run")
    return tmp_path / "run"


def source(root: Path):
    found = open_source(verify_lock(RECORD / "plan.yaml").plan, root)
    found.events.read()
    return found


def names(root: Path, told=()) -> list[tuple[str, str, int]]:
    return [(point.series, point.name, point.step) for point in source(root).points(told)]


def test_every_arm_has_its_start_updates_and_readout():
    one = [("start", 0), *((f"update-{k}", k) for k in range(1, 6)), ("readout", 5)]
    assert names(RECORD) == [(series, name, step) for series in SERIES for name, step in one]


def test_numbers_and_times_are_those_of_the_files():
    points = {(point.series, point.name): point for point in source(RECORD).points()}
    point = points["main/N", "update-3"]
    measures = json.loads((RECORD / "main/N/update-3/measures.json").read_text())
    audit = json.loads((RECORD / "main/N/update-3/audit.json").read_text())
    assert point.values["update/logprob"] == measures["logprob"]
    assert point.values["update/correct_share"] == measures["correct"] / measures["rollouts"]
    assert point.values["update/grad_norm"] == audit["step"]["grad_norm"]
    assert point.values["update/truncated_share"] == measures["truncated"] / measures["rollouts"]
    assert point.values["weights/truncated_share"] == audit["weights"]["truncated_share"]
    events = [json.loads(line) for line in (RECORD / "journal.jsonl").read_text().splitlines()]
    trained = next(one for one in events if one["event"] == "update_trained" and (one["arm"], one["update"]) == ("main/N", 3))
    assert point.values["speed/train_seconds"] == trained["seconds"]
    assert point.time == pytest.approx(_seconds(trained["time"]), abs=1e-3)
    sweep = json.loads((RECORD / "replication/start/sweep/measures.json").read_text())
    assert points["replication/C", "start"].values["cells/clean_share"] == sweep["clean"] / sweep["rollouts"]


def _seconds(text: str) -> float:
    from datetime import UTC, datetime

    moment = datetime.strptime(text[:23], "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=UTC)
    assert text.endswith("+00:00")
    return moment.timestamp()


def test_nothing_is_a_text():
    for point in source(RECORD).points():
        assert all(type(value) is float for value in point.values.values())


def test_what_was_told_is_not_told_again():
    told = {(series, name) for series, name, _ in names(RECORD) if (series, name) != ("main/N", "update-2")}
    assert names(RECORD, told) == [("main/N", "update-2", 2)]


def test_a_journal_is_taken_up_by_whole_lines(run):
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (run / "journal.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    found = open_source(verify_lock(RECORD / "plan.yaml").plan, run)
    assert found.events.read() and found.events.count == len(lines) - 1
    assert not found.events.read()
    (run / "journal.jsonl").write_bytes(b"".join(lines))
    assert found.events.read() and found.events.count == len(lines)


def test_an_update_is_told_of_when_it_cannot_be_trained_again(run):
    for path in ("readout", "update-4", "update-5"):
        shutil.rmtree(run / "replication/N" / path)
    events = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    gone = [f"replication/N/{name}" for name in ("readout", "update-4", "update-5")]
    kept = [one for one in events if one.get("stage") not in gone]
    kept = [one for one in kept if one.get("arm") != "replication/N" or one.get("update", 9) <= 3]

    def write():
        (run / "journal.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))

    write()

    def of_n():
        return [name for series, name, _ in names(run) if series == "replication/N"]

    assert of_n() == ["start", "update-1", "update-2"]  # update 3 is trained, and its checkpoint is not there yet
    (run / "replication/N/update-3/checkpoint").mkdir()
    (run / "replication/N/update-3/checkpoint/complete.json").write_text("{}")
    assert of_n() == ["start", "update-1", "update-2", "update-3"]
    trained = next(
        one for one in kept if (one["event"], one.get("arm"), one.get("update")) == ("update_trained", "replication/N", 3)
    )
    trained["audit_sha256"] = "0" * 64  # the file is of another training than the journal's newest
    write()
    assert of_n() == ["start", "update-1", "update-2"]


def test_an_arm_that_has_not_begun_says_nothing(run):
    shutil.rmtree(run / "main/N")
    assert {series for series, _, _ in names(run)} == set(SERIES) - {"main/N"}
    (run / "main/N").mkdir()
    assert {series for series, _, _ in names(run)} == set(SERIES) - {"main/N"}
