"""Run the code of a page of the documentation, and print under each block what it answers.

    python -m experiments.page_outputs --pages=README.md,docs/production.md
    python -m experiments.page_outputs --pages=docs/tutorial.md --data_dir=DIR

A page is Markdown. Its blocks of `python` and `sh` are run in order, in one namespace and in a scratch folder; of a
shell block only the lines that call `mfauc` are. A block of `text` that directly follows is the output of the block
above it: this command rewrites it, and `tests/test_docs.py` compares it. A last line `…` stands for any further lines.
A block that begins with `# not run` is not run, one with `# needs MODULE` only where that is installed. A snippet
(`--8<-- "file"`) is the file.
"""

import contextlib
import dataclasses
import gzip
import importlib.util
import io
import os
import pathlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from experiments import flags
from mfauc_jax import cli
from mfauc_jax._core import atomic

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"^```(?P<language>python|sh)[^\n]*\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
STRANGERS = (
    "pip ",
    "cut ",
    "python ",
    "NPROC=",
    "MODEL=",
    "curl ",
    "uvicorn ",
    "docker ",
    "chromium ",
)
SKIPPED = "# not run"


@dataclasses.dataclass(frozen=True)
class Config:
    """Which pages, and where the data sets are."""

    pages: tuple[str, ...] = flags.option(("README.md",), "pages whose outputs are rewritten")
    data_dir: str = flags.option("", "folder of the real data sets; without it a small stand-in")


class Block(NamedTuple):
    """A block of code that was run."""

    code: str
    printed: str | None  # what the page says it prints; None: nothing is said
    found: str  # what it printed
    span: tuple[int, int]  # of `printed` in the page

    @property
    def wanted(self) -> str:
        """What the page should say: all of `found`, or as many lines of it as the page has before a last `…`."""
        lines = (self.printed or "").splitlines()
        if lines[-1:] == ["…"]:
            return "\n".join([*self.found.splitlines()[: len(lines) - 1], "…"]) + "\n"
        return self.found


def run(text: str, name: str, namespace: dict[str, Any]) -> Iterator[Block]:
    """Run the blocks of a page in the present folder, one after the other."""
    for match in BLOCK.finditer(text):
        code = _snippets(match["code"])
        needed = re.match(r"# needs (\w+)", code)
        if code.startswith(SKIPPED) or (needed and importlib.util.find_spec(needed[1]) is None):
            continue
        answer = io.StringIO()
        with contextlib.redirect_stdout(answer):
            if match["language"] == "sh":
                _type_in(code)
            else:
                exec(compile(code, name, "exec"), namespace)  # the page's own code
        found = "".join(f"{line.rstrip()}\n" for line in answer.getvalue().splitlines())
        yield Block(code, match["printed"], found, match.span("printed"))


def _snippets(code: str) -> str:
    """The code with `--8<-- "file"` replaced by the file."""
    return re.sub(r'^--8<-- "(.+)"\n', lambda m: (ROOT / m[1]).read_text(), code, flags=re.M)


def _type_in(code: str) -> None:
    """The lines of a shell block that call our command, in this process."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words or line.startswith(STRANGERS):
            continue
        if words[0] != "mfauc":
            raise ValueError(f"{line!r} neither calls mfauc nor begins with one of {STRANGERS}")
        if cli.main(words[1:]) != 0:
            raise RuntimeError(f"{line!r} failed")


@contextlib.contextmanager
def scratch(data_dir: str = "") -> Iterator[pathlib.Path]:
    """A folder with what the pages read: `ratings.csv`, and MovieLens 100K in `data`, real or a stand-in."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        likes(folder / "ratings.csv")
        if data_dir:
            home = folder / "data" / "ml-100k"
            shutil.copytree(pathlib.Path(data_dir, "ml-100k"), home)
            packed = home / "u.data.gz"
            if packed.exists():
                (home / "u.data").write_bytes(gzip.decompress(packed.read_bytes()))
        else:
            movielens(folder / "data")
        known = mock.Mock(folder="data", verified=True)
        with (
            contextlib.chdir(folder),
            mock.patch.object(cli, "_set_up_jax"),
            mock.patch("jax.config.update"),
            mock.patch("mfauc_jax.data.download", return_value=known),
        ):
            yield folder


def movielens(folder: pathlib.Path) -> None:
    """A small stand-in for MovieLens 100K, with two tastes and popular items."""
    rng = np.random.default_rng(0)
    taste, kind = rng.integers(2, size=(80, 1)), rng.integers(2, size=(1, 60))
    liked = rng.random((80, 60)) < np.where(taste == kind, 0.5, 0.15)
    users, items = np.nonzero(rng.random((80, 60)) < 0.7)
    stars = np.where(liked[users, items], 5, 2)
    (folder / "ml-100k").mkdir(parents=True)
    lines = (f"{u + 1}\t{j + 1}\t{r}\t0\n" for u, j, r in zip(users, items, stars, strict=True))
    (folder / "ml-100k" / "u.data").write_text("".join(lines))


def likes(path: pathlib.Path) -> None:
    """ann, bob and six more like five of eight things each, every thing liked by five."""
    people = "ann", "bob", *"cdefgh"
    things = "tea", "jam", "rye", "oat", "fig", "nut", "pea", "egg"
    pairs = (f"{people[i]},{things[(i + j) % 8]}\n" for i in range(8) for j in range(5))
    path.write_text("user,item\n" + "".join(pairs))


def rewritten(page: pathlib.Path, data_dir: str = "") -> str:
    """The page with the outputs of its code as they are now."""
    text = page.read_text()
    with scratch(os.path.abspath(data_dir) if data_dir else ""):
        blocks = list(run(text, page.name, {"__name__": "__main__"}))
    for block in reversed(blocks):
        if block.printed is not None:
            text = text[: block.span[0]] + block.wanted + text[block.span[1] :]
    return text


def main(config: Config) -> None:
    """Rewrite the pages."""
    for page in map(pathlib.Path, config.pages):
        atomic.write_text(page, rewritten(page, config.data_dir))
        print(page)


if __name__ == "__main__":
    flags.run(Config, main)
