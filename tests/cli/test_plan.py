from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from ablation.cli.plan import app
from ablation.errors import AblationError
from ablation.plan.load import load_plan
from tests.plan.conftest import TEXT, write_plan

PLANS = Path(__file__).parents[2] / "plans"
NOT_YET = "Not looked at before the plan itself is right: whether each rule can fire, the decision tables, the shape of the model"


class Outcome:
    """Exit code, stdout and stderr of a command, with expected errors handled as the program's entry point does."""

    def __init__(self, result) -> None:
        self.out, self.err, self.code = result.stdout, result.stderr, result.exit_code
        if isinstance(result.exception, AblationError):
            self.code = int(result.exception.exit_code)
            self.err += "\n".join(result.exception.lines())
        elif result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception


def run(*arguments) -> Outcome:
    return Outcome(CliRunner().invoke(app, [str(argument) for argument in arguments]))


@pytest.fixture
def plan(tmp_path) -> Path:
    return write_plan(tmp_path)


def test_new_check_fill_in_lock(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = run("new", "my-study")
    assert (made.code, made.err) == (0, "")
    path = Path("plans/my-study.yaml")
    text = path.read_text()
    lines = [line.split("#")[0] for line in text.split("\n")]
    places = [(number, found.start() + 1) for number, line in enumerate(lines, 1) for found in re.finditer("TODO", line)]
    for command in ("check", "lock"):
        refused = run(command, path)
        assert refused.code == 2
        *faults, later = refused.err.split("\n")
        assert [tuple(map(int, line.split(":")[1:3])) for line in faults] == places
        assert later.startswith(f"{NOT_YET}, model.base, ")
        assert refused.err.count("still the placeholder") == len(places) == 24
    assert not Path("plans/my-study.lock").exists()
    again = run("new", "my-study")
    assert again.code == 2
    assert path.read_text() == text

    write_plan(tmp_path / "plans")  # the files that the small plan names
    filled = load_plan(tmp_path / "plans" / "small.yaml").plan
    base, adapter, problems = filled.model.base, filled.model.start_adapter, filled.problems.training
    for value in (
        "Does it work?",
        *(base.at, base.sha256, adapter.at, adapter.sha256, 8, 8, '"<|end|>"', 1000000, 4, 128, 40, 200),
        *(problems.at, problems.sha256, "p00", "p00", "p00, p01, p02", 2e-5, 1, 2, -5, 5, 5),
    ):
        text = re.sub(r"^([^#\n]*?)\bTODO", rf"\g<1>{value}", text, count=1, flags=re.M)
    path.write_text(text)
    assert run("check", path).code == 0
    assert run("lock", path).code == 0
    assert run("verify", path).code == 0


@pytest.mark.parametrize("name", ["a/b", "../x", "", "-x", "x" * 41, "TODO x", "TODO-x"])
def test_new_refuses_names_that_are_no_names(tmp_path, name):
    assert run("new", "--folder", tmp_path, "--", name).code == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "line"), [("123", 'name: "123"'), ("null", 'name: "null"'), ("no", "name: no")])
def test_a_name_stays_text(plan, name, line):
    """`no` is text in a plan as it is; a number is not."""
    assert run("new", name, "--folder", plan.parent, "--from", plan).code == 0
    assert (plan.parent / f"{name}.yaml").read_text().split("\n")[1] == line
    assert load_plan(plan.parent / f"{name}.yaml").plan.name == name
    assert run("new", name, "--folder", plan.parent / "other").code == 0
    assert f"\n{line}\n" in (plan.parent / "other" / f"{name}.yaml").read_text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: small\n", "name: mine\n"),
        ("name:   'small'  # name: small\n", "name:   mine  # name: small\n"),
        ('name:\n  "small" # é\n', "name:\n  mine # é\n"),
        ("\r\nname: small\r\n", "\r\nname: mine\r\n"),
        ('"name": small # small\n', '"name": mine # small\n'),
    ],
)
@pytest.mark.parametrize("mark", ["", "\ufeff", "\ufeff# name: small\n"])
def test_new_from_a_plan_changes_its_name_and_nothing_else(plan, old, new, mark):
    plan.write_bytes((mark + TEXT.replace("name: small\n", old, 1)).encode())
    made = run("new", "mine", "--folder", plan.parent, "--from", plan)
    assert (made.code, made.err) == (0, "")
    copy = plan.parent / "mine.yaml"
    assert copy.read_bytes().decode() == mark + TEXT.replace("name: small\n", new, 1)
    assert run("check", copy).code == 0
    assert run("diff", plan, copy).out == f'{plan} -> {copy}\n  name: "small" -> "mine"\n'


