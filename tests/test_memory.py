"""A file that was made to fill the memory ends in one line."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq

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
