"""What data sets say about their items, as frames for `item_features`: MovieLens' genres, publishers in an ISBN."""

import os
import pathlib
import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # polars is imported by the first file that is read
    import polars as pl

GENRES = tuple(  # the flags of u.item, in order, after that of "unknown"
    re.findall(
        "[^|]+",
        "Action|Adventure|Animation|Children's|Comedy|Crime|Documentary|Drama|Fantasy|Film-Noir|Horror|Musical|"
        "Mystery|Romance|Sci-Fi|Thriller|War|Western",
    )
)
YEAR = re.compile(r"\((\d{4})\)\s*$")
(
    FEWEST,
    MOST,
) = (  # of a publisher's number with so many digits, by the group of the ISBN: of 1, of the others
    ((0, 100, 4000, 55000, 869800, 9990000), (0, 200, 7000, 85000, 900000, 9500000)),
    ((9, 399, 5499, 86979, 998999, 9999999), (19, 699, 8499, 89999, 949999, 9999999)),
)


def read_movies(path: str | os.PathLike) -> "pl.DataFrame":
    """The movies of MovieLens with columns item, genres ("Action|Comedy") and year.

    Args:
        path: `movies.dat` (1M, 10M), `u.item` (100K) or `movies.csv` (20M and later), or the folder that has one.
    """
    import polars as pl

    path = pathlib.Path(path)
    if path.is_dir():
        found = [path / name for name in ("movies.dat", "u.item", "movies.csv")]
        path = next((file for file in found if file.exists()), found[0])
    if path.name == "movies.csv":
        frame = pl.read_csv(path)
        rows = list(frame.select("movieId", "title", "genres").iter_rows())
    else:
        lines = path.read_text(encoding="latin-1").splitlines()
        rows = [_movie(path, number, line) for number, line in enumerate(lines, 1) if line]
    years = [YEAR.search(title or "") for _, title, _ in rows]
    return pl.DataFrame(
        {
            "item": pl.Series([item for item, _, _ in rows], dtype=pl.Int64),
            "genres": [genres or None for _, _, genres in rows],
            "year": pl.Series(
                [float(year[1]) if year else None for year in years], dtype=pl.Float64
            ),
        }
    )


def _movie(path: pathlib.Path, number: int, line: str) -> tuple[int, str, str]:
    """Id, title and genres of one line of movies.dat or u.item."""
    try:
        if path.name == "u.item":
            item, title, *rest = line.split("|")
            flags = rest[-len(GENRES) :]
            if len(rest) != len(GENRES) + 4 or not set(flags) <= {"0", "1"}:
                raise ValueError(f"{len(rest) + 2} fields")
            return (
                int(item),
                title,
                "|".join(g for g, f in zip(GENRES, flags, strict=True) if f == "1"),
            )
        item, title, genres = line.split("::")
        return int(item), title, "" if genres.startswith("(no genres") else genres
    except ValueError as error:
        raise ValueError(
            f"{path}, line {number}: {line[:60]!r} is no line of {path.name} ({error})"
        ) from None


def isbn_prefixes(isbns: Any) -> "pl.DataFrame":
    """Publisher-like prefixes of ISBNs as features: columns item, group, publisher, series and shelf.

    An ISBN begins with a group (a language or a country) and a publisher, whose numbers are longer the smaller the
    publisher is. `series` and `shelf` are the next one and two digits: a publisher numbers its books in turn, so near
    numbers are of near years and imprints. What is no ISBN of ten digits has no features.

    Args:
        isbns: the ids of the items, such as those of Book Crossing, [n].
    """
    import polars as pl

    parts = [_prefixes(str(isbn)) for isbn in np.asarray(isbns).tolist()]
    names = ("group", "publisher", "series", "shelf")
    columns = {name: [row[place] for row in parts] for place, name in enumerate(names)}
    return pl.DataFrame(
        {"item": np.asarray(isbns), **columns}, schema_overrides=dict.fromkeys(names, pl.String)
    )


def _prefixes(isbn: str) -> tuple[str | None, ...]:
    digits = isbn.strip().upper().replace("-", "")
    if not re.fullmatch(r"\d{9}[\dX]", digits):
        return None, None, None, None
    length = (
        1 if digits[0] in "012345" or digits[0] == "7" else 2 if "80" <= digits[:2] <= "94" else 3
    )
    group, rest = digits[:length], digits[length:9]
    other = int(group != "1")
    for width, (low, high) in enumerate(zip(FEWEST[other], MOST[other], strict=True), 2):
        if width < len(rest) and low <= int(rest[:width]) <= high:
            return (group, *(digits[: length + width + more] for more in (0, 1, 2)))
    return group, None, None, None
