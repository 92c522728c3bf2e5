"""Repositories built to hurt who verifies a plan in them: nothing in them runs, and nothing in them is believed."""

# ruff: noqa: F811

import hashlib
import os
import subprocess
import time
import zlib
from pathlib import Path

import pytest

from ablation.plan import proofs, repository
from ablation.plan.gitproof import check_git
from ablation.plan.lock import lock_plan, read_lock
from ablation.plan.proofs import run_tool
from ablation.plan.provenance import git_state, whoami
from tests.plan.conftest import write_plan
from tests.plan.proofs import allow, make_key, needs, relock, tool
from tests.plan.test_gitproof import AFTER, BEFORE, WHO, git, plan, states  # noqa: F401

pytestmark = needs("git")
PGP = "-----BEGIN PGP SIGNATURE-----\n\niQ==\n-----END PGP SIGNATURE-----\n"
X509 = PGP.replace("PGP SIGNATURE", "SIGNED MESSAGE")
SSH = PGP.replace("PGP", "SSH")


@pytest.fixture(autouse=True)
def nobody(tmp_path_factory, monkeypatch):
    """A reviewer without settings of their own."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.fixture
def trap(plan):
    """A program that leaves a mark, and says what git takes for a good signature."""
    program = plan.parent / "program"
    good = r"\n[GNUPG:] NEWSIG\n[GNUPG:] GOODSIG 0123456789ABCDEF Author <author@example.org>\n[GNUPG:] VALIDSIG 0\n[GNUPG:] TRUST_ULTIMATE 0 pgp"
    program.write_text(f"#!/bin/sh\ntouch '{plan.parent}/ran'\nprintf '{good}\\n'\necho 'Good signature' >&2\nexit 0\n")
    program.chmod(0o755)
    return program


def settings(plan, text, name="config"):
    with open(plan.parent.parent / ".git" / name, "a") as file:
        file.write(text)


def forged_tag(plan, signature, name="locked"):
    """A tag of HEAD that ends in `signature`."""
    head = git(plan.parent, "rev-parse", "HEAD").strip()
    body = f"object {head}\ntype commit\ntag {name}\ntagger Author <{WHO}> 1772366400 +0000\n\nlocked\n{signature}"
    made = subprocess.run(["git", "mktag", "--no-strict"], cwd=plan.parent, input=body.encode(), capture_output=True, check=True)
    git(plan.parent, "update-ref", f"refs/tags/{name}", made.stdout.decode().strip())


def forged_commit(plan, signature):
    """HEAD again, with a signature that nobody made."""
    raw = git(plan.parent, "cat-file", "commit", "HEAD")
    head, _, message = raw.partition("\n\n")
    lines = "gpgsig " + signature.rstrip("\n").replace("\n", "\n ")
    body = f"{head}\n{lines}\n\n{message}".encode()
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"], cwd=plan.parent, input=body, capture_output=True, check=True
    )
    git(plan.parent, "update-ref", "HEAD", made.stdout.decode().strip())


def store(plan, name, kind, content):
    """Write `content` as a loose object under a name that may not be its own."""
    path = plan.parent.parent / ".git" / "objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(zlib.compress(f"{kind} {len(content)}\0".encode() + content))


PROGRAMS = {
    "OpenPGP": (PGP, "[gpg]\n\tprogram = {0}\n"),
    "OpenPGP by its other name": (PGP, '[gpg "openpgp"]\n\tprogram = {0}\n'),
    "X.509": (X509, '[gpg "x509"]\n\tprogram = {0}\n'),
    "SSH": (SSH, '[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tprogram = {0}\n\tallowedSignersFile = {0}\n'),
    "from an included file": (PGP, "[include]\n\tpath = more\n"),
    "from the work tree's own file": (PGP, "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n"),
}


@pytest.mark.parametrize(("signature", "text"), PROGRAMS.values(), ids=list(PROGRAMS))
def test_a_repository_chooses_no_program_that_checks_a_tag(plan, trap, tmp_path, signature, text):
    forged_tag(plan, signature)
    forged_commit(plan, signature)
    forged_tag(plan, signature)
    text += "[log]\n\tshowSignature = true\n"
    settings(plan, text.format(trap))
    for name in ("more", "config.worktree"):
        settings(plan, f"[gpg]\n\tprogram = {trap}\n", name)
    for signers in (None, allow(tmp_path, WHO, make_key(tmp_path, "key"))):
        assert states(plan, AFTER, signers) == [("git", "proven"), ("tag", "not proven")]
    assert not (plan.parent / "ran").exists()


def test_a_repository_chooses_no_keys(plan, tmp_path):
    key = make_key(tmp_path, "key")
    git(plan.parent, "-c", "gpg.format=ssh", "-c", f"user.signingKey={key}", "tag", "-s", "-m", "locked", "locked")
    settings(plan, f'[gpg "ssh"]\n\tallowedSignersFile = {allow(tmp_path, WHO, key)}\n')
    assert states(plan, AFTER)[1] == ("tag", "not proven")


def test_the_reviewers_own_keys_count(plan, tmp_path, nobody):
    key = make_key(tmp_path, "key")
    git(plan.parent, "-c", "gpg.format=ssh", "-c", f"user.signingKey={key}", "tag", "-s", "-m", "locked", "locked")
    (nobody / ".gitconfig").write_text(f'[gpg "ssh"]\n\tallowedSignersFile = {allow(tmp_path, WHO, key)}\n')
    assert states(plan, AFTER)[1] == ("tag", "proven")
    (nobody / ".gitconfig").write_text('[gpg "ssh"]\n\tallowedSignersFile = allowed_signers\n')  # a file of the folder
    allow(plan.parent, WHO, key)
    assert states(plan, AFTER)[1] == ("tag", "not proven")


@needs("gpg")
def test_an_openpgp_key_of_the_reviewer_counts_and_no_other(plan, tmp_path, monkeypatch):
    for name in ("author", "reviewer"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(tmp_path / "author"))
    tool("gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", WHO, "default", "default", "never", cwd=tmp_path)
    git(plan.parent, "-c", f"user.signingKey={WHO}", "tag", "-s", "-m", "locked", "locked")
    assert states(plan, AFTER)[1] == ("tag", "proven")
    monkeypatch.setenv("GNUPGHOME", str(tmp_path / "reviewer"))
    assert states(plan, AFTER)[1] == ("tag", "not proven")


SURROUNDINGS = {
    "a program in the environment": {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "gpg.program", "GIT_CONFIG_VALUE_0": "{0}"},
    "a setting in the environment": {"GIT_CONFIG_PARAMETERS": "'gpg.program={0}'"},
    "another repository": {"GIT_DIR": "{1}/elsewhere"},
    "other objects": {"GIT_OBJECT_DIRECTORY": "{1}/elsewhere"},
    "another folder": {"GIT_WORK_TREE": "{1}/elsewhere"},
}


@pytest.mark.parametrize("variables", SURROUNDINGS.values(), ids=list(SURROUNDINGS))
def test_variables_of_git_change_nothing(plan, trap, monkeypatch, variables):
    forged_tag(plan, PGP)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(trap, plan.parent))
    assert states(plan, AFTER) == [("git", "proven"), ("tag", "not proven")]
    assert not (plan.parent / "ran").exists()


REMOTES = {
    "its program on the other side": '[remote "origin"]\n\turl = {1}\n\tuploadpack = {0}\n\tpromisor = true\n',
    "its way there": '[remote "origin"]\n\turl = ext::{0}\n\tpromisor = true\n[protocol "ext"]\n\tallow = always\n',
    "its ssh": '[remote "origin"]\n\turl = ssh://example.invalid/x\n\tpromisor = true\n[core]\n\tsshCommand = {0}\n',
}


@pytest.mark.parametrize("remote", REMOTES.values(), ids=list(REMOTES))
def test_what_is_missing_is_not_fetched(plan, trap, remote):
    tree = git(plan.parent, "rev-parse", "HEAD:plans").strip()
    (plan.parent.parent / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    text = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = origin\n" + remote
    settings(plan, text.format(trap, plan.parent.parent))
    (proof,) = check_git(read_lock(plan), AFTER)
    assert proof.state == "not proven" and "git could not read its objects" in proof.says
    assert git_state(plan) is None or not git_state(plan)["dirty"]
    assert not (plan.parent / "ran").exists()


AT_LOCK = {
    "file monitor": "[core]\n\tfsmonitor = {0}\n",
    "hooks": "[core]\n\thooksPath = {1}/hooks\n",
    "filter": '[filter "f"]\n\tclean = {0}\n\tsmudge = {0}\n\trequired = true\n',
    "process": '[filter "f"]\n\tprocess = {0}\n\trequired = true\n',
    "differ": '[diff]\n\texternal = {0}\n[diff "f"]\n\ttextconv = {0}\n\tcommand = {0}\n',
    "pager": "[core]\n\tpager = {0}\n[pager]\n\tconfig = {0}\n\tstatus = {0}\n",
    "alias": "[alias]\n\tstatus = !{0}\n\tconfig = !{0}\n\trev-parse = !{0}\n",
}


@pytest.mark.parametrize("text", AT_LOCK.values(), ids=list(AT_LOCK))
def test_a_lock_in_a_received_folder_runs_nothing_of_it(plan, trap, text):
    hooks = plan.parent / "hooks"
    hooks.mkdir()
    for folder in (hooks, plan.parent.parent / ".git" / "hooks"):
        for name in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
            (folder / name).write_bytes(trap.read_bytes())
            (folder / name).chmod(0o755)
    (plan.parent.parent / ".gitattributes").write_text("* filter=f diff=f\n")
    settings(plan, text.format(trap, plan.parent))
    plan.write_text(plan.read_text() + "\n")
    os.utime(plan, (1, 1))
    commit = git(plan.parent, "rev-parse", "HEAD", date=BEFORE).strip()
    (plan.parent / "ran").unlink(missing_ok=True)
    assert git_state(plan) == {"commit": commit, "dirty": True}
    assert whoami(plan)
    assert check_git(read_lock(plan), AFTER)[0].state == "proven"
    assert not (plan.parent / "ran").exists()


def test_a_submodule_runs_nothing_either(plan, trap, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "None")
    git(plan.parent, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "other")
    git(plan.parent, "commit", "-q", "-m", "With another")
    settings(plan, f"[core]\n\tfsmonitor = {trap}\n", "modules/plans/other/config")
    assert git_state(plan)["dirty"] is False
    assert not (plan.parent / "ran").exists()


def test_a_clean_and_a_changed_folder(plan):
    assert git_state(plan) == {"commit": git(plan.parent, "rev-parse", "HEAD").strip(), "dirty": False}
    (plan.parent / "new").write_text("not known to git")
    assert git_state(plan)["dirty"] is False
    plan.write_text(plan.read_text() + "\n")
    assert git_state(plan)["dirty"] is True


def signed(plan, tmp_path):
    """A tag that an allowed signer made of the lock as it was; plan and lock are then written again and committed."""
    key = make_key(tmp_path, "key")
    git(plan.parent, "-c", "gpg.format=ssh", "-c", f"user.signingKey={key}", "tag", "-s", "-m", "locked", "locked")
    before = git(plan.parent, "rev-parse", "HEAD", "HEAD^{tree}", "HEAD:plans").split()
    relock(plan)
    git(plan.parent, "add", ".")
    git(plan.parent, "commit", "-q", "--amend", "-m", "Plan and lock")
    return before, git(plan.parent, "rev-parse", "HEAD", "HEAD^{tree}", "HEAD:plans").split(), allow(tmp_path, WHO, key)


@pytest.mark.parametrize(("kind", "which"), [("commit", 0), ("tree", 1), ("tree", 2)])
def test_an_object_under_anothers_name_is_not_believed(plan, tmp_path, kind, which):
    before, after, signers = signed(plan, tmp_path)
    content = subprocess.run(["git", "cat-file", kind, after[which]], cwd=plan.parent, capture_output=True, check=True).stdout
    store(plan, before[which], kind, content)
    assert ("tag", "proven") not in states(plan, AFTER, signers)


def test_replaced_objects_are_not_believed(plan, tmp_path):
    before, after, signers = signed(plan, tmp_path)
    git(plan.parent, "replace", before[0], after[0])
    assert states(plan, AFTER, signers)[1] == ("tag", "failed")


def test_grafts_are_not_believed(plan):
    lock = plan.with_name("small.lock")
    first = lock.read_bytes()
    for content in (b"another lock", first):
        lock.write_bytes(content)
        git(plan.parent, "commit", "-q", "-a", "-m", "Lock")
    (plan.parent.parent / ".git" / "info" / "grafts").write_text(git(plan.parent, "rev-parse", "HEAD"))
    assert states(plan, AFTER) == [("git", "failed")]


def test_the_settings_do_not_say_where_the_files_are(plan, tmp_path):
    outer = plan.parent.parent
    (outer / "copy" / "plans").mkdir(parents=True)
    for name in ("small.yaml", "small.lock"):
        (outer / "copy" / "plans" / name).write_bytes(plan.with_name(name).read_bytes())
    settings(plan, f"[core]\n\tworktree = {outer / 'copy'}\n")
    (proof,) = check_git(read_lock(outer / "copy" / "plans" / plan.name), AFTER)
    assert (proof.state, proof.says) == ("not proven", "copy/plans/small.lock is not committed")


@pytest.mark.parametrize("name", ["HEAD", "refs/tags/t", "packed-refs", "config", "shallow", "commondir"])
def test_a_pipe_in_place_of_a_file_holds_nothing_up(plan, name):
    path = plan.parent.parent / ".git" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    began = time.monotonic()
    assert all(state != "failed" for _, state in states(plan, AFTER))
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", ["objects/info/alternates", "objects/info/commit-graph", "objects/pack/multi-pack-index"])
def test_a_pipe_among_the_objects_ends_at_the_limit_of_time(plan, name, monkeypatch):
    monkeypatch.setattr(repository, "SECONDS", 2.0)
    path = plan.parent.parent / ".git" / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    began = time.monotonic()
    (proof,) = check_git(read_lock(plan), AFTER)
    assert proof.state == "proven" or "did not end within 2 s" in proof.says
    assert time.monotonic() - began < 20


def test_a_large_object_in_few_bytes_is_refused(plan, monkeypatch):
    monkeypatch.setattr(repository, "_LIMITS", "ulimit -f 2097152; ulimit -v 300000")
    head = git(plan.parent, "cat-file", "commit", "HEAD").encode()
    body = head + bytes(600 << 20)
    name = hashlib.sha1(f"commit {len(body)}\0".encode() + body).hexdigest()
    store(plan, name, "commit", body)
    (plan.parent.parent / ".git" / "HEAD").write_text(name + "\n")
    (proof,) = check_git(read_lock(plan), AFTER)
    assert proof.state == "not proven" and "git could not read its objects" in proof.says


@pytest.mark.parametrize("tagger", ["", f"tagger Author <{WHO}> 1772366400 +9999\n", f"tagger Author <{WHO}> x\n"])
def test_a_tag_with_a_strange_date(plan, tagger):
    head = git(plan.parent, "rev-parse", "HEAD").strip()
    body = f"object {head}\ntype commit\ntag t\n{tagger}\nlocked\n".encode()
    name = hashlib.sha1(f"tag {len(body)}\0".encode() + body).hexdigest()
    store(plan, name, "tag", body)
    git(plan.parent, "update-ref", "refs/tags/t", name)
    assert states(plan, AFTER)[1] == ("tag", "not proven")


def copies(plan, tmp_path):
    """Every way in which an honest repository may lie on a disk: a name, and the lock's plan in it."""
    root, url = plan.parent.parent, f"file://{plan.parent.parent}"
    git(root, "worktree", "add", "-q", "--detach", tmp_path / "worktree")
    git(tmp_path, "clone", "-q", "--shared", root, "shared")
    git(tmp_path, "clone", "-q", "--depth=1", url, "shallow")
    git(tmp_path, "-c", "uploadpack.allowFilter=true", "clone", "-q", "--filter=blob:none", url, "partial")
    git(tmp_path, "clone", "-q", root, "packed")
    git(tmp_path / "packed", "gc", "-q")
    git(tmp_path / "packed", "pack-refs", "--all")
    (tmp_path / "outer").mkdir()
    git(tmp_path / "outer", "init", "-q")
    git(tmp_path / "outer", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", root, "inner")
    return {name: tmp_path / name / "plans" / plan.name for name in ("worktree", "shared", "shallow", "partial", "packed")} | {
        "submodule": tmp_path / "outer" / "inner" / "plans" / plan.name
    }


def test_honest_copies_are_proven(plan, tmp_path_factory):
    git(plan.parent, "tag", "-a", "-m", "locked", "locked")
    for name, copy in copies(plan, tmp_path_factory.mktemp("copies")).items():
        assert states(copy, AFTER) == [("git", "proven"), ("tag", "not proven")], name
        assert git_state(copy)["dirty"] is False, name


def test_a_repository_with_sha256(tmp_path):
    git(tmp_path, "init", "-q", "--object-format=sha256")
    path = write_plan(tmp_path)
    lock_plan(path)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "Plan and lock")
    assert states(path, AFTER) == [("git", "proven")]
    assert git_state(path)["dirty"] is False


def test_a_program_and_what_it_started_end_at_the_limit_of_time(tmp_path):
    began = time.monotonic()
    code, _, error = run_tool("sh", "-c", "sleep 60 & echo $! > child; sleep 60", cwd=tmp_path, timeout=0.5)
    assert (code, error) == (124, "sh did not end within 0.5 s") and time.monotonic() - began < 10
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    while child.exists() and child.read_text().rpartition(") ")[2][0] != "Z":
        assert time.monotonic() - began < 10


def test_a_program_beside_the_lock_is_not_the_one_that_is_meant(plan, trap, monkeypatch):
    for name in ("git", "sh", "ssh-keygen"):
        (plan.parent / name).write_bytes(trap.read_bytes())
        (plan.parent / name).chmod(0o755)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    monkeypatch.chdir(proofs.__file__.rpartition("/")[0])
    states(plan, AFTER)
    git_state(plan)
    whoami(plan)
    assert not (plan.parent / "ran").exists()
