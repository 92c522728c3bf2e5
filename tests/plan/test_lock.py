from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import ablation
from ablation.errors import AblationError, IntegrityError, UsageError
from ablation.files import json_bytes
from ablation.plan import lock as lock_module
from ablation.plan.canonical import tree_digest
from ablation.plan.choose import lock_path
from ablation.plan.load import PlanError, load_plan
from ablation.plan.lock import lock_plan, read_lock, restore_plan, verify_lock
from tests.plan.conftest import BASE, write_plan


def refused(path, **options) -> IntegrityError:
    with pytest.raises(IntegrityError) as caught:
        verify_lock(path, **options)
    assert caught.value.exit_code == 3
    return caught.value


def test_a_lock_says_what_was_locked(plan_path):
    lock = lock_plan(plan_path)
    assert lock.path == plan_path.with_name("small.lock")
    content = json.loads(lock.path.read_bytes())
    data = plan_path.read_bytes()
    assert content["bytes_sha256"] == hashlib.sha256(data).hexdigest()
    assert content["digest"] == load_plan(plan_path).digest
    assert content["text"].encode() == data
    assert content["plan"]["sampling"]["top_logprobs"] == 20  # a default, written out
    assert content["resources"]["model.base"] == {"at": "base.bin", "sha256": hashlib.sha256(BASE).hexdigest(), "owed": None}
    assert "verdict/__init__.py" in content["engine"]["files"]
    assert content["packages"]["pydantic"]
    locked_at = datetime.fromisoformat(content["locked"]["utc"])
    assert locked_at.utcoffset() == timedelta(0)
    locked = verify_lock(plan_path, resources=True)
    assert (locked.digest, locked.warnings) == (content["digest"], [])
    assert locked.plan == load_plan(plan_path).plan


def test_a_plan_is_locked_once(plan_path):
    first = lock_plan(plan_path)
    before = first.path.read_bytes()
    for text in (plan_path.read_text(), plan_path.read_text().replace("limit: -21", "limit: -22")):
        plan_path.write_text(text)
        with pytest.raises(IntegrityError) as caught:
            lock_plan(plan_path)
        assert str(first.path) in caught.value.message
        assert first.digest in caught.value.message
        assert first.path.read_bytes() == before


def test_the_same_plan_under_another_file_name_is_not_locked_again(plan_path):
    lock = lock_plan(plan_path)
    other = plan_path.with_name("other.yaml")
    for change in (b"", b"# a comment\n"):
        other.write_bytes(change + plan_path.read_bytes())
        with pytest.raises(
            IntegrityError, match=f"other.yaml is a plan that was locked already: .*{lock.path.name} has its digest"
        ):
            lock_plan(other)
        assert not other.with_suffix(".lock").exists()
    other.write_bytes(plan_path.read_bytes().replace(b"\nname: ", b"\nname: another-", 1))
    assert lock_plan(other).digest != lock.digest


def test_a_lock_that_is_a_link_to_nothing_is_named(plan_path):
    plan_path.with_suffix(".lock").symlink_to("gone.lock")
    for use in (lock_plan, verify_lock):
        with pytest.raises(IntegrityError, match="is a link to gone.lock, which is not there"):
            use(plan_path)


def test_of_two_lockers_one_wins(plan_path, monkeypatch):
    """Both have seen that there is no lock before either writes one."""
    barrier = threading.Barrier(2)
    real = lock_module._write_once

    def write(path, data):
        barrier.wait(timeout=30)
        return real(path, data)

    monkeypatch.setattr(lock_module, "_write_once", write)
    results = []

    def work():
        try:
            results.append(lock_plan(plan_path))
        except IntegrityError as error:
            results.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(result, IntegrityError) for result in results) == 1
    assert not list(plan_path.parent.glob(".partial-*"))
    verify_lock(plan_path)


def test_not_locked(plan_path):
    error = refused(plan_path)
    assert error.message == f"{plan_path} is not locked"
    assert f"ablation plan lock {plan_path}" in error.hint


def test_no_plan_at_all(tmp_path):
    with pytest.raises(UsageError, match="there is no such plan"):
        verify_lock(tmp_path / "none.yaml")


