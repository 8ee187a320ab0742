"""The data sets known by name: their files, their filters, and their official addresses."""

from collections.abc import Mapping
from typing import NamedTuple


class Filter(NamedTuple):
    """Which ratings are relevant, and how many positives a user and an item must have.

    A pair is relevant if any of its ratings is. Then users below `user_min` positives and items
    below `item_min` are dropped until nothing changes (`splits.k_core`).
    """

    above: float | None = None  # relevant if rating > above; None: every rating is
    user_min: int = 1
    item_min: int = 1
    zero: bool = False  # a rating of 0 is relevant too: Book-Crossing's "read, not rated"


class File(NamedTuple):
    """One file of ratings, found plain or as `<name>.gz`."""

    name: str
    layout: str
    sha256: str | None = None  # of the plain content, where it is known


class Dataset(NamedTuple):
    """A data set: the first of `files` that exists is read, or all of them if it is a `split`."""

    title: str
    files: tuple[File, ...]
    filters: Mapping[str, Filter]  # the first is the default
    urls: tuple[str, ...]  # official: one archive, or the bare files; empty: none is known
    get: str  # how to get it by hand
    split: bool = False  # comes divided into training and test
    folder: str | None = None  # the folder's name in the archive, if it is not the data set's


GROUPLENS = "https://files.grouplens.org/datasets/movielens"
LIGHTGCN = "https://raw.githubusercontent.com/gusye1234/LightGCN-PyTorch/master/data"

EVERYTHING = Filter()
PAPER = Filter(above=3, user_min=10, item_min=2)


def _movielens(name: str, title: str, file: str, layout: str, sha256: str | None = None) -> Dataset:
    return Dataset(
        title,
        (File(file, layout, sha256),),
        {"table": PAPER, "text": PAPER, "everything": EVERYTHING},
        (f"{GROUPLENS}/{name}.zip",),
        f"{GROUPLENS}/{name}.zip",
    )


DATASETS: dict[str, Dataset] = {
    "ml-100k": _movielens(
        "ml-100k",
        "MovieLens 100K",
        "u.data",
        "u.data",
        "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
    ),
    "ml-1m": _movielens(
        "ml-1m",
        "MovieLens 1M",
        "ratings.dat",
        "ratings.dat",
        "506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f",
    ),
    "ml-10m": _movielens("ml-10m", "MovieLens 10M", "ratings.dat", "ratings.dat")._replace(
        folder="ml-10M100K"
    ),
    "ml-20m": _movielens("ml-20m", "MovieLens 20M", "ratings.csv", "ratings.csv"),
    "ml-25m": _movielens("ml-25m", "MovieLens 25M", "ratings.csv", "ratings.csv"),
    "ml-32m": _movielens("ml-32m", "MovieLens 32M", "ratings.csv", "ratings.csv"),
    "ml-latest": _movielens("ml-latest", "MovieLens latest", "ratings.csv", "ratings.csv"),
    "ml-latest-small": _movielens(
        "ml-latest-small", "MovieLens latest, small", "ratings.csv", "ratings.csv"
    ),
    "book-crossing": Dataset(
        "Book Crossing",
        (
            File(
                "BX-Book-Ratings.csv",
                "book-crossing",
                "f359084e5f350151b61f3d07acbe3c6ff0e2bd057d88901fa60507449d0e0e57",
            ),
        ),
        {
            "table": Filter(above=4, user_min=10, item_min=3, zero=True),
            "text": Filter(above=4, user_min=10, item_min=2),
            "everything": EVERYTHING,
        },
        ("http://www2.informatik.uni-freiburg.de/~cziegler/BX/BX-CSV-Dump.zip",),
        "BX-CSV-Dump.zip of C.-N. Ziegler's page, www2.informatik.uni-freiburg.de/~cziegler/BX",
    ),
    "epinions": Dataset(
        "Epinions",
        (File("rating.mat", "epinions"),),  # the official file may hold a fifth column
        {
            "table": Filter(above=3, user_min=10, item_min=3),
            "text": PAPER,
            "everything": EVERYTHING,
        },
        ("https://www.cse.msu.edu/~tangjili/datasetcode/epinions.zip",),
        "epinions.zip of J. Tang's page, www.cse.msu.edu/~tangjili/datasetcode/truststudy.htm",
    ),
    "flixster": Dataset(
        "Flixster",
        (File("Ratings.timed.txt", "flixster"), File("ratings.txt", "flixster")),
        {"table": PAPER, "text": PAPER, "everything": EVERYTHING},
        (),
        "asking for Ratings.timed.txt at M. Jamali's page, sites.google.com/view/mohsenjamali: "
        "no lasting official address is known",
    ),
    "flixster-3k-subset": Dataset(
        "Flixster, a 3000 × 3000 sample",
        (File("flixster3k.npz", "npz"),),
        {"table": PAPER, "text": PAPER, "everything": EVERYTHING},
        (),
        "the arrays row, col, rating, is_train of the sample of Monti, Bronstein and Bresson "
        "(2017), github.com/fmonti/mgcnn, saved with numpy.savez",
        split=True,
    ),
    "gowalla": Dataset(
        "Gowalla, LightGCN's split",
        (File("train.txt", "lightgcn"), File("test.txt", "lightgcn")),
        {"everything": EVERYTHING},
        (f"{LIGHTGCN}/gowalla/train.txt", f"{LIGHTGCN}/gowalla/test.txt"),
        "train.txt and test.txt of github.com/gusye1234/LightGCN-PyTorch, data/gowalla",
        split=True,
    ),
}
