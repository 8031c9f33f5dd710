"""Resuming: all that a training has to keep to go on as if it had not stopped, as plain data and arrays."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.engines.pending import Pending
from foldbatch.errors import ModelError, TrainingError
from foldbatch.model.plain import to_plain
from foldbatch.params import Array
from foldbatch.program import Program
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.checks import NUMBERED, noting
from foldbatch.train.contents import Digests, digests
from foldbatch.train.names import Table, check_names, tables

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer


GROUPS = 1 << 16  # digests of examples that a checkpoint has
FIX = "resume with what the training began with, or give another folder"
LATE = 2  # steps that a device has still to do when the host waits for the loss of one


@dataclass(slots=True)
class Position:
    """How far the epoch under way has come.

    Attributes:
        batches: how many are done.
        examples: how many were in them.
        loss: the sum of their losses, but for those that are still to be read.
        seconds: that the epoch took before training was resumed.
        unread: losses that a device may still compute, with the numbers of their examples.
    """

    batches: int = 0
    examples: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    unread: deque[tuple[Any, Sequence[int]]] = field(default_factory=deque)

    def add(self, loss: float, indices: Sequence[int], examples: int) -> None:
        """Count a batch; its loss may be pending."""
        self.batches += 1
        self.examples += examples
        self.unread.append((loss, indices))

    def read(self, *, late: bool = False) -> float:
        """Read losses in the order of steps, and return the sum of those read.

        Args:
            late: whether the last ones may wait: so many steps as a device should have to do meanwhile.

        Raises:
            ExampleError: when a device found an id out of range; its batch is named.
            ParameterError: when it refused an update.

        >>> from foldbatch.engines.pending import pending
        >>> position = Position()
        >>> for number in range(4):
        ...     position.add(pending(lambda: 1.0), [number], 1)
        >>> position.read(late=True), position.read()
        (2.0, 4.0)
        """
        left = LATE if late and self.unread and isinstance(self.unread[-1][0], Pending) else 0
        while len(self.unread) > left:
            loss, indices = self.unread[0]
            with noting(NUMBERED, indices):
                self.loss += float(loss)
            self.unread.popleft()
        return self.loss


@dataclass(frozen=True, slots=True)
class Origin:
    """What a training began with, which no checkpoint says otherwise.

    Attributes:
        settings: of the optimizer, as they were given.
        examples: a digest of each, ``[n] uint64``.
        dev: the same of the dev set.
        tables: the names of rows.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    examples: Digests = field(default_factory=lambda: digests(()))
    dev: Digests = field(default_factory=lambda: digests(()))
    tables: Mapping[str, Table] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        program: Program,
        settings: Mapping[str, str],
        training: Sequence[Any],
        held_out: Sequence[Any] | None,
    ) -> Origin:
        """Return what a training of these examples begins with; `settings` are those of its optimizer."""
        dev = digests(() if held_out is None else held_out)
        return cls(settings, digests(training), dev, tables(program))

    def rows(self) -> dict[str, Digests]:
        """Return all digests by name."""
        names = {name: table.digests for name, table in self.tables.items()}
        return {"examples": self.examples, "dev examples": self.dev, **names}


def state_of(trainer: Trainer) -> dict[str, Any]:
    """Return the state of a trainer between two steps of a `fit`."""
    position = trainer.position
    return {
        "configuration": configuration(trainer),
        "parameters": dict(trainer.program.params),
        "optimizer": trainer.optimizer.state(),
        "steps_drawn": trainer.program.steps_drawn,
        "epoch": trainer.epoch,
        "steps": trainer.steps,
        "position": {
            "batches": position.batches,
            "examples": position.examples,
            "loss": position.read(),
            "seconds": trainer.seconds(),
        },
        "history": trainer.history,
        "stopped": trainer.stopped,
        "callbacks": {name: state for name, callback in _named(trainer) if (state := callback.state())},
    }


def take_over(trainer: Trainer, state: Mapping[str, Any], where: str) -> None:
    """Let a trainer stand where another one was when it returned a state.

    Raises:
        TrainingError: when it is the state of another training; nothing has changed then.
    """
    _check_configuration(trainer, state["configuration"], where)
    trainer.optimizer.load_state(state["optimizer"])
    assign(trainer.program.params, state["parameters"])
    trainer.program.steps_drawn = state["steps_drawn"]
    trainer.epoch, trainer.steps = state["epoch"], state["steps"]
    trainer.position = Position(**state["position"])
    trainer.history, trainer.stopped = state["history"], state["stopped"]
    trainer.figures = trainer.history[-1] if trainer.history else {}
    for name, callback in _named(trainer):
        if name in state["callbacks"]:
            callback.load_state(state["callbacks"][name])


