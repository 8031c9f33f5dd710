"""Facts: what has to be the same on all ranks, and in a training that is resumed, as short texts by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.train.contents import PLAIN, digest

if TYPE_CHECKING:
    from foldbatch.train.callbacks.callback import Callback
    from foldbatch.train.optimizer import Optimizer
    from foldbatch.train.trainer import Trainer

Facts = dict[str, str]
SHOWN = 60  # characters of a value that is shown
DIGEST = "digest "  # begins the text of what is too long to be shown


def text_of(value: Any) -> str:
    """Return a value as text, or its digest where that is long.

    >>> text_of(np.float64(0.5)), text_of({"words": 0.1}), text_of("a" * 100)[:7]
    ('0.5', "{'words': 0.1}", 'digest ')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if is_plain(value) and len(text := repr(value)) <= SHOWN:
        return text
    return DIGEST + digest(value).hex()


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, a text, None, or a list, tuple or dict of these."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    if isinstance(value, Mapping):
        return all(map(is_plain, (*value, *value.values())))
    return type(value) in PLAIN or isinstance(value, np.generic)


def settings(owner: Optimizer | Callback) -> Facts:
    """Return the settings of an optimizer or a callback: its attributes of plain data that are not private.

    >>> import foldbatch as fb
    >>> settings(fb.SGD(0.1, momentum=0.9))["momentum"]
    '0.9'
    """
    public = {name: value for name, value in vars(owner).items() if not name.startswith("_")}
    return {name: text_of(value) for name, value in public.items() if is_plain(value)}


def beginning_of(trainer: Trainer) -> Facts:
    """Return what ranks must begin with alike, besides their examples and names of rows."""
    order = trainer.sampler.state()
    return {
        "model": DIGEST + trainer.model_digest,
        "number of epochs": str(trainer.epochs),
        "metrics": text_of([metric.name for metric in trainer.metrics]),
        "sampler": f"of seed {order['seed']} and digest {order['digest']}",
    }


def facts_of(trainer: Trainer) -> Facts:
    """Return how far a trainer has come, the optimizer's settings and state, and those of what steers it."""
    optimizer = trainer.optimizer
    found = {"optimizer": type(optimizer).__name__, "epoch": str(trainer.epoch), "steps": str(trainer.steps)}
    parts: dict[str, Any] = {"optimizer's": optimizer}
    parts |= {f"{type(one).__name__}'s": one for one in trainer.callbacks if one.steers}
    for name, part in parts.items():
        own = settings(part) | {key: text_of(value) for key, value in part.state().items()}
        found |= {f"{name} {key}": text for key, text in own.items()}
    return found
