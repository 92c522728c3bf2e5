"""What comes next in phase 2, at a study whose stages are there already."""

from datetime import UTC, datetime, timedelta

from ablation.plan.deviations import record_deviation
from ablation.study import next_steps as module
from ablation.study.next_steps import next_command

from .evaluations import EXTENSION, check, compare, lock_phase2, make, write_side


def write(run, locked, name, subject):
    for side in ("reference", "subject"):
        write_side(run, locked, name, subject, side)
    compare(run, locked, name, subject)


def test_a_second_candidate_may_take_over_the_start_of_the_first_within_the_day(tmp_path, monkeypatch):
    selection = lock_phase2(tmp_path / "other", selection=True).plan.extension.selection.model_dump(
        mode="json", exclude_unset=True
    )
    run, locked = make(tmp_path, selection=True, extension=EXTENSION | {"eligible": [3, 4], "selection": selection})
    record_deviation(locked, reason="X goes on, too.", seen="results", opens=["extension", "selection"])
    write(run, locked, "held-out", "N@2")
    for arm in "NX":  # X is not extended by the plan, so no step of the selection is about it
        for k in (3, 4):
            check(run, locked, arm, k)

    def following():
        found = list(module._steps(locked, module.RunReader(run.root, locked, None), []))
        return [one for one in found if one.startswith("ablation evaluate selection")]

    assert following() == ["ablation evaluate selection --subject N@3", "ablation evaluate selection --subject N@4"]
    write(run, locked, "selection", "N@3")
    assert following() == ["ablation evaluate selection --subject N@4 --reuse-reference N@3"]
    monkeypatch.setattr(module, "datetime", Later)
    assert following() == ["ablation evaluate selection --subject N@4"]
    assert next_command(locked, run.root, []).startswith("ablation ")


class Later(datetime):
    @classmethod
    def now(cls, zone=None):
        return datetime.now(UTC) + timedelta(hours=25)


def test_every_arm_is_judged_once(tmp_path, monkeypatch):
    """Which arm is replicated, and what phase 2 allows, rest on the same results; a plan may have many arms."""
    run, locked = make(tmp_path, damaged={("main", arm) for arm in "CNX"} | {("replication", "C")})
    judged = []
    judge = module.RunReader.judged
    monkeypatch.setattr(module.RunReader, "judged", lambda self, folder, *of: judged.append(folder) or judge(self, folder, *of))
    assert next_command(locked, run.root, []) == "ablation verdict"
    assert len(judged) == len(set(judged)) == 4
