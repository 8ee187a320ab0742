"""Recognition of the columns of users, items, ratings and times by their names, in frames and in files.

Names are compared without case and punctuation, so that `User-ID`, `userId` and `user_id` are one name. If no column,
or several columns, could hold the users, a ValueError lists the columns and the call to write; the same for items.
"""

import re
from collections.abc import Callable, Mapping, Sequence

NOUNS = {
    "user": "user usr customer cust client visitor member reviewer consumer buyer shopper purchaser listener viewer "
    "reader subscriber player guest rater",
    "item": "item movie film book product prod article track song artist album video game recipe beer wine "
    "restaurant hotel business place poi venue listing anime joke podcast news sku asin isbn ean upc gtin",
}
ONLY_WITH_ID = {  # nouns that count only with one of ENDS: alone they often mean something else
    "user": "account profile person",
    "item": "content post page document doc course app episode show",
}
ENDS = "id ids key code no num nr number idx index uuid guid hash"
OTHERS = {
    "user": "uid",
    "item": "iid isbn10 isbn13 stockcode",
    "rating": "rating ratings score scores star stars overall bookrating userrating movierating itemrating "
    "productrating reviewrating reviewscore starrating ratingvalue ratingscore userscore myrating grade",
    "time": "time timestamp ts date datetime when epoch unixtime unixtimestamp created createdat createdon "
    "createdtime createddate creationdate eventtime eventtimestamp eventdate eventts unixreviewtime reviewtime "
    "reviewdate orderdate ordertime orderedat purchasedate purchasetime purchasedat transactiondate "
    "transactiontime invoicedate viewedat watchedat ratedat playedat clickedat visitedat checkintime tdat",
}
LESS_LIKELY = {  # names that count only if no column has one of the others
    "user": "session sessionid",
    "item": "",
    "rating": "label target click clicked clicks isclick isclicked like liked isliked relevance feedback preference "
    "response interaction",
    "time": "",
}


def _aliases(kind: str) -> frozenset[str]:
    """The names of a kind, without case and punctuation: a noun, its plural and its identifiers, and others."""
    nouns, with_id = (words.get(kind, "").split() for words in (NOUNS, ONLY_WITH_ID))
    identifiers = [noun + end for noun in nouns + with_id for end in ENDS.split()]
    return frozenset([*nouns, *(f"{noun}s" for noun in nouns), *identifiers, *OTHERS[kind].split()])


ALIASES = {kind: _aliases(kind) for kind in ("user", "item", "rating", "time")}
SHOWN = 30  # most columns in a message


def plain(name: object) -> str:
    """A name without case and punctuation."""
    return re.sub(r"[\W_]", "", str(name)).lower()


def matching(names: Sequence[str], kind: str) -> list[str]:
    """The columns whose names say that they hold `kind`: user, item, rating or time."""
    for aliases in (ALIASES[kind], LESS_LIKELY[kind].split()):
        found = [name for name in names if plain(name) in aliases]
        if found:
            return found
    return []


def find(
    source: str,
    names: Sequence[str],
    given: Mapping[str, str | None],
    needed: Sequence[str] = ("user", "item"),
    remedy: Callable[[str, Mapping[str, str]], str] | None = None,
) -> dict[str, str]:
    """The column of each kind: the one that the caller gave, or else the one whose name matches.

    Kinds that are not needed are left out if no column or several columns match.

    Args:
        source: what the columns belong to, for messages.
        names: all columns.
        given: kind → column, or None to look for it.
        needed: kinds that must be found.
        remedy: the end of a message, from the kind and the columns found; by default the option of `read_ratings`.
    """
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise ValueError(f"{source}: column name {twice!r} comes twice: {shown(names)}")
    chosen = {kind: name for kind, name in given.items() if name is not None}
    for kind, name in chosen.items():
        if name not in names:
            raise ValueError(f"{source} has no column {name!r} for {kind}=: it has {shown(names)}")
    taken = set(chosen.values())
    found = {
        kind: [name for name in matching(names, kind) if name not in taken]
        for kind in ALIASES
        if kind not in chosen
    }
    chosen |= {kind: match[0] for kind, match in found.items() if len(match) == 1}
    for kind in needed:
        if kind not in chosen:
            several = " and ".join(map(str, found.get(kind, ())))
            what = f"{kind} ids" if kind in ("user", "item") else f"{kind}s"
            trouble = (
                f"columns that look like {what}, {several},"
                if several
                else f"column that looks like {what}"
            )
            number = len(found[kind]) if several else "no"
            advice = (remedy or _option)(kind, chosen)
            raise ValueError(f"{source} has {number} {trouble} among {shown(names)}: {advice}")
    for kind, name in chosen.items():
        double = [other for other in chosen if chosen[other] == name and other < kind]
        if double:
            raise ValueError(f"{source}: column {name!r} cannot be both {double[0]} and {kind}")
    return {kind: chosen[kind] for kind in (*ALIASES, "confidence") if kind in chosen}


def _option(kind: str, chosen: Mapping[str, str]) -> str:
    del chosen
    return f"pass {kind}= its name"


def call(kind: str, chosen: Mapping[str, str]) -> str:
    """The end of a message: the call that names the columns of a frame."""
    kinds = [k for k in ("user", "item", "rating") if k in (kind, "user", "item")]
    words = ", ".join(f'{k}="{chosen.get(k, "…")}"' for k in kinds)
    return f"write Interactions.from_frame(df, {words})"


def shown(names: Sequence[str]) -> str:
    """The names of the columns for a message, at most SHOWN of them."""
    rest = f", … ({len(names)} in all)" if len(names) > SHOWN else ""
    return ", ".join(map(str, names[:SHOWN])) + rest
