"""The base of all optimizers: checks of gradients, updates in one call or block by block, step counts."""

import ast
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, partial
from numbers import Real
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from foldbatch.errors import ParameterError, TrainingError, UnknownNameError
from foldbatch.params.gradients import BatchGradients
from foldbatch.params.parameters import (
    Array,
    Change,
    Parameter,
    ParameterStore,
    Remote,
    RemoteUpdates,
    Rule,
    SparseRows,
    Updates,
    numbers_of,
    refuse_elsewhere,
)
from foldbatch.system.showing import Described
from foldbatch.train.numbers import SEE, checked, number
from foldbatch.types import describe_value

Gradients = Mapping[str, Any]  # each an array or SparseRows


def scale(grads: Gradients, factor: float) -> dict[str, Any]:
    """Return copies of all gradients times a factor, for example 1 / batch size for a mean loss.

    >>> scale({"a": np.array([3.0])}, 0.5)
    {'a': array([1.5])}
    """
    return _of_batch(grads, {name: _scaled(gradient, factor) for name, gradient in grads.items()})


def _of_batch(grads: Gradients, changed: dict[str, object]) -> dict[str, object]:
    """Return changed gradients, which say as the given ones do which parameters their batch has used."""
    return grads.changed(changed) if isinstance(grads, BatchGradients) else changed


def clip_by_global_norm(grads: Gradients, max_norm: float) -> tuple[dict[str, Any], float]:
    """Scale all gradients by one factor so that their joint Euclidean norm is at most `max_norm`.

    Returns the gradients and the norm they had. Those within the limit are returned as they
    are, and so are those with a NaN or an infinity, for the optimizer to name; scaled ones are copies.
    Gradients on a device are clipped there, into copies in any case; only who looks at the norm waits.

    Raises:
        TrainingError: when `max_norm` is not above 0; infinity only measures.

    >>> clipped, norm = clip_by_global_norm({"a": np.array([3.0]), "b": np.array([4.0])}, 1.0)
    >>> norm, clipped["a"]
    (5.0, array([0.6]))

    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1.
    """
    if not isinstance(max_norm, Real) or isinstance(max_norm, bool) or not max_norm > 0:
        raise TrainingError("clip_by_global_norm", "max_norm above 0", repr(max_norm), "try 5.0")
    remote = next((array for array in map(numbers_of, grads.values()) if isinstance(array, Remote)), None)
    if remote is not None:
        clipped, pending = remote.clipped(grads, max_norm)
        return _of_batch(grads, clipped), pending
    norm = math.sqrt(sum(_square_sum(_numbers(gradient)) for gradient in grads.values()))
    if norm <= max_norm or not math.isfinite(norm):
        return _of_batch(grads, dict(grads)), norm
    scaled = {name: _scaled(gradient, max_norm / norm) for name, gradient in grads.items()}
    return _of_batch(grads, scaled), norm


def _numbers(gradient: Any) -> Array:
    return np.asarray(numbers_of(gradient))


def _square_sum(array: Array) -> float:
    """Return the sum of squares of an array; in float64 where the array's dtype overflows."""
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        total = float(np.dot(flat, flat))
        if not math.isfinite(total):  # large numbers overflow float32 when squared
            flat = flat.astype(np.float64)
            total = float(np.dot(flat, flat))
    return total


def _scaled(gradient: Any, factor: float) -> object:
    if isinstance(gradient, SparseRows):
        return replace(gradient, values=gradient.values * factor)
    return gradient * factor


