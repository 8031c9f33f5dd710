"""Resuming: all that a training has to keep to go on as if it had not stopped, as plain data and arrays."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from foldbatch.errors import ModelError, TrainingError
from foldbatch.model.plain import to_plain
from foldbatch.params import Array
from foldbatch.program import Program
from foldbatch.train.callbacks.callback import Callback

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer


@dataclass(slots=True)
class Position:
    """How far the epoch under way has come.

    Attributes:
        batches: how many are done.
        examples: how many were in them.
        loss: their sum.
        seconds: that the epoch took before training was resumed.
    """

    batches: int = 0
    examples: int = 0
    loss: float = 0.0
    seconds: float = 0.0


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
        "position": asdict(position) | {"loss": float(position.loss), "seconds": trainer.seconds()},
        "history": trainer.history,
        "stopped": trainer.stopped,
        "callbacks": {name: state for name, callback in _named(trainer) if (state := callback.state())},
    }


def take_over(trainer: Trainer, state: Mapping[str, Any], where: str) -> None:
    """Let a trainer stand where another one was when it returned a state.

    Raises:
        TrainingError: when it is the state of another training; nothing has changed then.
    """
    _check_configuration(configuration(trainer), state["configuration"], where)
    trainer.optimizer.load_state(state["optimizer"])
    _assign(trainer, state["parameters"])
    trainer.program.steps_drawn = state["steps_drawn"]
    trainer.epoch, trainer.steps = state["epoch"], state["steps"]
    trainer.position = Position(**state["position"])
    trainer.history, trainer.stopped = state["history"], state["stopped"]
    trainer.figures = trainer.history[-1] if trainer.history else {}
    for name, callback in _named(trainer):
        if name in state["callbacks"]:
            callback.load_state(state["callbacks"][name])


def best_of(trainer: Trainer, averages: Mapping[str, Array]) -> dict[str, Any]:
    """Return what is kept of the best epoch: its figures and parameters, some of them perhaps averages."""
    parameters = dict(trainer.program.params) | dict(averages)
    return {"model": trainer.model_digest, "figures": trainer.figures, "parameters": parameters}


def load_best(trainer: Trainer, best: Mapping[str, Any], where: str) -> None:
    """Assign the parameters of the best epoch.

    Raises:
        TrainingError: when they belong to another model.
    """
    if best["model"] != trainer.model_digest:
        raise TrainingError(where, "parameters of this model", "those of another", "give another folder")
    _assign(trainer, best["parameters"])


def configuration(trainer: Trainer) -> dict[str, Any]:
    """Return what a training has to have in common with the one that it goes on with."""
    order = trainer.sampler.state()
    return {
        "model": trainer.model_digest,
        "optimizer": type(trainer.optimizer).__name__,
        "examples": trainer.examples,
        "sampler": [str(order["digest"]), str(order["seed"])],
    }


def model_digest(program: Program) -> str:
    """Return a digest of what a program computes and draws, for values of its parameters.

    >>> import foldbatch as fb
    >>> program = fb.compile(fb.Vector(2) >> fb.Linear(1, name="out"))
    >>> model_digest(program) == model_digest(fb.compile(fb.Vector(2) >> fb.Linear(2, name="out")))
    False
    """
    try:
        plain: object = to_plain(program.model)
    except ModelError:  # a parameter is drawn by a function, which has no text
        plain = None
    types = {name: str(parameter.type) for name, parameter in program.params.parameters.items()}
    parts = (program.fingerprint, program.seed, types, plain)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _assign(trainer: Trainer, parameters: Mapping[str, Array]) -> None:
    """Assign parameters of the same model: names that are only numbers are not to be warned of."""
    for name, array in parameters.items():
        trainer.program.params[name] = array


def _named(trainer: Trainer) -> Iterator[tuple[str, Callback]]:
    """Yield callbacks with the names of their classes; those of one class are numbered from the second on."""
    counts: Counter[str] = Counter()
    for callback in trainer.callbacks:
        kind = type(callback).__name__
        yield f"{kind}_{counts[kind]}" if counts[kind] else kind, callback
        counts[kind] += 1


def _check_configuration(present: Mapping[str, Any], kept: Mapping[str, Any], where: str) -> None:
    expected = {
        "model": ("of this model", "one of another model"),
        "optimizer": (f"with {present['optimizer']}", f"one with {kept['optimizer']}"),
        "examples": (f"of {present['examples']} examples", f"one of {kept['examples']}"),
        "sampler": ("with this sampler, batch size and seed", "one with another"),
    }
    for part, (wanted, found) in expected.items():
        if present[part] != kept[part]:
            fix = "resume with what the training began with, or give another folder"
            raise TrainingError(where, f"a checkpoint of a training {wanted}", found, fix)
