import subprocess

import pytest

from ablation.errors import UsageError
from ablation.plan.lock import lock_plan, read_lock
from ablation.plan.signature import check_signature, sign_lock, signature_path
from tests.plan.proofs import allow, make_key, needs, relock

pytestmark = needs("ssh-keygen")
WHO = "author@example.org"


@pytest.fixture
def signed(plan_path, tmp_path):
    """(plan, lock, key, allowed signers)"""
    lock = lock_plan(plan_path)
    key = make_key(tmp_path, "key")
    sign_lock(lock, key)
    return plan_path, lock, key, allow(tmp_path, WHO, key)


def test_a_signature_proves_who_and_says_that_it_does_not_prove_when(signed):
    _, lock, _, allowed = signed
    assert signature_path(lock).name == "small.lock.sig"
    proof = check_signature(lock, allowed)
    assert proof.state == "proven"
    assert f"{WHO} signed this lock" in proof.says and proof.limits == "when it was signed"


def test_openssh_itself_verifies_it(signed):
    _, lock, _, allowed = signed
    command = ["ssh-keygen", "-Y", "verify", "-f", allowed, "-I", WHO, "-n", "ablation-lock", "-s", signature_path(lock)]
    assert subprocess.run(command, input=lock.path.read_bytes(), capture_output=True, check=False).returncode == 0


def test_without_allowed_signers_nobody_is_named(signed):
    _, lock, _, _ = signed
    proof = check_signature(lock)
    assert proof.state == "not proven" and WHO not in proof.says and "--allowed-signers" in proof.says


@pytest.mark.parametrize("with_signers", [True, False])
def test_plan_and_lock_edited_together_are_caught(signed, with_signers):
    plan, _, _, allowed = signed
    proof = check_signature(relock(plan), allowed if with_signers else None)
    assert proof.state == "failed" and "is not a signature of this lock file" in proof.says


def test_signing_again_with_another_key_is_caught_by_the_allowed_signers(signed, tmp_path):
    plan, _, _, allowed = signed
    lock = relock(plan)
    signature_path(lock).unlink()
    sign_lock(lock, make_key(tmp_path, "other"))
    proof = check_signature(lock, allowed)
    assert proof.state == "failed" and "does not allow" in proof.says


def test_a_signature_made_for_something_else_does_not_pass(signed, tmp_path):
    _, lock, key, allowed = signed
    signature_path(lock).unlink()
    subprocess.run(["ssh-keygen", "-Y", "sign", "-f", key, "-n", "git", lock.path], capture_output=True, check=True)
    assert check_signature(lock, allowed).state == "failed"


def test_no_signature_is_said(plan_path):
    lock_plan(plan_path)
    assert check_signature(read_lock(plan_path)).says.startswith("the lock has none")


def test_a_lock_is_signed_once_and_a_bad_key_is_one_line(signed, tmp_path):
    _, lock, key, _ = signed
    with pytest.raises(UsageError, match="is signed already"):
        sign_lock(lock, key)
    signature_path(lock).unlink()
    (tmp_path / "bad").write_text("no key")
    with pytest.raises(UsageError, match="ssh-keygen could not sign with it"):
        sign_lock(lock, tmp_path / "bad")
    with pytest.raises(UsageError, match="there is no such key"):
        sign_lock(lock, tmp_path / "absent")
    with pytest.raises(UsageError, match="no such file of allowed signers"):
        sign_lock(lock, key)
        check_signature(lock, tmp_path / "absent")