def assign(params: MutableMapping[str, Array], values: Mapping[str, Array]) -> None:
    """Give parameters other values, which the same program had before.

    `foldbatch.store.ParameterStore.update` would warn of names that are only numbers.
    """
    for name, array in values.items():
        params[name] = array


def configuration(trainer: Trainer) -> dict[str, Any]:
    """Return what a training has to have in common with the one that it goes on with."""
    order, origin = trainer.sampler.state(), trainer.origin
    return {
        "model": trainer.model_digest,
        "optimizer": type(trainer.optimizer).__name__,
        "settings": dict(origin.settings),
        "examples": trainer.examples,
        "sampler": [str(order["digest"]), str(order["seed"])],
        "data": {"examples": _grouped(origin.examples), "dev examples": _grouped(origin.dev)},
        "names": {name: table.refresh() for name, table in origin.tables.items()},
    }


def _grouped(rows: Digests) -> Digests:
    """Return the digests of as many groups of neighbours as there may be, so that checkpoints stay small."""
    size = -(-len(rows) // GROUPS)
    if size <= 1:
        return rows
    filled = np.zeros(-(-len(rows) // size) * size, np.uint64)
    filled[: len(rows)] = rows
    factors = 2 * np.arange(size, dtype=np.uint64) + np.uint64(1)  # so that the order counts
    grouped: Digests = (filled.reshape(-1, size) * factors).sum(1, dtype=np.uint64)
    return grouped


def model_digest(program: Program) -> str:
    """Return a digest of what a program computes and draws, for values of its parameters.

    >>> import foldbatch as fb
    >>> program = fb.compile(fb.Vector(2) >> fb.Linear(1, name="out"))
    >>> model_digest(program) == model_digest(fb.compile(fb.Vector(2) >> fb.Linear(2, name="out")))
    False
    """
    try:
        plain = to_plain(program.model)
    except ModelError:  # a parameter is drawn by a function, which has no text
        plain = to_plain(program.model, drawn=False)
    types = {name: str(parameter.type) for name, parameter in program.params.parameters.items()}
    parts = (program.fingerprint, program.seed, types, plain)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _named(trainer: Trainer) -> Iterator[tuple[str, Callback]]:
    """Yield callbacks with the names of their classes; those of one class are numbered from the second on."""
    counts: Counter[str] = Counter()
    for callback in trainer.callbacks:
        kind = type(callback).__name__
        yield f"{kind}_{counts[kind]}" if counts[kind] else kind, callback
        counts[kind] += 1


def _check_configuration(trainer: Trainer, kept: Mapping[str, Any], where: str) -> None:
    present = configuration(trainer)
    if present.keys() != kept.keys():
        expected = "a checkpoint that says which examples and words it was trained on"
        raise TrainingError(where, expected, "one of an earlier version of foldbatch", "start anew")
    check_names(trainer.origin.tables, kept["names"], where)
    parts = {
        "model": ("of this model", "one of another model"),
        "optimizer": (f"with {present['optimizer']}", f"one with {kept['optimizer']}"),
        "settings": _settings(present["settings"], kept["settings"]),
        "examples": (f"of {present['examples']} examples", f"one of {kept['examples']}"),
        "sampler": ("with this sampler, batch size and seed", "one with another"),
    }
    for part, (wanted, found) in parts.items():
        if present[part] != kept[part]:
            raise TrainingError(where, f"a checkpoint of a training {wanted}", found, FIX)
    for name, rows in present["data"].items():
        before = kept["data"][name]
        if len(rows) != len(before):
            wanted = f"a checkpoint of a training with {len(rows) or 'no'} {name}"
            raise TrainingError(where, wanted, f"one with {len(before) or 'no'}", FIX)
        if len(places := np.flatnonzero(rows != before)):
            first = int(places[0]) * -(-len(trainer.origin.rows()[name]) // GROUPS)
            found = f"others from number {first} on"
            raise TrainingError(where, f"the {name} that the checkpoint was trained with", found, FIX)


def _settings(present: Mapping[str, str], kept: Mapping[str, str]) -> tuple[str, str]:
    """Return the optimizer's settings that differ, as they are and as a checkpoint has them."""
    names = [name for name in {**present, **kept} if present.get(name) != kept.get(name)]
    wanted, found = (", ".join(f"{name} {of.get(name)}" for name in names) for of in (present, kept))
    return f"whose optimizer was given {wanted}", f"one with {found}"
