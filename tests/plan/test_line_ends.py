"""A checkout whose git made CRLF of all line ends: what is said, and that the command which is said helps."""

import json
import subprocess

import pytest

from ablation.chain import chained_line, read_chain
from ablation.errors import IntegrityError
from ablation.files import CRLF_HINT
from ablation.plan.lock import lock_path, lock_plan, verify_lock


def git(folder, *words):
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b", *words], check=True, capture_output=True
    )


def test_a_checkout_with_crlf_is_named_and_put_right_by_the_command(plan_path):
    folder = plan_path.parent
    lock_plan(plan_path)
    journal = folder / "journal.jsonl"
    journal.write_bytes(chained_line({"seq": 0, "event": "x"}, "0" * 64) + b"\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "x")
    git(folder, "config", "core.autocrlf", "true")
    git(folder, "rm", "-rq", "--cached", ".")
    git(folder, "reset", "-q", "--hard")
    assert b"\r\n" in lock_path(plan_path).read_bytes() and b"\r\n" in journal.read_bytes()

    for look in (lambda: verify_lock(plan_path), lambda: read_chain(journal, counter="seq", first=0, what="journal")):
        with pytest.raises(IntegrityError) as refused:
            look()
        assert refused.value.hint == CRLF_HINT
    (folder / ".gitattributes").write_text("* -text\n")
    said = CRLF_HINT.split("then: ")[1].split(" (")[0]
    subprocess.run(said, shell=True, cwd=folder, check=True)
    assert verify_lock(plan_path).digest == json.loads(lock_path(plan_path).read_bytes())["digest"]
    assert len(read_chain(journal, counter="seq", first=0, what="journal").records) == 1
