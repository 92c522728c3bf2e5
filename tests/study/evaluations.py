"""The small study with sets of phase 2, whose stages are written and not sampled."""

from __future__ import annotations

from pathlib import Path

from ablation.files import sha256_bytes, sha256_file, write_folder, write_json
from ablation.plan.lock import LockedPlan
from ablation.rollouts.folder import RunFolder
from ablation.study.evaluate import evaluate
from ablation.verdict.run import AUDITED
from tests.study.test_deviations import Said
from tests.verdict.study import lock_small, plan_dict, problems_bytes, start_run, tell, write_stage, write_study

EXTENSION = {"arms": ["N"], "updates": 4, "checks": [3, 4], "eligible": [4]}
PREFER = [{"measure": "correct", "order": "highest"}]
RULE = {"name": "kept", "measure": "correct", "compare": "change", "op": ">=", "limit": -3}
READ = {"pairs": 2, "passes": 2}


def problem_file(letter: str) -> bytes:
    """The six problems of the small study as other ones: `0?` becomes `a 0?`."""
    return problems_bytes().replace(b'"prompt": "', f'"prompt": "{letter} '.encode())


def lock_phase2(folder: Path, selection: bool = False, **changes) -> LockedPlan:
    """The small plan with held-out, never-used and main sets of 24 rollouts, and perhaps a selection."""
    folder.mkdir(parents=True, exist_ok=True)
    place = {}
    for name in ("held-out", "never-used", "main", "selection"):
        data = problem_file(name)
        (folder / f"{name}.jsonl").write_bytes(data)
        place[name] = {"at": f"{name}.jsonl", "sha256": sha256_bytes(data)}
    verdict = plan_dict()["verdict"] | {
        "held_out": {"rollouts": 24, "problems": place["held-out"], "rules": [RULE], "blinded_read": READ},
        "never_used": {"rollouts": 24, "problems": place["never-used"], "rules": [RULE], "near_duplicates": "allow"},
        "release": {"guards": [RULE], "main": {"rollouts": 24, "problems": place["main"], "rules": [RULE]}},
    }
    extension = dict(EXTENSION)
    if selection:
        extension["selection"] = {"problems": place["selection"], "rollouts": 24, "prefer": PREFER}
    return lock_small(folder, **{"verdict": verdict, "extension": extension} | changes)


def make(folder: Path, damaged=frozenset({("main", "C"), ("replication", "C")}), **fields) -> tuple[RunFolder, LockedPlan]:
    """A whole study, REPLICATED as it stands, with the checkpoint of every arm in the first family."""
    locked = lock_phase2(folder / "plans", **fields)
    run = start_run(folder / "runs" / "small", locked)
    write_study(run, locked, damaged)
    for arm in "CNX":
        checkpoint(run, locked, arm, 2)
    return run, locked


def checkpoint(run: RunFolder, locked: LockedPlan, arm: str, k: int) -> None:
    shares = dict.fromkeys(AUDITED, 0.5)
    write_json(run.audit("main", arm, k), {"metrics": {}, "weights": shares, "step": {"outcome": "stepped"}})
    tell(run, locked, "update_trained", arm=f"main/{arm}", update=k, audit_sha256=sha256_file(run.audit("main", arm, k)))
    write_folder(run.checkpoint("main", arm, k), lambda folder: (folder / "adapter").write_bytes(b"a"))


def check(run: RunFolder, locked: LockedPlan, arm: str, k: int, label: str = "STABLE", eligible: bool = True) -> None:
    """A checkpoint of the extension and its judged check."""
    checkpoint(run, locked, arm, k)
    path = run.check_result("main", arm, k)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"label": label, "eligible": eligible, "pauses": None, "rules": []}
    write_json(path, record)
    tell(run, locked, "check_judged", arm=f"main/{arm}", update=k, label=label, check_sha256=sha256_file(path))


def write_side(run: RunFolder, locked: LockedPlan, set_name: str, subject: str, side: str, kinds=None, **more) -> Path:
    """A whole stage of a comparison."""
    arm, _, updates = subject.partition("@")
    reference = side == "reference"
    copy = run.set_problems(set_name)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(problem_file(set_name))
    folder = run.evaluated_reference(set_name, subject) if reference else run.evaluated(set_name, subject)
    model = {"arm": "start", "update": 0} if reference else {"arm": arm, "update": int(updates)}
    told = {"set": set_name, "subject": subject, "reference": "start", "reused": None, "deviation": None}
    if reference:
        tell(run, locked, "evaluation_opened", **told, there={"reference": 0, "subject": 0})
    return write_stage(run, locked, "main", model["arm"], kinds, folder=folder, stage=set_name, update=model["update"], **more)


def compare(run: RunFolder, locked: LockedPlan, set_name: str = "held-out", subject: str = "N@2", reuse: str | None = None):
    """(what came of it, what was said) of `evaluate`."""
    said = Said()
    found = evaluate(locked, run.root, said, set_name, subject, reuse)
    return found, said.lines
