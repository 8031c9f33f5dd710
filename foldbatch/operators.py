"""Python's operators, methods and NumPy's functions on a symbolic tensor: each is an op.

What has no meaning on a tensor without a value, such as `int` or `np.arctan2`, is refused, and the nearest
op is named. The ops themselves stand higher up: `foldbatch.static.ops` fills `FUNCTIONS` with them.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Generic, Literal, NoReturn, Protocol, TypeAlias, TypeVar

from foldbatch.errors import FoldbatchError, GraphError, WalkError
from foldbatch.types import TensorType

Result = TypeVar("Result")  # what an operator yields
Value = TypeVar("Value")
F = TypeVar("F", bound=Callable[..., Any])
PlainOperands: TypeAlias = Literal["numbers", "arrays", "ids", "labels", "parts", "shape"]
OUTSIDE = "call it in a function given to foldbatch.compile; program.debug(example) shows numbers"
FUNCTIONS: dict[str, Callable[..., Any]] = {}  # the functions of `foldbatch.ops` by name
TAKEN: set[str] = set()  # those that take the arguments of the NumPy function of their name
# by name, the meaning of plain operands of functions, see `plain_operands`
PLAIN_OPERANDS: dict[str, PlainOperands] = {}

# NumPy's and PyTorch's names for ops of the same meaning, each behind ours.
_NAMES = (
    "abs absolute|clip clamp|concat concatenate cat|divide true_divide|expand_dims unsqueeze|max amax|"
    "gather embedding index_select|logical_and bitwise_and|logical_not invert|logical_or bitwise_or|min amin|"
    "matmul mm bmm|mod remainder|multiply mul|power pow|reshape view flatten|round rint around|split chunk|"
    "stop_gradient detach|"
    "transpose permute|where masked_fill"
)
RENAMED = {alias: op for op, *aliases in map(str.split, _NAMES.split("|")) for alias in aliases}
_NO_NUMBERS = "it holds no numbers before the batch runs; to look at its values, add a Metric block"
_OF_TWO = "of a score x and a target y of 0 or 1, write ops.softplus(x) - x * y"
_ARRAYS = "use NumPy's, as in np.zeros(4, 'float32'); fb.tensor makes a value of it in a walk"
HINTS = {
    **dict.fromkeys(("item", "tolist", "numpy", "cpu", "data"), _NO_NUMBERS),
    **dict.fromkeys(("arange", "eye", "full", "ones", "zeros", "zeros_like"), _ARRAYS),
    **dict.fromkeys(("randn", "gaussian", "standard_normal"), "use ops.normal"),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_with_logits"), _OF_TWO),
    **dict.fromkeys(("silu", "swish"), "write x * ops.sigmoid(x)"),
    "bce_with_logits": _OF_TWO,
    "elu": "write ops.where(x > 0, x, ops.exp(ops.minimum(x, 0)) - 1)",
    "l1_loss": "write abs(a - b)",
    "leaky_relu": "write ops.maximum(x, 0.01 * x)",
    "mse_loss": "write (a - b) ** 2",
    "outer": "write a[:, None] * b",
    "var": "write ops.mean((x - ops.mean(x)) ** 2)",
    "all": "write ops.min(ops.cast(x, 'int32')) == 1",
    "any": "write ops.max(ops.cast(x, 'int32')) == 1",
    "cosine_similarity": "write ops.dot(a, b) / (ops.norm(a) * ops.norm(b))",
    "dropout": "use the layer fb.Dropout",
    "flip": "use a slice, as in x[::-1]",
    "kl_div": "of log q and p, write ops.sum(p * (ops.log(p) - log_q))",
    "linear": "use the layer fb.Linear",
    "nll_loss": "write -ops.gather(x, label)",
    "normalize": "write x / ops.norm(x)",
    "ravel": "use ops.reshape",
    "std": "write ops.sqrt(ops.mean((x - ops.mean(x)) ** 2))",
    "take": "use ops.gather",
    **dict.fromkeys(("dim", "size", "numel"), "x.shape, x.ndim and x.dtype are known"),
    **dict.fromkeys(("tril", "triu"), "write x * np.tril(np.ones((n, n)))"),
}


class _Functions(threading.local):
    running = 0


_functions = _Functions()


@contextmanager
def in_function() -> Iterator[None]:
    """Let ``==`` and ``!=`` between two tensors compare elements, as a block's function means it.

    Elsewhere they tell whether both are the same node, as the compiler's collections of nodes need it.
    """
    _functions.running += 1
    try:
        yield
    finally:
        _functions.running -= 1


def nearest(name: str) -> str:
    """Return a hint that names the op which comes nearest to a name."""
    close = difflib.get_close_matches(RENAMED.get(name, name), FUNCTIONS, n=1, cutoff=0.7)
    return HINTS.get(name) or (f"use ops.{close[0]}" if close else "dir(fb.ops) lists the ops")


def _call(name: str, *operands: object, **options: object) -> Value:  # type: ignore[type-var]  # its caller knows
    result: Value = FUNCTIONS[name](*operands, **options)
    return result


def _operator(op: str) -> Callable[[Operators[Result], Any], Result]:
    return lambda x, y: FUNCTIONS[op](x, y)  # noqa: PLW0108 - it is entered later


def _reflected(op: str) -> Callable[[Operators[Result], Any], Result]:
    return lambda x, y: FUNCTIONS[op](y, x)


def no_attribute(name: str) -> str:
    """Return the text of an error for an attribute that symbolic tensors do not have."""
    return f"a symbolic tensor has no {name!r}; {nearest(name)}"


def unknown(_: object, name: str) -> NoReturn:
    """Refuse an attribute; as a ``__getattr__`` it makes Python read all others in three times the time."""
    raise AttributeError(name if name.startswith("_") else no_attribute(name))


class Operators(Generic[Result]):
    """The operators, methods and properties of a symbolic tensor."""

    __slots__ = ()
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        """The instance shape, without the batch axis."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """The dtype's name."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """Number of instance axes."""
        return len(self.type.shape)

    @property
    def T(self) -> Result:
        """The transpose."""
        return _call("transpose", self, tuple(reversed(range(self.ndim))))

    def __len__(self) -> int:
        if not self.type.shape:
            raise GraphError("ops.len", "a tensor of at least one axis", str(self.type), "it is a scalar")
        return self.type.shape[0]

    def __iter__(self) -> Iterator[Result]:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, key: object) -> Result:
        return _call("getitem", self, key)

    def __setitem__(self, key: object, value: object) -> NoReturn:
        fix = "make another one, as ops.where(mask, new, x), or ops.concat of its parts"
        raise GraphError("ops.setitem", "a tensor that is not written to", f"x[{key!r}] = ...", fix)

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _operator("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _operator("divide"), _reflected("divide")
    __floordiv__, __rfloordiv__ = _operator("floor_divide"), _reflected("floor_divide")
    __mod__, __rmod__ = _operator("mod"), _reflected("mod")
    __pow__, __rpow__ = _operator("power"), _reflected("power")
    __matmul__, __rmatmul__ = _operator("matmul"), _reflected("matmul")
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")
    __and__ = __rand__ = _operator("logical_and")
    __or__ = __ror__ = _operator("logical_or")

    def __neg__(self) -> Result:
        return _call("negative", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Result:
        return _call("abs", self)

    def __round__(self, digits: int | None = None) -> Result:
        if digits:
            fix = "scale first: round(x * 100) / 100"
            raise GraphError("ops.round", "no digits behind the point", str(digits), fix)
        return _call("round", self)

    def __eq__(self, other: object) -> Any:
        if other is None or (isinstance(other, Operators) and not _functions.running):
            return self is other
        return _call("equal", self, other)

    def __ne__(self, other: object) -> Any:
        if other is None or (isinstance(other, Operators) and not _functions.running):
            return self is not other
        return _call("not_equal", self, other)

    __hash__ = object.__hash__  # by identity, so that nodes are keys

    def __xor__(self, other: object) -> Result:
        return _call("not_equal", _bools(self), _bools(other))

    __rxor__ = __xor__

    def __invert__(self) -> Result:
        return _call("logical_not", self)

    def __bool__(self) -> bool:  # noqa: PLE0304 - it never returns
        choose = "choose with ops.where, combine with & and |, or choose by data with OneOf"
        _no_value("bool", self, f"{choose}; the length of a loop comes from the example")

    def __int__(self) -> int:
        _no_value("int", self, "use ops.cast(x, 'int64')")

    def __float__(self) -> float:
        fix = "use ops.cast(x, 'float32'), foldbatch.ops in place of math, ops.stack to fill an array"
        _no_value("float", self, fix)

    def __format__(self, spec: str) -> str:
        if spec:
            _no_value("format", self, "show it whole, as f'{x}'; program.debug(example) has numbers")
        return str(self)

    def __index__(self) -> int:  # noqa: PLE0305 - it never returns
        _no_value("index", self, "use ops.gather(table, ids) to look up by a computed number")

    def __contains__(self, item: object) -> bool:
        _no_value("in", self, "compare, then reduce: ops.max(ops.cast(x == item, 'int32')) == 1")

    def __array__(self, *_: Any, **__: Any) -> Any:
        fix = "it holds no numbers before the batch runs; compute with foldbatch.ops"
        raise GraphError("np.asarray", "numbers", "a symbolic tensor", fix)

    def sum(self, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Result:
        """Return the sum over instance axes."""
        return _call("sum", self, axis, keepdims=keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, *, keepdims: bool = False) -> Result:
        """Return the mean over instance axes."""
        return _call("mean", self, axis, keepdims=keepdims)

    def max(self, axis: int | None = None, *, keepdims: bool = False) -> Result:
        """Return the maximum over an instance axis, or of all elements."""
        return _call("max", self, axis, keepdims=keepdims)

    def min(self, axis: int | None = None, *, keepdims: bool = False) -> Result:
        """Return the minimum over an instance axis, or of all elements."""
        return _call("min", self, axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None) -> Result:
        """Return the index of the first maximum along an instance axis, or among all elements."""
        return _call("argmax", self, axis)

    def dot(self, operand: object) -> Result:
        """Return the product of vectors or matrices."""
        return _call("dot", self, operand)

    def clip(self, low: object = None, high: object = None) -> Result:
        """Return the tensor with its elements held between two bounds."""
        return _call("clip", self, low, high)

    def astype(self, dtype: object) -> Result:
        """Return the tensor in another dtype."""
        return _call("cast", self, dtype)

    def reshape(self, *shape: object) -> Result:
        """Return the elements in another shape, given as one tuple or as several ints."""
        return _call("reshape", self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: object) -> Result:
        """Return the tensor with its axes permuted, reversed by default."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return _call("transpose", self, order or None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        op = RENAMED.get(name, name)
        if method != "__call__" or options or op not in TAKEN | {"power"}:
            _refused(f"np.{name}" + (f".{method}" if method != "__call__" else ""), name)
        return _call(op, *inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, options: Any) -> Any:
        name = func.__name__
        op = RENAMED.get(name, name)
        if op not in TAKEN:
            _refused(f"np.{name}", name)
        return _call(op, *args, **options)

    @classmethod
    def __torch_function__(cls, func: Any, *_: Any) -> NoReturn:
        fix = f"{nearest(func.__name__)}; x.detach().numpy() makes an array, fb.torch.from_torch a layer"
        raise GraphError(f"torch.{func.__name__}", "tensors of PyTorch", "a symbolic tensor", fix)


class Deferred(Operators[Any]):
    """A tensor that a user's plain function knows by number only: operations on it are noted for later."""

    __slots__ = ()


class Stored(Operators[Any]):
    """A tensor that the model keeps; a plain function's operations on it are noted, too."""

    __slots__ = ()


class Recorder(Protocol):
    """A front end that notes the calls which a user's plain function makes while it runs."""

    def function(
        self, function: Callable[..., object], operands: tuple[object, ...], options: dict[str, Any], /
    ) -> Any:
        """Note a call of a function of `foldbatch.ops`, and return its result."""

    def layer(self, layer: object, operands: tuple[object, ...], /) -> Any:
        """Note a call of a layer or another block outside of cells' functions, and return its result."""


_recorder: ContextVar[Any] = ContextVar("recorder", default=None)
active_recorder = _recorder.get  # returns the `Recorder` of the function that runs here; None where none does


def record_with(recorder: Recorder | None) -> None:
    """Let a recorder note the calls that are made here from now on; None ends that.

    It is a variable of the context: other threads do not see it.
    """
    _recorder.set(recorder)


def _holds_symbol(operands: Sequence[object]) -> bool:
    flat = [y for x in operands for y in (x if isinstance(x, list | tuple) else [x])]
    return any(isinstance(y, Operators) and not isinstance(y, Stored) for y in flat)


def called_as_it_is(
    function: Callable[..., object], operands: Sequence[object], options: dict[str, Any]
) -> Any:
    """Call a function of `foldbatch.ops`; errors show arguments that it does not take."""
    try:
        return function(*operands, **options)
    except TypeError as error:
        if isinstance(error, FoldbatchError):
            raise
        name = f"ops.{function.__name__}"
        fix = f"an axis is axis=; help(fb.{name}) has them all"
        raise GraphError(name, f"the arguments of {name}", str(error), fix) from error


def deferring(function: F) -> F:
    """Return a function of `foldbatch.ops` that leaves `Deferred` tensors to the front end."""

    @wraps(function)
    def called(*operands: object, **options: object) -> Any:
        """Call the function, or leave the call to the front end if an operand is `Deferred`."""
        for x in operands:
            if isinstance(x, Deferred) or (
                isinstance(x, (list, tuple)) and any(isinstance(y, Deferred) for y in x)
            ):
                recorder = active_recorder()
                if recorder is None:
                    name, expected = f"ops.{function.__name__}", "values of the walk that runs"
                    raise WalkError(name, expected, "one outside of its walk", OUTSIDE)
                return recorder.function(function, operands, options)
        recorder = active_recorder()
        if recorder is not None and not _functions.running and not _holds_symbol(operands):
            return recorder.function(function, operands, options)  # of parameters and data alone, in a walk
        return called_as_it_is(function, operands, options)

    called.__module__ = "foldbatch.static.ops"  # where pickle finds it
    return called  # type: ignore[return-value]


def public(function: F) -> F:
    """Enter a function into `FUNCTIONS`; return it as users call it, see `deferring`."""
    FUNCTIONS[function.__name__] = deferring(function)
    return FUNCTIONS[function.__name__]  # type: ignore[return-value]


def numpys(function: F) -> F:
    """Enter a function as `public` does; users may also call NumPy's of its name, which takes the same."""
    TAKEN.add(function.__name__)
    return public(function)


def plain_operands(meaning: PlainOperands) -> Callable[[F], F]:
    """Return a decorator that says what plain Python operands of a function are, where a walk calls it.

    They are `numbers` of the example, alone or in arrays, which may differ from call to call, and are read in
    the dtype of the values beside them; the same in `arrays` alone; `ids` of the example, which are whole
    numbers, or `labels`, which may be truths, too; the `parts` of a list, whose length belongs to the model;
    or a `shape`. Those of other functions belong to the model.
    """

    def entered(function: F) -> F:
        PLAIN_OPERANDS[function.__name__] = meaning
        return function

    return entered


def is_symbolic() -> bool:
    """Whether the function of a block or of a cell runs now, on symbolic tensors."""
    return _functions.running > 0


def _bools(x: object) -> Any:
    return _call("logical_not", _call("logical_not", x))  # refuses what is no bool


def _no_value(name: str, x: Any, fix: str) -> NoReturn:
    raise GraphError(f"ops.{name}", "a Python value", f"a symbolic {x.type}", fix)


def _refused(where: str, name: str) -> NoReturn:
    raise GraphError(where, "arrays of numbers", "a symbolic tensor", nearest(name))
