"""Text of others in everything that can hold it, through every command that shows it: shown as it is written, never obeyed."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import pytest
import typer

from ablation.cli.main import app, main
from ablation.ledger.ledger import ledger_path, write_run
from ablation.rollouts.store import finish_stage, write_part
from tests.verdict.study import lock_small, plan_dict, rollout, stage_info, start_run, tell, tell_stage

MARKUP = "[/b] [link=http://evil.invalid]press[/link] [bold red]x :smiley:"
HOSTILE = f"{MARKUP} \x1b]8;;http://evil.invalid\x07\x1b[2J\x9b31m \u200bhid\u200cden\ufeff \u2028new line\u2029 \u202eturned \U000e0041"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
FREE = "a plan may hold this: [/b] [link=http://evil.invalid]press[/link] :smiley:"

COMMANDS = {
    "verdict": ["verdict", "--run", "RUN"],
    "show": ["show", "main/C/readout/p0@low#0", "--run", "RUN", "--full"],
    "show tokens": ["show", "main/C/readout/p0@low#0", "--run", "RUN", "--tokens"],
    "show beside": ["show", "main/C/readout/p0@low#0", "--run", "RUN", "--beside", "N"],
    "show list": ["show", "main/C/readout", "--run", "RUN"],
    "status": ["status", "--plan", "PLAN"],
    "report": ["report", "RUN", "--no-figures"],
    "compare": ["compare", "RUN", "RUN"],
    "audit run": ["audit", "run", "RUN"],
    "audit weights": ["audit", "weights", "RUN"],
    "measure": ["measure", "TEXT"],
    "measure rollout": ["measure", "RUN/main/C/readout", "--rollout", "p0@low #0"],
    "grade": ["grade", "--run", "RUN"],
    "problems check": ["problems", "check", "PROBLEMS"],
    "ledger import": ["ledger", "import", "PROBLEMS", "--use", "trained", "--study", MARKUP, "--reason", MARKUP],
    "ledger show": ["ledger", "show"],
    "ledger check": ["ledger", "check", "PROBLEMS"],
    "plan check": ["plan", "check", "PLAN"],
    "plan show": ["plan", "show", "PLAN"],
    "plan review": ["plan", "review", "PLAN"],
    "plan power": ["plan", "power", "PLAN", "--studies", "200"],
    "plan verify": ["plan", "verify", "PLAN"],
    "plan diff": ["plan", "diff", "PLAN", "PLAN"],
    "plan digest": ["plan", "digest", "TEXT"],
    "plan deviate": ["plan", "deviate", "PLAN", "--reason", MARKUP, "--seen", "nothing"],
    "arms show": ["arms", "show", "C", "--plan", "PLAN"],
    "journal head": ["journal", "head", "RUN"],
    "doctor": ["doctor", "--plan", "PLAN"],
    "run": ["run", "--arm", MARKUP, "--plan", "PLAN"],
    "evaluate": ["evaluate", MARKUP, "--subject", MARKUP, "--plan", "PLAN"],
    "import": ["import", "PROBLEMS", "--stage", "sweep", "--plan", "PLAN"],
    "merge run": ["merge", MARKUP, "--plan", "PLAN"],
    "merge check": ["merge", "check", "TEXT"],
    "track": ["track", "RUN", "--to", MARKUP],
    "prepare": ["prepare", "PLAN"],
    "blind status": ["blind", "status", MARKUP, "--plan", "PLAN"],
    "blind pairs": ["blind", "pairs", MARKUP, "--plan", "PLAN"],
    "blind check": ["blind", "check", MARKUP, "--plan", "PLAN"],
    "blind unseal": ["blind", "unseal", MARKUP, "--plan", "PLAN"],
    "blind rate": ["blind", "rate", MARKUP, "--plan", "PLAN", "--rater", MARKUP],
    "blind import": ["blind", "import", MARKUP, "PROBLEMS", "--plan", "PLAN"],
    "blind judge": ["blind", "judge", MARKUP, "--plan", "PLAN"],
    "plan restore": ["plan", "restore", "PLAN"],
    "plan export": ["plan", "export", "PLAN", "--format", "prml"],
}
ELSEWHERE = {
    "view": "pages in a browser: tests/view",
    "plan lock": "prints what `plan show`, `check` and `power` print",
    "plan new": "writes a plan of its own",
    "plan schema": "shows nothing of a file",
    "plan sign": "needs a key",
    "plan timestamp": "needs an authority",
    "problems make": "makes its own problems",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A finished study with hostile text in problem, rollouts, journal and plan."""
    root = tmp_path_factory.mktemp("hostile")
    locked = lock_small(
        root / "plans", question=FREE, arms={name: arm for name, arm in plan_dict()["arms"].items() if name != "X"}
    )
    run = start_run(root / "runs" / "small", locked)
    other = {"run": HOSTILE, "folder": HOSTILE, "began": HOSTILE, "stages": 3}
    tell(run, locked, "runner_started", removed_partial_files=0, other_runs=[other])
    write_run(ledger_path(locked.path), plan=locked.digest, study=HOSTILE, run=HOSTILE, folder=HOSTILE)
    tell(run, locked, "model_loaded", environment={"cpu": HOSTILE, "device": HOSTILE, "host": HOSTILE, HOSTILE: HOSTILE})
    for family in ("main", "replication"):
        for arm in ("start", "C", "N"):
            info = stage_info(locked, family, arm)
            rows = [
                replace(
                    rollout(info, f"p{problem}", effort, index, kind, -0.5), thinking_text=f"{HOSTILE} " * 12, answer_text=HOSTILE
                )
                for effort in ("low", "medium")
                for problem in range(6)
                for index, kind in enumerate(("clean", "loop"))
            ]
            folder = run.sweep(family) if arm == "start" else run.readout(family, arm)
            write_part(folder / "part-000.parquet", info, rows)
            finish_stage(folder, info, ["part-000.parquet"])
            tell_stage(run, locked, folder)
    (root / "text.txt").write_text(f"<think>{HOSTILE * 30}</think>{HOSTILE}")
    problem = {"id": "p", "source": HOSTILE, "prompt": HOSTILE, "grader": "exact", "gold": HOSTILE}
    (root / "problems.jsonl").write_text(json.dumps(problem) + "\n")
    return {"RUN": run.root, "PLAN": locked.path, "TEXT": root / "text.txt", "PROBLEMS": root / "problems.jsonl", "": root}


