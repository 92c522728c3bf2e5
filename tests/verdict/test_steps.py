import json

import pytest

from ablation.errors import IntegrityError
from ablation.rollouts.folder import RunFolder
from ablation.verdict.steps import steps_taken


def write(run, k, audit):
    path = run.audit("main", "C", k)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(audit))


def test_outcomes_are_counted_and_an_older_audit_tells_only_whether_there_was_a_step(tmp_path):
    run = RunFolder(tmp_path)
    assert steps_taken(run, "main", "C", 4) is None
    write(run, 1, {"step": {"grad_norm": 0.5}})
    assert steps_taken(run, "main", "C", 4) is None
    write(run, 1, {"step": {"stepped": True, "outcome": "stepped"}})
    write(run, 2, {"step": {"stepped": False, "outcome": "nonfinite"}})
    write(run, 3, {"step": {"stepped": False}})
    write(run, 4, {"step": {"stepped": True}})
    write(run, 5, {"step": {"stepped": True, "outcome": "stepped"}})  # an extension's: not before the readout
    assert steps_taken(run, "main", "C", 4) == {
        "stepped": 2,
        "updates": 4,
        "outcomes": {"no_step": 1, "nonfinite": 1, "stepped": 2},
    }


@pytest.mark.parametrize("audit", [[], {"step": 1}, {"step": {"outcome": ["stepped"]}}])
def test_an_audit_that_does_not_tell_is_refused(tmp_path, audit):
    run = RunFolder(tmp_path)
    write(run, 1, audit)
    with pytest.raises(IntegrityError, match="does not tell whether the update took a step"):
        steps_taken(run, "main", "C", 1)
