"""What all optimizers share: checks, step counts, state."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any, cast

import numpy as np

from foldbatch.errors import ParameterError, TrainingError, UnknownNameError
from foldbatch.params.parameters import Parameter
from foldbatch.params.store import ParameterStore
from foldbatch.params.updates import Change, RemoteUpdates, Rule
from foldbatch.system.showing import Described
from foldbatch.train.blocks import ParameterBlocks
from foldbatch.train.gradients import Array, Gradients, fitting_gradient, fitting_there
from foldbatch.types import describe_value

State = dict[str, Any]
Formulas = dict[tuple[int, float, float], tuple[Rule, tuple[float, ...], bool]]  # by step, rate and decay
Factors = Mapping[str, float]  # by the name of a parameter, or by a prefix that ends before a dot


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


def finite(where: str, value: object, fix: str) -> float:
    """Return a number that is finite; one of a device is waited for."""
    if isinstance(value, Real) and math.isfinite(number := float(value)):
        return number
    raise TrainingError(where, "a finite number", describe_value(value), fix)


def _factors(where: str, factors: Factors | None) -> dict[str, float]:
    if factors is None:
        return {}
    if not isinstance(factors, Mapping):
        found, fix = describe_value(factors), "for example {'words': 0.1}"
        raise TrainingError(where, "a dict from names of parameters to numbers", found, fix)
    return {name: within(f"{where}[{name!r}]", factor, 0) for name, factor in factors.items()}


def _factor(factors: Factors, name: str) -> float:
    """Return the factor of a parameter: that of its longest prefix, else 1."""
    prefix = name
    while prefix and prefix not in factors:
        prefix = prefix.rpartition(".")[0]
    return factors.get(prefix, 1.0)


def _is_frozen(params: Mapping[str, Array], name: str) -> bool:
    parameters = params.parameters if isinstance(params, ParameterStore) else params
    if name not in parameters:
        expected = f"a parameter of {', '.join(params) or 'none'}"
        raise UnknownNameError("gradients", expected, repr(name), "take the gradients of this program")
    return isinstance(params, ParameterStore) and not params.parameters[name].trainable


def _take_back(
    steps: dict[str, int],
    moments: dict[str, Any],
    names: Sequence[str],
    memory: dict[str, float],
    before: dict[str, float],
) -> None:
    """Take back the counts of a step that was refused, the moments of a first step, and the memory."""
    memory.clear()
    memory.update(before)
    for name in names:
        steps[name] -= 1
        if not steps[name]:
            del steps[name], moments[name]


class Optimizer(Described):
    """What all optimizers share: checks, blocks of rows, step counts, state.

    Args:
        lr: the learning rate, above 0; assign ``optimizer.lr`` to change it while training.
        weight_decay: 0 or more; that times the parameter is added to its gradient.
        lr_factors: by parameter name or dotted prefix (``embedding`` or ``embedding.weight``), what
            the learning rate is multiplied by; the longest match counts.
        decay_factors: the same for the weight decay, for example 0 for biases.

    Raises:
        TrainingError: when a setting is out of range.
    """

    moments: tuple[str, ...] = ()  # the names of the arrays kept per parameter
    initial = 0.0  # what they start from
    remembers: frozenset[str] = frozenset()  # the names of the numbers kept for all parameters together

    def __init__(
        self,
        lr: float,
        *,
        weight_decay: float,
        lr_factors: Factors | None = None,
        decay_factors: Factors | None = None,
    ) -> None:
        kind = type(self).__name__
        self.lr = lr
        self.weight_decay = within(f"{kind} weight_decay", weight_decay, 0)
        self.lr_factors = _factors(f"{kind} lr_factors", lr_factors)
        self.decay_factors = _factors(f"{kind} decay_factors", decay_factors)
        self._memory: dict[str, float] = {}  # numbers that it remembers; none before the first step
        self._steps: dict[str, int] = {}
        self._moments: dict[str, list[Any]] = {}  # arrays of the host, or of the device of the parameter
        self._blocks = ParameterBlocks()
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

    def update(
        self, params: Mapping[str, Array], grads: Gradients, *, scale: float = 1.0, loss: float | None = None
    ) -> None:
        """Take one step: change, in place, each parameter that has a gradient.

        A parameter without a gradient, or frozen, stays as it is, and its step count too.

        Args:
            params: by name.
            grads: by the same names.
            scale: what each gradient is multiplied by first, for example 1 / batch size for a mean loss. The
                step is to the last bit that of gradients from `foldbatch.train.scale`. Only gradients of
                another dtype than their parameters', or a scale above 1, cost copies.
            loss: whose gradients these are; it is multiplied by `scale` as they are. `Eve` needs it, and
                waits for it if a device computes it. All others ignore it.

        Parameters of a program on a device are changed there, and nobody waits. If a gradient there is not
        finite, that update and later ones change nothing, and the error is raised when somebody next reads
        what the device computed: a loss, a gradient, a parameter or `state`. Step counts are then as they
        were before that update.

        Raises:
            TrainingError: when `scale` is not a finite number, or `grads` is not a mapping, or `Eve` gets no
                loss that is fit.
            UnknownNameError: when a gradient or a factor belongs to no parameter.
            ParameterError: when a gradient's shape or dtype does not fit, or it holds a NaN or an
                infinity; no parameter or moment has been changed then.
        """
        scale = finite(f"{type(self).__name__}.update scale", scale, "for example 1 / len(batch)")
        if not isinstance(params, Mapping):
            expected = "arrays by parameter name"
            raise TrainingError("parameters", expected, describe_value(params), "give program.params")
        if not isinstance(grads, Mapping):
            fix = "take the second item of value_and_grad(examples), or step(examples).gradients"
            raise TrainingError("gradients", "arrays by parameter name", describe_value(grads), fix)
        self._check_factors(params)
        given = {name: gradient for name, gradient in grads.items() if not _is_frozen(params, name)}
        memory = self._remembered(loss, scale)
        updates = getattr(params, "updates", None)
        remote = updates if isinstance(updates, RemoteUpdates) else None
        ready = []
        for name, gradient in given.items():
            parameter: Any = (
                params[name] if remote is None else cast("ParameterStore", params).parameters[name]
            )
            fit = fitting_gradient if remote is None else fitting_there
            ready.append((name, parameter, *fit(name, parameter, gradient, scale)))
            self._check_moments(name, parameter)
        if remote is None:
            self._bring_home()
            self._blocks.updates = updates
        place = self._blocks if remote is None else remote
        names, before = list(given), dict(self._memory)
        self._memory.update(memory)
        formulas: Formulas = {}
        changes = []
        for name, parameter, gradient, factor in ready:
            if name not in self._moments:
                self._moments[name] = [place.full(parameter, self.initial) for _ in self.moments]
            changes.append(self._change(name, parameter, gradient, factor, formulas))
        self._device = remote
        undo = partial(_take_back, self._steps, self._moments, names, self._memory, before)
        place.apply(changes, undo)

    def _bring_home(self) -> None:
        if self._device is not None:
            self._device.look()
            self._moments = {name: [np.array(m) for m in moments] for name, moments in self._moments.items()}
            self._device = None

    def _change(self, name: str, parameter: Any, gradient: Any, factor: float, formulas: Formulas) -> Change:
        """Count a step of a parameter, and return what changes it; `formulas` are those of this update."""
        self._steps[name] = step = self._steps.get(name, 0) + 1
        rate = self.lr * _factor(self.lr_factors, name) if self.lr_factors else self.lr
        decay = self.weight_decay * _factor(self.decay_factors, name) if self.weight_decay else 0.0
        key = step, rate, decay
        if key not in formulas:
            formulas[key] = self._formula(*key)
        return Change(name, parameter, self._moments[name], gradient, factor, *formulas[key])

    def _formula(self, step: int, rate: float, decay: float) -> tuple[Rule, tuple[float, ...], bool]:
        """Return the rule of a step, its numbers, and whether rows without a gradient stay as they are."""
        lines, numbers = self._lines(), self._numbers(rate, step)
        if decay:
            line, number = self._decay(rate, decay)
            lines, numbers = (line, *lines), {"decay": number, **numbers}
        rule = Rule(lines, self.moments, tuple(numbers))
        return rule, tuple(numbers.values()), self._touches_rows_only(decay)

    def state(self) -> State:
        """Return the learning rate, step counts and moments as a flat dict of numbers and new arrays.

        The keys are ``lr``, ``steps/NAME`` and ``MOMENT/NAME``; for `Eve` also ``loss`` and ``feedback``.
        """
        if self._device is not None:
            self._device.look()
        state: State = {"lr": self.lr, **self._memory}
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
        if not isinstance(state, Mapping):
            fix = f"give what {kind}.state() returned"
            raise TrainingError(f"{kind}.load_state", "a dict", describe_value(state), fix)
        names = [key.partition("/")[2] for key in state if key.startswith("steps/")]
        wanted = {"lr", *(f"{part}/{name}" for name in names for part in ("steps", *self.moments))}
        if names or not self.remembers.isdisjoint(state):
            wanted |= self.remembers
        if wanted != set(state):
            parts = ("lr", *sorted(self.remembers), *(f"{part}/NAME" for part in ("steps", *self.moments)))
            expected = f"the keys {', '.join(parts)}"
            odd = min(wanted ^ set(state))
            found = f"{odd!r} {'missing' if odd in wanted else 'besides'}"
            raise TrainingError(f"{kind}.load_state", expected, found, f"give what {kind}.state() returned")
        lr = within(f"{kind}.load_state lr", np.asarray(state["lr"]).item(), 0, open_low=True)
        moments = {name: [np.array(state[f"{moment}/{name}"]) for moment in self.moments] for name in names}
        self.lr, self._moments, self._device = lr, moments, None
        self._memory = {key: float(state[key]) for key in sorted(self.remembers & set(state))}
        self._steps = {name: int(state[f"steps/{name}"]) for name in names}

    def _touches_rows_only(self, decay: float) -> bool:
        return False

    def _remembered(self, loss: float | None, scale: float) -> dict[str, float]:
        """Return what a step with a loss makes of the numbers that the optimizer remembers."""
        return {}

    def _decay(self, rate: float, decay: float) -> tuple[str, float]:
        """Return the line of a weight decay that is not 0, and its number ``decay``."""
        return "g = g + decay * p", decay

    def _lines(self) -> tuple[str, ...]:
        """Return the formula, without weight decay; see `params.updates.Rule`."""
        raise NotImplementedError

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        """Return the formula's numbers by name. Steps are counted from 1."""
        raise NotImplementedError

    def _check_factors(self, params: Mapping[str, Array]) -> None:
        kinds = {"lr_factors": self.lr_factors, "decay_factors": self.decay_factors}
        for kind, key in ((kind, key) for kind, factors in kinds.items() for key in factors):
            if not any(name == key or name.startswith(f"{key}.") for name in params):
                expected = f"a parameter of {', '.join(params)}, or a prefix that ends before a dot"
                where = f"{type(self).__name__} {kind}"
                raise UnknownNameError(where, expected, repr(key), "print(program.params)")

    def _check_moments(self, name: str, parameter: Any) -> None:
        moments = self._moments.get(name, ())
        like = parameter.type if moments and isinstance(parameter, Parameter) else parameter
        for array in moments:
            if array.shape != like.shape or array.dtype != like.dtype:
                expected = describe_value(np.broadcast_to(np.zeros((), like.dtype), like.shape))
                fix = "load a state of the same model, or make a new optimizer"
                raise ParameterError(f"{name} moment", expected, describe_value(array), fix)