def fitting_gradient(
    name: str, parameter: object, gradient: object, factor: float = 1.0
) -> tuple[object, float]:
    """Check that a gradient, times a factor, fits its parameter; return it in the parameter's dtype.

    The result is an array of one axis or more, or `SparseRows`, and the factor still to be applied, which is
    1 where it had to be applied first. Its numbers are not looked at; see `check_numbers`.

    >>> fitting_gradient("w", np.zeros(2, "float32"), np.array([1, 2]))
    (array([1., 2.], dtype=float32), 1.0)
    """
    if not isinstance(parameter, np.ndarray) or parameter.dtype.kind != "f" or not parameter.flags.writeable:
        actual = "a read-only array" if isinstance(parameter, np.ndarray) else describe_value(parameter)
        raise ParameterError(name, "a float array that can be updated in place", actual, "give a copy")
    shape, dtype = parameter.shape, parameter.dtype
    plain = type(gradient) is np.ndarray and gradient.shape == shape != () and gradient.dtype == dtype
    if plain and abs(factor) <= 1:  # as it comes in most steps
        return gradient, factor
    return _fitting(name, shape, dtype, gradient, factor)


def _fitting(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], gradient: object, factor: float
) -> tuple[object, float]:
    """Return a gradient as `fitting_gradient` does, converted to the dtype of its parameter."""
    values = _numbers(gradient)
    _check_shape(f"{name} gradient", shape, dtype, gradient, values)
    if values.dtype != dtype or abs(factor) > 1:  # digits or finite numbers may be lost
        with np.errstate(all="ignore"):
            values, factor = np.asarray(values * factor, dtype), 1.0
    if isinstance(gradient, SparseRows):
        return SparseRows(gradient.rows, values, shape), factor
    return values if values.ndim else values.reshape(1), factor


def check_numbers(gradients: Sequence[tuple[str, object]]) -> None:
    """Raise a ParameterError where a gradient is not finite, with the name of its parameter."""
    for name, gradient in gradients:
        where = f"{name} gradient"
        if isinstance(gradient, SparseRows):
            _check_rows(where, gradient)
        _check_numbers(where, gradient, _numbers(gradient))


def fitting_there(name: str, parameter: Parameter, gradient: Any, factor: float) -> tuple[object, float]:
    """Check a gradient as `fitting_gradient` does, for a parameter on a device."""
    shape, dtype = parameter.type.shape, np.dtype(parameter.type.dtype)
    values = numbers_of(gradient)
    if isinstance(values, Remote):
        where = f"{name} gradient"
        _check_shape(where, shape, dtype, gradient, values)
        if isinstance(gradient, SparseRows):
            _check_rows(where, gradient)
        if cast("Any", values).dtype == dtype:
            return gradient, factor
    fit = _fitting(name, shape, dtype, gradient, factor)
    check_numbers([(name, fit[0])])
    return fit


def _check_shape(
    where: str, shape: tuple[int, ...], dtype: np.dtype[Any], gradient: object, values: Any
) -> None:
    actual = gradient.shape if isinstance(gradient, SparseRows) else values.shape
    if actual != shape or values.dtype.kind not in "fiub":
        fix = "check the name"
        raise ParameterError(where, f"{dtype} of shape {shape}", f"{values.dtype} of shape {actual}", fix)


def _check_numbers(where: str, gradient: object, values: Array) -> None:
    """Raise a ParameterError with the first place of a gradient that is not finite, if there is one."""
    if math.isfinite(_square_sum(values)) or np.isfinite(values).all():  # squares may overflow
        return
    first = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
    place = (int(gradient.rows[first[0]]), *first[1:]) if isinstance(gradient, SparseRows) else first
    fix = "nothing was changed; call program.find_nan(examples), or lower the learning rate"
    raise ParameterError(where, "finite numbers", f"{values[first]} at {place}", fix)


def _check_rows(where: str, gradient: SparseRows) -> None:
    """Raise a ParameterError where the rows of a sparse gradient are not ascending, distinct and in range."""
    rows, values, shape = gradient.rows, gradient.values, gradient.shape
    fits = rows.dtype.kind in "iu" and rows.ndim == 1 and values.shape == (len(rows), *shape[1:])
    fits = fits and bool((rows[1:] > rows[:-1]).all())
    if not fits or (len(rows) and not 0 <= rows[0] <= rows[-1] < shape[0]):
        expected = f"ascending, distinct rows of the {shape[0]}, with one value each"
        actual = f"rows {describe_value(rows.tolist())} and values of shape {values.shape}"
        raise ParameterError(where, expected, actual, "sort the rows and sum the values of equal ones")


