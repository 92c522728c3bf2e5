import fcntl
import json
import os
import resource
import shutil
import signal
import subprocess
import time

import pytest

from ablation import files
from ablation.errors import UsageError
from ablation.files import DiskError, folder_is_complete
from ablation.merge import run
from ablation.merge.run import CARD, RECORD, MergeRefused, Settings, merge, remove_unfinished
from ablation.merge.source import find_source
from ablation.plan.lock import verify_lock
from tests.merge.conftest import bfloat16_study
from tests.merge.small import weights
from tests.study.mini import ablation, command, environment

SHORT = {"texts": 2, "longest": 24}
"""For tests that do not ask what the models say."""


def source(study, text="C@2"):
    return find_source(verify_lock(study / "plans" / "mini.yaml"), study / "runs" / "mini", text)


def quietly(_: str) -> None: ...


def card(record: dict) -> str:
    return f"card of {record['arm']}\n"


def partial(folder) -> list:
    return [path for path in folder.iterdir() if path.name.startswith(".partial-")] if folder.is_dir() else []


@pytest.fixture(scope="module")
def done(finished, tmp_path_factory):
    """(record, folder) of one merge."""
    folder = tmp_path_factory.mktemp("done") / "C@2"
    return merge(source(finished), Settings(folder, texts=8), quietly, card), folder


def test_a_merge_from_beginning_to_end(done):
    record, folder = done
    assert record["written"] and folder_is_complete(folder) and not partial(folder.parent)
    stored = json.loads((folder / RECORD).read_text())
    assert stored == {name: value for name, value in record.items() if name != "written"} and stored["state"] == "finished"
    assert record["lora"]["pairs"] == record["lora"]["used"] == 4 * 7 + 1
    assert record["texts"]["origin"] == "main/C/readout" and record["texts"]["count"] == 8
    check = record["check"]
    assert check["passed"] and check["merged_vs_adapter"]["mean_absolute"] < 1e-5
    assert check["adapter_vs_base"]["mean_absolute"] > 1e-3
    assert 0 < check["adapter_vs_start"]["mean_absolute"] < check["adapter_vs_base"]["mean_absolute"]
    assert check["adapter_vs_sampler"]["mean_absolute"] < 1e-5  # these texts were sampled by this very adapter
    assert record["breakage"]["passed"] and record["breakage"]["checks"]["tool_call"]["result"] == "not asked"
    assert (folder / CARD).read_text() == "card of C\n"


def test_the_bases_sampling_defaults_are_copied(done, finished):
    for name in ("generation_config.json", "config.json", "chat_template.jinja", "tokenizer.json"):
        assert (done[1] / name).read_bytes() == (finished / "base" / name).read_bytes(), name


def test_the_same_merge_again_writes_nothing(done, finished):
    record, folder = done
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = merge(source(finished), Settings(folder), quietly, card)
    assert not again["written"] and again["check"] == record["check"]
    assert list(again["breakage"]["checks"].items()) == list(record["breakage"]["checks"].items())  # in the same order, too
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_a_folder_that_is_another_one_is_let_alone(done, finished, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="is there already, and is not this merge"):
        merge(source(finished), Settings(tmp_path / "mine"), quietly, card)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    with pytest.raises(UsageError, match="is there already, and is not this merge"):
        merge(source(finished, "C@1"), Settings(done[1]), quietly, card)
    changed = shutil.copytree(done[1], tmp_path / "changed")
    (changed / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="a file of it was changed or is missing"):
        merge(source(finished), Settings(changed), quietly, card)


def test_a_folder_that_came_meanwhile_is_let_alone(finished, tmp_path):
    def card_and_folder(record):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "thesis.txt").write_text("years of work")
        return "card"

    with pytest.raises(UsageError, match="is there already, and is not this merge"):
        merge(source(finished), Settings(tmp_path / "out", **SHORT), quietly, card_and_folder)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"] and not partial(tmp_path)


