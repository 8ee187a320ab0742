"""Lookup by name, with errors that suggest the nearest name."""

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
    """The end of an error message about the unknown `name`: the nearest known name, and all of them."""
    known = list(known)
    closest = nearest(known, name)
    hint = f"did you mean {closest!r}? " if closest else ""
    return f"{hint}choose from {', '.join(known)}"


def nearest(known: Iterable[str], name: str) -> str | None:
    """The known name that is spelt most like `name`, or None if no name is similar."""
    matches = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None