@pytest.mark.parametrize("name", COMMANDS)
def test_it_is_shown_and_not_obeyed(places, monkeypatch, capsys, name):
    monkeypatch.chdir(places[""])
    monkeypatch.setenv("FORCE_COLOR", "1")  # a link would be written as an escape sequence
    said = [re.sub("^(RUN|PLAN|TEXT|PROBLEMS)", lambda found: str(places[found[0]]), word) for word in COMMANDS[name]]
    monkeypatch.setattr(sys, "argv", ["ablation", *said])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    shown = re.sub("\x1b\\[[0-9;]*m", "", printed.out + printed.err)  # without the program's own colours
    assert "Traceback" not in shown
    assert not FORBIDDEN.findall(shown)
    assert "😃" not in shown
    if name in ("measure", "show", "plan show", "ledger show"):  # literally there, wherever a line was cut
        assert "[/b]" in shown and "[link=http://evil.invalid]" in re.sub(r"\s", "", shown)


def test_every_command_is_walked():
    def names(group, before=()):
        for name, command in group.commands.items():
            yield from names(command, (*before, name)) if hasattr(command, "commands") else [" ".join((*before, name))]

    walked = [" ".join(words) for words in COMMANDS.values()] + ["audit run", "merge run", *ELSEWHERE]
    for name in names(typer.main.get_command(app)):
        assert any(words.startswith(name) or name.startswith(words) for words in walked), name
