import json

import pytest

from ablation.errors import UsageError
from ablation.problems.problem import Problem, load_problems, problem_line

GOOD = '{"id": "a-1", "source": "sum", "prompt": "1+1=", "grader": "integer", "gold": "2"}'


def load(tmp_path, *lines: str | bytes):
    path = tmp_path / "problems.jsonl"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return load_problems(path)


def test_reads_problems_in_file_order_by_id(tmp_path):
    second = '{"id": "b", "source": "größe", "prompt": "?", "grader": "exact", "gold": "é", "tags": ["x", "y"]}'
    problems = load(tmp_path, GOOD, "", second, "")
    assert list(problems) == ["a-1", "b"]
    assert problems["a-1"] == Problem("a-1", "sum", "1+1=", "integer", "2")
    assert problems["b"] == Problem("b", "größe", "?", "exact", "é", ("x", "y"))


def test_problem_line_is_what_load_problems_reads(tmp_path):
    written = [Problem("a", "s", 'say "é"\n', "exact", "\\frac{1}{2}", ("t",)), Problem("b", "s", "p", "integer", "1")]
    assert list(load(tmp_path, *map(problem_line, written)).values()) == written


ENTRY = '{"dataset": "chain_sum", "seed": 7, "index": 0, "config": {}, "metadata": {}}'
GYM = GOOD.replace('"integer"', '"reasoning_gym"').replace('"gold"', f'"entry": {ENTRY}, "gold"')
CODE = (
    '{"id": "c", "source": "s", "prompt": "?", "grader": "code", '
    '"tests": {"kind": "stdin", "cases": [{"stdin": "1", "stdout": "2"}]}}'
)
CALL = (
    '{"id": "c", "source": "s", "prompt": "?", "grader": "code", '
    '"tests": {"kind": "function", "entry_point": "f", "cases": [{"args": [1], "expected": 2}]}}'
)


def test_objects_come_back_as_they_were_written(tmp_path):
    problems = load(tmp_path, GYM, CODE)
    assert problems["a-1"].entry["dataset"] == "chain_sum" and problems["a-1"].tests is None
    assert problems["c"].tests["cases"] == [{"stdin": "1", "stdout": "2"}] and problems["c"].gold == ""
    assert load(tmp_path, *map(problem_line, problems.values())) == problems


