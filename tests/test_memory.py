"""Too little memory, or a file that was made to fill it, ends in a line or two."""

import resource
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MAIN = """
import sys
from ablation import memory
memory.LEAST, memory.free_bytes = 3 << 29, lambda: 0
from ablation.cli.main import main
sys.argv = ["ablation", *sys.argv[1:]]
main()
"""


def test_a_file_that_unpacks_to_more_than_the_free_memory(tmp_path):
    path = tmp_path / "bomb.parquet"
    texts = {name: pa.array([name] * 1000) for name in ("id", "source", "grader", "gold")}
    table = pa.table(texts | {"prompt": pa.array(["x" * (1 << 16)] * 1000)})
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(60):  # 3.9 GB
            writer.write_table(table)
    assert path.stat().st_size < 1 << 20
    command = [sys.executable, "-c", MAIN, "problems", "check", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
@pytest.mark.parametrize("megabytes", [60, 150, 250, 300, 500])
def test_a_limit_below_what_its_packages_need(limit, megabytes):
    """At 300 of address space the Parquet of a sound run was called unreadable."""
    done = subprocess.run(
        [sys.executable, "-m", "ablation", "verdict", "--run", "runs/records/smollm2"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(limit, (megabytes << 20, megabytes << 20)),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"a process may take {megabytes} MiB here, ablation needs 1024\nRaise the limit: ")
    assert len(done.stderr.splitlines()) == 2
