"""What somebody can do to a finished run: edits of its files, plain or with every digest and the journal's chain made good again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablation.chain import GENESIS, chained_line
from ablation.files import MARKER, folder_files, json_bytes, sha256_bytes, sha256_file

PART = "part-000.parquet"


def edit_json(path: Path, change: Callable) -> None:
    content = json.loads(path.read_bytes())
    changed = change(content)
    path.write_bytes(json_bytes(content if changed is None else changed))


def edit_rows(folder: Path, change: Callable[[list[dict]], list[dict] | None], part: str = PART) -> None:
    """Change the rollouts of one part: `change` is given them as objects."""
    table = pq.read_table(folder / part)
    rows = table.to_pylist()
    changed = change(rows)
    write_rows(folder / part, rows if changed is None else changed, table.schema)


def write_rows(path: Path, rows: list[dict], schema: pa.Schema) -> None:
    columns = [pa.array([row[field.name] for row in rows], type=field.type) for field in schema]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path)


def edit_info(folder: Path, **changes) -> None:
    """Change the settings of a stage, in `stage.json`, the metadata of its parts and the columns that repeat them."""
    edit_json(folder / "stage.json", lambda stage: stage["info"].update(changes))
    info = json.loads((folder / "stage.json").read_bytes())["info"]
    for path in sorted(folder.glob("part-*.parquet")):
        table = pq.read_table(path)
        rows = table.to_pylist()
        for row in rows:
            row |= {name: value for name, value in changes.items() if name in row}
        write_rows(path, rows, table.schema.with_metadata({b"ablation.stage": json.dumps(info).encode()}))


def edit_lines(path: Path, change: Callable[[list[bytes]], list[bytes] | None]) -> None:
    """Change the lines of a chained file and leave its chain as it comes out."""
    lines = path.read_bytes().splitlines()
    changed = change(lines)
    path.write_bytes(b"".join(line + b"\n" for line in (lines if changed is None else changed)))


def rechain(path: Path, change: Callable[[list[dict]], list[dict] | None], counter: str = "seq", first: int = 0) -> str:
    """Change the records of a chained file and make its chain good again; returns the head."""
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    changed = change(records)
    head, lines = GENESIS, []
    for number, record in enumerate(records if changed is None else changed):
        own = {name: value for name, value in record.items() if name not in ("prev", "sha256")} | {counter: number + first}
        lines.append(chained_line(own, head))
        head = sha256_bytes(lines[-1])
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return head


def reseal(root: Path, events: Callable[[list[dict]], list[dict] | None] = lambda records: None) -> None:
    """Make every digest good again that the run folder itself holds: what is then wrong can only be seen from the content."""
    for stage in sorted([*root.glob("*/*/*/stage.json"), *root.glob("evaluations/*/*/*/stage.json")]):
        folder = stage.parent

        def good(content: dict, folder: Path = folder) -> None:
            for part in content["parts"]:
                part |= {"rows": pq.read_metadata(folder / part["name"]).num_rows, "sha256": sha256_file(folder / part["name"])}
            content["rollouts"] = sum(part["rows"] for part in content["parts"])

        edit_json(stage, good)
        if (folder / "grades.json").is_file():
            edit_json(folder / "grades.json", lambda grades, stage=stage: grades.update(stage_sha256=sha256_file(stage)))
    for marker in sorted(root.glob(f"*/*/*/checkpoint/{MARKER}")):
        edit_json(marker, lambda content, marker=marker: content.update(files=folder_files(marker.parent)))

    def told(records: list[dict]) -> list[dict] | None:
        for record in records:
            for field, path in digests(root, record):
                if field in record and path.is_file():
                    record[field] = sha256_file(path)
            if record["event"] == "blind_rated":
                path = digests(root, record)[-1][1].with_name("ratings") / f"{record['rater']}.jsonl"
                record["lines"] = [sha256_bytes(line) for line in path.read_bytes().splitlines()]
        return events(records)

    head = rechain(root / "journal.jsonl", told)
    if (root / "verdict.json").is_file():
        edit_json(root / "verdict.json", lambda verdict: verdict["journal"].update(head=head))


def digests(root: Path, record: dict) -> list[tuple[str, Path]]:
    """(field, file) of what a journal's record holds the digest of."""
    compared = root / "evaluations" / str(record.get("set")) / str(record.get("subject"))
    stage, arm, update = root / str(record.get("stage")), root / str(record.get("arm")), record.get("update")
    return [
        ("part_sha256", stage / str(record.get("part"))),
        ("stage_sha256", stage / "stage.json"),
        ("grades_sha256", stage / "grades.json"),
        ("audit_sha256", arm / f"update-{update}" / "audit.json"),
        ("checkpoint_sha256", arm / f"update-{update}" / "checkpoint" / MARKER),
        ("check_sha256", arm / f"check-{update}" / "check.json"),
        ("stopped_sha256", arm / "stopped.json"),
        ("evaluation_sha256", compared / "evaluation.json"),
        ("batch_sha256", compared / "blind" / "pairs.json"),
        ("key_sha256", compared / "blind" / "key.json"),
        ("result_sha256", compared / "blind" / "result.json"),
    ]


READOUT, SWEEP, UPDATE, CHECK = "main/N/readout", "main/start/sweep", "main/C/update-2", "main/N/check-4"


def some_slow(kinds):
    """Every third kind is tried in the fast suite, all of them in the whole one."""
    return [pytest.param(kind, marks=[] if place % 3 == 0 else [pytest.mark.slow]) for place, kind in enumerate(kinds)]


def set_field(*path, to):
    """A change of JSON: the value at `path`; `to` may be a function of what is there."""

    def change(content):
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] = to(content[path[-1]]) if callable(to) else to

    return change


def set_row(row, **values):
    return lambda rows: rows[row].update({name: to(rows[row][name]) if callable(to) else to for name, to in values.items()})


def plus(step):
    return lambda value: value + step


def at(place, step):
    return lambda values: [value + step if i == place else value for i, value in enumerate(values)]


def json_fault(path, *where, to):
    return lambda root: edit_json(root / path, set_field(*where, to=to))


def row_fault(stage, change):
    return lambda root: edit_rows(root / stage, change)


def swap(first, second):
    def change(root):
        one, other = root / first, root / second
        spare = one.with_name("spare")
        one.rename(spare)
        other.rename(one)
        spare.rename(other)

    return change


def write(path, data):
    def change(root):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data if isinstance(data, bytes) else (root / data).read_bytes())

    return change


def remove(path):
    return lambda root: shutil.rmtree(root / path) if (root / path).is_dir() else (root / path).unlink()


def replaced(path, old, new):
    def change(root):
        data = (root / path).read_bytes()
        assert old in data
        (root / path).write_bytes(data.replace(old, new, 1))

    return change


def line_fault(path, change):
    return lambda root: edit_lines(root / path, change)


def swap_lines(lines):
    lines[10], lines[11] = lines[11], lines[10]
