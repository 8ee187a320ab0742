"""Finding something by its name, kindly."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


def lookup(kind: str, known: Mapping[str, T], name: str) -> T:
    """`known[name]`, or a ValueError that names the nearest entry and lists them all."""
    if name in known:
        return known[name]
    raise ValueError(f"unknown {kind} {name!r}: {choose_from(known, name)}")


def choose_from(known: Iterable[str], name: str) -> str:
    """What to say to somebody who wrote `name`."""
    known = list(known)
    near = nearest(known, name)
    hint = f"did you mean {near!r}? " if near else ""
    return f"{hint}choose from {', '.join(known)}"


def nearest(known: Iterable[str], name: str) -> str | None:
    """The known name that is spelt most like `name`, if any is."""
    near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return near[0] if near else None