def test_parquet_gives_what_json_lines_give(tmp_path):
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = [GOOD.replace("a-1", "t")[:-1] + ', "tags": ["x"]}', GYM, CODE]
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row |= {name: json.dumps(row[name]) for name in ("entry", "tests") if name in row}
    names = ["id", "source", "prompt", "grader", "gold", "tags", "entry", "tests"]
    path = tmp_path / "problems.parquet"
    pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), path)
    assert load_problems(path) == load(tmp_path, *lines)
    copy = tmp_path / "copy.jsonl"  # as a run folder names its copy
    copy.write_bytes(path.read_bytes())
    assert load_problems(copy) == load_problems(path)
    pq.write_table(
        pa.table({"id": ["a", "b"], "source": ["s", "s"], "prompt": ["?", " "], "grader": ["exact"] * 2, "gold": ["x", "y"]}),
        path,
    )
    with pytest.raises(UsageError, match=r"problems\.parquet:2: prompt: is empty"):
        load_problems(path)
    path.write_text("{}")
    with pytest.raises(UsageError, match=r"problems\.parquet: not a Parquet file"):
        load_problems(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not json", ":3: not JSON"),
        ('{"id": "x"', ":3: not JSON"),  # a torn last line
        ("[1]", ":3: found a list, not an object"),
        (GOOD.replace('"gold": "2"', '"gold": 2'), ":3: gold: found a number, not a text"),
        (GOOD.replace('"gold": "2"', '"gold": null'), ":3: gold: found null, not a text"),
        (GOOD.replace(', "gold": "2"', ""), ":3: gold: is missing"),
        (GOOD.replace('"gold"', '"answer"'), ":3: unknown field `answer`"),
        (GOOD.replace('"integer"', '"intger"'), ":3: grader: unknown grader `intger`"),
        (GOOD.replace('"1+1="', '" "'), ":3: prompt: is empty"),
        (GOOD.replace('"a-1"', '"a 1"'), ":3: id: `a 1` is not an id"),
        (GOOD.replace('"a-1"', '"a@low"'), ":3: id: `a@low` is not an id"),
        (GOOD.replace('"a-1"', r'"a\n1\u200b"'), r":3: id: `a\n1\u200b` is not an id"),
        (GOOD.replace('"gold": "2"', '"gold": "2", "gold": "3"'), ":3: gold: the field is there twice"),
        (GOOD.replace('"gold"', '"tags": "x", "gold"'), ":3: tags: must be a list of texts"),
        (GYM.replace('"seed": 7', '"seed": "7"'), ":3: entry.seed: found '7', not int"),
        (GYM.replace(f'"entry": {ENTRY}, ', ""), ":3: entry: found nothing, not an object"),
        (
            GOOD.replace('"gold"', f'"entry": {ENTRY}, "gold"'),
            ":3: entry: only for grader `reasoning_gym`, found grader `integer`",
        ),
        (CODE.replace('"tests"', '"gold": "1", "tests"'), ":3: gold: grader `code` has tests, no gold"),
        (CODE[: CODE.index(', "tests"')] + "}", ":3: tests: found nothing, not an object"),
        (b'{"id": "\xc3', ":3: not UTF-8"),
        (GOOD.replace('"gold"', '"tags": ["\\ud800"], "gold"'), ":3: tags: holds half of a character"),
        (CALL.replace('"expected": 2', '"expected": NaN'), ":3: tests: holds nan, a number that JSON does not have"),
        (CALL.replace('"expected": 2', '"expected": 1e400'), ":3: tests: holds inf, a number that JSON does not have"),
        (CALL.replace('"expected": 2', '"expected": "\\udc00"'), ":3: tests: holds half of a character"),
        (CALL.replace('"expected": 2', '"expected": 2, "tolerance": 1' + "0" * 400), ":3: tests.cases[0].tolerance: found 100"),
        (
            CALL.replace('"expected": 2', '"expected": {"$complex": [1' + "0" * 400 + ", 0]}"),
            ":3: tests.cases[0].expected: $complex: ",
        ),
        (CALL.replace('"cases"', '"limits": {"seconds": 1' + "0" * 400 + '}, "cases"'), ":3: tests.limits.seconds: found 100"),
        (CALL.replace('"cases"', f'"prelude": "x = {"-" * 200_000}1", "cases"'), ":3: tests.prelude: is nested too deeply"),
        (CALL.replace('"expected": 2', f'"expected": {"[" * 250}{"]" * 250}'), ":3: tests: is nested too deeply"),
        ("[" * 100_000, ":3: n"),
    ],
)
def test_a_bad_line_is_one_error_with_file_line_and_field(tmp_path, line, said):
    other = GOOD.replace("a-1", "other")
    with pytest.raises(UsageError) as caught:
        load(tmp_path, other, "", line)
    assert "problems.jsonl" + said in caught.value.message
    assert caught.value.hint
    assert len(caught.value.message.splitlines()) == 1


def test_a_duplicate_id_names_both_lines(tmp_path):
    with pytest.raises(UsageError, match=r":3: id: `a-1` was used before, in line 1"):
        load(tmp_path, GOOD, GOOD.replace("a-1", "b"), GOOD)


def test_an_empty_or_missing_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no problem"):
        load(tmp_path, "", " ")
    with pytest.raises(UsageError, match=r"missing\.jsonl: could not be read: No such file"):
        load_problems(tmp_path / "missing.jsonl")


def test_half_a_character_is_refused(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "a", "source": "s", "prompt": "1\\ud800", "grader": "integer", "gold": "1"}\n')
    with pytest.raises(UsageError, match=r"p.jsonl:1: prompt: holds half of a character"):
        load_problems(path)


def test_values_of_parquet_that_json_lacks_are_named(tmp_path):
    import datetime
    import decimal

    import pyarrow as pa
    import pyarrow.parquet as pq

    path, good = tmp_path / "p.parquet", {name: [value] for name, value in json.loads(GOOD).items()}
    half = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    for value, said in [
        (pa.array([b"x"]), "p.parquet:1: gold: holds a value of type bytes"),
        (pa.array([decimal.Decimal("1.5")]), "p.parquet:1: gold: holds a value of type Decimal"),
        (pa.array([datetime.datetime(2026, 1, 1)]), "p.parquet:1: gold: holds a value of type datetime"),
        (pa.array([2**62], type=pa.timestamp("us")), "p.parquet: not a Parquet file: date value out of range"),
        (half, "p.parquet: not a Parquet file: 'utf-8' codec"),
    ]:
        pq.write_table(pa.table(good | {"gold": value}), path)
        with pytest.raises(UsageError) as caught:
            load_problems(path)
        assert said in caught.value.message


def test_reading_parquet_leaves_no_thread_that_could_abort_the_program_at_its_end(tmp_path):
    import subprocess
    import sys

    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({name: [value] for name, value in json.loads(GOOD).items()}), path)
    code = (
        "import os, sys, pathlib, pyarrow.parquet\n"
        "from ablation.problems.problem import load_problems\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "load_problems(pathlib.Path(sys.argv[1]))\n"
        "print(len(os.listdir('/proc/self/task')) - before)"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True).stdout == "0\n"
