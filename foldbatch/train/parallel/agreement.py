"""Agreement: what all ranks must have alike is compared, and all raise an error that says what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foldbatch.communicators import Communicator, share
from foldbatch.communicators.sharing import told
from foldbatch.errors import TrainingError, counted
from foldbatch.train.contents import Digests, digest
from foldbatch.train.facts import DIGEST, Facts

NAMED = 3  # differences that an error names
FIX = "give all processes the same data, model, seed and settings, and let callbacks change them alike"


def check_alike(communicator: Communicator, facts: Facts, rows: Mapping[str, Digests] | None = None) -> None:
    """Compare facts of all ranks.

    Args:
        communicator: of the ranks.
        facts: texts by name; of what is too long, digests.
        rows: by name, digests ``[n] uint64`` of what has numbers, such as examples.

    Raises:
        TrainingError: at every rank, when something differs; it says what, and at which ranks.
        ProcessError: when another rank has failed or ended.

    >>> from foldbatch.communicators import in_threads
    >>> def work(communicator):
    ...     try:
    ...         check_alike(communicator, {"lr": str(0.1 * (1 + communicator.rank % 2))})
    ...     except TrainingError as error:
    ...         return str(error).partition(", found ")[2].partition(";")[0]
    >>> in_threads(work, 3)[2]
    'lr 0.1 at ranks 0 and 2, 0.2 at rank 1'
    """
    if communicator.size == 1:
        return
    rows = rows or {}
    own = facts | {name: DIGEST + digest(array).hex() for name, array in rows.items()}
    everything = share(communicator, own)
    if all(other == everything[0] for other in everything):
        return
    names = list(dict.fromkeys(name for other in everything for name in other))
    differing = [name for name in names if len({other.get(name) for other in everything}) > 1]
    numbered = share(communicator, {name: rows.get(name) for name in differing})  # all ranks come here
    found = []
    for name in differing[:NAMED]:
        arrays = [array for other in numbered if (array := other.get(name)) is not None]
        if len(arrays) == communicator.size:
            found.append(_first_row(name, arrays))
        else:
            found.append(_by_rank(name, [other.get(name) for other in everything]))
    if len(differing) > NAMED:
        found.append(f"{counted(len(differing) - NAMED, 'difference')} more")
    error = TrainingError("training", "all ranks to have the same", ", and ".join(found), FIX)
    told(error)
    raise error


def _first_row(name: str, arrays: Sequence[Digests]) -> str:
    """Return the first number at which each other rank differs from rank 0."""
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) > 1:
        return _by_rank(f"number of {name}", [str(length) for length in lengths])
    places = {
        rank: int(np.flatnonzero(array != arrays[0])[0])
        for rank, array in enumerate(arrays)
        if not np.array_equal(array, arrays[0])
    }
    return f"other {name} {', '.join(f'at rank {rank} from number {n} on' for rank, n in places.items())}"


def _by_rank(name: str, texts: Sequence[str | None]) -> str:
    """Return the value of each rank; of digests, which ranks have another one than rank 0."""
    ranks: dict[str, list[str]] = {}
    for rank, text in enumerate(texts):
        ranks.setdefault("none" if text is None else text, []).append(str(rank))
    where = {
        text: f"at ranks {', '.join(those[:-1])} and {those[-1]}" if those[1:] else f"at rank {those[0]}"
        for text, those in ranks.items()
    }
    if any(text.startswith(DIGEST) for text in where):
        return f"another {name} {', '.join(list(where.values())[1:])} than at rank 0"
    return f"{name} {', '.join(f'{text} {place}' for text, place in where.items())}"
