"""What all optimizers share: checks, step counts, state.

An optimizer says its formula, see `foldbatch.updates.Rule`. All gradients are checked before anything is
changed: on the host at once, on a device without waiting for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from foldbatch.errors import ParameterError, TrainingError, UnknownNameError
from foldbatch.params import Parameter
from foldbatch.store import ParameterStore
from foldbatch.train.blocks import Blocks
from foldbatch.train.gradients import Array, Gradients, fitting, fitting_gradient, fitting_there
from foldbatch.types import describe_value
from foldbatch.updates import Change, RemoteUpdates, Rule

State = dict[str, Any]


def within(where: str, value: object, low: float, high: float = math.inf, *, open_low: bool = False) -> float:
    """Return a setting that lies in its range, `high` excluded."""
    if (
        isinstance(value, int | float | np.floating | np.integer)
        and low <= value < high
        and not (open_low and value == low)
    ):
        return float(value)
    above = f"a number above {low:g}" if open_low else f"a number of {low:g} or more"
    below = "" if high == math.inf else f" and below {high:g}"
    raise TrainingError(where, above + below, describe_value(value), "see the optimizer's docstring")


def _finite(where: str, value: object) -> float:
    if isinstance(value, int | float | np.floating | np.integer) and math.isfinite(value):
        return float(value)
    raise TrainingError(where, "a finite number", describe_value(value), "for example 1 / len(batch)")


def _is_frozen(params: Mapping[str, Array], name: str) -> bool:
    parameters = params.parameters if isinstance(params, ParameterStore) else params
    if name not in parameters:
        expected = f"a parameter of {', '.join(params) or 'none'}"
        raise UnknownNameError("gradients", expected, repr(name), "take the gradients of this program")
    return isinstance(params, ParameterStore) and not params.parameters[name].trainable


def _take_back(steps: dict[str, int], moments: dict[str, Any], names: Sequence[str]) -> None:
    """Take back the counts of a step that a device refused, and the moments of a first step."""
    for name in names:
        steps[name] -= 1
        if not steps[name]:
            del steps[name], moments[name]


class Optimizer:
    """What all optimizers share: checks, blocks of rows, step counts, state.

    Args:
        lr: the learning rate, above 0; assign ``optimizer.lr`` to change it while training.
        weight_decay: 0 or more; that times the parameter is added to its gradient.
        lr_factors: by parameter name or dotted prefix (``embedding`` or ``embedding.weight``), what
            the learning rate is multiplied by; the longest match counts.

    Raises:
        TrainingError: when a setting is out of range.
    """

    moments: tuple[str, ...] = ()  # the names of the arrays kept per parameter
    initial = 0.0  # what they start from

    def __init__(self, lr: float, *, weight_decay: float, lr_factors: Mapping[str, float] | None) -> None:
        kind = type(self).__name__
        self.lr = lr
        self.weight_decay = within(f"{kind} weight_decay", weight_decay, 0)
        factors = lr_factors or {}
        self.lr_factors = {k: within(f"{kind} lr_factors[{k!r}]", factors[k], 0) for k in factors}
        self._steps: dict[str, int] = {}
        self._moments: dict[str, list[Any]] = {}  # arrays of the host, or of the device of the parameter
        self._blocks = Blocks()
        self._device: RemoteUpdates | None = None  # where the last step was taken, if not on the host

    @property
    def lr(self) -> float:
        """The learning rate; assigning checks it as the constructor does.

        Raises:
            TrainingError: when it is not a number above 0.
        """
        return self._lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self._lr = within(f"{type(self).__name__} lr", lr, 0, open_low=True)

    def update(self, params: Mapping[str, Array], grads: Gradients, *, scale: float = 1.0) -> None:
        """Take one step: change, in place, each parameter that has a gradient.

        A parameter without a gradient, or frozen, stays as it is, and its step count too.

        Args:
            params: by name.
            grads: by the same names.
            scale: what each gradient is multiplied by first, for example 1 / batch size for a mean loss. The
                step is to the last bit that of gradients from `foldbatch.train.scale`. Only gradients of
                another dtype than their parameters', or a scale above 1, cost copies.

        Parameters of a program on a device are changed there, and nobody waits. If a gradient there is not
        finite, that update and later ones change nothing, and the error is raised when somebody next reads
        what the device computed: a loss, a gradient, a parameter or `state`. Step counts are then as they
        were before that update.

        Raises:
            TrainingError: when `scale` is not a finite number, or `grads` is not a mapping.
            UnknownNameError: when a gradient or a learning-rate factor belongs to no parameter.
            ParameterError: when a gradient's shape or dtype does not fit, or it holds a NaN or an
                infinity; no parameter or moment has been changed then.
        """
        scale = _finite(f"{type(self).__name__}.update scale", scale)
        if not isinstance(grads, Mapping):
            fix = "take the second item of value_and_grad(examples), or step(examples).gradients"
            raise TrainingError("gradients", "arrays by parameter name", describe_value(grads), fix)
        self._check_factors(params)
        given = {name: gradient for name, gradient in grads.items() if not _is_frozen(params, name)}
        updates = getattr(params, "updates", None)
        if isinstance(updates, RemoteUpdates):
            assert isinstance(params, ParameterStore)
            self._update_there(params.parameters, given, scale, updates)
            return
        ready = []
        for name, gradient in given.items():
            parameter = params[name]
            ready.append((name, parameter, *fitting_gradient(name, parameter, gradient, scale, updates)))
            self._check_moments(name, parameter)
        self._bring_home()
        for name, parameter, gradient, factor in ready:
            if name not in self._moments:
                self._moments[name] = [np.full_like(parameter, self.initial) for _ in self.moments]
            self._blocks.apply(self._change(name, parameter, gradient, factor), updates)

    def _bring_home(self) -> None:
        """Copy moments to the host, if the last step was taken on a device."""
        if self._device is not None:
            self._device.look()
            self._moments = {name: [np.array(m) for m in moments] for name, moments in self._moments.items()}
            self._device = None

    def _update_there(
        self, parameters: Mapping[str, Parameter], grads: Gradients, scale: float, updates: RemoteUpdates
    ) -> None:
        """Take a step on a device, without waiting for it."""
        ready = []
        for name, gradient in grads.items():
            parameter = parameters[name]
            shape, dtype = parameter.type.shape, np.dtype(parameter.type.dtype)
            there = fitting_there(name, shape, dtype, gradient)
            fit = (gradient, scale) if there else fitting(name, shape, dtype, gradient, scale)
            ready.append((name, parameter, *fit))
            self._check_moments(name, np.broadcast_to(np.zeros((), dtype), shape))
        changes = []
        for name, parameter, gradient, factor in ready:
            if name not in self._moments:
                self._moments[name] = [updates.full(parameter, self.initial) for _ in self.moments]
            changes.append(self._change(name, parameter, gradient, factor))
        self._device = updates
        updates.apply(changes, partial(_take_back, self._steps, self._moments, [name for name, *_ in ready]))

    def _change(self, name: str, parameter: Any, gradient: Any, factor: float) -> Change:
        """Count a step of a parameter, and return what changes it."""
        self._steps[name] = step = self._steps.get(name, 0) + 1
        rate = self.lr * self._factor(name) if self.lr_factors else self.lr
        lines, numbers = self._lines(), self._numbers(rate, step)
        if self.weight_decay:
            lines, numbers = ("g = g + decay * p", *lines), {"decay": self.weight_decay, **numbers}
        rule = Rule(lines, self.moments, tuple(numbers))
        values, by_rows = tuple(numbers.values()), self._touches_rows_only()
        return Change(name, parameter, self._moments[name], gradient, factor, rule, values, by_rows)

    def state(self) -> State:
        """Return the learning rate, step counts and moments as a flat dict of numbers and new arrays.

        The keys are ``lr``, ``steps/NAME`` and ``MOMENT/NAME``.
        """
        if self._device is not None:
            self._device.look()
        state: State = {"lr": self.lr}
        for name, step in self._steps.items():
            state[f"steps/{name}"] = step
            for moment, array in zip(self.moments, self._moments[name], strict=True):
                state[f"{moment}/{name}"] = np.array(array)
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over, as copies, what `state` returned; training goes on as if it had not stopped.

        Raises:
            TrainingError: when the state is not one of this kind of optimizer; nothing has changed then.
        """
        kind = type(self).__name__
        names = [key.partition("/")[2] for key in state if key.startswith("steps/")]
        wanted = {"lr", *(f"{part}/{name}" for name in names for part in ("steps", *self.moments))}
        if wanted != set(state):
            expected = f"the keys lr, {', '.join(f'{part}/NAME' for part in ('steps', *self.moments))}"
            odd = min(wanted ^ set(state))
            found = f"{odd!r} {'missing' if odd in wanted else 'besides'}"
            raise TrainingError(f"{kind}.load_state", expected, found, f"give what {kind}.state() returned")
        lr = within(f"{kind}.load_state lr", float(state["lr"]), 0, open_low=True)
        moments = {name: [np.array(state[f"{moment}/{name}"]) for moment in self.moments] for name in names}
        self.lr, self._moments, self._device = lr, moments, None
        self._steps = {name: int(state[f"steps/{name}"]) for name in names}

    def _touches_rows_only(self) -> bool:
        """Return whether rows without a gradient stay as they are."""
        raise NotImplementedError

    def _lines(self) -> tuple[str, ...]:
        """Return the formula, without weight decay; see `foldbatch.updates.Rule`."""
        raise NotImplementedError

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        """Return the formula's numbers by name. Steps are counted from 1."""
        raise NotImplementedError

    def _factor(self, name: str) -> float:
        prefix = name
        while prefix:
            if prefix in self.lr_factors:
                return self.lr_factors[prefix]
            prefix = prefix.rpartition(".")[0]
        return 1.0

    def _check_factors(self, params: Mapping[str, Array]) -> None:
        for key in self.lr_factors:
            if not any(name == key or name.startswith(f"{key}.") for name in params):
                expected = f"a parameter of {', '.join(params)}, or a prefix that ends before a dot"
                where = f"{type(self).__name__} lr_factors"
                raise UnknownNameError(where, expected, repr(key), "print(program.params)")

    def _check_moments(self, name: str, parameter: Array) -> None:
        for array in self._moments.get(name, ()):
            if array.shape != parameter.shape or array.dtype != parameter.dtype:
                fix = "load a state of the same model, or make a new optimizer"
                raise ParameterError(f"{name} moment", describe_value(parameter), describe_value(array), fix)