FUNCTIONS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
}
SCOPE = {name: getattr(np, name) for name in (*FUNCTIONS.values(), "positive", "sqrt")}


@cache
def formula(rule: Rule) -> Callable[..., None]:
    """Return a rule as a function of arrays ``(p, g, each moment, each number)``, which leaves `g` as it is.

    >>> p, g = np.array([1.0]), np.array([2.0])
    >>> formula(Rule(("g = g * g", "p = p - rate * (g + m)"), ("m",), ("rate",)))(p, g, np.array([1.0]), 0.1)
    >>> p, g
    (array([0.5]), array([2.]))
    """
    lines = [f"def apply({', '.join(['p', 'g', *rule.moments, *rule.numbers])}):"]
    for line in rule.lines:
        target, _, value = line.partition(" = ")
        match ast.parse(value, mode="eval").body:
            case ast.BinOp(lhs, operator, right):
                call = f"{FUNCTIONS[type(operator)]}({ast.unparse(lhs)}, {ast.unparse(right)}"
            case ast.Call(_, [argument]):
                call = f"sqrt({ast.unparse(argument)}"
            case name:
                call = f"positive({ast.unparse(name)}"
        lines.append(f"    {target} = {call})" if target in rule.locals else f"    {call}, {target})")
    scope: dict[str, Any] = dict(SCOPE)
    exec("\n".join(lines), scope)  # noqa: S102 - the text is our own
    apply: Callable[..., None] = scope["apply"]
    return apply


BLOCK_ELEMENTS = 131_072  # elements: what is computed of a block on the way stays in the cache