def test_a_changed_value_is_shown_field_by_field(plan_path):
    lock_plan(plan_path)
    text = plan_path.read_text().replace("limit: -21", "limit: -20").replace("{weighting: token}", "{weighting: rollout}")
    plan_path.write_text(text)
    error = refused(plan_path)
    assert error.message.split("\n")[1:] == [
        '  arms.C.weighting: "token" -> "rollout"',
        "  verdict.damage[0].limit: -21 -> -20",
    ]
    assert "restore" in error.hint


def test_a_reordered_plan_is_shown(plan_path):
    lock_plan(plan_path)
    text = plan_path.read_text()
    match = re.search(r"(  N: .*\n)(  XK: .*\n)", text)
    plan_path.write_text(text.replace(match[0], match[2] + match[1]))
    assert refused(plan_path).message.split("\n")[1:] == ['  order.arms: ["C", "N", "XK"] -> ["C", "XK", "N"]']


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text + "# one more comment\n",
        lambda text: text.replace("# a rate", "# the rate"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("limit: -21", "limit: -21.0"),
    ],
)
def test_a_comment_or_layout_edit_is_named_cosmetic(plan_path, edit):
    lock_plan(plan_path)
    plan_path.write_bytes(edit(plan_path.read_text()).encode())
    error = refused(plan_path)
    assert "cosmetic edit" in error.message
    assert "restore" in error.hint


def test_restore_puts_the_locked_bytes_back_and_keeps_the_edit(plan_path):
    before = plan_path.read_bytes()
    lock_plan(plan_path)
    plan_path.write_bytes(before + b"# edit\n")
    kept = restore_plan(plan_path)
    assert plan_path.read_bytes() == before
    assert kept.read_bytes() == before + b"# edit\n"
    assert restore_plan(plan_path) is None
    plan_path.write_bytes(before + b"# another\n")
    with pytest.raises(UsageError, match="in the way"):
        restore_plan(plan_path)
    assert plan_path.read_bytes() == before + b"# another\n"


def test_an_edit_that_is_no_plan_any_more(plan_path):
    lock_plan(plan_path)
    plan_path.write_text(plan_path.read_text().replace("limit: -21", "limt: -21"))
    assert "no longer a valid plan" in refused(plan_path).message
    plan_path.write_bytes(b"\xff")
    assert "no longer a valid plan" in refused(plan_path).message
    plan_path.unlink()
    assert "the locked plan is gone" in refused(plan_path).message
    restore_plan(plan_path)
    verify_lock(plan_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: b"[]",
        lambda data: data.replace(b'"limit": -21', b'"limit": -20'),
        lambda data: data.replace(b"limit: -21", b"limit: -20"),
        lambda data: data.replace(b'"ablation_lock": 1', b'"ablation_lock": 2'),
        lambda data: data.replace(b'"utc": "20', b'"utc": "19'),
        lambda data: data.replace(b'"order"', b'"orders"'),
        lambda data: data.replace(b'"limit": -21', b'"limit": NaN'),
        lambda data: b"[" * 100_000,
        lambda data: b"\xff" + data,
    ],
)
def test_a_damaged_or_edited_lock_file(plan_path, damage):
    path = lock_plan(plan_path).path
    before = path.read_bytes()
    path.write_bytes(damage(before))
    assert path.read_bytes() != before
    assert "the lock file is damaged or was edited" in refused(plan_path).message


def test_lock_edited_consistently_but_not_its_own_digest(plan_path):
    """Plan and lock edited together: the lock's own digest still tells."""
    path = lock_plan(plan_path).path
    content = json.loads(path.read_bytes())
    plan_path.write_text(plan_path.read_text().replace("limit: -21", "limit: -20"))
    loaded = load_plan(plan_path)
    content |= {"digest": loaded.digest, "bytes_sha256": loaded.bytes_sha256, "text": plan_path.read_text()}
    content["plan"]["verdict"]["damage"][0]["limit"] = -20
    path.write_text(json.dumps(content))
    assert "does not have the digest that it carries" in refused(plan_path).message


def test_every_byte_of_plan_and_lock_counts(plan_path):
    """A change of one byte is found, or changes nothing that the files say (white space in the lock's JSON)."""
    lock = lock_plan(plan_path)
    for path, step in ((plan_path, 7), (lock.path, 97)):
        before = path.read_bytes()
        for index in range(0, len(before), step):
            changed = bytearray(before)
            changed[index] ^= 1 + index % 255
            path.write_bytes(changed)
            try:
                verify_lock(plan_path)
            except AblationError as error:
                assert error.exit_code == 3
            else:
                assert path == lock.path
                assert json.loads(bytes(changed)) == json.loads(before)
        path.write_bytes(before)
    verify_lock(plan_path)


