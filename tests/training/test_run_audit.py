from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ablation.errors import IntegrityError
from ablation.plan.lock import verify_lock
from ablation.training.run_audit import audit_run
from tests.verdict.study import CLOSE, tell

from .run_folder import ARMS, edit_audit, forget_digests, write_run, write_update

RECORD = Path(__file__).parents[2] / "runs" / "records" / "smollm2"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return folder, *write_run(folder)


@pytest.fixture
def study(made, tmp_path):
    """A copy that a test may break."""
    _, locked, run = made
    shutil.copytree(run.root, tmp_path / "run")
    return locked, type(run)(tmp_path / "run")


def audited(study, arms=tuple(ARMS), **options):
    locked, run = study
    return audit_run(run.root, locked, families=["main"], arms=arms, **options)


def test_a_run_that_keeps_every_promise(study):
    found = audited(study, recompute=True)
    assert [(one.arm, one.update) for one in found.updates] == [(arm, k) for arm in ARMS for k in (1, 2)]
    assert found.problems() == [] and found.notes == []
    names = {one.arm: {identity.name for identity in one.identities} for one in found.updates if one.update == 1}
    assert "net_zero" in names["N"] and "net_zero" in names["X"]
    assert "net_zero" not in names["C"] | names["XK"] | names["M"]
    assert "truncated_out" in names["M"] and "kl_starts_at_zero" in names["XK"] and "none_negative" in names["P"]


def test_what_needs_the_model_is_said(study):
    found = {(one.arm, one.update): one.recomputed for one in audited(study, recompute=True).updates}
    assert all(one.exact for one in found.values())
    whole = {key for key, one in found.items() if one.whole}
    assert whole == {(arm, k) for arm in "CNX" for k in (1, 2)} | {("XK", 1), ("P", 1), ("M", 1)}
    assert found["XK", 2].why_not == "the KL term needs the logprobs of trainer and start"


def test_a_clip_that_cut_something_needs_the_trainer(tmp_path):
    locked, run = write_run(tmp_path)
    edit_audit(run.audit("main", "M", 1), lambda audit: audit["weights"].update(clipped_tokens=2))
    forget_digests(run, locked)
    [one, _] = audited((locked, run), ["M"], recompute=True).updates
    assert one.recomputed.why_not == "the clip needs the trainer's logprobs" and one.recomputed.differs == []


def test_an_edited_audit_is_found_by_the_journal(study):
    edit_audit(study[1].audit("main", "N", 2), lambda audit: audit["weights"].update(truncated_share=0.0))
    with pytest.raises(IntegrityError, match=re.escape("tells of another main/N/update-2/audit.json")):
        audited(study)


def test_a_removed_audit_is_found_by_the_journal(study):
    study[1].audit("main", "C", 1).unlink()
    with pytest.raises(IntegrityError, match="C/update-1/audit.json: is not there, but the journal tells"):
        audited(study)
    assert len(audited(study, ["N"]).updates) == 2  # what was not asked for is not missed


def test_an_edited_rollout_is_found_by_its_digest(study):
    part = study[1].update("main", "N", 1) / "part-000.parquet"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(IntegrityError, match="part-000.parquet"):
        audited(study)


def test_rollouts_that_were_removed_are_missed(study):
    shutil.rmtree(study[1].update("main", "X", 1), ignore_errors=True)
    study[1].update("main", "X", 1).mkdir()
    shutil.copy(study[1].audit("main", "N", 1), study[1].audit("main", "X", 1))
    with pytest.raises(IntegrityError):
        audited(study)


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("s0", 99.0, f"s0 is 99.0; the rollouts give {324 / 22}"),  # 12 to 17 thinking tokens twice, 13 to 17 twice
        ("learning_rate", 0.002, "learning_rate is 0.002; the rollouts give 0.001"),
        ("reward_mean", 0.5, "reward_mean is 0.5; the rollouts give "),
    ],
)
def test_without_digests_recomputing_finds_an_edit(study, field, value, line):
    locked, run = study
    edit_audit(run.audit("main", "N", 1), lambda audit: audit.update({field: value}))
    forget_digests(run, locked)
    assert audited(study, ["N"]).problems() == []
    assert "--recompute compares them" in audited(study, ["N"]).notes[0]
    [found] = audited(study, ["N"], recompute=True).problems()
    assert found.startswith(f"main/N/update-1: {line}")


def test_weights_that_were_changed_consistently_are_found_by_recomputing(study):
    """Every sum is doubled, so all identities hold."""
    locked, run = study

    def double(audit):
        weights = audit["weights"]
        for part in (weights, *weights["by_source"].values(), *weights["by_effort"].values()):
            part["absolute_weight"] *= 2
            part["net_weight"] *= 2

    edit_audit(run.audit("main", "N", 1), double)
    forget_digests(run, locked)
    assert audited(study, ["N"]).problems() == []
    assert "main/N/update-1: weights.absolute_weight is" in "\n".join(audited(study, ["N"], recompute=True).problems())


