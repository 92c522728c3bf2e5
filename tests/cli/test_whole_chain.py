"""From the replication to the release through the command line, on the shipped plan made smaller: every step a new process."""

import json
import re
import shlex

import pytest
import yaml

from ablation.plan.deviations import bare
from tests.study.mini import ROOT, ablation

pytestmark = pytest.mark.slow


def small_tree() -> dict:
    """`plans/phase2.yaml` with 12 cells, two updates and a sixth of the rollouts; no arm can lose as much as would be damage."""
    tree = yaml.safe_load((ROOT / "plans" / "phase2.yaml").read_text())
    tree["problems"]["cells"] = {effort: ids[:4] for effort, ids in tree["problems"]["cells"].items()}
    tree["sampling"] |= {"max_tokens": 96, "batch_rollouts": 36}
    tree["training"] |= {"updates": 2, "rollouts_per_cell": 2}
    tree["verdict"]["damage"] = [{"name": "clean_lost", "measure": "clean", "compare": "change", "op": "<=", "limit": -24}]
    fewer = {"rollouts": 24, "efforts": ["medium"]}
    tree["verdict"]["held_out"] |= fewer | {"blinded_read": {"pairs": 2, "passes": 2}}
    tree["verdict"]["never_used"] |= fewer
    tree["verdict"]["release"]["main"] |= fewer
    for guard in tree["verdict"]["release"]["guards"]:
        guard |= {"on": guard.pop(True)} if True in guard else {}  # YAML 1.1 reads `on` as true
    tree["extension"] |= {"updates": 4, "checks": [3, 4]}
    tree["extension"]["selection"] |= {"rollouts": 18, "efforts": ["medium"]}
    return tree


class Chain:
    """A folder with the plan, in which commands are given one after the other."""

    def __init__(self, folder):
        self.folder, self.run = folder, folder / "runs" / "phase2"
        (folder / "plans").mkdir()
        (folder / "plans" / "phase2.yaml").write_text(json.dumps(small_tree(), indent=1))

    def __call__(self, line: str, code: int = 0):
        done = ablation(self.folder, *shlex.split(line))
        assert done.returncode == code, f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def open_as_it_says(self, line: str) -> None:
        """The command is refused; the deviation that the refusal prints is written."""
        refused = self(line, code=4).stderr
        [command] = re.findall(r"`ablation (plan deviate [^`]*) --reason \.\.\.`", refused)
        self(f"{command} --reason 'The test goes on all the same.'")

    @property
    def next(self) -> str:
        """What `ablation status` says comes next."""
        return json.loads(self("status --json").stdout)["next"].removeprefix("ablation ")

    def labels(self) -> dict[str, str]:
        done = ablation(self.folder, "verdict", "--json")
        assert done.returncode in (0, 6), done.stderr
        return json.loads(done.stdout)["labels"]


def test_the_whole_chain_of_the_study(tmp_path):
    chain = Chain(tmp_path)
    chain("plan lock plans/phase2.yaml")
    assert chain.next == "run --all"
    assert chain("run --all").stderr.splitlines()[-1] == "next: ablation verdict"  # not replicated: phase 2 is not open
    assert chain.labels()["replication"] == "NOT_REPLICATED"
    chain("evaluate held-out --subject N@4", code=6)  # there is no such checkpoint yet

    chain.open_as_it_says("evaluate held-out --subject N@2")
    assert chain.next == "evaluate held-out --subject N@2"
    assert chain(chain.next).stderr.splitlines()[-1].startswith("next: ablation ")
    chain("blind pairs held-out --subject N@2")
    comparison = chain.run / "evaluations" / "held-out" / "N@2"
    form = json.loads((comparison / "blind" / "form.json").read_bytes())
    answers = {"same_answer": True, "same_method": True, "x_missing_checks": False, "y_missing_checks": False}
    form |= {"blinded": True, "ratings": [row | answers for row in form["ratings"]]}
    (tmp_path / "ratings.json").write_text(json.dumps(form))
    chain("blind import ratings.json --subject N@2 --rater reader")
    chain("blind unseal held-out --subject N@2")
    held_out = chain.labels()["held_out"]
    assert held_out in ("WIN_VERIFIED (deviation 1)", "NO_WIN (deviation 1)")

    if bare(held_out) == "NO_WIN":
        chain.open_as_it_says("evaluate never-used --subject N@2")
    chain("evaluate never-used --subject N@2")
    again = chain("evaluate never-used --subject C@2", code=4).stderr  # the problems are not new any more, or the gate is shut
    assert "was evaluated in phase2, evaluations/never-used/N@2/" in again or "--opens never-used" in again

    chain.open_as_it_says("run --arm N --continue-to 4")
    chain("run --arm N --continue-to 4")
    chain.open_as_it_says("evaluate selection --subject N@3")
    assert chain.next == "evaluate selection --subject N@3"
    chain(chain.next)
    assert chain.next == "evaluate selection --subject N@4 --reuse-reference N@3"
    chain(chain.next)
    selected = json.loads(ablation(tmp_path, "verdict", "--json").stdout)["sections"]["selection"]
    if selected["label"].startswith("SELECTED"):
        tried = selected["subject"]
        chain.open_as_it_says(f"evaluate main --subject {tried}")
        assert chain.next == f"evaluate main --subject {tried}"
        chain(chain.next)
        assert chain.next == f"evaluate held-out --subject {tried}"  # a guard asks for it
        found = chain(f"{chain.next} --json")
        [moved] = json.loads(found.stdout)["drift"]
        assert (moved["against"], moved["change"], moved["identical_share"]) == ("N@2", 0, 1.0)  # one machine, one start
        assert chain.next.startswith(("blind pairs", "verdict"))
        assert bare(chain.labels()["release"]) in ("RELEASE", "NO_RELEASE")
    labels = chain.labels()
    assert all("(deviation" in label for label in labels.values()), labels
    audit = chain("audit --json")
    assert json.loads(audit.stdout)["exit_code"] == 0
    shown = chain("status").stdout
    assert shown.splitlines()[-1].split(maxsplit=1)[1] == f"ablation {chain.next}"
    assert (
        "phase 2  held-out: N@2: start: yes, subject: yes; correct " in shown and "blinded read: unsealed (deviation 1)" in shown
    )
    assert "phase 2  selection: N@4: start: taken over from N@3, subject: yes" in shown
