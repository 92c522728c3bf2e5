"""`make bench`: every number is a ratio or a limit measured in this one run, printed as one table.

Pass names of benchmarks to run only those (`python -m tests.bench bootstrap cold`).
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

NAMES = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def main(wanted: list[str]) -> int:
    unknown = set(wanted) - set(NAMES)
    if unknown:
        print(f"unknown benchmark: {', '.join(sorted(unknown))}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    table = Table("what", "measured", "limit", "met", title="ablation bench")
    for name in wanted or NAMES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        for row in import_module(f"tests.bench.bench_{name}").rows():
            table.add_row(row.what, row.measured, row.limit, "yes" if row.met else "NO")
    Console(width=110).print(table)
    return 0


sys.exit(main(sys.argv[1:]))
