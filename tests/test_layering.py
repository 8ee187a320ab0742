"""Imports point only downwards, and each outer part of the tree sees only what lies inside it."""

import ast
import graphlib
import pathlib
import sys

import jax
import numpy as np
import pytest

from mfauc_jax import MFAUC, Interactions

ROOT = pathlib.Path(__file__).parent.parent
LAYERS = (  # a folder, or a module of the top level, per name; lower ones first
    "_core",
    "data",
    "objective",
    "problem evaluation",
    "solvers",
    "training certify baselines distributed",
    "serving",
    "model",
    "tuning",
    "plots explorer lenskit",
    "cli",
)
LAYER = {name: depth for depth, names in enumerate(LAYERS) for name in names.split()}
SEES = {  # which of our packages each may import
    "mfauc_jax": {"mfauc_jax"},
    "theory": {"mfauc_jax", "theory"},
    "experiments": {"mfauc_jax", "theory", "experiments"},
}


def sources(package: str) -> list[pathlib.Path]:
    return sorted((ROOT / package).rglob("*.py"))


def module_of(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for package in SEES for path in sources(package)}


def imports(path: pathlib.Path) -> set[str]:
    """Our modules that a file imports, anywhere in it; `from a import b` is a.b if that is one."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{path}:{node.lineno}: relative import; write the module's name"
            )
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else str(node.module))
    return {name for name in found if name.split(".")[0] in SEES} - {module_of(path)}


def layer(module: str) -> int:
    name = module.split(".")[1]
    assert name in LAYER, f"mfauc_jax.{name} has no layer: give it one in {__file__}"
    return LAYER[name]


@pytest.mark.parametrize("path", sources("mfauc_jax"), ids=module_of)
def test_the_library_imports_only_downwards(path):
    module = module_of(path)
    if module == "mfauc_jax":
        return  # the front door sees everything
    for imported in imports(path):
        assert imported != "mfauc_jax", f"{module} imports through the front door: a cycle"
        if imported.startswith("mfauc_jax."):
            assert layer(imported) <= layer(module), f"{module} imports {imported}, which is above"


def test_no_import_cycles():
    graph = {}
    for path in sources("mfauc_jax"):
        module = module_of(path)
        inside = {name for name in imports(path) if not module.startswith(f"{name}.")}
        graph[module] = inside  # a module may be loaded by, but not wait for, its own package
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError on a cycle
    assert set(graph) <= set(order)


@pytest.mark.parametrize("package", SEES)
def test_outer_packages_see_inner_ones_only(package):
    for path in sources(package):
        seen = {name.split(".")[0] for name in imports(path)}
        assert seen <= SEES[package], f"{path}: {package} may not import {seen - SEES[package]}"


@pytest.mark.parametrize("path", sources("mfauc_jax"), ids=module_of)
def test_only_the_command_line_and_use_cores_touch_jax_config(path):
    if module_of(path).startswith(("mfauc_jax.cli", "mfauc_jax._core.cores")):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) != ("jax", "config"), f"{path}:{node.lineno}"
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "jax":
            named = {alias.name for alias in node.names}
            assert not named & {"config", "enable_x64"}, f"{path}:{node.lineno}"
            assert node.module != "jax.config", f"{path}:{node.lineno}"


@pytest.mark.parametrize("package", SEES)
def test_no_module_without_a_subject(package):
    vague = {"utils", "helpers", "common", "types", "config"}
    assert not {path.stem for path in sources(package)} & vague


def test_fit_crosses_nineteen_modules_at_most():
    """What a reader opens to follow `MFAUC().fit(X)` on data that were read before."""
    crossed = set()

    def enter(frame, event, arg):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("mfauc_jax.") and frame.f_code.co_name != "<module>":
            crossed.add(name)

    X = Interactions.of(np.eye(9, 8) + np.eye(9, 8, 1))
    model = MFAUC(rank=2)
    jax.clear_caches()
    sys.setprofile(enter)
    try:
        model.fit(X)
    finally:
        sys.setprofile(None)
    assert len(crossed) <= 19, sorted(crossed)


def test_files_are_one_room_each():
    long = {p.name: n for p in sources("mfauc_jax") if (n := len(p.read_text().splitlines())) > 320}
    assert not long, f"{long}: is it one room or two?"
