"""Each field of each event and record of a finished run, edited by somebody who then makes every digest and the chain good again.

Of a run that the program itself made every event and record; of one with a second phase, by hand, what that adds.
"""

import re

import pytest

from ablation.audit.run import audit_run
from tests.audit.build import make_run, write_verdict
from tests.audit.build_phase2 import make_phase2
from tests.audit.mutations import Kept, make, of_journal, of_records, rounds
from tests.study.mini import ablation, mini_tree, write_plan
from tests.verdict.study import plan_dict

NOBODY_CAN_CHECK = {
    r".*\bseconds( gone)?$": "how long something took is told once",
    r"runner_started: removed_partial_files$": "what a killed runner had left is gone",
    r"runner_started: other_runs.*": "the ledger tells of other runs, and it may be elsewhere",
    r"(runner_started|model_loaded|stage_streamed): (twice|not told)": "a runner may begin at any time, and hold a model for the next",
    r"model_loaded: base$": "the first one is what the others are held against",
    r"model_loaded: environment\.(?!packages\.(torch|transformers|peft)$).*": "a machine and its packages: a stage names three of them",
    r"(arm_finished|extension_reached): not told": "a runner may be killed before it says so",
    r"stage_graded of .*: twice": "rollouts may be graded again",
    r"grades\.json: graders\..*": "the version of a grader that is another one now",
    r"audit\.json: step\.loss$": "the model says it, and nothing repeats it",
    r"audit\.json: metrics\.entropy$": "the model says it, and nothing repeats it",
    r"audit\.json: weights\.kl_tokens gone": "an audit of an earlier version has none, and counts otherwise",
    r"adapter_config\.json: (?!(r|lora_alpha|target_modules\.0|bias|use_dora|use_rslora)$).*": "what peft writes of itself",
    r"\w+: (check|stopped|audit)_sha256 gone": "an event of an earlier version named no digest, and there may be one such event",
    r"check\.json: rules\.\d+\.(estimate|words|how|reason)( gone)?$": "words and numbers beside the value, which the plan's rule and the stage give",
    r"evaluation\.json: reused gone": "what is not defined is null, and may be left out",
    r"measures\.json .*: .* gone": "what is not defined is null, and may be left out",
    r"blind_(sealed|rated): twice": "told again after a kill",
}
"""Edits that leave the run as good as it was -> why no second path can exist."""


def passing(root, only="", every=1, first=0):
    """(edits that the audit does not find, how many were tried), of one round in `every`."""
    kept = Kept(root)
    wanted = [one for one in (*of_journal(root), *of_records(root)) if re.match(only, one.name) and not nobody_can_check(one)]
    tried = rounds(wanted)[first::every]
    passed = [name for edits in tried for name in not_found(root, edits, kept)]
    assert audit_run(root).exit_code == 0
    return passed, sum(map(len, tried))


def not_found(root, edits, kept):
    """Names of those of one round that the audit does not find. Of several at a time it must name each one's file or line; one
    that it does not name is made by itself, and must lead to any difference at all.
    """
    found = differences(root, edits, kept)
    if len(edits) == 1:
        return [] if found else [edits[0].name]
    return [one.name for one in edits if not one.is_named(found, root) and not differences(root, [one], kept)]


def nobody_can_check(edit):
    return any(re.fullmatch(pattern, edit.name) for pattern in NOBODY_CAN_CHECK)


def differences(root, edits, kept):
    make(root, edits)
    try:
        return audit_run(root).found.differences
    finally:
        kept.put_back()


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """Two arms, one with a KL anchor, and an extension with a check; no deviation remembers the journal's head."""
    folder = tmp_path_factory.mktemp("fields")
    arms = plan_dict()["arms"]
    del arms["X"]
    arms["N"] |= {"kl": {"beta": 0.1}}
    made = make_run(folder, deviation=False, arms=arms)
    write_verdict(made)
    made.journal.close()
    return made.run.root


def test_some_edits_are_found(by_hand):
    passed, tried = passing(by_hand, every=27)
    assert passed == [] and tried > 5


def test_an_edit_that_is_not_found_is_not_hidden_by_others(by_hand):
    wanted = ("check_judged: update", "audit.json: step.loss", "measures.json of readout: cells")
    edits = [one for one in (*of_journal(by_hand), *of_records(by_hand)) if one.name in wanted]
    assert not_found(by_hand, edits, Kept(by_hand)) == ["audit.json: step.loss"]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(4))
def test_every_edit_is_found(by_hand, first):
    passed, tried = passing(by_hand, every=4, first=first)
    assert passed == [] and tried > 100


@pytest.mark.slow
def test_every_edit_of_a_second_phase_is_found(tmp_path):
    made = make_phase2(tmp_path)
    write_verdict(made)
    made.journal.close()
    passed, tried = passing(made.run.root, only=r"(evaluation|blind|stage_reused|key|pairs|answers|result)")
    assert passed == [] and tried > 60


@pytest.mark.slow
def test_every_edit_of_what_the_program_itself_wrote_is_found(tmp_path):
    assert ablation(tmp_path, "plan", "lock", str(write_plan(tmp_path, mini_tree()))).returncode == 0
    assert ablation(tmp_path, "run", "--all").returncode == 0
    root = tmp_path / "runs" / "mini"
    passed, tried = passing(root, only=r"(?!measures|stage\.json|grades)")
    assert passed == [] and tried > 150
