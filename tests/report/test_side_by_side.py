from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ablation.errors import UsageError
from ablation.plan.load import load_plan
from ablation.report.side_by_side import mismatch_of, runs_of_one_plan, same_rollouts
from ablation.report.side_by_side_page import pages
from ablation.report.terminal import plain_console
from ablation.rollouts.folder import RunFolder
from ablation.rollouts.store import read_stage
from tests.study.mini import ROOT, ablation, mini_tree, write_plan

RECORDS = ROOT / "runs" / "records"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run of a plan that names two backends."""
    folder = tmp_path_factory.mktemp("side-by-side")
    write_plan(folder, mini_tree() | {"policy": {"backend": "local", "also": ["vllm"]}})
    assert ablation(folder, "plan", "lock", "plans/mini.yaml").returncode == 0
    done = ablation(folder, "run", "--all")
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "mini"


def test_a_copy_of_a_run_says_the_same_and_is_the_same(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "again")
    plan, digest, found = runs_of_one_plan([run, copy])
    assert (plan.name, len(digest)) == ("mini", 64)
    assert [one.same for one in found] == [1.0, 1.0]
    of_the_copy = replace(found[1].verdict, attempts=found[0].verdict.attempts)  # no ledger is beside it, which is said
    assert found[0].verdict == of_the_copy and "no ledger" in found[1].verdict.attempts.beside[0]
    assert found[0].backend == "local" and found[0].before is None


def test_the_mismatch_is_that_of_the_updates_weighted_by_their_tokens(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "again")
    steps = [json.loads(path.read_bytes())["step"] for path in sorted(run.glob("*/*/update-*/audit.json"))]
    assert len(steps) == 8  # two arms in two families, two updates each
    tokens = [step["weighted_tokens"] for step in steps]
    expected = sum(n * step["mismatch"]["mean_absolute"] for n, step in zip(tokens, steps, strict=True)) / sum(tokens)
    found = runs_of_one_plan([run, copy])[2][0].mismatch
    assert found.mean == pytest.approx(expected, rel=1e-12)
    assert found.tokens == sum(tokens)
    assert found.p99 == max(step["mismatch"]["p99_absolute"] for step in steps)


@pytest.mark.parametrize("diverged", [1, 2])
def test_an_update_that_diverged_is_not_left_out_of_the_mismatch(tmp_path, diverged):
    """Whichever it is: `max` of (0.5, not a number) is 0.5. Updates beyond the plan's two are those of an extension."""
    plan = load_plan(write_plan(tmp_path, mini_tree())).plan
    for k in (1, 2, 3):
        folder = tmp_path / "run" / "main" / "C" / f"update-{k}"
        folder.mkdir(parents=True)
        numbers = dict.fromkeys(
            ("mean_absolute", "p99_absolute", "share_ratio_outside_10_percent"), None if k == diverged else 0.5
        )
        (folder / "audit.json").write_text(json.dumps({"step": {"weighted_tokens": 10, "mismatch": numbers}}))
    found = mismatch_of(tmp_path / "run", plan)
    assert found.tokens == 30
    assert math.isnan(found.mean) and math.isnan(found.p99) and math.isnan(found.outside)
    assert found.as_json() == {"tokens": 30, "mean_absolute": None, "p99_absolute": None, "outside_10_percent": None}


def test_an_edited_verdict_is_named_and_ends_with_3(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "again")
    assert ablation(run.parents[1], "verdict").returncode == 0  # an unedited one is right
    stored = json.loads((run / "verdict.json").read_text())
    (run / "verdict.json").rename(copy / "verdict.json")
    assert ablation(tmp_path, "compare", str(run), str(copy)).returncode == 0
    (copy / "verdict.json").write_text(json.dumps(stored | {"label": "REPLICATED"}))
    found = ablation(tmp_path, "compare", str(run), str(copy), "--json")
    content = json.loads(found.stdout)
    assert (found.returncode, content["exit_code"]) == (3, 3)
    assert content["runs"][0]["wrong"] == []
    (line,) = content["runs"][1]["wrong"]
    assert line.startswith(f'{copy}/verdict.json: /label says "REPLICATED", and the rollouts give "NOT_REPLICATED"')
    assert line in found.stderr