def test_new_refuses_to_copy_what_would_not_be_a_valid_plan(plan, tmp_path):
    elsewhere = run("new", "mine", "--folder", tmp_path / "plans", "--from", plan)
    assert elsewhere.code == 2
    assert "names files relative to its own folder: base.bin, adapter.bin, problems.jsonl" in elsewhere.err
    plan.write_text(TEXT.replace("name: small", "name: >-\n  small"))
    block = run("new", "mine", "--folder", tmp_path, "--from", plan)
    assert block.code == 2
    assert f"{plan}:2:7: name: cannot be replaced; write `name: small` on one line" in block.err
    plan.write_text(TEXT.replace("seed: 2", "seed: two"))
    assert "families.replication.seed" in run("new", "mine", "--folder", tmp_path, "--from", plan).err
    assert run("new", "mine", "--folder", tmp_path, "--from", tmp_path / "none.yaml").code == 2
    assert not (tmp_path / "mine.yaml").exists()


def test_the_worked_example_of_the_plan_language_is_a_study_that_can_be_locked(tmp_path, monkeypatch):
    """plans/README.md, its first example, command by command."""
    text = (PLANS / "README.md").read_text()
    example = text[text.index("## A plan of your own") : text.index("## The commands")]
    commands = re.findall(r"^    ablation plan (\S+) (.*?)(?: +#.*)?$", example, re.M)
    assert [name for name, _ in commands] == ["new", "check", "diff", "check", "lock"]
    arms = example[example.index("    arms:") :].split("\n\n")[0].replace("\n    ", "\n").removeprefix("    ")
    monkeypatch.chdir(tmp_path)
    Path("plans").mkdir()
    Path("plans/quickstart.yaml").write_bytes((PLANS / "quickstart.yaml").read_bytes())
    path = Path("plans/my-study.yaml")
    for number, (name, arguments) in enumerate(commands):
        if number == 2:
            assert path.read_text().count("arms:") == 1
            path.write_text(re.sub(r"^arms:\n(  .*\n)+", lambda _: arms + "\n", path.read_text(), flags=re.M))
        done = run(name, *arguments.split())
        assert (done.code, done.err) == (0, ""), arguments
        if name == "check":
            assert done.out.startswith("plans/my-study.yaml: valid, digest ")
    plan = load_plan(path).plan
    assert (plan.name, list(plan.arms)) == ("my-study", ["C", "P"])
    assert Path("plans/my-study.lock").exists()


def test_check(plan):
    good = run("check", plan)
    assert (good.code, good.err) == (0, "")
    assert good.out == f"{plan}: valid, digest {load_plan(plan).digest}\n"
    plan.write_text(TEXT.replace("learning_rate: 2e-5", 'learning_rate: "2e-5"').replace("seed: 2}", "seed: 1}"))
    bad = run("check", plan)
    assert (bad.code, bad.out) == (2, "")
    assert f'{plan}:23:18: training.learning_rate: found the text "2e-5"; allowed: a number; remove the quotes' in bad.err
    refused = run("check", plan, "--json")
    assert (refused.code, refused.err) == (2, bad.err + "\n")
    as_json = json.loads(refused.out)
    assert as_json["ok"] is False
    assert as_json["problems"][0] == {
        "line": 23,
        "column": 18,
        "field": "training.learning_rate",
        "problem": 'found the text "2e-5"; allowed: a number; remove the quotes',
    }


def test_check_names_the_line_of_a_problem_that_is_not_in_the_file(plan):
    plan.write_text(TEXT.replace("xhigh: [p00, p01", "xhigh: [p00, p0l"))
    bad = run("check", plan)
    assert bad.code == 2
    assert f"{plan}:19:18: problems.cells.xhigh[1]: there is no problem `p0l` in the file; did you mean" in bad.err
    assert run("lock", plan).code == 2
    assert not plan.with_suffix(".lock").exists()