def test_a_folder_that_came_while_files_were_hashed_is_let_alone(finished, tmp_path, monkeypatch):
    real = files.folder_files

    def hashed(folder):
        if folder.parent == tmp_path:
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "thesis.txt").write_text("years of work")
        return real(folder)

    monkeypatch.setattr(files, "folder_files", hashed)
    with pytest.raises(UsageError, match="is there already, and is not this merge"):
        merge(source(finished), Settings(tmp_path / "out", **SHORT), quietly, card)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"] and not partial(tmp_path)


def test_the_same_merge_that_another_command_wrote_meanwhile_is_taken(done, finished, tmp_path):
    def card_and_folder(record):
        shutil.copytree(done[1], tmp_path / "out")
        return "card"

    record = merge(source(finished), Settings(tmp_path / "out", **SHORT), quietly, card_and_folder)
    assert not record["written"] and record["check"] == done[0]["check"]
    assert (tmp_path / "out" / CARD).read_text() == "card of C\n" and not partial(tmp_path)


@pytest.mark.parametrize("where", ["runs/mini/merged", "runs/mini/main/C/update-1/merged", "base/merged"])
def test_what_has_a_digest_gets_no_folder_inside(finished, where):
    with pytest.raises(UsageError, match="is inside the (run folder|base) .*, which stays as it is"):
        merge(source(finished), Settings(finished / where), quietly, card)
    assert not (finished / where).exists()


@pytest.mark.parametrize(("where", "words"), [("file/out", "Not a directory"), ("x" * 300, "File name too long")])
def test_a_place_that_can_be_none_is_refused_before_anything_is_computed(finished, tmp_path, where, words, monkeypatch):
    monkeypatch.setattr(run, "_Job", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=words):
        merge(source(finished), Settings(tmp_path / where), quietly, card)


def test_vllm_is_insisted_on(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "vllm_is_here", lambda: False)
    with pytest.raises(UsageError, match="--engine vllm: vLLM is not installed here"):
        merge(source(finished), Settings(tmp_path / "out", engine="vllm"), quietly, card)


def test_which_texts_depends_on_the_seed_alone(finished):
    from ablation.merge.texts import choose_texts
    from ablation.policy.loading import load_tokenizer

    found, tokenizer = source(finished), load_tokenizer(finished / "base")
    first, again, other = (choose_texts(found, tokenizer, 6, seed, 1000) for seed in (1, 1, 2))
    assert first.names == again.names != other.names
    assert [row.token_ids.tolist() for row in first.rows] == [row.token_ids.tolist() for row in again.rows]
    cut = choose_texts(found, tokenizer, 6, 1, 5)
    assert cut.names == first.names and max(len(row.token_ids) for row in cut.rows) == 5
    assert choose_texts(source(finished, "C@1"), tokenizer, 6, 1, 1000).origin == "main/C/update-2"
    assert choose_texts(source(finished, "start@0"), tokenizer, 6, 1, 1000).origin == "main/start/sweep"


def test_another_chat_template_than_when_it_was_sampled_is_refused(study):
    from ablation.errors import IntegrityError
    from ablation.merge.texts import choose_texts
    from ablation.policy.loading import load_tokenizer

    found = source(study)
    path = study / "base" / "chat_template.jinja"
    path.write_text(path.read_text().replace("'<|user|>'", "'<|user|><|user|>'"))
    with pytest.raises(IntegrityError, match="is rendered otherwise now than when it was sampled"):
        choose_texts(found, load_tokenizer(study / "base"), 6, 1, 1000)


def test_without_a_run_the_prompts_are_the_texts(study, tmp_path):
    shutil.rmtree(study / "runs")
    record = merge(source(study, "start@0"), Settings(tmp_path / "start", texts=5, longest=24), quietly, card)
    assert record["texts"]["origin"] == "prompts" and record["texts"]["count"] == 5
    assert "adapter_vs_start" not in record["check"] and record["journal"] is None


