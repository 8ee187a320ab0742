"""The wheel and the source archive: sound for an index, with the files that are no Python."""

import importlib.util
import pathlib
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent
MISSING = [name for name in ("hatchling", "twine") if importlib.util.find_spec(name) is None]


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_wheel_and_archive_pass_twine_and_hold_the_page(tmp_path):
    made = run("hatchling", "build", "-d", str(tmp_path))
    assert made.returncode == 0, made.stdout
    files = sorted(map(str, tmp_path.iterdir()))
    checked = run("twine", "check", "--strict", *files)
    assert checked.returncode == 0, checked.stdout
    (wheel,), (archive,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as packed, tarfile.open(archive) as tarred:
        inside = {
            "wheel": set(packed.namelist()),
            "archive": {name.partition("/")[2] for name in tarred.getnames()},
        }
    for names in inside.values():
        for kind in ("html", "css", "js"):
            assert f"mfauc_jax/explorer/page.{kind}" in names
        assert "mfauc_jax/py.typed" in names
    assert not any(name.startswith(("tests/", "experiments/")) for name in inside["wheel"])


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
