"""The notebook runs from top to bottom and answers what it shows."""

import ast
import contextlib
import io
import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def answer(code: str, namespace: dict) -> dict[str, str]:
    """Run a cell as a kernel does: what it printed, and its last expression as text."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "notebook", "exec"), namespace)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "notebook", "eval"), namespace)
    shown = {"stream": printed.getvalue()} if printed.getvalue() else {}
    return shown if value is None else shown | {"execute_result": repr(value)}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_answers_what_it_shows(path, tmp_path):
    namespace: dict = {"__name__": "__main__"}
    with contextlib.chdir(tmp_path):
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] != "code":
                continue
            stored = {
                output["output_type"]: "".join(output.get("text") or output["data"]["text/plain"])
                for output in cell["outputs"]
            }
            assert answer("".join(cell["source"]), namespace) == stored
    assert (tmp_path / "books.model").exists()


def test_there_is_a_notebook_and_its_bars_are_those_of_a_notebook():
    assert [path.stem for path in NOTEBOOKS] == ["shelf"]
    assert "from tqdm.auto import tqdm" in NOTEBOOKS[0].read_text()
    for module in ("training/loop.py", "training/selection.py", "tuning.py"):
        assert "from tqdm.auto import tqdm" in (ROOT / "mfauc_jax" / module).read_text()