def test_a_referenced_file_that_changed(plan_path):
    lock_plan(plan_path)
    plan_path.with_name("base.bin").write_bytes(b"other weights")
    assert "base.bin: model.base has changed" in refused(plan_path, resources=True).message
    verify_lock(plan_path)  # a verdict needs no weights


def test_lock_refuses_missing_and_other_files(plan_path):
    plan_path.with_name("base.bin").unlink()
    plan_path.with_name("adapter.bin").write_bytes(b"x")
    with pytest.raises(UsageError) as caught:
        lock_plan(plan_path)
    first, second = caught.value.message.split("\n")
    assert "model.base" in first
    assert "is not at" in first
    assert "model.start_adapter" in second
    assert "but the plan says" in second
    assert not lock_path(plan_path).exists()


def test_lock_refuses_placeholders(tmp_path, plan_text):
    path = write_plan(tmp_path, plan_text.replace("seed: 1}", "seed: TODO}"))
    with pytest.raises(PlanError, match="still the placeholder"):
        lock_plan(path)
    assert not lock_path(path).exists()


def test_owed_and_hub_files_are_recorded(tmp_path, plan_text):
    revision = "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0"
    text = re.sub(r"base: \{.*\}", f"base: {{at: 'hub:Qwen/Qwen3.8-27B@{revision}'}}", plan_text)
    text = re.sub(r"start_adapter: \{.*\}", "start_adapter: {at: a.bin, owed: never published}", text)
    lock = lock_plan(write_plan(tmp_path, text))
    assert lock.owed == {"model.start_adapter": "never published"}
    assert lock.resources["model.base"] == {"at": f"hub:Qwen/Qwen3.8-27B@{revision}", "sha256": None, "owed": None}
    verify_lock(tmp_path / "small.yaml", resources=True)


def test_recipe_files_are_made_first_and_their_digest_is_locked(tmp_path, plan_text, monkeypatch):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    path = write_plan(tmp_path, re.sub(r"base: \{.*\}", "base: {at: 'recipe:toy/base.bin'}", plan_text))
    with pytest.raises(UsageError, match=f"ablation prepare {path}"):
        lock_plan(path)
    made = tmp_path / "cache" / "recipes" / "toy" / "base.bin"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"made")
    assert lock_plan(path).resources["model.base"]["sha256"] == hashlib.sha256(b"made").hexdigest()
    made.write_bytes(b"made again, differently")
    assert "has changed since" in refused(path, resources=True).message


DECIDE = (
    "verdict/rules.py",
    "rollouts/stage.py",
    "policy/local.py",
    "policy/vllm/client.py",
    "study/schedule.py",
    "study/runner.py",
    "seeds.py",
    "chain.py",
    "blind/choose.py",
    "ledger/never_used.py",
    "plan/rules.py",
    "plan/table_library.yaml",
    "power/judged.py",
    "imports/stage.py",
)
"""What samples, trains, schedules, chooses and judges."""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A copy of the program's source, of which the digests are taken."""
    copy = tmp_path / "program" / "ablation"
    shutil.copytree(Path(ablation.__file__).parent, copy, ignore=shutil.ignore_patterns("assets", "__pycache__"))
    monkeypatch.setattr(ablation, "__file__", str(copy / "__init__.py"))
    return copy


def test_other_engine_source_and_packages_are_warnings(plan_path, program, monkeypatch):
    lock_plan(plan_path)
    assert verify_lock(plan_path).warnings == []
    for name in ("report/safe.py", "cli/main.py", "audit/run.py", "view/app.py"):  # these only show, or check again
        (program / name).write_text("")
    assert verify_lock(plan_path).warnings == []
    before = {name: (program / name).read_bytes() for name in DECIDE}
    for name in DECIDE:
        (program / name).write_bytes(before[name] + b"\n# one more line\n")
        assert verify_lock(plan_path).warnings == [f"the engine's source differs from the time of locking: {name}"]
        (program / name).write_bytes(before[name])
    (program / "training" / "new.py").write_text("")
    (program / "seeds.py").unlink()
    versions = lock_module.package_versions()
    monkeypatch.setattr(lock_module, "package_versions", lambda: {**versions, "numpy": "0.1", "torch": None})
    assert verify_lock(plan_path).warnings == [
        "the engine's source differs from the time of locking: seeds.py, training/new.py",
        f"package numpy is 0.1; the plan was locked with {versions['numpy']}",
    ]


