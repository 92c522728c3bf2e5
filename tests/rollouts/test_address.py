"""Addresses of rollouts on the SmolLM2 record: each part that is wrong is named, with what there is."""

from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.rollouts.address import Address, beside, find_row, full_name, parse_address
from ablation.rollouts.store import read_stage

RECORD = Path(__file__).parents[2] / "runs" / "records" / "smollm2"
CELL = "chain_sum-1@xhigh"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("main/N/readout", Address("main/N/readout", "")),
        (f"main/N/readout/{CELL}#3", Address("main/N/readout", f"{CELL}#3")),
        (f"/main/N/update/3/{CELL}#3 ", Address("main/N/update-3", f"{CELL}#3")),
        ("main/start/sweep/", Address("main/start/sweep", "")),
    ],
)
def test_what_is_meant(text, found):
    assert parse_address(text, RECORD) == found


def test_stages_of_evaluations_go_without_their_folder(tmp_path):
    stage = tmp_path / "evaluations/held-out/N@5/subject"
    stage.mkdir(parents=True)
    (stage / "stage.json").write_text("{}")
    for text in ("held-out/N@5/subject/a/b@low#1", "evaluations/held-out/N@5/subject/a/b@low#1"):
        assert parse_address(text, tmp_path) == Address("evaluations/held-out/N@5/subject", "a/b@low#1")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("main/N/readot/x@low#1", "there is no stage `main/N/readot` in ", "Did you mean main/N/readout or main/C/readout"),
        ("zzz", "there is no stage `zzz` in ", "Stages: main/C/readout, main/C/update-1, "),
        ("main/N/update/9", "there is no stage `main/N/update-9` in ", "Did you mean main/N/update-"),
    ],
)
def test_a_stage_that_is_not_there(text, message, hint):
    with pytest.raises(UsageError) as refused:
        parse_address(text, RECORD)
    assert refused.value.message.startswith(message)
    assert refused.value.hint.startswith(hint)
    assert refused.value.hint.endswith("An address is FAMILY/ARM/STAGE/PROBLEM@EFFORT#INDEX.")


def test_a_run_without_a_stage_says_so(tmp_path):
    with pytest.raises(UsageError, match="no stage of it is complete yet"):
        parse_address("main/N/readout", tmp_path)


def test_a_row_is_found_by_its_name_and_named_by_it():
    stage = read_stage(RECORD / "main/N/readout")
    for row in (0, 17, len(stage) - 1):
        name = full_name("main/N/readout", stage, row)
        assert find_row(stage, parse_address(name, RECORD), RECORD) == row
        assert find_row(stage, Address("main/N/readout", stage.name(row)), RECORD) == row  # with its blank, as messages have it


@pytest.mark.parametrize(
    ("rest", "message", "hint"),
    [
        (
            "chain_sum-1",
            "`chain_sum-1` does not end with #INDEX, the number of the rollout in its cell",
            "For instance main/N/readout/",
        ),
        ("chain_sum-1#x", "`chain_sum-1#x` does not end with #INDEX, the number of the rollout in its cell", "For instance "),
        ("chain_sum-1#1", "`chain_sum-1` has no @EFFORT", "For instance "),
        ("chain_som-1@xhigh#1", "main/N/readout: there is no problem `chain_som-1`", "Did you mean chain_sum-1"),
        ("chain_sum-1@hi#1", "main/N/readout: chain_sum-1 was not sampled at effort `hi`", "It was at: "),
        (f"{CELL}#99", f"main/N/readout: {CELL} has no rollout #99", "It has 4: #0 to #3."),
    ],
)
def test_a_rollout_that_is_not_there(rest, message, hint):
    with pytest.raises(UsageError) as refused:
        find_row(read_stage(RECORD / "main/N/readout"), Address("main/N/readout", rest), RECORD)
    assert refused.value.message == message
    assert refused.value.hint.startswith(hint)


def test_the_same_place_of_another_arm():
    place = Address("main/N/update-2", f"{CELL}#1")
    assert beside(place, RECORD, "C") == Address("main/C/update-2", f"{CELL}#1")
    assert beside(Address("main/N/readout", "x"), RECORD, "start") == Address("main/start/sweep", "x")
    assert beside(Address("main/start/sweep", "x"), RECORD, "C") == Address("main/C/readout", "x")
    with pytest.raises(UsageError) as refused:
        beside(place, RECORD, "Q")
    assert refused.value.message == "--beside Q: there is no stage main/Q/update-2"
    assert refused.value.hint == "There are: C, N, start."
