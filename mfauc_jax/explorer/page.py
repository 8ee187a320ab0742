"""The page: template, style, script and contents in one file, which needs nothing from outside.

The contents are JSON in a script element that is not run, with every < written as an escape, so that no title or id can
end the element. The script writes text only by `textContent`. A content security policy allows the page's own script
and style, by their hashes, and no address at all.
"""

import base64
import hashlib
import importlib.resources
import json
import os
import pathlib
from typing import Any

from mfauc_jax._core import atomic, strict_json
from mfauc_jax.data import ids
from mfauc_jax.data.titles import Titles
from mfauc_jax.data.titles import read as read_titles
from mfauc_jax.evaluation.ranking import check_length
from mfauc_jax.explorer import contents
from mfauc_jax.model import MFAUC

LARGEST = 20 * 2**20  # bytes of a page


def explore(
    model: MFAUC,
    path: str | os.PathLike,
    test: Any = None,
    *,
    titles: Titles | str | os.PathLike | None = None,
    users: int = 2000,
    named: Any = (),
    name: str = "",
    unknown: str = "skip",
) -> int:
    """Write one HTML file to look at a fitted model in a browser, without a network; return its size in bytes.

    It has lists of users and why each item is there, the neighbours of an item, a map of the items, the exposure
    against the popularity, learning curves and settings; with `test` also the AUC against the activity and the
    certificate.

    Args:
        model: a fitted model.
        path: the file to write, such as "model.html".
        test: held-out positives, in any form that `fit` takes.
        titles: a file with a title, and perhaps a category, per item, or what `mf.data.read_titles` returned.
        users: the number of users on the page, ≥ 1: all, or a random sample. The page has fewer if they would make it
            larger than 20 MB.
        named: ids of users who must be on the page.
        name: the heading; by default the name of the file.
        unknown: what to do with held-out positives of unknown users and items, as in `MFAUC.evaluate`.
    """
    users = check_length("users", users)
    X = model._train
    if titles is not None and not isinstance(titles, Titles):
        titles = read_titles(titles)
    held_out = None if test is None else ids.over(test, X, unknown)
    wanted = ids.places("user", X.user_ids, ids.requested(named, X.user_ids), X.num_users)
    atomic.check_writable(path)
    while True:
        rows = contents.sample(X, users, wanted)
        text = page(contents.of(model, held_out, titles, rows, name or pathlib.Path(path).stem))
        size = len(text.encode())
        if size <= LARGEST or len(rows) <= max(len(wanted), 1):
            break
        users = len(rows) // 2
    if size > LARGEST:
        raise ValueError(
            f"the page would have {size / 2**20:.0f} MB, and browsers are slow beyond {LARGEST / 2**20:.0f}: "
            "name fewer users, or give shorter titles"
        )
    atomic.write_text(path, text)
    return size


def page(shown: dict[str, Any]) -> str:
    """The HTML of some contents."""
    folder = importlib.resources.files("mfauc_jax.explorer")
    template, style, script = (
        folder.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    policy = (
        f"default-src 'none'; style-src '{_hashed(style)}'; script-src '{_hashed(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"POLICY": policy, "STYLE": style, "SCRIPT": script, "CONTENTS": embedded(shown)}
    first, *rest = template.split("{{")  # no part is searched for the names of others
    return first + "".join(
        parts[name] + after for name, _, after in (r.partition("}}") for r in rest)
    )


def embedded(value: Any) -> str:
    """`value` as JSON for a script element: without <, and with null where a number is not finite."""
    text = json.dumps(
        strict_json.finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    return text.replace("<", "\\u003c").encode("utf-8", "replace").decode()


def _hashed(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
