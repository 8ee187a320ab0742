"""theory/README.md names what exists: modules, functions, files and commands."""

import importlib.util
import pathlib
import pkgutil
import re

import pytest

import experiments
import mfauc_jax
import theory
from mfauc_jax.certify.certificate import CERTIFICATES

ROOT = pathlib.Path(__file__).parent.parent
TEXT = (ROOT / "theory/README.md").read_text().replace("\\|", "|")
CODE = sorted(set(re.findall(r"`([^`]+)`", TEXT)))


def modules() -> dict[str, list[str]]:
    """Our modules by the last part of their names."""
    found: dict[str, list[str]] = {}
    for package in (mfauc_jax, theory, experiments):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            found.setdefault(module.name.rpartition(".")[2], []).append(module.name)
    return found


MODULES = modules()
DOTTED = [m.group(0) for code in CODE if (m := re.match(r"([a-z]\w*)\.[A-Za-z_][\w.]*", code))]
OTHERS = ("jax", "mfauc_jax")  # not ours, or named in full
NAMES = sorted({name for name in DOTTED if name.split(".")[0] not in OTHERS})
PATHS = [code for code in CODE if re.fullmatch(r"[\w/]+\.(py|md)", code)]
COMMANDS = sorted(set(re.findall(r"python -m ([\w.]+)", TEXT)))


def resolves(module: str, attributes: list[str]) -> bool:
    found = importlib.import_module(module)
    for attribute in attributes:
        if not hasattr(found, attribute):
            return attribute in getattr(found, "_fields", ())
        found = getattr(found, attribute)
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_where_the_page_says(name):
    head, *rest = name.split(".")
    homes = MODULES.get(head, [])
    assert any(resolves(module, rest) for module in homes), f"{name} in {homes}"


def test_a_certificate_is_where_the_page_says():
    assert resolves("mfauc_jax.certify.certificate", ["certify"])
    assert "`mfauc_jax.certify.certificate.certify(" in TEXT


@pytest.mark.parametrize("path", PATHS)
def test_a_file_is_there(path):
    assert any((ROOT / folder / path).exists() for folder in (".", "mfauc_jax")), path


@pytest.mark.parametrize("module", COMMANDS)
def test_a_command_is_there(module):
    assert importlib.util.find_spec(module)


def test_the_page_was_read():
    assert len(NAMES) > 40 and len(PATHS) > 10 and len(COMMANDS) > 3


@pytest.mark.parametrize("kind", CERTIFICATES)
def test_every_certificate_has_its_row(kind):
    assert re.search(rf"^\| `{kind}`", TEXT, re.MULTILINE)
