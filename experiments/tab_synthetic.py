"""Table 2: comparative ranking on Synthetic1 and Synthetic2, settings `authors`, `text` and `ours`.

    python -m experiments.tab_synthetic

Synthetic1 is here the matrix the authors' table used, about 413 × 200, not the text's 500 × 200.
"""

import dataclasses

from experiments import flags, protocol


@dataclasses.dataclass(frozen=True)
class Config(protocol.Config):
    """As the authors ran it, with fewer repetitions of the selection and no early stop (README.md)."""

    datasets: tuple[str, ...] = ("synthetic1_table", "synthetic2")
    settings: tuple[str, ...] = ("authors", "text", "ours")
    results: str = "out/tab_synthetic.jsonl"


QUICK = {
    "settings": ("authors", "ours"),
    "select": False,
    "splits": 1,
    "iterations": 150,
    "datasets": ("synthetic2",),
    "methods": (
        "SoftImpute",
        "WRMF",
        "MFAUC hinge",
        "MFAUC square",
        "MFAUC logistic",
        "MFAUC",
        "Popularity",
    ),
}

run = protocol.run


if __name__ == "__main__":
    flags.run(Config, protocol.main)
