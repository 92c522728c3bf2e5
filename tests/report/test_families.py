"""A real study of 3 arms in 5 families, three of which are there for claims alone: every page against the files on disk."""

import json
import re
import shutil

import pytest
from starlette.testclient import TestClient

from ablation.view.app import create_app
from ablation.view.library import Library
from tests.study.mini import ablation, mini_tree, write_plan

ARMS, FAMILIES = ("C", "N", "XK"), ("main", "replication", "s3", "s4", "s5")
ALL = [f"{family}/{arm}" for family in FAMILIES for arm in ARMS]
SWEEP = 6
"""Rollouts of 3 cells, 2 each."""


def wide_tree():
    """In the plan the replication's family is the third, so that nothing can lean on its place."""
    found = mini_tree()
    places = ("main", "s3", "replication", "s4", "s5")
    found |= {"name": "wide", "families": {name: {"seed": 70 + place} for place, name in enumerate(places)}}
    found["problems"]["cells"] = {effort: ids[:1] for effort, ids in found["problems"]["cells"].items()}
    found["arms"] = {"C": found["arms"]["C"], "N": {"weighting": "rollout"}, "XK": found["arms"]["XK"]}
    found["sampling"] |= {"max_tokens": 24}
    found["training"] |= {"updates": 1, "rollouts_per_cell": 2}
    claim = {"subjects": ["N", "XK"], "reference": "C", "measure": "clean", "side": "greater", "method": "welch"}
    found["verdict"]["claims"] = {"cleaner": claim | {"families": list(FAMILIES)}}
    return found


