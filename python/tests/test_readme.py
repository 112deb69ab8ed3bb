"""Examples of the README, each in an empty module against an embedded server."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import steadfast_kube
from conftest import pod, run
from steadfast_kube.testing import Server

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_readme_example_runs(server: Server, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.create(pod("web-0"))
    file = tmp_path / "config"
    file.write_text(server.kubeconfig)
    monkeypatch.setenv("KUBECONFIG", str(file))
    # The examples write to the current folder.
    monkeypatch.chdir(tmp_path)
    source = compile(EXAMPLES[number], f"README example {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"steadfast": steadfast_kube, "__name__": "example"}

    async def main() -> None:
        result = eval(source, names)
        if inspect.isawaitable(result):
            await result

    run(main())
    # An example that shows a test defines a function whose argument is the fixture `steadfast_server`.
    for name, function in names.items():
        if name.startswith("test_"):
            with Server() as empty_server:
                function(empty_server)


def test_readme_has_examples_of_each_part() -> None:
    assert len(EXAMPLES) >= 7
    assert sum("def test_" in example for example in EXAMPLES) == 1