def test_check_looks_at_the_files_of_a_plan_that_is_not_valid(plan):
    text = re.sub("(adapter.bin), sha256: [0-9a-f]+", r"\1", TEXT).replace("xhigh: [p00, p01", "xhigh: [p00, p0l")
    plan.write_text(text)
    bad = run("check", plan)
    assert bad.code == 2
    adapter, cell, later = bad.err.split("\n")
    assert adapter.startswith(f"{plan}:6:18: model.start_adapter: needs `sha256` (or `owed: WHY`")
    assert cell.startswith(f"{plan}:19:18: problems.cells.xhigh[1]: there is no problem `p0l` in the file; did you mean")
    assert later == f"{NOT_YET}, model.start_adapter."
    as_json = run("check", plan, "--json")
    assert [one["field"] for one in json.loads(as_json.out)["problems"]] == ["model.start_adapter", "problems.cells.xhigh[1]"]
    plan.write_text(text.replace("cells:", "cels:").replace("at: problems.jsonl", "at: 3"))
    assert run("check", plan).err.endswith(later[:-1] + ", problems.training.")


def test_check_names_rules_and_files_at_once(plan):
    plan.write_text(TEXT.replace("xhigh: [p00, p01", "xhigh: [p00, p0l").replace("measure: clean,", "measure: correct_rate,"))
    cell, rule = run("check", plan).err.split("\n")
    assert cell.startswith(f"{plan}:19:18: problems.cells.xhigh[1]: there is no problem `p0l`")
    assert (
        rule
        == f"{plan}:35:83: verdict.damage[0].limit: found -21; the number is -1 to 1, so the rule never holds and decides nothing"
    )


def test_a_part_that_another_version_of_a_recipe_made(plan, monkeypatch, tmp_path):
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path / "cache"))
    part = tmp_path / "cache" / "recipes" / "r" / "problems"
    part.parent.mkdir(parents=True)
    part.write_text("{}")
    plan.write_text(TEXT.replace("at: problems.jsonl", 'at: "recipe:r/problems"'))
    for command in ("check", "lock"):
        bad = run(command, plan)
        assert bad.code == 2
        way_out = f"another version of the recipe made it; remove {part}, then: ablation prepare {plan}"
        assert f"problems.training.sha256: found {load_plan(plan).plan.problems.training.sha256}, but the digest of" in bad.err
        assert bad.err.endswith(way_out)


def test_check_and_lock_refuse_other_bytes_than_the_plan_names(plan):
    plan.with_name("problems.jsonl").write_text("{}")
    for command in ("check", "lock"):
        bad = run(command, plan)
        assert bad.code == 2
        assert "problems.training.sha256: found" in bad.err


def test_check_refuses_a_gold_that_is_not_correct_against_itself(tmp_path):
    path = write_plan(tmp_path)
    problems = (tmp_path / "problems.jsonl").read_text()
    broken = problems.replace('"gold": "1"', '"gold": "one"', 1)
    (tmp_path / "problems.jsonl").write_text(broken)
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (problems, broken)]
    path.write_text(TEXT.replace(*digests))
    bad = run("check", path)
    assert bad.code == 2
    assert "problems.training: " in bad.err
    assert "p00" in bad.err


def test_held_out_problems_must_not_be_trained_on(tmp_path):
    path = write_plan(tmp_path)
    digest = load_plan(path).plan.problems.training.sha256
    rule = '{name: r, measure: correct, compare: change, op: ">=", limit: -8}'
    path.write_text(
        TEXT + f"  never_used: {{rollouts: 144, problems: {{at: problems.jsonl, sha256: {digest}}}, rules: [{rule}]}}\n"
    )
    bad = run("check", path)
    assert bad.code == 2
    assert "verdict.never_used.problems: 20 of these problems are trained on: p00, p01, p02, p03, p04" in bad.err


def test_the_names_of_the_replication_are_looked_at_beside_other_faults(plan):
    plan.write_text(TEXT.replace("control: C", "control: c").replace("updates:", "updatse:").replace("max_tokens:", "max_token:"))
    bad = run("check", plan)
    found = [
        "sampling.max_token: unknown field",
        "training.updatse: unknown field",
        "verdict.replication.control: there is no arm `c`",
    ]
    assert bad.code == 2 and all(one in bad.err for one in found)
    plan.write_text(TEXT.replace("family: replication", "family: replicaton").replace("updates:", "updatse:"))
    assert "there is no family `replicaton`; families: main, replication; did you mean `replication`?" in run("check", plan).err


