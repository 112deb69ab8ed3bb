"""Short runs of the benchmark programs, without other clients."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def start(program: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(BENCHMARKS / program), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_benchmarks_run() -> None:
    # Both mostly wait, so they run at the same time.
    seconds = ("--seconds=0.2", "--fault-seconds=0.4", "--request-seconds=0.5", "--storm-seconds=0.5")
    compare = start("compare.py", "--only=steadfast", "--pods=200", *seconds)
    churn = start("churn.py", "--changes=2000", "--pods=100", "--rounds=10")
    table, errors = compare.communicate(timeout=120)
    assert compare.returncode == 0 and "failed" not in table, table + errors
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == 16, table
    assert "Deleted (old), Added (new)" in table
    output, errors = churn.communicate(timeout=120)
    assert churn.returncode == 0 and "threads and tasks left: none" in output, output + errors
