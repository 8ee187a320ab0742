"""What the commands of docs/tutorial.md print on MovieLens 100K, for the page to quote.

python -m experiments.tutorial --data_dir=DIR --results=experiments/results/tutorial.jsonl
"""

import contextlib
import dataclasses
import io
import pathlib
import tempfile

from experiments import flags, results
from mfauc_jax import cli

SHOWN = {"evaluate": 4, "certify": 3}  # lines of the output that the page has


@dataclasses.dataclass(frozen=True)
class Config:
    """The commands as the page has them."""

    data_dir: str = "data"
    results: str = "out/tutorial.jsonl"


def run(config: Config) -> list[dict]:
    """One record per quoted command."""
    data_dir = str(pathlib.Path(config.data_dir).resolve())
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        split = "data split --dataset ml-100k --train train.csv --test test.csv --per_user 5"
        _type([*split.split(), "--data_dir", data_dir])
        _type(["fit", "train.csv", "--out", "likes.model"])
        commands = {
            "evaluate": "evaluate likes.model test.csv",
            "certify": "certify likes.model test.csv --delta 0.05",
        }
        return [
            {
                "what": what,
                "command": f"mfauc {command}",
                "printed": _first(command.split(), SHOWN[what]),
            }
            for what, command in commands.items()
        ]


def _first(words: list[str], lines: int) -> str:
    return "\n".join(_type(words).splitlines()[:lines])


def _type(words: list[str]) -> str:
    """What our command prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = cli.main(words)
    if code != 0:
        raise RuntimeError(f"mfauc {' '.join(words)} ended with {code}")
    return printed.getvalue()


if __name__ == "__main__":
    flags.run(Config, lambda config: results.write(config.results, config, run(config)))
