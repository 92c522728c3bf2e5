"""Rows of JSON Lines, Parquet and Inspect logs, each with its file and line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablation.errors import UsageError
from ablation.imports.columns import Row, check_even, read_row
from ablation.imports.several import each
from ablation.problems.plain import parse_line

_KNOWN = "JSON Lines (.jsonl), Parquet (.parquet) and Inspect logs (.eval)"


def read_files(paths: list[Path]) -> tuple[list[Row], set[str]]:
    """All rows of `paths`, in order, and the names of columns that are not used.

    Raises `UsageError` naming file and line for what cannot be read, for a wrong type, or for a column that some rows lack.
    """
    rows: list[Row] = []
    unused: set[str] = set()
    for path in paths:
        found = each(_rows(path), lambda row: read_row(*row))
        rows += [row for row, _ in found]
        unused.update(*(left for _, left in found))
        if not found:
            raise UsageError(f"{path}: there is no rollout in this file")
    check_even(rows)
    return rows, unused


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".eval":
        from ablation.imports.inspect_log import inspect_rows

        return inspect_rows(path)
    if path.suffix == ".parquet":
        return _parquet(path)
    if path.suffix in (".jsonl", ".json", ".ndjson"):
        return _json_lines(path)
    raise UsageError(f"{path}: the ending `{path.suffix}` is not known", hint=f"Imported are {_KNOWN}.")


def _json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield f"{path}:{number}", parse_line(line, f"{path}:{number}")


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with _opened(path) as file:
            content = pq.ParquetFile(file, pre_buffer=False)
            names = content.schema_arrow.names
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                raise UsageError(f"{path}: the column `{twice[0]}` is there twice", hint="Leave one out, or rename it.")
            rows = [row for batch in content.iter_batches(1000, use_threads=False) for row in batch.to_pylist()]
    except OSError as error:
        raise UsageError(
            f"{path}: could not be read: {error.strerror or error}", hint="Write it again, or use JSON Lines."
        ) from error
    except (pa.ArrowException, ValueError, OverflowError) as error:  # the last two: texts and dates that no Python value can be
        raise UsageError(f"{path}: not a Parquet file: {error}", hint="Write it again, or use JSON Lines.") from error
    for number, values in enumerate(rows, start=1):
        yield f"{path}:{number}", values


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(f"{path}: could not be read: {error.strerror or error}", hint="Check the path.") from error