@pytest.mark.slow
def test_an_effect_that_rounding_takes_is_refused_and_leaves_nothing(tmp_path):
    bfloat16_study(tmp_path, 0.003)
    before = sorted(path.name for path in tmp_path.iterdir())
    result = ablation(tmp_path, "merge", "start@0", "--json", "--texts", "8")
    assert result.returncode == 4, result.stderr
    content = json.loads(result.stdout)
    assert content["refused"] == "merge_lost_effect" and content["exit_code"] == 4
    assert content["check"]["ratio"] >= 0.25 and not content["check"]["passed"]
    assert content["weights"]["all"]["unchanged_share"] > 0.5
    assert "merge_lost_effect" in result.stderr and "Traceback" not in result.stderr
    assert not list((tmp_path / "merged").iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == [*before[:1], "merged", *before[1:]]


def test_an_effect_that_bfloat16_can_hold_is_merged(tmp_path):
    plan = bfloat16_study(tmp_path, 0.06)
    found = find_source(verify_lock(plan), tmp_path / "runs" / "mini", "start@0")
    record = merge(found, Settings(tmp_path / "out", texts=8), quietly, card)
    assert record["check"]["ratio"] < 0.25 and record["stored_dtype"] == ["BF16"]
    assert all(str(one.dtype) == "torch.bfloat16" for one in weights(tmp_path / "out").values())


def test_weights_that_are_not_what_the_adapter_computes_are_refused(finished, tmp_path, monkeypatch):
    real = run.write_merged

    def without_one_pair(base, adapter, folder):
        found = real(base, adapter, folder)
        shutil.copyfile(finished / "base" / "model.safetensors", folder / "model.safetensors")  # as if nothing was added
        return found

    monkeypatch.setattr(run, "write_merged", without_one_pair)
    with pytest.raises(MergeRefused, match="merge_lost_effect") as refused:
        merge(source(finished), Settings(tmp_path / "out", texts=8, longest=24), quietly, card)
    assert refused.value.record["check"]["ratio"] == pytest.approx(1.0)
    assert not (tmp_path / "out").exists() and not partial(tmp_path)


@pytest.mark.slow
def test_a_killed_merge_has_no_name_and_is_removed_by_the_next(study):
    arguments = ("merge", "C@2", "--plan", "plans/mini.yaml", "--texts", "8")
    target = study / "merged"
    process = subprocess.Popen(command(*arguments), cwd=study, env=environment(), stderr=subprocess.DEVNULL)
    until = time.monotonic() + 240
    while not any((path / RECORD).is_file() for path in partial(target)):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (target / "mini-C@2").exists() and len(partial(target)) == 1
    again = ablation(study, *arguments)
    assert again.returncode == 0, again.stderr
    assert "a merge that was killed had left it" in again.stderr
    assert folder_is_complete(target / "mini-C@2") and not partial(target)
    text = (target / "mini-C@2" / CARD).read_text()
    assert "> **Release: the plan has no rule for a release. The study's label is INCOMPLETE.**" in text.replace("\\_", "_")
    assert "**Damage**, main/C (this checkpoint)" in text and "**FILL IN**" in text
    third = ablation(study, *arguments, "--json")
    assert third.returncode == 0 and json.loads(third.stdout)["written"] is False


def test_what_another_process_is_at_work_on_is_let_alone(tmp_path):
    for name in (".partial-alive", ".partial-dead", ".partial-foreign"):
        (tmp_path / name).mkdir()
    for name in (".partial-alive", ".partial-dead"):
        (tmp_path / name / RECORD).write_text("{}")
    handle = os.open(tmp_path / ".partial-alive", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        assert remove_unfinished(tmp_path) == [tmp_path / ".partial-dead"]
    finally:
        os.close(handle)
    assert sorted(path.name for path in partial(tmp_path)) == [".partial-alive", ".partial-foreign"]


def test_a_disk_that_is_too_small_is_found_before_anything_is_done(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(DiskError, match=r"needs 0.07 GB, and 0.00 GB are free"):
        merge(source(finished), Settings(tmp_path / "deep" / "out"), quietly, card)
    assert not (tmp_path / "deep").exists()


@pytest.mark.slow
def test_a_disk_that_fills_up_leaves_no_folder(study):
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))

    result = ablation(study, "merge", "C@2", "--plan", "plans/mini.yaml", "--texts", "8", preexec_fn=limited)
    assert result.returncode == 2
    assert "could not be written: File too large" in result.stderr and "Traceback" not in result.stderr
    assert not list((study / "merged").iterdir())
