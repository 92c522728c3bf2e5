import os
from pathlib import Path

import pytest

from ablation.plan.gitproof import check_git
from ablation.plan.lock import lock_plan, read_lock
from tests.plan.conftest import write_plan
from tests.plan.proofs import allow, make_key, needs, relock, tool

pytestmark = needs("git")
COMMITTED = "2026-03-01T12:00:00+00:00"
BEFORE, AFTER = "2026-03-01T11:59:59.000+00:00", "2026-03-01T12:00:01.000+00:00"
WHO = "author@example.org"


def git(folder: Path, *arguments: str, date: str = COMMITTED) -> str:
    settings = ["-c", "user.name=Author", "-c", f"user.email={WHO}", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "GIT_CONFIG_GLOBAL": os.devnull}
    return tool("git", *settings, *arguments, cwd=folder, env=os.environ | dates)


@pytest.fixture
def plan(tmp_path) -> Path:
    """A locked plan in a repository, in a folder below its root; committed."""
    git(tmp_path, "init", "-q")
    folder = tmp_path / "plans"
    folder.mkdir()
    path = write_plan(folder)
    lock_plan(path)
    git(tmp_path, "add", "plans")
    git(tmp_path, "commit", "-q", "-m", "Plan and lock")
    return path


def states(plan, began=None, signers=None):
    return [(one.kind, one.state) for one in check_git(read_lock(plan), began, signers)]


def test_the_commit_must_precede_the_first_event(plan):
    (proof,) = check_git(read_lock(plan), AFTER)
    commit = git(plan.parent, "rev-parse", "HEAD")[:12]
    assert proof.state == "proven" and f"commit {commit} of 2026-03-01T12:00:00" in proof.says
    assert "before the run's first event" in proof.says and "that the date is true" in proof.limits
    (late,) = check_git(read_lock(plan), BEFORE)
    assert late.state == "not proven" and "after the run's first event" in late.says
    assert states(plan) == [("git", "proven")]


def test_it_is_the_commit_that_added_the_lock_that_counts(plan):
    plan.with_name("notes.txt").write_text("later")
    git(plan.parent, "add", ".")
    git(plan.parent, "commit", "-q", "-m", "Notes", date="2026-05-01T00:00:00+00:00")
    assert "2026-03-01T12:00:00" in check_git(read_lock(plan), AFTER)[0].says


@pytest.mark.parametrize("committed_again", [False, True])
def test_plan_and_lock_edited_together_are_caught(plan, committed_again):
    relock(plan)
    if committed_again:
        git(plan.parent, "add", ".")
        git(plan.parent, "commit", "-q", "-m", "Nothing to see")
    (proof,) = check_git(read_lock(plan), AFTER)
    assert proof.state == "failed" and "holds another lock at plans/small.lock" in proof.says


def test_a_tag_still_knows_when_the_history_was_written_again(plan):
    git(plan.parent, "tag", "-a", "-m", "locked", "locked")
    relock(plan)
    git(plan.parent, "add", ".")
    git(plan.parent, "commit", "-q", "--amend", "-m", "Plan and lock")
    assert states(plan, AFTER) == [("git", "proven"), ("tag", "failed")]


@needs("ssh-keygen")
def test_a_signed_tag_is_checked_against_the_allowed_signers(plan, tmp_path):
    key = make_key(tmp_path, "key")
    signing = ["-c", "gpg.format=ssh", "-c", f"user.signingKey={key}"]
    git(plan.parent, *signing, "tag", "-s", "-m", "locked", "locked")
    allowed = allow(tmp_path, WHO, key)
    _, proof = check_git(read_lock(plan), AFTER, allowed)
    assert (proof.kind, proof.state) == ("tag", "proven") and WHO in proof.says
    assert states(plan, BEFORE, allowed)[1] == ("tag", "not proven")
    other = allow(tmp_path, WHO, make_key(tmp_path, "other"))
    assert states(plan, AFTER, other)[1] == ("tag", "not proven")


def test_tags_without_a_lock_and_plain_tags_say_nothing(plan):
    git(plan.parent, "tag", "light")
    git(plan.parent, "rm", "-q", "--cached", "small.lock")
    git(plan.parent, "commit", "-q", "-m", "Without it")
    git(plan.parent, "tag", "-a", "-m", "none", "without")
    assert states(plan) == [("git", "proven")]


def test_what_is_not_committed_or_in_no_repository_is_not_proven(plan, tmp_path_factory):
    outside = write_plan(tmp_path_factory.mktemp("outside"))
    lock_plan(outside)
    assert check_git(read_lock(outside), None)[0].says == "the lock is not in a git repository"
    folder = plan.parent / "more"
    folder.mkdir()
    other = write_plan(folder)
    lock_plan(other)
    (proof,) = check_git(read_lock(other), AFTER)
    assert (proof.state, proof.says) == ("not proven", "plans/more/small.lock is not committed")


def test_a_repository_without_a_commit(tmp_path):
    git(tmp_path, "init", "-q")
    path = write_plan(tmp_path)
    lock_plan(path)
    assert check_git(read_lock(path), None)[0].says == "small.lock is not committed"
