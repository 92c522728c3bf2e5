"""What `ablation status` takes for a comparison."""

from __future__ import annotations

from ablation.study.phase2_state import phase2_state
from tests.study.evaluations import make


def test_only_folders_that_are_called_as_a_model_of_the_plan_are_comparisons(tmp_path):
    run, locked = make(tmp_path)
    for name in ("N@2", "N@03", "N@\u0663", "N@0", "N@", "N", "N@2@2", "D@2", "N@2.old", "n@2"):
        (run.evaluation_set("held-out") / name).mkdir(parents=True)
    (held_out,) = [one for one in phase2_state(locked, run.root, []) if one.name == "held-out"]
    assert [one.subject for one in held_out.comparisons] == ["N@2"]