def test_a_run_whose_audits_were_taken_away_is_not_audited_and_that_is_said(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "again")
    for name in ("main/C/update-2", "replication/C/update-1"):
        (copy / name / "audit.json").unlink()
    found = runs_of_one_plan([run, copy])
    assert found[2][0].gone == () and found[2][0].mismatch is not None
    assert found[2][1].gone == ("main/C/update-2/audit.json", "replication/C/update-1/audit.json")
    assert found[2][1].mismatch is None
    rows = {line[:19].strip(): line[19:].split() for line in printed(found).splitlines()}
    assert rows["in updates, mean"][1:] == ["audits", "gone"]
    done = ablation(run.parents[1], "compare", str(run), str(copy), "--json")
    content = json.loads(done.stdout)
    assert (done.returncode, content["exit_code"]) == (3, 3)
    assert [one["audits_gone"] for one in content["runs"]] == [[], list(found[2][1].gone)]
    assert content["runs"][1]["mismatch"] is None
    gone = "not audited: the journal tells of main/C/update-2/audit.json and 1 more, and it was removed"
    assert f"{copy}: {gone}" in done.stderr


def test_rollouts_are_the_same_if_every_token_is(run):
    sweep = read_stage(RunFolder(run).sweep("main"))
    changed = sweep.token_ids.copy()
    changed[sweep.offsets[3]] += 1  # one token of the fourth of 24 rollouts
    assert same_rollouts(replace(sweep, token_ids=changed), sweep) == 23 / 24
    assert same_rollouts(sweep, sweep) == 1.0
    assert same_rollouts(sweep, read_stage(RunFolder(RECORDS / "smollm2").sweep("main"))) == 0.0


def printed(found) -> str:
    console = plain_console(width=80, color_system=None)
    with console.capture() as capture:
        for part in pages(*found):
            console.print(part)
    return capture.get()


def test_the_page_says_where_runs_differ_and_fits_80_columns(run, tmp_path):
    copies = [shutil.copytree(run, tmp_path / name) for name in ("b", "c", "d", "e")]
    plan, digest, runs = runs_of_one_plan([run, *copies])
    text = printed((plan, digest, runs))
    assert max(map(len, text.splitlines())) <= 80
    assert text.count(f" {runs[0].verdict.label}") >= 5  # whole, in each of the columns
    assert f"All 5 runs say {runs[0].verdict.label}; every arm has the same label in each." in " ".join(text.split())
    first, *others = runs[1].verdict.arms
    other = replace(
        runs[1], verdict=replace(runs[1].verdict, label="REPLICATED", arms=[replace(first, label="DAMAGED"), *others])
    )
    text = " ".join(printed((plan, digest, [runs[0], other])).split())
    assert f"The runs differ: {runs[0].verdict.label}, REPLICATED; arms with different labels: {first.name}." in text
    assert "luck" not in text  # the rollouts are the same: it is none
    text = " ".join(printed((plan, digest, [runs[0], replace(other, same=0.5)])).split())
    assert f"different labels: {first.name}. Their rollouts are not the same, so labels can differ by luck alone" in text


def test_who_did_the_work(run, tmp_path):
    one = runs_of_one_plan([run, shutil.copytree(run, tmp_path / "again")])[2][0]
    assert one.where == "one process"
    assert replace(one, engine=one.engine | {"processes": 4}).where == "4 processes"
    assert replace(one, engine={"name": "tinker", "tinker": "0.25.0"}).where == "a service"
    assert replace(one, workers=1).where == "Ray, 1 worker"


def test_runs_of_two_plans_are_not_compared(run):
    with pytest.raises(UsageError, match="is a run of another plan"):
        runs_of_one_plan([run, RECORDS / "smollm2"])
    with pytest.raises(UsageError, match="named twice"):
        runs_of_one_plan([run, run / ".." / run.name])


def test_as_a_command(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "again")
    done = ablation(run.parents[1], "compare", str(run), str(copy), "--json")
    content = json.loads(done.stdout)
    assert [one["backend"] for one in content["runs"]] == ["local", "local"]
    assert content["runs"][0]["rules"] == content["runs"][1]["rules"]
    one = ablation(run.parents[1], "compare", str(run))
    assert one.returncode == 2 and "two run folders or more" in one.stderr
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    for name in ("plan.yaml", "plan.lock", "problems.jsonl", "journal.jsonl"):
        shutil.copy(run / name, unfinished / name)
    text = " ".join(ablation(run.parents[1], "compare", str(run), str(unfinished)).stdout.split())
    assert f"The runs differ: {content['runs'][0]['label']}, INCOMPLETE; not in every run: main/C," in text
    assert "different labels" not in text  # an arm that is not there has no label to differ by
