"""`make bench`: every number is a ratio or a limit measured in this one run, printed as one table.

Pass names of benchmarks to run only those (`python -m tests.bench bootstrap cold`). Each row is printed when it is there, too; a
benchmark that breaks is a row that is not met, and the others go on.
"""

from __future__ import annotations

import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .row import Row

NAMES = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(NAMES)
    if unknown:
        print(f"unknown benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    table = Table("what", "measured", "limit", "met", title="ablation bench")
    for name in wanted or NAMES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        started = time.perf_counter()
        for row in _rows(name):
            table.add_row(row.what, row.measured, row.limit, "yes" if row.met else "NO")
            print(f"  {'' if row.met else 'NOT MET: '}{row.what}: {row.measured}", file=sys.stderr, flush=True)
        print(f"  {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    Console(width=110).print(table)
    return 0


def _rows(name: str) -> list[Row]:
    try:
        return import_module(f"tests.bench.bench_{name}").rows()
    except Exception as error:
        traceback.print_exc()
        return [Row(name, f"broke: {type(error).__name__}: {error}"[:300], "", False)]


sys.exit(main(sys.argv[1:]))
