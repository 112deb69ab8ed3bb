"""Type hints, as mypy sees them."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import steadfast_kube as steadfast
    from steadfast_kube import blocking

    async def main() -> None:
        async with steadfast.Informers() as informers:
            pods = informers.watch("pods", index={"node": "spec.nodeName"})
            await pods.synced(timeout=30)
            node: str = pods["shop/web-0"].spec.nodeName
            found: list[steadfast.Object] = pods.by("node", node)
            freshness: steadfast.Freshness = pods.freshness
            async for event in pods.events():
                match event:
                    case steadfast.Added(object=pod, initial=initial):
                        flag: bool = initial
                    case steadfast.Updated(old=old, new=new):
                        text: str = new.key + old.name
                    case steadfast.Deleted(last=last, certainty=certainty):
                        reveal: steadfast.Certainty = certainty

    async def durable() -> None:
        async with steadfast.Informers(checkpoint="cache") as informers:
            async with informers.watch("pods").durable("registry", concurrency=4) as deliveries:
                async for delivery in deliveries:
                    text: str = delivery.id + delivery.event.key
                    counts: list[int] = [delivery.failures] + [stats.pending for stats in [deliveries.stats] if stats]
                    acknowledged: bool = delivery.ack()

    def other() -> None:
        with blocking.Informers() as informers:
            pods = informers.watch("pods")
            size: int = pods.until(lambda pods: len(pods), 3)
            for delivery in pods.durable("registry", timeout=1.0, ack_timeout=None):
                delivery.fail("a reason")
"""


def mypy(*arguments: str) -> str:
    """Runs mypy and returns its output."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    return ended.stdout + ended.stderr


def test_package_has_correct_types() -> None:
    assert mypy("--package", "steadfast_kube").startswith("Success")


def test_program_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(PROGRAM))
    assert mypy(str(file)).startswith("Success")
    file.write_text(textwrap.dedent(PROGRAM).replace("size: int", "size: str"))
    assert 'expression has type "int", variable has type "str"' in mypy(str(file))