@pytest.fixture(scope="module")
def parted(tmp_path_factory):
    """The first family is run, and one run of the third."""
    folder = tmp_path_factory.mktemp("parted")
    for arguments in (
        ("plan", "lock", str(write_plan(folder, wide_tree()))),
        *(("run", "--arm", arm) for arm in ARMS),
        ("run", "--arm", "N", "--family", "s3"),
    ):
        done = ablation(folder, *arguments)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def whole(parted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    shutil.copytree(parted, folder, dirs_exist_ok=True)
    done = ablation(folder, "run", "--all")
    assert done.returncode == 0 and done.stderr.endswith("next: ablation verdict\n"), done.stderr
    assert ablation(folder, "verdict").returncode == 0
    return folder


def on_disk(folder):
    run = folder / "runs" / "wide"
    return {path.parents[1].relative_to(run).as_posix() for path in run.glob("*/*/readout/stage.json")}


def test_the_verdict_and_its_file_have_every_run_on_disk(parted, whole):
    assert on_disk(whole) == set(ALL)
    for folder, code in ((parted, 6), (whole, 0)):
        done = ablation(folder, "verdict", "--json")
        found, there = json.loads(done.stdout), on_disk(folder)
        assert done.returncode == code
        arms = [f"{one['family']}/{one['arm']}" for one in found["arms"]]
        assert arms == [name for name in ALL if name in there] and set(found["steps"]) == there
        gone = {one["what"].split(":")[0] for one in found["missing"]}
        asked = {one["command"].split(" --plan")[0] for one in found["missing"]} - {"ablation run --all"}
        if folder is whole:
            assert not gone and found["next_command"] is None
            assert set(found["sweeps"]) == set(FAMILIES)
            assert json.loads((folder / "runs" / "wide" / "verdict.json").read_bytes())["arms"] == found["arms"]
            page = ablation(folder, "verdict").stdout
            assert all(f"Readouts, family {family}" in page for family in FAMILIES)
            assert all(re.search(rf"^{name} +(STABLE|DAMAGED|UNDECIDED|NO_STEP)", page, re.MULTILINE) for name in ALL)
        else:
            assert found["bare_label"] == "INCOMPLETE" and set(ALL) - there <= gone | {f"{one}/start" for one in FAMILIES}
            assert "ablation run --arm XK --family s3" in asked and "ablation run --arm C --family s5" in asked


def test_a_label_that_is_there_stays_while_a_claim_lacks_a_run(whole, tmp_path):
    """The headline is judged from the first family and the replication's; the claim's own runs are asked for beside it."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    label = json.loads((whole / "runs" / "wide" / "verdict.json").read_bytes())["bare_label"]
    shutil.rmtree(tmp_path / "runs" / "wide" / "s5" / "XK" / "readout")
    (tmp_path / "runs" / "wide" / "verdict.json").unlink()
    done = ablation(tmp_path, "verdict", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["bare_label"]) == (6, label)
    assert [one["what"].split(",")[0] for one in found["missing"]] == ["s5/XK: the readout is not there"]
    assert done.stderr.splitlines()[-1] == "Next: ablation run --arm XK --family s5"
    assert json.loads(ablation(tmp_path, "status", "--json").stdout)["next"] == "ablation run --all"
    assert ablation(tmp_path, "verdict", "--expect", label).returncode == 0


def test_status_has_every_run_on_disk(parted, whole):
    for folder in (parted, whole):
        found = json.loads(ablation(folder, "status", "--json").stdout)
        assert {f"{one['family']}/{one['arm']}" for one in found["arms"] if one["finished"]} == on_disk(folder)
        run = folder / "runs" / "wide"
        assert found["sweeps"] == {name: "yes" if (run / name / "start").is_dir() else "no" for name in FAMILIES}
        assert found["next"] == ("ablation verdict" if folder is whole else "ablation run --all")
    page = ablation(whole, "status").stdout
    assert all(f"arm      {name}: 1 of 1 updates, readout: yes" in page for name in ALL)


def test_what_the_plan_costs_is_what_is_on_disk(whole):
    plan, run = str(whole / "plans" / "wide.yaml"), whole / "runs" / "wide"
    found = json.loads(ablation(whole, "plan", "show", plan, "--json").stdout)["cost"]
    stages = [path.parent.relative_to(run).parts for path in run.glob("*/*/*/stage.json")]
    counts = {kind: sum(stage.startswith(kind) for _, _, stage in stages) for kind in ("sweep", "update", "readout")}
    assert counts == {"sweep": 5, "update": 15, "readout": 15}
    assert found["sweep_rollouts"] == counts["sweep"] * SWEEP
    assert found["training_rollouts"] == found["readout_rollouts"] == counts["readout"] * SWEEP
    page = ablation(whole, "plan", "show", plan).stdout
    assert "N, XK in family replication" in page and all(f"C, N, XK in family {name}" in page for name in ("s3", "s4", "s5"))
    review = json.loads(ablation(whole, "plan", "review", plan, "--json").stdout)
    names = [f"{one['name']}/{run['name']}" for one in review["schedule"]["families"] for run in one["runs"]]
    assert names == [name for family in FAMILIES for name in (f"{family}/start", *(f"{family}/{arm}" for arm in ARMS))]
    hardware = json.loads(ablation(whole, "plan", "show", plan, "--hardware", "h100x8", "--json").stdout)["hardware"]
    assert "first stable arm" not in json.dumps(hardware)


def test_the_report_has_every_run_on_disk(parted, whole):
    for folder in (parted, whole):
        done = ablation(folder, "report", "runs/wide", "--out", "out")
        assert done.returncode == 0, done.stderr
        data = json.loads(next((folder / "out").rglob("data.json")).read_bytes())
        runs = {f"{one['family']}/{one['arm']}": one for of in data["flow"]["families"] for one in of["runs"]}
        assert {name for name, one in runs.items() if one["readout"] == "yes"} == on_disk(folder)
        assert [name for name in runs if "first stable" not in name] == ALL
    pages = [path.read_text() for path in (whole / "out").rglob("*") if path.suffix in (".html", ".md")]
    assert len(pages) >= 2
    for page in pages:
        assert not re.search(r"not begun|not finished|not read out yet", page, re.IGNORECASE)
        assert all(f"family {family}" in page for family in FAMILIES)
        assert "Family s3: planned" in page and "for claims, in new seeds" in page


def test_the_viewer_has_every_run_on_disk(parted, whole, monkeypatch, tmp_path):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path))
    for folder in (parted, whole):
        browser = TestClient(create_app(Library(folder / "runs")), base_url="http://127.0.0.1:8412")
        page = browser.get("/study/wide").text
        rows = re.findall(r'<tr><td>(\w+)</td><th scope="row">(\w+)</th>(.*?)</tr>', page, re.DOTALL)
        assert {f"{family}/{arm}" for family, arm, row in rows if ">finished<" in row} == on_disk(folder)
        assert [f"{family}/{arm}" for family, arm, _ in rows if arm != "start"] == ALL or folder is parted


def test_the_audit_judges_every_run_on_disk(parted, whole):
    done = ablation(whole, "audit", "runs/wide", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and set(ALL) <= set(found["labels"]), done.stdout[-2000:]
    done = ablation(parted, "audit", "runs/wide", "--json")
    assert done.returncode == 6 and any(line.startswith("s5/C") for line in json.loads(done.stdout)["missing"])


def test_a_family_in_which_nothing_runs_is_told_of(tmp_path):
    tree = wide_tree()
    tree["families"]["spare"] = {"seed": 99}
    done = ablation(tmp_path, "plan", "check", str(write_plan(tmp_path, tree)), "--json")
    assert done.returncode == 0 and "families.spare:" in [one[:15] for one in json.loads(done.stdout)["notes"]]
    assert "warning: families.spare: nothing runs in it" in done.stderr
