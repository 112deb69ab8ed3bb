"""Type hints, as mypy sees them."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    from typing_extensions import assert_never

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

    def state(freshness: steadfast.Freshness) -> str:
        match freshness:
            case steadfast.Fresh(age=age):
                return f"{age:.1f}"
            case steadfast.Failed() | steadfast.Stopped():
                return freshness.reason
            case steadfast.Doubt(elapsed=elapsed):
                return f"{elapsed:.1f}"
            case _:
                assert_never(freshness)

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


@pytest.mark.parametrize(
    "line, error",
    [
        ("steadfast.Informers(labels=1)", "Unexpected keyword"),
        ('blocking.Informers().watch("pods", labels={"a": 1})', "incompatible type"),
        ("with steadfast.Informers(): pass", "has no attribute \"__enter__\""),
        ("steadfast.reconcile(print)", "incompatible type"),
    ],
)
def test_wrong_use_is_reported(tmp_path: Path, line: str, error: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"import steadfast_kube as steadfast\nfrom steadfast_kube import blocking\n{line}\n")
    assert error in mypy(str(file))


def test_annotated_example_of_the_readme_is_correct(tmp_path: Path) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    examples = re.findall(r"^```python\n(# checked by mypy --strict\n.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert len(examples) == 1
    file = tmp_path / "example.py"
    file.write_text(examples[0])
    assert mypy(str(file)).startswith("Success")
