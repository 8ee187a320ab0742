"""Recommendations over HTTP: MODEL=models/current uvicorn app:app --no-access-log

MODEL is a file that `model.save` wrote, or a link to one. When the link changes, the new model is loaded beside the old
one and takes over; if it cannot be loaded, the old one goes on and the log says why.
"""

import asyncio
import contextlib
import logging
import math
import os
import pathlib
from typing import Annotated, Any

import fastapi

import mfauc_jax as mf

log = logging.getLogger("uvicorn.error")  # uvicorn's own, so that all lines look alike
PATH = pathlib.Path(os.environ.get("MODEL", "models/current"))
EVERY = float(os.environ.get("RELOAD_SECONDS", "10"))
Length = Annotated[int, fastapi.Query(ge=1, le=100)]


class Served:
    """A model with its version: the name of its file."""

    def __init__(self) -> None:
        file = PATH.resolve(strict=True)
        self.version, self.model = file.name, mf.MFAUC.load(file)
        self.items = set(mf.export.item_vectors(self.model).ids.tolist())
        log.info("model %s: %s", self.version, self.model.warm_up(n=100, users=1))

    def answer(self, items: Any, scores: Any) -> dict[str, Any]:
        """The first list as JSON, without the places for which there was no item."""
        shown = zip(items[0].tolist(), scores[0].tolist(), strict=True)
        found = [{"item": item, "score": score} for item, score in shown if math.isfinite(score)]
        return {"version": self.version, "items": found}


async def follow(app: fastapi.FastAPI) -> None:
    """Load the file that MODEL points to whenever it is another one."""
    while True:
        await asyncio.sleep(EVERY)
        try:
            if PATH.resolve(strict=True).name != app.state.served.version:
                app.state.served = await asyncio.to_thread(Served)
        except Exception:
            log.exception("model %s goes on: %s", app.state.served.version, PATH)


@contextlib.asynccontextmanager
async def lifespan(app: fastapi.FastAPI):
    """Load and warm up before the first request."""
    app.state.served = Served()
    following = asyncio.create_task(follow(app))
    yield
    following.cancel()


app = fastapi.FastAPI(title="recommendations", lifespan=lifespan)


@app.get("/health")
async def health() -> dict[str, str]:
    """Which model answers."""
    return {"version": app.state.served.version}


@app.get("/users/{user}")
async def known_user(user: str, n: Length = 10) -> dict[str, Any]:
    """The list of a user; who was not in training gets what most users have. For integer ids write `user: int`."""
    served = app.state.served
    return served.answer(*served.model.recommend([user], n, unknown="popular"))


@app.post("/baskets")
async def new_user(items: list[str], n: Length = 10) -> dict[str, Any]:
    """The list of somebody who has these items and whom the model has never seen."""
    served = app.state.served
    known = [item for item in items if item in served.items]
    if not known:
        return served.answer(*served.model.recommend([""], n, unknown="popular"))
    visitor = served.model.fold_in((["visitor"] * len(known), known))
    return served.answer(*visitor.recommend(["visitor"], n))


@app.get("/items/{item}")
async def like_this(item: str, n: Length = 10) -> dict[str, Any]:
    """The nearest items."""
    served = app.state.served
    if item not in served.items:
        raise fastapi.HTTPException(404, f"item {item!r} was not in training")
    return served.answer(*served.model.similar_items([item], n))
