"""Agreement of several processes about one fit: before the first step, and on when to stop.

Processes that disagree would train something that nobody asked for, or wait for each other for ever. So every process
says what it is about to do; a difference, or an error of one process, becomes an error in all of them.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from mfauc_jax import distributed
from mfauc_jax._core import digests, host
from mfauc_jax.data import ids
from mfauc_jax.data.interactions import Interactions
from mfauc_jax.evaluation import counts as counting
from mfauc_jax.solvers.base import Solver
from mfauc_jax.training.checkpoints import Checkpoints
from mfauc_jax.training.watch import Watch

T = TypeVar("T")
HASHES = 2**22  # users whose hashes are compared at a time
REASONS = (None, "callback", "converged", "patience", "interrupted", "error")  # weakest first


def prepared(prepare: Callable[[], tuple[T, dict[str, Any]]]) -> T:
    """What `prepare` returns, once all processes have prepared the same fit.

    Args:
        prepare: returns a result and the facts, by name, that must be the same in every process. It must not
            communicate.
    """
    if jax.process_count() == 1:
        return prepare()[0]
    _check_devices()
    result, facts, error = None, {}, None
    try:
        result, facts = prepare()
    except Exception as raised:
        error = raised
    said = _flat(facts) if error is None else {"error": str(error)}
    everyone = _gathered(said)
    if error is not None:
        raise error
    for process, other in enumerate(everyone):
        if "error" in other:
            raise ValueError(f"process {process} cannot take part in this fit: {other['error']}")
        for name in sorted({**everyone[0], **other}):
            first, here = (said.get(name, "none") for said in (everyone[0], other))
            if first != here:
                raise ValueError(
                    f"the processes disagree about {name}: process 0 has {first}, process {process} has {here}; "
                    "give every process the same"
                )
    return result  # pyright: ignore


def first(act: Callable[[], None]) -> None:
    """Call `act` in process 0; the others wait for it, and an error of it is raised in all of them."""
    prepared(lambda: (act() if jax.process_index() == 0 else None, {}))


def _check_devices() -> None:
    """Raise ValueError, in every process, unless all have equally many devices; they could not communicate."""
    owners = [device.process_index for device in jax.devices()]
    counts = [owners.count(process) for process in range(jax.process_count())]
    if len(set(counts)) > 1:
        raise ValueError(
            f"the processes have {', '.join(map(str, counts))} devices: start every process with the same number"
        )


def ready(
    describe: Callable[[], dict[str, Any]],
    solver: Solver,
    X: Any,
    validation: Any = None,
    watch: Any = None,
    checkpoints: Any = None,
) -> tuple[Interactions, Any, Checkpoints | None]:
    """The data, the held-out data and the checkpoints of a fit, checked, and agreed upon by all processes.

    Args:
        describe: the settings of the model, as from `describe(identity=True)`.
        solver: the solver of the fit.
        X: the positives of this process's users, in any form that `Interactions.of` reads.
        validation: held-out positives of the same users, or None.
        watch: a Watch, or None.
        checkpoints: a `Checkpoints`, a folder, or None.
    """

    def prepare() -> tuple[Any, dict[str, Any]]:
        if watch is not None and not isinstance(watch, Watch):
            raise TypeError(f"watch = {watch!r} must be a Watch, such as Watch(metric='ndcg@10')")
        kept: Any = checkpoints
        if kept is not None and not isinstance(kept, Checkpoints):
            kept = Checkpoints(kept)
        data, held_out, facts = Interactions.of(X), validation, {}
        if jax.process_count() > 1:
            facts = describe() | _facts(solver, data, kept)
            facts |= {"watch": watch and watch.describe(), "validation": validation is not None}
            if validation is not None:
                held_out = counting.check_split(
                    data, ids.over(validation, data, "skip"), *data.shape
                )[1]
        return (data, held_out, kept), facts

    data, held_out, kept = prepared(prepare)
    check_users(data)
    return data, held_out, kept


def _facts(solver: Solver, X: Interactions, checkpoints: Checkpoints | None) -> dict[str, Any]:
    """What all processes must have alike besides the settings; a ValueError if this one cannot take part."""
    if not solver.in_processes:
        raise ValueError(
            f"solver {solver.name!r} runs in one process: use 'alternating', 'blockwise', 'dense' or 'full_batch' "
            "in several"
        )
    distributed.check_rows(X)
    item_ids = None if X.item_ids is None else digests.text(str(digests.texts(X.item_ids).tolist()))
    layout = {n: getattr(solver, n) for n, spec in solver.specs().items() if not spec.identity}
    return {
        **{f"solver.{name}": value for name, value in layout.items() if name != "iterations"},
        "iterations": solver.iterations,
        "float": str(jax.dtypes.canonicalize_dtype(float)),
        "number of items": X.num_items,
        "item ids": item_ids,
        "user ids": X.user_ids is not None,
        "confidence": X.confidence is not None,
        "dislikes": X.dislikes is not None,
        "checkpoints": None if checkpoints is None else checkpoints.describe(),
        "library version": host.library_version(),
        "jax version": jax.__version__,
        "deal": distributed.dealt(),
    }


def check_users(X: Interactions) -> None:
    """Raise ValueError in every process if two processes hold the same user.

    Users are known by their ids. Without ids, two processes that hold equal rows are refused.
    """
    if jax.process_count() == 1:
        return
    rows, items, _ = X.on_host()
    whole = digests.entries(rows, items).view(np.uint32)
    hashes = np.zeros(0, np.uint64) if X.user_ids is None else digests.texts(X.user_ids)
    counts = host.everyone(np.array([X.num_users, len(hashes)], np.int32))
    wholes = host.everyone(whole)
    for process in range(len(wholes)):
        for other in range(process):
            if (wholes[process] == wholes[other]).all():
                raise ValueError(
                    f"processes {other} and {process} hold the same rows: each must load its own users, "
                    "those that distributed.users gives"
                )
    if not counts[:, 1].all():
        return
    turns = -(-int(counts[:, 1].sum()) // HASHES)  # so that no process holds all users' hashes
    turn = digests.mixed(hashes) % np.uint64(turns)
    for t in range(turns):
        mine = hashes[turn == t]
        gathered = host.everybody(mine)
        values, times = np.unique(gathered, return_counts=True)
        if not (times > 1).any():
            continue
        repeated = values[times > 1][0]
        holders = np.flatnonzero(host.everyone(np.int32(repeated in mine)))
        place = np.flatnonzero(hashes == repeated)
        named = (
            f" (such as {X.user_ids[place[0]]})" if len(place) and X.user_ids is not None else ""
        )
        raise ValueError(
            f"{int((times > 1).sum())} users{named} are in processes {' and '.join(map(str, holders))}: each user must "
            "be in one process only"
        )


def check_items(V: Any) -> None:
    """Raise ValueError in every process if their items do not all start from the same factors."""
    if jax.process_count() == 1:
        return
    found = host.everyone(digests.array(V))
    if (found != found[0]).any():
        raise ValueError(
            "the processes start from different item factors: a Start must draw the same V in every process"
        )


def anyone(mine: bool) -> bool:
    """Whether `mine` is true in any process."""
    return bool(np.any(host.everyone(np.int32(mine))))


def reason(decide: Callable[[], str | None]) -> str | None:
    """The reason to stop now that any process has found, the same in all of them; None to go on.

    An error of `decide` in one process is raised there, and a RuntimeError in the others.
    """
    if jax.process_count() == 1:
        return decide()
    found, error = None, None
    try:
        found = decide()
    except Exception as raised:
        found, error = "error", raised
    codes = host.everyone(np.int32(REASONS.index(found))).ravel()
    if error is not None:
        raise error
    shared = REASONS[int(codes.max())]
    if shared == "error":
        process = int(codes.argmax())
        raise RuntimeError(f"process {process} stopped with an error of its own, which it printed")
    return shared


def _flat(facts: dict[str, Any], path: str = "") -> dict[str, str]:
    """Facts by dotted names, each as a short text."""
    flat = {}
    for name, fact in facts.items():
        if isinstance(fact, dict):
            flat |= _flat(fact, f"{path}{name}.")
        elif fact is not None:
            text = json.dumps(fact, default=str, ensure_ascii=False)
            flat[path + name] = (
                text if len(text) <= 200 else f"{text[:160]}… ({digests.text(text)})"
            )
    return flat


def _gathered(said: dict[str, str]) -> list[dict[str, str]]:
    """What every process said, by process."""
    mine = np.frombuffer(json.dumps(said).encode(), np.uint8)
    lengths = host.everyone(np.int32(len(mine))).ravel()
    padded = np.zeros(int(lengths.max()), np.uint8)
    padded[: len(mine)] = mine
    gathered = host.everyone(padded)
    return [json.loads(bytes(part[:n])) for part, n in zip(gathered, lengths, strict=True)]
