from concurrent.futures import ProcessPoolExecutor

import pytest

from ablation.errors import IntegrityError, UsageError
from ablation.ledger.ledger import ledger_path, read_ledger, write_mark
from ablation.problems.problem import Problem


def problem(name, prompt):
    return Problem(name, "s", prompt, "exact", "g")


ADD, CAT = problem("add", "What is 1 + 2?"), problem("cat", "Name a cat.")


def mark(path, problems=(ADD, CAT), stage="main/C/update-1", use="trained", plan="d" * 64):
    return write_mark(path, plan=plan, study="demo", stage=stage, use=use, problems=problems)


def test_a_mark_reads_back_and_a_set_is_listed_once(tmp_path):
    path = tmp_path / "runs" / "ledger.jsonl"
    mark(path)
    mark(path, stage="main/C/readout", use="evaluated")
    ledger = read_ledger(path)
    assert [(one.number, one.stage, one.use) for one in ledger.marks] == [
        (1, "main/C/update-1", "trained"),
        (2, "main/C/readout", "evaluated"),
    ]
    assert [used.id for used in ledger.marks[1].problems] == ["add", "cat"]
    assert path.read_text().count('"problems"') == 1


def test_a_run_that_goes_on_marks_nothing_twice(tmp_path):
    path = tmp_path / "ledger.jsonl"
    assert mark(path) is not None
    assert mark(path, problems=(CAT, ADD)) is None  # in whatever order
    assert mark(path, problems=(CAT,)) is not None
    assert len(read_ledger(path).marks) == 2


def test_the_same_text_under_another_id_and_other_numbers_are_found(tmp_path):
    path = tmp_path / "ledger.jsonl"
    mark(path)
    fresh = problem("new", "Name a dog.")
    found = read_ledger(path).conflicts([problem("sum", "what is  1 + 2?"), problem("more", "What is 30 + 4?"), fresh, CAT])
    assert [(one.problem, one.other, one.near) for one in found] == [
        ("sum", "add", False),
        ("more", "add", True),
        ("cat", "cat", False),
    ]
    assert (
        found[1]
        .in_words()
        .startswith("`more` is the same but for its numbers as `add`, which was trained on in demo, main/C/update-1")
    )
    assert found[2].in_words().startswith("`cat` was trained on in demo")


def test_an_edited_line_is_found(tmp_path):
    path = tmp_path / "ledger.jsonl"
    mark(path)
    mark(path, problems=(CAT,))
    path.write_bytes(path.read_bytes().replace(b'"add"', b'"bad"', 1))
    with pytest.raises(IntegrityError, match=r"ledger\.jsonl:1: is not a line of a ledger"):
        read_ledger(path)
    with pytest.raises(IntegrityError):
        mark(path, problems=(ADD,))


def test_a_dropped_line_is_found(tmp_path):
    path = tmp_path / "ledger.jsonl"
    mark(path)
    mark(path, problems=(CAT,))
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
    with pytest.raises(IntegrityError, match="chain is broken"):
        read_ledger(path)


def test_a_torn_line_is_set_aside_and_the_next_mark_does_not_fuse_with_it(tmp_path):
    path = tmp_path / "ledger.jsonl"
    mark(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"number": 2, "ti')
    assert len(read_ledger(path).marks) == 1
    mark(path, problems=(CAT,))
    assert len(read_ledger(path).marks) == 2
    assert (tmp_path / f"ledger.jsonl.torn-{len(whole)}").read_bytes() == b'{"number": 2, "ti'


def test_many_writers_at_once_leave_one_chain(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with ProcessPoolExecutor(4) as pool:
        for done in [pool.submit(mark, path, (ADD,), f"main/C/update-{k}") for k in range(1, 13)]:
            done.result()
    ledger = read_ledger(path)
    assert sorted(one.stage for one in ledger.marks) == sorted(f"main/C/update-{k}" for k in range(1, 13))


def test_an_unknown_use_or_no_problem_is_refused(tmp_path):
    with pytest.raises(UsageError, match="sampled, trained, evaluated"):
        mark(tmp_path / "ledger.jsonl", use="seen")
    with pytest.raises(UsageError, match="at least one problem"):
        mark(tmp_path / "ledger.jsonl", problems=())


def test_the_ledger_lies_beside_the_run_folders(tmp_path):
    assert ledger_path(tmp_path / "plans" / "a.yaml") == tmp_path.resolve() / "runs" / "ledger.jsonl"
    assert ledger_path(tmp_path / "a.yaml") == tmp_path.resolve() / "runs" / "ledger.jsonl"