def test_a_lock_that_lists_the_source_of_rules_alone_says_what_it_does_not_know(plan_path, program):
    path = lock_plan(plan_path).path
    content = json.loads(path.read_bytes())
    kept = {name: one for name, one in content["engine"]["files"].items() if name.startswith(("verdict/", "training/"))}
    assert len(kept) > 20
    content["engine"] |= {"files": kept}
    content["lock_sha256"] = tree_digest({name: value for name, value in content.items() if name != "lock_sha256"})
    path.write_bytes(json_bytes(content))
    (program / "verdict" / "rules.py").write_text("")
    (program / "policy" / "local.py").write_text("")
    unknown = (
        "__init__.py, blind, chain.py, errors.py, files.py, imports, ledger, measures, memory.py, plan, policy, power, problems, "
    )
    assert verify_lock(plan_path).warnings == [
        "the engine's source differs from the time of locking: verdict/rules.py",
        f"whether these differ is not known, as the lock does not list them: {unknown}rollouts, seeds.py, study, unseen.py",
    ]


def test_a_field_added_to_the_language_later_is_a_warning_and_a_changed_default_is_refused(plan_path, monkeypatch):
    lock = lock_plan(plan_path)
    real = lock_module.canonical_tree

    def newer(plan):
        tree = real(plan)
        return {**tree, "sampling": {**tree["sampling"], "min_p": 0.0}}

    monkeypatch.setattr(lock_module, "canonical_tree", newer)
    locked = verify_lock(plan_path)
    assert locked.warnings[0] == "fields that did not exist when the plan was locked, each at its default: sampling.min_p"
    assert locked.digest == lock.digest

    def other(plan):
        tree = real(plan)
        return {**tree, "sampling": {**tree["sampling"], "top_p": 0.9}}

    monkeypatch.setattr(lock_module, "canonical_tree", other)
    assert "reads the locked plan differently:\n  sampling.top_p: 1.0 -> 0.9" in refused(plan_path).message


def test_git_commit_and_author(plan_path):
    folder = plan_path.parent

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("config", "user.name", "Reviewer")
    git("config", "user.email", "reviewer@example.org")
    git("add", ".")
    git("commit", "-qm", "plan")
    commit = git("rev-parse", "HEAD")
    content = lock_plan(plan_path).content["locked"]
    assert content["by"] == "Reviewer <reviewer@example.org>"
    assert content["git"] == {"commit": commit, "dirty": False}
    lock_path(plan_path).unlink()
    (folder / "problems.jsonl").write_text((folder / "problems.jsonl").read_text() + "\n")
    with pytest.raises(UsageError):
        lock_plan(plan_path)
    git("checkout", "-q", "problems.jsonl")
    (folder / "note.txt").write_text("x")
    git("add", "note.txt")
    assert lock_plan(plan_path).content["locked"]["git"]["dirty"] is True


def test_without_git(plan_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("LOGNAME", "somebody")
    content = lock_plan(plan_path).content["locked"]
    assert (content["git"], content["by"]) == (None, "somebody")


def test_a_read_only_folder_is_one_clear_error(plan_path, monkeypatch):
    def no_space(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lock_module.tempfile, "mkstemp", no_space)
    with pytest.raises(AblationError, match="No space left on device"):
        lock_plan(plan_path)


def test_read_lock_gives_the_locked_bytes(plan_path):
    data = plan_path.read_bytes()
    lock_plan(plan_path)
    plan_path.write_bytes(b"gone")
    assert read_lock(plan_path).data == data


def test_fields_that_came_since_are_no_edit_of_a_plan(tmp_path):
    """The record was locked before 31 of today's fields were there; of its text one limit is changed."""
    for name in ("plan.yaml", "plan.lock"):
        shutil.copy(Path(__file__).parents[2] / "runs" / "records" / "smollm2" / name, tmp_path / name)
    path = tmp_path / "plan.yaml"
    text = path.read_text()
    assert text.count("limit: -0.15") == 1
    path.write_text(text.replace("limit: -0.15", "limit: -0.01"))
    lines = refused(path).message.split("\n")
    assert lines[1:] == ["  verdict.damage[3].limit: -0.15 -> -0.01"]
