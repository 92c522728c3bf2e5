"""What a worker writes reaches the driver in the order in which a serial run would have written it."""

from pathlib import Path

from ablation.files import write_bytes, write_folder
from ablation.study.cluster.relay import Relay


def relayed(root: Path):
    """(relay, what it has sent) of a folder in which the driver's inputs are."""
    sent: list = []
    (root / "main/C/update-1/inflight").mkdir(parents=True)
    (root / "main/C/update-1/inflight/part-000.jsonl").write_text("{}\n")
    (root / "main/C/update-1/audit.json").write_text("old")
    return Relay(root, [{"event": "stage_graded", "stage": "main/start/sweep"}], sent.append), sent


def brief(sent: list) -> list:
    return [(one.event, {name: content.data for name, content in one.files.items()}, one.removed) for one in sent]


def test_an_event_goes_with_the_files_after_it_and_before_the_next(tmp_path):
    relay, sent = relayed(tmp_path)
    update = tmp_path / "main/C/update-1"
    assert [event["event"] for event in relay.events] == ["stage_graded"]
    relay.append("model_loaded", base="b")
    relay.append("part_written", part="part-000.parquet")
    assert brief(sent) == [("model_loaded", {}, ())]
    relay.settle()
    assert len(sent) == 1  # its file is not there yet
    write_bytes(update / "part-000.parquet", b"rollouts")
    (update / "inflight/part-000.jsonl").unlink()
    (update / "inflight/part-001.jsonl").write_text("{}\n")  # not whole: it stays
    relay.settle()
    relay.settle()
    assert brief(sent)[1:] == [
        ("part_written", {"main/C/update-1/part-000.parquet": b"rollouts"}, ("main/C/update-1/inflight/part-000.jsonl",))
    ]
    (update / "audit.json").unlink()
    relay.append("update_trained", update=1)
    write_bytes(update / "audit.json", b"new")
    relay.append("checkpoint_saved", update=1)
    write_folder(update / "checkpoint", lambda empty: (empty / "adapter").write_bytes(b"weights"))
    relay.close()
    relay.close()
    assert brief(sent)[2] == (None, {}, ("main/C/update-1/audit.json",))
    assert brief(sent)[3] == ("update_trained", {"main/C/update-1/audit.json": b"new"}, ())
    event, files, removed = brief(sent)[4]
    assert (event, removed) == ("checkpoint_saved", ())
    assert sorted(files) == [f"main/C/update-1/checkpoint/{name}" for name in ("adapter", "complete.json")]
    assert len(sent) == 5 and all(content.whole() for one in sent for content in one.files.values())
    assert [event["event"] for event in relay.events[1:]] == [
        "model_loaded",
        "part_written",
        "update_trained",
        "checkpoint_saved",
    ]


def test_what_is_being_written_is_not_sent(tmp_path):
    relay, sent = relayed(tmp_path)
    folder = tmp_path / "main/C/update-1"
    (folder / ".partial-abc.parquet").write_bytes(b"half")
    (folder / ".partial-folder").mkdir()
    (folder / ".partial-folder/adapter").write_bytes(b"half")
    relay.settle()
    assert sent == []