def test_lock_verify_tamper(plan):
    locked = run("lock", plan, "--json")
    digest = load_plan(plan).digest
    assert json.loads(locked.out)["digest"] == digest
    assert locked.code == 0
    assert digest in run("verify", plan).out
    again = run("lock", plan, "--json")
    assert again.code == 0 and json.loads(again.out) | {"owed": {}, "luck": 0} == json.loads(locked.out) | {"luck": 0}
    checked = run("check", plan)
    assert checked.code == 0 and checked.out.splitlines()[1].startswith("locked: 20")
    plan.write_text(TEXT + "# comment\n")
    cosmetic = run("verify", plan)
    assert cosmetic.code == 3
    assert "cosmetic" in cosmetic.err
    plan.write_text(TEXT.replace("limit: -21", "limit: -20"))
    tampered, relocked, checked = run("verify", plan), run("lock", plan), run("check", plan)
    assert (tampered.code, relocked.code, checked.code) == (3, 3, 3)
    assert "valid, digest" in checked.out and "refused: " in checked.out and "limit: -21 -> -20" in checked.out
    assert "verdict.damage[0].limit: -21 -> -20" in tampered.err
    assert run("restore", plan).code == 0
    assert plan.read_text() == TEXT
    plan.with_name("base.bin").write_bytes(b"x")
    assert run("verify", plan).code == 3
    plan.with_suffix(".lock").unlink()
    assert run("verify", plan).code == 3


def test_verify_finds_the_only_locked_plan(plan, monkeypatch):
    (plan.parent / "plans").mkdir()
    monkeypatch.chdir(plan.parent)
    assert run("verify").code == 2
    path = write_plan(plan.parent / "plans")
    run("lock", path)
    found = run("verify", "--json")
    assert json.loads(found.out)["plan"] == "plans/small.yaml"


def test_the_study_plan_can_be_checked_and_locked_here(tmp_path):
    path = tmp_path / "tessera.yaml"
    path.write_bytes((PLANS / "tessera.yaml").read_bytes())
    checked = run("check", path)
    assert checked.code == 0
    assert checked.err.count("not at hand: ") == 9
    locked = run("lock", path)
    assert locked.code == 0
    assert "owed, so this plan cannot run yet: model.start_adapter" in locked.err
    assert run("verify", path).code == 0