def test_an_identity_that_fails_is_a_problem(study):
    locked, run = study

    def tilt(audit):
        audit["weights"]["net_weight"] = 1.0

    edit_audit(run.audit("main", "N", 1), tilt)
    forget_digests(run, locked)
    problems = audited(study, ["N"]).problems()
    assert len(problems) == 2
    assert problems[0].startswith("main/N/update-1: does not hold: net weight zero by construction")


def test_a_source_that_was_renamed_is_found(study):
    locked, run = study

    def rename(audit):
        audit["weights"]["by_source"]["other"] = audit["weights"]["by_source"].pop("sums")

    edit_audit(run.audit("main", "C", 1), rename)
    forget_digests(run, locked)
    [line] = audited(study, ["C"], recompute=True).problems()
    assert line == "main/C/update-1: weights.by_source has other, products; the rollouts have products, sums"


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"{}", b'{"update": 1, "weights": 3}', b'{"update": 2}', b'{"update": NaN}', b"[" * 100_000]
)
def test_what_is_no_audit_is_refused(study, content):
    locked, run = study
    run.audit("main", "N", 1).write_bytes(content)
    forget_digests(run, locked)
    with pytest.raises(IntegrityError, match="is not an audit of the weights of update 1"):
        audited(study, ["N"])


def test_other_problems_than_the_locked_ones_are_refused(study):
    path = study[1].problems
    path.write_bytes(path.read_bytes().replace(b'"gold": "0"', b'"gold": "1"'))
    with pytest.raises(IntegrityError, match="is not the file of training problems that the plan was locked with"):
        audited(study, ["N"], recompute=True)


def test_a_rollout_without_a_weighted_token_is_counted_and_its_share_of_the_net_is_not_promised(tmp_path, monkeypatch):
    """A rollout that closes its thinking at once still has the closing token; one that never opens it has none."""
    from tests.verdict import study as builder

    real = builder.rollout

    def without_thinking(info, problem, effort, index, kind, logprob):
        import dataclasses

        made = real(info, problem, effort, index, kind, logprob)
        if (problem, index) == ("p3", 0) and info.stage == "update":
            ids = [token for token in made.token_ids if token != CLOSE]
            fields = {name: getattr(made, name)[: len(ids)] for name in ("logprobs", "top_entropy", "top_mass")}
            return dataclasses.replace(made, prompt_opens_thinking=False, token_ids=ids, **fields)
        return made

    monkeypatch.setattr(builder, "rollout", without_thinking)
    locked, run = write_run(tmp_path)
    for one in audited((locked, run), ["N"], recompute=True).updates:
        assert one.weightless == 2  # at both efforts
        assert "net_zero" not in {identity.name for identity in one.identities}
        assert list(one.problems()) == []


def test_updates_of_an_extension_are_audited_like_the_others(tmp_path):
    locked, run = write_run(tmp_path)
    write_update(run, locked, "N", 12, {"clean": 8})
    assert [one.update for one in audited((locked, run), ["N"]).updates] == [1, 2, 12]


def test_an_update_that_has_not_been_trained_yet_is_passed_over(study):
    locked, run = study
    shutil.copytree(run.update("main", "N", 1), run.update("main", "N", 3))
    run.audit("main", "N", 3).unlink()
    stage = run.update("main", "N", 3)
    from ablation.files import sha256_file

    tell(run, locked, "stage_sampled", stage="main/N/update-3", stage_sha256=sha256_file(stage / "stage.json"))
    assert [one.update for one in audited(study, ["N"]).updates] == [1, 2]


def test_the_record_in_the_repository_is_the_same_to_the_last_bit_or_rounding():
    locked = verify_lock(RECORD / "plan.yaml")
    found = audit_run(RECORD, locked, families=["main", "replication"], arms=["C", "N"], recompute=True)
    assert len(found.updates) == 20 and found.problems() == []
    assert all(one.recomputed.whole for one in found.updates)
    nets = [one.audit["weights"]["net_share"] for one in found.updates if one.arm == "C"]
    assert sum(net < 0 for net in nets) == 9  # the control is net negative at 9 of its 10 updates


def test_an_update_is_audited_once_whatever_else_lies_there(study):
    run = study[1]
    other = run.update("main", "N", 1).with_name("update-01")
    other.mkdir()
    shutil.copy(run.audit("main", "N", 1), other)
    assert [one.update for one in audited(study, ["N"]).updates] == [1, 2]
