"""What a forger or a bad disk can do to one byte of a study, 1,000 times: nothing of it passes as fine."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ablation.errors import ExitCode, IntegrityError
from ablation.plan.deviations import deviations_path, record_deviation
from ablation.plan.lock import lock_plan, read_lock, verify_lock
from ablation.rollouts.journal_chain import check_journal
from ablation.rollouts.seen import deviations_of_run
from tests.plan.conftest import write_plan
from tests.rollouts.test_seen import take_up
from tests.verdict.study import start_run, tell

CHANGES = 1000


@pytest.fixture
def study(tmp_path):
    plan = write_plan(tmp_path)
    lock_plan(plan)
    locked = verify_lock(plan)
    run = start_run(tmp_path / "run", locked)
    for number in range(6):
        tell(run, locked, "part_written", stage="main/start/sweep", part=f"part-{number:03d}.parquet", rollouts=8)
    for number in range(3):
        reason = f"Deviation {number}: ein größerer Satz, 思考."
        record_deviation(locked, reason=reason, seen="progress", journal=check_journal(run.root, locked.digest).head)
    take_up(run, locked)
    return plan, run


def examine(plan, run, locked=None) -> list[str]:
    """All that `plan verify` checks of these files; returns its notes. `locked` saves reading plan and lock again."""
    locked = locked or verify_lock(plan)
    state = check_journal(run.root, locked.digest)
    deviations_of_run(run.root, locked, state)
    return [*locked.warnings, *state.notes]


def test_a_thousand_changes_of_one_byte(study):
    plan, run = study
    assert examine(plan, run) == []
    locked = verify_lock(plan)
    files = {"plan": plan, "lock": read_lock(plan).path, "journal": run.journal, "deviations": deviations_path(plan)}
    whole = {name: path.read_bytes() for name, path in files.items()}
    chance, found = random.Random(20260301), Counter()
    for _ in range(CHANGES):
        name = chance.choice(list(files))
        data = bytearray(whole[name])
        place = chance.randrange(len(data))
        data[place] = chance.choice([value for value in range(256) if value != data[place]])
        files[name].write_bytes(bytes(data))
        where = f"{name}, byte {place}: {whole[name][place]:#x} -> {data[place]:#x}"
        try:
            notes = examine(plan, run, locked if name in ("journal", "deviations") else None)
        except IntegrityError as error:
            assert error.exit_code == ExitCode.INTEGRITY
            assert str(files[name].name) in error.message or "deviation" in error.message, where
            found[name, "cosmetic" if "cosmetic" in error.message else "refused"] += 1
        else:
            # Only the last line end of a journal: that looks like a runner that was killed while writing.
            assert notes and name == "journal" and place == len(data) - 1, where
            found[name, "noted"] += 1
        files[name].write_bytes(whole[name])
    assert sum(found.values()) == CHANGES
    assert all(found[name, "refused"] > 100 for name in files), found
    assert examine(plan, run) == []


def test_white_space_between_values_is_named_as_what_it_is(study):
    plan, run = study
    lock = read_lock(plan).path
    data = lock.read_bytes()
    place = data.index(b'\n  "digest"')
    lock.write_bytes(data[:place] + b" " + data[place + 1 :])
    with pytest.raises(IntegrityError, match="cosmetic edit: only the layout of the lock file changed"):
        examine(plan, run)
    lock.write_bytes(data)
    plan.write_bytes(plan.read_bytes().replace(b"  # a rate", b"  # A rate"))
    with pytest.raises(IntegrityError, match="cosmetic edit: only comments or layout changed"):
        examine(plan, run)


def test_every_cut_before_a_remembered_head_is_found(study):
    """A deviation remembers the journal's head of its time; a verdict or a reviewer that of a later one."""
    plan, run = study
    kept = check_journal(run.root, read_lock(plan).digest).head
    rows = run.journal.read_bytes().splitlines(keepends=True)
    assert len(rows) == 9  # six parts, three deviations
    for left in range(9):
        run.journal.write_bytes(b"".join(rows[:left]))
        with pytest.raises(IntegrityError, match="its tail was cut off"):
            if left < 6:
                examine(plan, run)
            else:
                check_journal(run.root, read_lock(plan).digest, kept)