def cuts(table: Array) -> Iterator[tuple[int, int]]:
    """Yield first and last (excluded) rows of a table's blocks of about `BLOCK_ELEMENTS` elements."""
    rows = len(table)
    step = max(1, BLOCK_ELEMENTS * rows // max(1, table.size))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


class ParameterBlocks:
    """Changes parameters of the host, as `RemoteUpdates` those of a device, by an engine or NumPy."""

    updates: Updates | None = None

    def full(self, parameter: Array, number: float) -> Array:
        """Return an array like a parameter, of one number."""
        return np.full_like(parameter, number)

    def apply(self, changes: Sequence[Change], undo: Callable[[], None]) -> None:
        """Change parameters' arrays and their moments in place."""
        updates = self.updates
        try:
            if updates is None:
                _look(changes)
            remaining = changes if updates is None else updates.apply(changes, _look)
        except ParameterError:
            undo()
            raise
        for change in remaining:
            tables: list[Array] = [change.parameter, *change.moments]
            if not tables[0].ndim:
                tables = [table.reshape(1) for table in tables]
            if isinstance(change.gradient, SparseRows) and change.by_rows:
                self._rows(change, tables)
            else:
                self._all(change, updates, tables)

    def _all(self, change: Change, updates: Updates | None, tables: Sequence[Array]) -> None:
        """Update all rows of a parameter, a block of rows at a time."""
        for start, stop in cuts(tables[0]):
            p, *moments = block = [table[start:stop] for table in tables]
            g = self._gradient(change, p, start, stop)
            part = change._replace(parameter=p, moments=moments, gradient=g, factor=1.0)
            if updates is None or updates.apply([part], None):
                self._apply(change, block, g)

    def _gradient(self, change: Change, p: Array, start: int, stop: int) -> Array:
        """Return the scaled gradient of the rows from `start` to `stop` as a dense array like `p`."""
        gradient, factor = change.gradient, change.factor
        if isinstance(gradient, SparseRows):
            g = np.zeros_like(p)
            first, last = np.searchsorted(gradient.rows, (start, stop))
            g[gradient.rows[first:last] - start] = gradient.values[first:last] * factor
            return g
        block: Array = gradient[start:stop]
        return block if factor == 1 else block * factor

    def _rows(self, change: Change, tables: Sequence[Array]) -> None:
        """Update the rows of a parameter that a sparse gradient has, a block of rows at a time."""
        gradient = change.gradient
        for start, stop in cuts(gradient.values):
            rows = gradient.rows[start:stop]
            block = [table[rows] for table in tables]
            self._apply(change, block, gradient.values[start:stop] * change.factor)
            for table, changed in zip(tables, block, strict=True):
                table[rows] = changed

    def _apply(self, change: Change, block: Sequence[Array], g: Array) -> None:
        formula(change.rule)(block[0], g, *block[1:], *change.numbers)


def _look(changes: Sequence[Change]) -> None:
    check_numbers([(change.name, change.gradient) for change in changes])


State = dict[str, Any]
Formulas = dict[tuple[int, float, float], tuple[Rule, tuple[float, ...], bool]]  # by step, rate and decay
Factors = Mapping[str, float]  # by a parameter's name, a prefix that ends before a dot, or a pattern


def _factors(where: str, factors: Factors | None) -> dict[str, float]:
    """Return factors by parameter name as checked numbers of 0 or more; {} where there are none."""
    if factors is None:
        return {}
    if not isinstance(factors, Mapping):
        actual, fix = describe_value(factors), "for example {'words': 0.1}"
        raise TrainingError(where, "a dict from names of parameters to numbers", actual, fix)
    return {name: number(f"{where}[{name!r}]", factor, 0) for name, factor in factors.items()}


def _factor(factors: Factors, name: str) -> float:
    """Return the factor of a parameter: that of its longest prefix, else of the first pattern that fits.

    >>> factors = {"cell": 0.5, "*.bias": 0.0}
    >>> [_factor(factors, name) for name in ("cell.bias", "head.bias", "head.weight")]
    [0.5, 0.0, 1.0]
    """
    prefix = name
    while prefix and prefix not in factors:
        prefix = prefix.rpartition(".")[0]
    if prefix:
        return factors[prefix]
    return next((factor for key, factor in factors.items() if fnmatchcase(name, key)), 1.0)


def _is_for(key: str, name: str) -> bool:
    """Return whether a key of factors is the name of a parameter, a prefix of it, or a pattern that fits."""
    return name == key or name.startswith(f"{key}.") or fnmatchcase(name, key)


def finite(where: str, value: object, fix: str) -> float:
    """Return a number that is finite; one that a device still computes is waited for.

    Raises:
        TrainingError: when it is no number, or not finite.
    """
    if isinstance(value, Real) and math.isfinite(value):
        return float(value)
    raise TrainingError(where, "a finite number", describe_value(value), fix)


def _parameter(parameters: Mapping[str, object], name: str) -> object:
    if name not in parameters:
        expected = f"a parameter of {', '.join(parameters) or 'none'}"
        raise UnknownNameError("gradients", expected, repr(name), "take the gradients of this program")
    return parameters[name]


def _refuse_wrong(where: str, params: object, grads: object, scale: object) -> None:
    """Refuse arguments of `Optimizer.update` that are of another kind."""
    if not ((type(scale) is float or isinstance(scale, Real)) and math.isfinite(scale)):
        raise TrainingError(where, "a finite number", describe_value(scale), "for example 1 / len(batch)")
    if not isinstance(params, Mapping):
        expected = "arrays by parameter name"
        raise TrainingError("parameters", expected, describe_value(params), "give program.params")
    if isinstance(grads, ParameterStore) or not isinstance(grads, Mapping):  # perhaps both are swapped
        fix = "take the second item of value_and_grad(examples), or step(examples).gradients"
        raise TrainingError("gradients", "arrays by parameter name", describe_value(grads), fix)


def _take_back(
    steps: dict[str, int],
    moments: dict[str, Any],
    names: Sequence[str],
    loss_memory: dict[str, float],
    memory_before: dict[str, float],
) -> None:
    """Take back a step that was refused: its counts, the moments of a first step, the memory of losses."""
    loss_memory.clear()
    loss_memory.update(memory_before)
    for name in names:
        steps[name] -= 1
        if not steps[name]:
            del steps[name], moments[name]


def _way(where: str, way: object) -> str:
    if way not in ("zero", "skip"):
        raise TrainingError(where, "zero or skip", describe_value(way), SEE)
    return str(way)


def learning_rate(where: str, lr: object) -> float:
    """Return a learning rate, which is above 0."""
    fix = "update(program.params, gradients) takes the parameters" if isinstance(lr, Mapping) else SEE
    return number(where, lr, 0, fix=fix, above=True)


@dataclass(eq=False, repr=False)
class Optimizer(Described):
    """The common base of all optimizers: checks, blocks of rows, step counts, state.

    Args:
        lr: the learning rate, above 0; assign ``optimizer.lr`` to change it while training.
        weight_decay: 0 or more; that times the parameter is added to its gradient.
        lr_factors: by parameter name, dotted prefix (``embedding`` or ``embedding.weight``) or pattern
            (``*.bias``, as file names have them), the factor of the learning rate. The longest prefix counts;
            where no prefix fits, the first pattern does.
        decay_factors: the same for the weight decay, for example ``{"*.bias": 0, "*norm*": 0}``.
        unused: what happens to a parameter that no call of the batch has read, such as a head that no
            example asks for. With ``zero``, its gradient is zeros, so momentum and decay still move it; with
            ``skip``, it stays as it is, and its step count too, as in PyTorch, where it has no gradient.

    Raises:
        TrainingError: when a setting is out of range.
    """

    initial_accumulator = 0.0  # the number with which moments begin
    loss_memory: ClassVar[tuple[str, ...]] = ()  # names of the numbers kept of the losses of past steps

    lr: float = checked(learning_rate)
    _: KW_ONLY
    weight_decay: float = checked(number, 0, default=0.0)
    lr_factors: Factors | None = checked(_factors, default=None)
    decay_factors: Factors | None = checked(_factors, default=None)
    unused: Literal["zero", "skip"] = checked(_way, default="zero")

    def __new__(cls, *settings: object, **_: object) -> Self:
        """Refuse parameters, which optimizers of PyTorch take first."""
        if settings and isinstance(settings[0], Mapping):
            learning_rate(f"{cls.__name__} lr", settings[0])
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._steps: dict[str, int] = {}
        self._moments: dict[str, list[Any]] = {}  # arrays of the host, or of the device of the parameter
        self._parameters: dict[str, weakref.ref[Parameter]] = {}  # of programs, whose moments these are
        self._loss_memory: dict[str, float] = {}  # by name; empty before the first step
        self._blocks = ParameterBlocks()
        self._device: RemoteUpdates | None = None  # where the last step was taken, if not on the host
        _ = self.moments  # settings may not go together

    @property
    def moments(self) -> tuple[str, ...]:
        """The names of the arrays that are kept of each parameter."""
        return ()

    def update(
        self, params: Mapping[str, Array], grads: Gradients, *, scale: float = 1.0, loss: float | None = None
    ) -> None:
        """Take one step: change, in place, each parameter that has a gradient.

        A parameter without a gradient, or frozen, stays as it is, and its step count too.

        Args:
            params: by name.
            grads: by the same names. Those of a program, also scaled or clipped by functions of
                `foldbatch.train`, say which parameters their batch has not used, see ``unused``; leave out of
                a dict of your own what is to stay.
            scale: what each gradient is multiplied by first, for example 1 / batch size for a mean loss. The
                step is to the last bit that of gradients from `foldbatch.train.scale`. Only gradients of
                another dtype than their parameters', or a scale above 1, cost copies.
            loss: the loss whose gradients these are; it is multiplied by `scale` as they are. `Eve` needs it,
                and waits for it if a device computes it. All other optimizers ignore it.

        Parameters of a program on a device are changed there, and nobody waits. If a gradient there is not
        finite, that update and later ones change nothing, and the error is raised when somebody next reads
        what the device computed: a loss, a gradient, a parameter or `state`. Step counts are then as they
        were before that update.

        Raises:
            TrainingError: when `scale` is not a finite number, or `grads` is not a mapping; when moments
                are kept of another program's parameters of these names; when `Eve` gets no loss that fits.
            UnknownNameError: when a gradient or a factor belongs to no parameter.
            ParameterError: when a gradient's shape or dtype does not fit, or it holds a NaN or an
                infinity; no parameter or moment has been changed then.
        """
        _refuse_wrong(f"{type(self).__name__}.update scale", params, grads, scale)
        scale = float(scale)
        self._check_factors(params)
        loss_memory = self._remembered(loss, scale)
        updates = getattr(params, "updates", None)
        remote = updates if isinstance(updates, RemoteUpdates) else None
        fit = fitting_gradient if remote is None else fitting_there
        parameters = params.parameters if isinstance(params, ParameterStore) else params
        ready = []
        count = len(self.moments)  # which depend on settings
        newcomers: dict[str, Parameter] = {}  # whose moments are not yet those of a program
        skipped = grads.unused if self.unused == "skip" and isinstance(grads, BatchGradients) else ()
        for name, gradient in grads.items():
            parameter: Any = _parameter(parameters, name)
            if name in skipped:
                continue
            if isinstance(parameter, Parameter):
                if not parameter.trainable:
                    continue
                bound = self._parameters.get(name)
                if count and (bound is None or bound() is not parameter):
                    if bound is not None and name in self._moments:
                        raise self._of_another(name)
                    newcomers[name] = parameter
                if remote is None:
                    refuse_elsewhere(name, parameter)
                    parameter = parameter.value
            ready.append((name, parameter, *fit(name, parameter, gradient, scale)))
            if name in self._moments:
                self._check_moments(name, parameter)
        if remote is None:
            self._bring_home()
            self._blocks.updates = updates
        place = self._blocks if remote is None else remote
        formulas: Formulas = {}
        changes = []
        memory_before = dict(self._loss_memory)
        self._loss_memory.update(loss_memory)
        if newcomers:
            self._parameters |= {name: weakref.ref(p) for name, p in newcomers.items()}
        for name, parameter, gradient, factor in ready:
            kept = self._moments.setdefault(name, [])
            if len(kept) != count:
                kept += [place.full(parameter, self.initial_accumulator) for _ in range(count - len(kept))]
                del kept[count:]
            changes.append(self._change(name, parameter, gradient, factor, formulas))
        self._device = remote
        names = [change.name for change in changes]
        undo = partial(_take_back, self._steps, self._moments, names, self._loss_memory, memory_before)
        place.apply(changes, undo)

    def _of_another(self, name: str) -> TrainingError:
        """Return the error for another parameter than the one whose moments are kept under its name."""
        where, expected = f"{type(self).__name__}.update", "parameters of the program whose moments it keeps"
        state = "optimizer.load_state(optimizer.state())"
        fix = f"make an optimizer for each program; to go on with these moments, {state}"
        return TrainingError(where, expected, f"{name} of another program", fix)

    def __getstate__(self) -> State:
        """Return all but the parameters that were met: a copy may go on with those of another program."""
        return {**self.__dict__, "_parameters": {}}

    def _bring_home(self) -> None:
        if self._device is not None:
            self._device.look()
            self._moments = {name: [np.array(m) for m in moments] for name, moments in self._moments.items()}
            self._device = None

    def _change(
        self, name: str, parameter: object, gradient: object, factor: float, formulas: Formulas
    ) -> Change:
        """Count a step of a parameter, and return its change; `formulas` are those of this update."""
        self._steps[name] = step = self._steps.get(name, 0) + 1
        rate = self.lr * _factor(self.lr_factors, name) if self.lr_factors else self.lr
        decay = self.weight_decay and self.weight_decay * _factor(self.decay_factors or {}, name)
        key = step, rate, decay
        if key not in formulas:
            formulas[key] = self._formula(*key)
        return Change(name, parameter, self._moments[name], gradient, factor, *formulas[key])

    def _formula(self, step: int, rate: float, decay: float) -> tuple[Rule, tuple[float, ...], bool]:
        """Return the formula of one step, to be applied to each number of a parameter.

        Args:
            step: how many steps the parameter has had, this one counted.
            rate: the learning rate.
            decay: the weight decay.

        Returns:
            The rule; the values of `Rule.numbers`, in their order; and whether a sparse gradient changes
            only the rows that it has.
        """
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
        state: State = {"lr": self.lr, **self._loss_memory}
        for name, step in self._steps.items():
            state[f"steps/{name}"] = step
            for moment, array in zip(self.moments, self._moments[name], strict=True):
                state[f"{moment}/{name}"] = np.array(array)
        return state

    def load_state(self, state: Mapping[str, object]) -> None:
        """Take over copies of a state that `state` returned; training goes on as if it had not stopped.

        Raises:
            TrainingError: when the state is not one of this kind of optimizer; nothing has changed then.
        """
        kind = type(self).__name__
        if not isinstance(state, Mapping):
            fix = f"give what {kind}.state() returned"
            raise TrainingError(f"{kind}.load_state", "a dict", describe_value(state), fix)
        names = [key.partition("/")[2] for key in state if key.startswith("steps/")]
        wanted = {"lr", *(f"{part}/{name}" for name in names for part in ("steps", *self.moments))}
        if names:
            wanted |= set(self.loss_memory)
        if wanted != set(state):
            parts = ("lr", *self.loss_memory, *(f"{part}/NAME" for part in ("steps", *self.moments)))
            expected = f"the keys {', '.join(parts)}"
            odd = min(wanted ^ set(state))
            actual = f"{odd!r} {'missing' if odd in wanted else 'besides'}"
            raise TrainingError(f"{kind}.load_state", expected, actual, f"give what {kind}.state() returned")
        lr = number(f"{kind}.load_state lr", np.asarray(state["lr"]).item(), 0, above=True)
        counts = {name: np.asarray(state[f"steps/{name}"]).item() for name in names}
        steps = {name: int(number(f"{kind}.load_state steps", n, 0)) for name, n in counts.items()}
        moments = {name: [np.array(state[f"{moment}/{name}"]) for moment in self.moments] for name in names}
        fix = f"give what {kind}.state() returned"
        memory = {
            key: finite(f"{kind}.load_state {key}", np.asarray(state[key]).item(), fix)
            for key in self.loss_memory
            if key in state
        }
        self._loss_memory = memory
        self.lr, self._moments, self._device = lr, moments, None
        self._steps = steps
        self._parameters = {}

    def _remembered(self, loss: float | None, scale: float) -> dict[str, float]:
        """Return the numbers, by name of `loss_memory`, that a step with this loss leaves to the next one."""
        return {}

    def _touches_rows_only(self, decay: float) -> bool:
        return False

    def _decay(self, rate: float, decay: float) -> tuple[str, float]:
        """Return the line of a weight decay that is not 0, and its number ``decay``."""
        return "g = g + decay * p", decay

    def _lines(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _numbers(self, rate: float, step: int) -> dict[str, float]:
        """Return the formula's numbers by name. Steps are counted from 1."""
        raise NotImplementedError

    def _check_factors(self, params: Mapping[str, Array]) -> None:
        """Raise an UnknownNameError where a factor is for no parameter and no prefix of one."""
        for kind in ("lr_factors", "decay_factors"):
            where = f"{type(self).__name__} {kind}"
            for key in _factors(where, getattr(self, kind)):  # which may have been written to
                if not any(_is_for(key, name) for name in params):
                    expected = (
                        f"a parameter of {', '.join(params)}, a prefix that ends before a dot, or a pattern"
                    )
                    raise UnknownNameError(where, expected, repr(key), "print(program.params)")

    def _check_moments(self, name: str, parameter: Any) -> None:
        """Raise a ParameterError where the stored moments do not have the parameter's shape and dtype."""
        like = parameter.type if isinstance(parameter, Parameter) else parameter
        shape, dtype = like.shape, like.dtype
        for array in self._moments[name]:
            if array.shape != shape or array.dtype != dtype:
                expected = describe_value(np.broadcast_to(np.zeros((), like.dtype), like.shape))
                fix = "load a state of the same model, or make a new optimizer"
                raise ParameterError(f"{name} moment", expected, describe_value(array), fix)