def test_show(plan, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run("show", plan)
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert max(map(len, shown.out.split("\n"))) <= 80
    assert "lock  not locked" in shown.out
    data = json.loads(run("show", plan, "--json").out)
    assert data["digest"] == load_plan(plan).digest
    control = data["arms"].pop("C")
    assert (control["weighting"], control["truncated"], control["kl.beta"], control["clip.low"]) == ("token", "keep", None, None)
    assert data["arms"] == {
        "N": {"weighting": "rollout"},
        "XK": {"weighting": "rollout", "truncated": "apart", "kl.beta": 0.05},
    }
    run("lock", plan)
    assert json.loads(run("show", plan, "--json").out)["lock"]["state"] == "locked"
    plan.write_text(TEXT + "# x\n")
    assert json.loads(run("show", plan, "--json").out)["lock"]["state"] == "refused"


def test_show_resolved_is_the_same_plan(plan, tmp_path):
    other = tmp_path / "resolved.yaml"
    other.write_text(run("show", plan, "--resolved").out)
    assert load_plan(other).digest == load_plan(plan).digest
    assert "min_clusters: 10" in other.read_text()
    assert "are the same plan" in run("diff", plan, other).out
    other.write_text(other.read_text().replace("min_clusters: 10", "min_clusters: 11"))
    assert run("diff", plan, other).out.split("\n")[1:2] == ["  statistics.min_clusters: 10 -> 11"]


def test_digest(plan):
    assert run("digest", plan.with_name("base.bin")).out.strip() == load_plan(plan).plan.model.base.sha256
    assert run("digest", plan.with_name("none")).code == 2


def test_digest_of_places_as_a_plan_writes_them(monkeypatch, tmp_path):
    model = load_plan(PLANS / "quickstart.yaml").plan.model
    shown = json.loads(run("digest", model.base.at, "--json").out)
    assert (shown["at"], shown["sha256"]) == (model.base.at, model.base.sha256)
    none = run("digest", "package:none")
    assert none.code == 2
    assert none.err.startswith("`package:none`: there is no such file or folder: ")
    monkeypatch.setenv("ABLATION_CACHE", str(tmp_path))
    missing = run("digest", "recipe:smollm2/problems.jsonl")
    assert missing.code == 2
    assert "make it with `ablation prepare PLAN`" in missing.err
    (tmp_path / "recipes" / "smollm2").mkdir(parents=True)
    (tmp_path / "recipes" / "smollm2" / "problems.jsonl").write_bytes(b"abc")
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-4
    assert run("digest", "recipe:smollm2/problems.jsonl").out == abc + "\n"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    revision = "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0"
    (tmp_path / f"models--a--b/snapshots/{revision}").mkdir(parents=True)
    (tmp_path / f"models--a--b/snapshots/{revision}/config.json").write_bytes(b"abc")
    line = f"config.json\0{abc}\n"
    assert run("digest", f"hub:a/b@{revision}").out == hashlib.sha256(line.encode()).hexdigest() + "\n"
    bad = run("digest", "hub:a/b@main")
    assert bad.code == 2
    assert "allowed: `hub:ORG/NAME@REVISION`" in bad.err


def test_what_lock_says_is_at_most_80_columns_wide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_bytes((PLANS / "tessera.yaml").read_bytes())
    locked = run("lock", "t.yaml")
    lines = locked.err.split("\n") + locked.out.split("\n")[2:]  # after who locked it, and the digest
    assert locked.code == 0
    assert any(line.startswith("luck, by") for line in lines)
    assert 60 < max(map(len, lines)) <= 80


def test_schema_accepts_the_resolved_plan_and_closes_every_section():
    schema = json.loads(run("schema").out)
    assert schema["required"][:3] == ["ablation", "name", "question"]
    sections = [schema, *schema["$defs"].values()]
    assert all(section["additionalProperties"] is False for section in sections if section["type"] == "object")
    arm = schema["$defs"]["Arm"]
    assert "XK" in arm["properties"]["library"]["enum"]
    assert {one["required"][0] for one in arm["anyOf"]} == {"weighting", "library", "external"}
    assert "weighting" not in arm.get("required", [])


def test_missing_plan(tmp_path):
    for command in ("check", "show", "lock", "verify", "restore"):
        outcome = run(command, tmp_path / "none.yaml")
        assert outcome.code in (2, 3), command
        assert "none.yaml" in outcome.err


def test_importing_the_commands_stays_cheap():
    code = (
        "import sys, ablation.cli.plan; print([name for name in ('pydantic', 'yaml', 'torch', 'rfc8785') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_no_two_rollouts_of_a_plan_share_a_seed(monkeypatch):
    from ablation.cli.plan_check import seed_faults
    from ablation.plan.load import load_plan
    from ablation.study import schedule

    plan = load_plan(Path(__file__).parents[2] / "plans" / "quickstart.yaml").plan
    assert seed_faults(plan) == []
    monkeypatch.setattr(schedule, "derive_seed", lambda seed, *purpose: hash((seed, purpose)) % 1000)
    [(path, text)] = seed_faults(plan)
    assert path == ("families",) and "would be sampled with the same seed" in text


def test_an_arm_under_two_names_is_told_and_stays_valid(tmp_path):
    tree = yaml.safe_load((PLANS / "quickstart.yaml").read_text())
    tree["arms"]["R"] = {"library": "X", "truncated": "keep", "note": "N by another way"}
    path = tmp_path / "twice.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    result = run("check", path, "--json")
    assert result.code == 0 and json.loads(result.out)["repeated_arms"] == [["R", "N"]]
    assert "arms.R trains as arms.N does, under another name" in result.err


def test_where_no_interval_can_be_made_that_is_told(tmp_path):
    tree = yaml.safe_load((PLANS / "quickstart.yaml").read_text())
    tree["statistics"]["min_clusters"] = 59
    path = tmp_path / "few.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    result = run("check", path, "--json")
    assert result.code == 0 and len(json.loads(result.out)["notes"]) == 1
    assert "statistics.min_clusters: 59, and there are 58 cells: no interval over cells can be made" in result.err
    tree["statistics"]["few_clusters"] = "t"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    assert json.loads(run("check", path, "--json").out)["notes"] == []


def test_a_limit_that_no_number_of_rollouts_comes_to_is_told(tmp_path):
    """Of 348 rollouts 233 are 0.6695 and 234 are 0.6724, so 0.67 means 234; 0.5 is 174 of them, and nothing is said."""
    tree = yaml.safe_load((PLANS / "quickstart.yaml").read_text())
    tree["verdict"]["damage"] += [
        {"name": name, "measure": "correct", "compare": "rate", "op": "<", "limit": limit}
        for name, limit in (("odd", 0.67), ("even", 0.5))
    ]
    path = tmp_path / "odd.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    result = run("check", path, "--json")
    line = "0.67 lies between what 348 rollouts can come to: it holds at 233 of 348 and not at 234 of 348"
    assert result.code == 0 and [note.partition(": ")[2] for note in json.loads(result.out)["notes"]] == [line]
    assert "it holds at 233 of 348" in " ".join(result.err.split())
