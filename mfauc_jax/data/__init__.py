"""Data: the paper's matrices by name (`load`, `download`), your own files (`read_ratings`), and splits."""

from mfauc_jax.data import splits, synthetic
from mfauc_jax.data.catalogue import DATASETS, Filter
from mfauc_jax.data.download import Downloaded, download
from mfauc_jax.data.item_files import isbn_prefixes, read_movies
from mfauc_jax.data.ratings import Timed, load, load_split, load_timed, read_ratings, read_timed
from mfauc_jax.data.splits import Split
from mfauc_jax.data.titles import Titles
from mfauc_jax.data.titles import read as read_titles
from mfauc_jax.data.writing import write_ratings

__all__ = [
    "DATASETS",
    "Downloaded",
    "Filter",
    "Split",
    "Timed",
    "Titles",
    "download",
    "isbn_prefixes",
    "load",
    "load_split",
    "load_timed",
    "read_movies",
    "read_ratings",
    "read_timed",
    "read_titles",
    "splits",
    "synthetic",
    "write_ratings",
]
