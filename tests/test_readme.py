import re
from pathlib import Path

import pytest

from tests.study.mini import ablation

ROOT = Path(__file__).parents[1]
PAGES = [
    *("README.md", "plans/README.md", "runs/README.md", "runs/records/smollm2/README.md"),
    *("plans/hardware.md", "plans/tessera.md"),
    "runs/records/smollm2-vllm/README.md",
    "runs/records/everywhere/README.md",
    *("ablation/assets/README.md", "ablation/training/weightings/README.md", "ablation/policy/vllm/README.md"),
    *("ablation/merge/README.md", "ablation/study/cluster/README.md"),
    *("ablation/policy/tinker/README.md", "ablation/policy/sharded/README.md"),
]


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_is_shown_exists(page):
    from typer.main import get_command

    from ablation.cli.main import app

    root = get_command(app)
    for line in re.findall(r"^ {4}(ablation .*)$", (ROOT / page).read_text(), flags=re.MULTILINE):
        words = line.split("#")[0].split()[1:]
        command = root
        while words and hasattr(command, "commands") and not words[0].startswith("-"):
            argument = words[0].isupper() or "@" in words[0]  # of the group itself, as in `audit PATH` and `merge start@0`
            if words[0] not in command.commands and argument and hasattr(command, "default"):
                command = command.commands[command.default]
                break
            assert words[0] in command.commands, f"{page}: {line}"
            command = command.commands[words.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= known, f"{page}: {line}"


@pytest.mark.parametrize("record", ["smollm2", "smollm2-vllm"])
def test_a_record_in_the_repository_is_judged_as_its_page_says(record):
    from ablation.plan.lock import verify_lock
    from ablation.verdict.run import judge_run

    root = ROOT / "runs" / "records" / record
    locked = verify_lock(root / "plan.yaml")
    page = (root / "README.md").read_text()
    found = judge_run(root, locked)
    assert locked.lock.digest in page
    assert found.label == "NOT_REPLICATED"
    assert {reason.code for reason in found.reasons} == {"CONTROL_NOT_DAMAGED"}
    sweeps = found.as_json()["sweeps"]
    for arm in found.as_json()["arms"]:
        clean, truncated, looping = (arm["measures"][name] for name in ("clean", "truncated", "looping"))
        change = clean - sweeps[arm["family"]]["clean"]
        assert f"| {arm['family']} | {arm['arm']} | {clean} ({change:+}) | {truncated} | {looping} |" in page


def test_the_record_of_one_plan_on_four_backends_is_the_table_of_its_page(monkeypatch):
    monkeypatch.chdir(ROOT / "runs" / "records" / "everywhere")
    page = Path("README.md").read_text()
    done = ablation(Path.cwd(), "compare", "local", "ray", "vllm", "tinker")
    assert done.returncode == 0, done.stderr
    assert "\n".join(f"    {line}".rstrip() for line in done.stdout.rstrip("\n").split("\n")) in page
    for folder in ("main", "replication"):  # a run on a cluster has the bytes of a serial one
        ours = {path.relative_to("local"): path.read_bytes() for path in Path("local", folder).rglob("*") if path.is_file()}
        assert len(ours) > 30
        assert ours == {path.relative_to("ray"): path.read_bytes() for path in Path("ray", folder).rglob("*") if path.is_file()}
