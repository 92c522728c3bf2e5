"""`verdict.json` against what the rollouts give now: every statement of the file, wherever it stands."""

from __future__ import annotations

import copy
import json

import pytest

from ablation.files import json_bytes, write_json
from ablation.verdict.run import judge_run
from ablation.verdict.stored import check_stored, differences
from tests.study.evaluations import make
from tests.verdict.test_phase2 import compare, deviate


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """(path of the stored verdict, what the rollouts give), of a study with two subjects in one section and a deviation."""
    run, locked = make(tmp_path_factory.mktemp("stored"))
    compare(run, locked, "held-out", "N@2")
    deviate(run, locked, "never-used")
    compare(run, locked, "held-out", "X@2")
    own = json.loads(json_bytes(judge_run(run.root, locked, None).as_json()))
    assert own["sections"]["held_out"]["others"] and own["deviations"]
    return run.verdict, own


def leaves(content, at=""):
    """(JSON pointer, container, key) of every value in `content` that has none inside."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        place = f"{at}/{str(key).replace('~', '~0').replace('/', '~1')}"
        if isinstance(value, dict | list) and value:
            yield from leaves(value, place)
        else:
            yield place, content, key


def another(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}_" if isinstance(value, str) else "something"


def wrong(path, content, own):
    path.write_bytes(json_bytes(content))
    return check_stored(path, own).wrong


def test_what_is_written_is_what_is_found(judged):
    path, own = judged
    path.unlink(missing_ok=True)
    assert check_stored(path, own).wrong is None
    assert wrong(path, own, own) is None
    assert check_stored(path, own).note is None


def test_every_value_that_is_changed_is_named_by_its_place(judged):
    own = judged[1]
    edited, places = copy.deepcopy(own), []
    for place, inside, key in list(leaves(edited)):
        inside[key] = another(inside[key])
        places += [place] if "/notes" not in place and "/also_run" not in place and key not in ("command", "next_command") else []
    assert len(places) > 500
    assert [at for at, _, _ in differences(edited, own)] == places


def test_a_label_of_another_subject_is_named_with_both_labels(judged):
    path, own = judged
    edited = copy.deepcopy(own)
    edited["sections"]["held_out"]["others"][0]["label"] = "WIN_VERIFIED"
    given = own["sections"]["held_out"]["others"][0]["label"]
    assert wrong(path, edited, own) == (
        f'{path}: /sections/held_out/others/0/label says "WIN_VERIFIED", and the rollouts give "{given}": it was edited, or '
        "another version of this program wrote it; it is left as it is (remove it to have it written anew)"
    )


def test_what_is_taken_out_or_put_in_is_a_difference(judged):
    path, own = judged
    edited = copy.deepcopy(own)
    del edited["sections"]["never_used"]
    edited["arms"][0]["rules"].pop()
    edited["arms"][1]["rules"][0]["holds"] = 0  # not the same as false
    edited["sections"]["held_out"]["others"].append({"label": "WIN"})
    found = wrong(path, edited, own)
    assert f"{path}: /arms/0/rules/3 says nothing, and the rollouts give " in found
    assert "; /arms/1/rules/0/holds says 0, and the rollouts give false" in found
    assert '; /sections/held_out/others/1 says {"label": "WIN"}, and the rollouts give nothing' in found
    assert "; and 1 more: it was edited" in found


def test_a_last_bit_that_another_processor_rounds_is_no_edit_and_a_digit_that_shows_is(judged):
    path, own = judged
    edited = copy.deepcopy(own)
    value = own["arms"][0]["measures"]["logprob"]
    edited["arms"][0]["measures"]["logprob"] = value * (1 + 1e-13)
    assert edited != own
    assert wrong(path, edited, own) is None
    edited["arms"][0]["measures"]["logprob"] = value * (1 + 1e-6)
    assert "/arms/0/measures/logprob" in wrong(path, edited, own)


def test_who_asks_and_when_makes_no_difference(judged):
    path, own = judged
    edited = copy.deepcopy(own) | {"notes": ["journal.jsonl: a runner is at work"], "next_command": "ablation run --all"}
    for one in edited["sections"]["held_out"]["missing"]:
        one["command"] = "whoever made the run has to finish it"
    assert wrong(path, edited, own) is None


def test_a_verdict_of_an_earlier_state_is_not_compared_and_that_is_said(judged):
    path, own = judged
    for change in ({"journal": own["journal"] | {"length": own["journal"]["length"] - 1}}, {"deviations": []}):
        write_json(path, own | change | {"label": "NOT_REPLICATED"})
        found = check_stored(path, own)
        assert found.wrong is None
        assert found.note == f"note: {path} is of an earlier state of the run, so it was not compared with what the rollouts give"


@pytest.mark.parametrize("content", [b"[]", b"{", b"null", b'{"journal": null}', b'{"journal": {"length": "3"}}'])
def test_what_is_no_verdict_is_said(judged, content):
    path, own = judged
    path.write_bytes(content)
    assert check_stored(path, own).wrong is not None


@pytest.mark.parametrize("length", [True, 0, -1, 1.5])
def test_a_length_that_no_journal_has_is_no_earlier_state(judged, length):
    path, own = judged
    assert "so it was edited" in wrong(
        path, own | {"label": "NOT_REPLICATED", "journal": own["journal"] | {"length": length}}, own
    )


@pytest.mark.parametrize("place", ['{"label": "NOT_REPLICATED", ', '{"sections": {"held_out": {"label": 1}}, '])
def test_a_name_that_is_there_twice_hides_nothing(judged, place):
    path, own = judged
    path.write_text(place + json.dumps(own)[1:])  # most readers see the last
    assert json.loads(path.read_text()) == own
    assert "so it was edited" in (check_stored(path, own).wrong or "")


def test_what_was_put_in_is_escaped(judged):
    path, own = judged
    found = wrong(path, own | {"\x1b[2J\u202e": "\x9b2J"}, own)
    assert r'/\u001b[2J\u202e says "\u009b2J", and the rollouts give nothing' in found


def test_an_edited_digest_of_the_plan_does_not_switch_the_check_off(judged):
    path, own = judged
    edited = own | {"plan": {"name": "small", "digest": "0" * 64}, "label": "NOT_REPLICATED"}
    found = wrong(path, edited, own)
    assert "/plan/digest says" in found and "/label says" in found
