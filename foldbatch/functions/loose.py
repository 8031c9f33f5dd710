"""Loose cells: what a walk does with values outside of cells, each op and layer a small cell of its own."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Real
from operator import index
from typing import Any, Final, TypeAlias

import numpy as np

from foldbatch.errors import WalkError
from foldbatch.functions import mixed, notes
from foldbatch.functions.cells import CellFunction, Slow, body
from foldbatch.functions.notes import note_rows, running
from foldbatch.functions.seam import TensorBlock
from foldbatch.functions.specs import EXACT, FIXED, read_as, typed
from foldbatch.functions.values import GivenObject, LabelObject, Noted, Value, value_class
from foldbatch.model.columns import Datum, kept
from foldbatch.operators import OUTSIDE, PLAIN_OPERANDS, PlainOperands, called_as_it_is
from foldbatch.params.parameters import Array, Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.system.remembering import Bounded, Shared
from foldbatch.system.showing import shown
from foldbatch.types import TensorType, describe_value, is_masked

# by the meaning of a function's plain operands, the classes of those that are data of a call; others belong
# to the cell
_DATA: dict[PlainOperands | None, frozenset[type]] = {
    "numbers": FIXED - {bool},
    "ids": FIXED - {bool, float},
    "labels": FIXED - {float},
}

NUMBERS_OF_PYTHON = (int, float, np.ndarray, np.generic)
_BOUNDS = frozenset({int, type(None)})  # of slices
_READ = {float: "float32", int: "int32"}  # what plain numbers are read as

# An operand; whether it is data of the call, else it belongs to the cell; and what data are read as.
CalledLayer: TypeAlias = Any  # a layer, or another object with a method `called`
CallOperand: TypeAlias = tuple[Any, bool, TensorType | None]

# loose cells, and entries of each table of look-ups, that are kept for models to come: many times those of a
# large model. A cell that a program knows is kept in any case.
MAX_KEPT = 4096
_cells: Shared[object, CellFunction] = Shared(MAX_KEPT)  # but for those of parameters, which keep theirs
# by function and `_key`, a cell with the places of what is data; those of a parameter are kept by it
_places: dict[object, Any] = Bounded(MAX_KEPT)
# what does a call, by function, types of operands, and the numbers among them that belong to its cell
_quick: dict[object, Callable[..., Any]] = Bounded(MAX_KEPT)
_of_data: dict[tuple[tuple[int, ...], str], CellFunction] = Bounded(MAX_KEPT)  # by shape and dtype
# by the class of what is given, and its array's dtype and shape
_of_arrays: dict[object, CellFunction] = Bounded(MAX_KEPT)


def _apply(
    recorder: WalkRecorder, function: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]
) -> Noted:
    """Apply an op to operands in a walk, by a call of its loose cell; return the result of the call.

    Cells are kept by the function and types of operands, so that most calls need one look-up.
    """
    # what tells the cell of most calls at once
    kinds: Any = (function, *map(type, operands)) if running() else ()
    if options:
        option_types = [*map(type, options.values())]
        kinds = (*kinds, *options.items(), *option_types) if kinds and EXACT.issuperset(option_types) else ()
    if (quick := _quick.get(kinds)) is not None:
        return quick(*operands)
    kept_call = _kept_place(kinds, operands) if kinds and operands else None
    if kept_call is not None and (quick := kept_call[0].get(kept_call[1])) is not None:
        return quick(kept_call[2])
    name = function.__name__
    if not running():
        if not any(isinstance(x, Value) for x in _flat(operands)):  # another thread's walk runs
            return function(*operands, **options)
        expected = "values of the walk that runs"
        raise WalkError(f"ops.{name}", expected, "one outside of its walk", OUTSIDE)
    if any(isinstance(x, Value | np.ndarray) for x in options.values()):
        bound = inspect.signature(function).bind(*operands, **options)
        bound.apply_defaults()
        for n, x in bound.kwargs.items():
            if isinstance(x, Value) and (x.shape or x.type.is_float):
                fix = "call it in a cell, which may be given values"
                raise WalkError(f"ops.{name} {n}", "what belongs to the op", repr(x), fix)
        options = {n: index(x) if isinstance(x, Value) else x for n, x in bound.kwargs.items()}
        operands = bound.args
    if name == "getitem":
        if _is_row(*operands):
            return ops.gather(operands[0], int(operands[1]))
        operands = operands[0], _bounded(operands[1])
    meaning = PLAIN_OPERANDS.get(name)
    if meaning == "parts" and type(operands[0]) is list:
        operands = tuple(operands[0]), *operands[1:]
    key, kept = _key(meaning, operands, options), _kept_by(operands)
    kept = _places if kept is None else kept
    if (entry := kept.get((function, key))) is not None:
        cell, places = entry
        return cell.call(*[operands[i] for i in places])
    types = [x.type for x in _flat(operands) if isinstance(x, Value | Parameter)]
    # each call draws anew; what lacks operands says so
    if meaning == "shape" or not operands or (meaning == "parts" and not len(operands[0])):
        return op_cell(function, [(x, False, None) for x in operands], options).call()
    if not types:  # of data alone
        # einsum has letters first
        at = next((i for i, x in enumerate(operands) if not isinstance(x, str)), 0)
        data = operands[at]
        value = [tensor(x) for x in data] if meaning == "parts" else tensor(data)
        return _apply(recorder, function, (*operands[:at], value, *operands[at + 1 :]), options)
    kind = [*[type_ for type_ in types if type_.is_float], types[0]][0]  # `next` raises, which costs by depth
    pattern = [_operand(meaning, x, kind) for x in operands]
    cell = op_cell(function, pattern, options)
    # a key of a function of numbers has no values of numbers, which belong to the cell beside bools
    is_complete = meaning != "numbers" or all(dynamic for x, dynamic, _ in pattern if type(x) in FIXED)
    if key is not None and is_complete:
        places = [i for i, (_, dynamic, _) in enumerate(pattern) if dynamic]
        kept[function, key] = cell, places
        if np.ndarray in kinds:
            pass  # of arrays types do not tell all, nor of tuples
        elif kept_call is not None and places == [0]:
            kept_call[0][kept_call[1]] = cell.call
        elif kinds and len(places) == len(operands) and tuple not in kinds:
            _quick[kinds] = cell.call
    return cell.call(*[x for x, dynamic, _ in pattern if dynamic])


def _kept_place(
    kinds: tuple[object, ...], operands: tuple[Any, ...]
) -> tuple[dict[Any, Any], Any, Any] | None:
    """Return where to look for the loose cell of a call that reads an index, a parameter or a list of items.

    The types of the operands alone do not decide the cell of such a call.

    Args:
        kinds: the function and the types of the operands.
        operands: the operands.

    Returns:
        The cache, the key in it, and the argument that the cell is called with; None for other calls.
    """
    first, items = operands[0], tuple[type, ...]()
    if type(first) in (list, tuple):
        first, items = tuple(first), tuple(map(type, first))
    if len(operands) == 1:
        return (_quick, (kinds, items), first) if items else None
    if len(operands) == 2 and type(operands[1]) is Parameter:
        return operands[1].cells, (kinds, items), first
    fixed = _fixed(operands[1]) if len(operands) == 2 else None
    return None if fixed is None else (_quick, (kinds, items, fixed), first)


def _fixed(x: object) -> Any:
    """Return a key of an index that belongs to a cell: a whole number or a slice; None of anything else."""
    if type(x) is not slice:
        return x if type(x) is int else None
    is_plain = type(x.start) in _BOUNDS and type(x.stop) in _BOUNDS and type(x.step) in _BOUNDS
    return (x.start, x.stop, x.step) if is_plain else None  # values would be read where they are hashed


def _bounded(key: object) -> object:
    """Return an index with numbers in the place of values that bound slices: shapes belong to a cell."""
    if type(key) is tuple:
        return tuple(map(_bounded, key))
    if type(key) is not slice:
        return key
    return slice(*[index(x) if isinstance(x, Value) else x for x in (key.start, key.stop, key.step)])


def _is_row(x: object, key: object) -> bool:
    """Whether an index is the id of a row of a table, and one cell is for all of them."""
    if not isinstance(x, Parameter) or len(x.type.shape) != 2 or isinstance(key, bool):
        return False
    return isinstance(key, int | np.integer) and int(key) >= 0


def _key(
    meaning: PlainOperands | None, operands: Sequence[Any], options: dict[str, object]
) -> tuple[Any, ...] | None:
    """Return a key for the cell of a call: types of operands, numbers that belong to the cell; or None."""
    data = _DATA.get(meaning, frozenset())
    key: list[Any] = []
    for x in operands:
        kind = type(x)
        if isinstance(x, Value) or kind in data:
            key.append(kind)
        elif kind is np.ndarray:
            key.append((kind, x.dtype, x.shape))
        elif kind in EXACT or kind is Parameter:
            key.append((kind, x))
        elif kind in (list, tuple) and {*map(type, x)} == {int}:
            key.append((kind, *x))
        elif kind is slice and {type(x.start), type(x.stop), type(x.step)} <= _BOUNDS:
            key.append((slice, x.start, x.stop, x.step))
        elif kind is tuple and meaning == "parts" and all(isinstance(y, Value) for y in x):
            key.append((tuple, *map(type, x)))
        else:
            return None
    for option, x in options.items():
        if type(x) not in EXACT:
            return None
        key.append((option, type(x), x))
    return tuple(key)


def _kept_by(operands: Iterable[object]) -> dict[object, Any] | None:
    """Return the cells of the first parameter among operands, which go with it; None where there is none."""
    return next((x.cells for x in operands if isinstance(x, Parameter)), None)


def op_cell(
    function: Callable[..., object], operands: Sequence[CallOperand], options: dict[str, object]
) -> CellFunction:
    """Return the loose cell of an op with these fixed operands and options; make it at the first use.

    Args:
        function: a function of `foldbatch.ops`.
        operands: its operands; those that each call gives may be anything.
        options: its keyword arguments.

    Raises:
        WalkError: when a fixed operand cannot be hashed.
    """
    static = tuple([read if dynamic else typed(x) for x, dynamic, read in operands])
    key = (function, static, tuple([(n, typed(options[n])) for n in sorted(options)]))
    of_parameter = _kept_by(_flat([*[x for x, dynamic, _ in operands if not dynamic], *options.values()]))
    kept: Shared[object, CellFunction] | dict[object, CellFunction]
    kept = _cells if of_parameter is None else of_parameter
    try:
        cell = kept.get(key)
    except (TypeError, ValueError):  # it cannot be hashed
        actual = ", ".join([describe_value(x) for x, dynamic, _ in operands if not dynamic])
        fix = "make values of them: fb.tensor(x)"
        raise WalkError(f"ops.{function.__name__}", "values, numbers and arrays", actual, fix) from None
    if cell is None:
        pattern = [(None if dynamic else _as_now(x), dynamic, read) for x, dynamic, read in operands]
        options = {n: _as_now(x) for n, x in options.items()}
        hints = [read for _, dynamic, read in operands if dynamic]
        called = partial(_filled, function, pattern, options)
        cell = kept[key] = _cell(function.__name__, called, hints, (repr(key[1:]), 0))
        cell.origin = ("op", function.__name__, pattern, options)
    return cell


def _flat(operands: Sequence[object]) -> list[Any]:
    return [x for y in operands for x in (y if isinstance(y, list | tuple) else [y])]


def _operand(meaning: PlainOperands | None, x: object, kind: TensorType) -> CallOperand:
    """Return an operand as a cell takes it, whether it is data of the call, and what these are read as.

    What is no data belongs to the cell. Numbers are read as the dtype of the values beside them.
    """
    if isinstance(x, list | tuple) and any(isinstance(y, Value) for y in x):
        return x, True, None
    if isinstance(x, bool | int | float) and meaning == "numbers":
        differs = not kind.is_float and (isinstance(x, float) or kind.dtype == "bool")
        return x, not differs, TensorType((), kind.dtype)
    as_values = meaning in ("numbers", "arrays")
    if isinstance(x, np.ndarray | np.generic) and as_values and kind.is_float and x.dtype.kind in "fiu":
        return x, True, TensorType(x.shape, kind.dtype)
    if isinstance(x, np.generic) and meaning not in _DATA:
        return x, False, None
    number = (meaning in ("ids", "labels") and type(x) is int) or (meaning == "labels" and type(x) is bool)
    return x, number or isinstance(x, Value | np.ndarray | np.generic), None


def _as_now(x: Any) -> object:
    """Return a copy of an operand that belongs to a cell: lists and arrays may be written to."""
    if type(x) is np.ndarray:
        return x.copy()
    return type(x)(map(_as_now, x)) if type(x) in (list, tuple) else x


def _filled(
    function: Callable[..., object], pattern: list[CallOperand], options: dict[str, Any], *xs: object
) -> object:
    remaining = iter(xs)
    return called_as_it_is(
        function, [next(remaining) if dynamic else x for x, dynamic, _ in pattern], options
    )


def _cell(
    name: str,
    function: Callable[..., object],
    hints: Sequence[TensorType | None],
    order: tuple[str, int] = ("", 0),
) -> CellFunction:
    """Return a cell of arguments that are read as their hints say, where these are not None."""
    names = [f"x{i}" for i in range(len(hints))]
    text = f"lambda {', '.join(names)}: function({', '.join(names)})"
    wrapper = eval(text, {"function": function})  # noqa: S307 - the text is our own
    wrapper.__annotations__ = {n: hint for n, hint in zip(names, hints, strict=True) if hint is not None}
    return CellFunction(wrapper, name, order)


def layer_cell(layer: CalledLayer, arguments: int) -> CellFunction:
    """Return the cell of a layer that is called with so many arguments."""
    cells: dict[int, CellFunction] = layer.__dict__.setdefault("_called", {})  # lives as long as the layer
    if arguments not in cells:
        function, kind = layer.called()
        hints, order = [None] * arguments, ("", layer.owner.number if hasattr(layer, "owner") else 0)
        name = function or kind or type(layer).__name__
        cells[arguments] = _cell(name, layer.apply, hints, order)
        cells[arguments].origin = ("layer", layer, arguments)
    return cells[arguments]


def _value_of(parameter: Parameter) -> Noted:
    if "value" not in parameter.cells:
        pattern: list[CallOperand] = [(parameter, False, None), (parameter.shape, False, None)]
        parameter.cells["value"] = op_cell(inspect.unwrap(ops.reshape), pattern, {})
    return parameter.cells["value"].call()


def rows_of(array: Array, row: TensorType, where: str) -> list[Noted]:
    """Bring the rows of an array into the model, as values of a type; in a walk.

    Raises:
        WalkError: when the rows have another shape.
    """
    if tuple(array.shape[1:]) != row.shape or not len(array.shape):
        expected = f"an array of rows of {row}, as annotated"
        fix = "mend the annotation, or the array: array.reshape(-1, width) makes rows"
        raise WalkError(where, expected, describe_value(array), fix)
    cell = data_cell(row)
    if type(array) is np.ndarray and not Slow.on:
        rows = [*array.copy()]  # as they are now
        signature = cell.find({"x0": rows[0]}) if rows else None
        numbers = range(0) if signature is None else note_rows(signature, rows)
        if numbers is not None:
            return [*map(value_class(row), numbers)]
    return [cell.call(item) for item in array]


class WalkRecorder:
    """Notes the calls of a walk as cells; it is a `foldbatch.functions.cells.CallRecorder`."""

    __slots__ = ()

    function = _apply
    call = staticmethod(notes.first_call)
    value = staticmethod(_value_of)
    rows = staticmethod(rows_of)

    def layer(self, layer: CalledLayer, xs: tuple[object, ...]) -> Noted:
        """Call a layer or another block: by its loose cell, or as a block with several cells."""
        if not running():
            if hasattr(layer, "apply"):  # another thread builds a block
                return layer.apply(*xs)
            raise WalkError(shown(layer), "a call of a block in a walk", "one elsewhere", OUTSIDE)
        cells = layer.__dict__.get("_called")
        if type(cells) is dict and (cell := cells.get(len(xs))) is not None:  # `mixed` keeps something else
            return cell.call(*xs)
        if isinstance(layer, TensorBlock) and type(layer).apply is not TensorBlock.apply:
            return layer_cell(layer, len(xs)).call(*xs)
        values = tuple([_value_of(x) if isinstance(x, Parameter) else x for x in xs])
        return mixed.call(layer, values, self.run_block)

    def run_block(self, part: mixed.BlockInWalk, x: object) -> Noted:
        """Note the calls of a block on an argument, and return its result."""
        return part.note(x)


RECORDER: Final = WalkRecorder()


# -- losses, metrics, data


def loss(value: object, name: str = "loss", *, weight: float = 1.0) -> None:
    """Add a scalar to the loss of the batch; in a cell, or in the walk.

    None adds nothing, so that a label may be missing: `ops.cross_entropy` of a label that is None is None.

    Args:
        value: a scalar of floats.
        name: under which `results.losses` has the sum.
        weight: what the scalar is multiplied by.

    Raises:
        WalkError: when the value is no scalar of floats, or a number, which could learn nothing, but 0; or
            neither a walk nor a cell's function runs.

    >>> def walk(numbers):
    ...     for x in numbers:
    ...         fb.loss(fb.tensor(x) * 2.0)
    >>> fb.compile(walk, "numpy").run([[1.0, 2.0], []], losses=True).loss
    6.0
    """
    if value is None:
        return
    if not isinstance(weight, Real) or isinstance(weight, bool) or not math.isfinite(weight):
        actual = describe_value(weight)
        raise WalkError("fb.loss", "a finite weight", actual, "1 counts the loss as it is")
    if isinstance(value, NUMBERS_OF_PYTHON) and np.any(value):
        fix = "compute it with fb.ops, as in fb.ops.mean(fb.ops.stack(values)); a number learns nothing"
        raise WalkError("fb.loss", "a value", describe_value(value), fix)
    if not isinstance(value, Node):
        _note("loss", value, None, name, weight)
        return
    cell_body = body()
    if cell_body is None:
        fix = "in blocks, end with fb.Loss"
        raise WalkError("fb.loss", "a call in a cell or in a walk", "one elsewhere", fix)
    if value.shape or not value.type.is_float or value.axis.rank > 1:
        kind = f"a {value.type}" + " for every element of a list" * (value.axis.rank > 1)
        fix = "reduce it, for example with ops.mean or ops.segment_sum"
        raise WalkError("fb.loss", "one scalar of floats", kind, fix)
    cell_body.losses.append((name, value if weight == 1 else value * weight))


def metric(name: str, value: object, label: object = None) -> None:
    """Collect a tensor over the batch, under a name; in a cell, or in the walk.

    Args:
        name: under which `results.metrics` has the values, in the order of calls.
        value: a tensor. None collects nothing.
        label: any object that tells whose the value is; arrays, lists and dicts as they are now.

    Raises:
        WalkError: when the value is no tensor, or neither a walk nor a cell's function runs.

    >>> def walk(words):
    ...     for word in words:
    ...         fb.metric("length", fb.tensor(len(word)), label=word)
    >>> found = fb.compile(walk, "numpy").run([["one", "three"], ["two"]], metrics=True).metrics["length"]
    >>> found.values.tolist(), found.labels, found.examples.tolist()
    ([3, 5, 3], ['one', 'three', 'two'], [0, 0, 1])
    """
    if value is None:
        return
    if not isinstance(value, Node):
        _note("metric", value, label, name, 1.0)
        return
    cell_body = body()
    if cell_body is None:
        fix = "in blocks, end with fb.Metric"
        raise WalkError("fb.metric", "a call in a cell or in a walk", "one elsewhere", fix)
    if value.axis.rank > 1:
        fix = "collect it where elements are made"
        raise WalkError("fb.metric", "one tensor a call", f"a {value!r}", fix)
    if isinstance(label, Node):
        label = cell_body.data.get(label, label)
    if label is not None and not isinstance(label, GivenObject):
        actual = f"a tensor of {label.type}" if isinstance(label, Node) else describe_value(label)
        fix = "give the cell the label itself; or call fb.metric in the walk, where any number or text is one"
        raise WalkError("fb.metric label", "an object that the cell is given", actual, fix)
    cell_body.metrics.append((name, value, label))


def _note(kind: str, value: object, label: object, name: str, weight: float) -> None:
    """Add a loss or a metric of a walk: note a call of a cell that only yields this side output.

    Args:
        kind: "loss" or "metric".
        value: a value of the walk, or numbers.
        label: the label of a metric.
        name: the name under which results have the loss or the metric.
        weight: the factor of a loss.

    Raises:
        WalkError: when no walk runs.
    """
    if not running():
        raise WalkError(f"fb.{kind}", "a call in a cell or in a walk", "one elsewhere", OUTSIDE)
    if not isinstance(value, Value):
        value = tensor(value)
    aside_cell(kind, name, float(weight) + 0.0).call(
        value, None if label is None else LabelObject(kept(label))
    )


def aside_cell(kind: str, name: str, weight: float) -> CellFunction:
    """Return the cell for a loss or a metric that a walk adds outside of any cell."""
    key = (kind, name, weight)
    cell = _cells.get(key)
    if cell is None:

        def adds(value: object, label: object) -> None:
            if kind == "loss":
                loss(value, name, weight=weight)
            else:
                metric(name, value, label)

        cell = _cells[key] = CellFunction(adds, kind if name == kind else f"{kind} {name}")
        cell.origin = ("aside", kind, name, weight)
    return cell


def tensor(values: Datum, dtype: str | None = None) -> Noted:
    """Bring numbers of an example into the model; in a walk.

    Args:
        values: a number, an array, or nested lists of numbers; or a parameter.
        dtype: what they are read as; by default float32 for floats, int32 for Python's ints, bool, or that of
            the array.

    Returns:
        A value of their shape.

    Raises:
        WalkError: when no walk runs, or they are no numbers.

    >>> fb.compile(lambda x: fb.tensor(x) + 1.0, "numpy").run([[1.0, 2.0], [3.0, 4.0]])
    [array([2., 3.], dtype=float32), array([4., 5.], dtype=float32)]
    """
    if isinstance(values, Value | Node):
        operand: Any = values
        return values if dtype is None or dtype == values.dtype else ops.cast(operand, dtype)
    if isinstance(values, Parameter):
        return tensor(_value_of(values), dtype)
    if dtype is None and (scalar_dtype := _READ.get(type(values))) is not None:
        return (_of_data.get(((), scalar_dtype)) or data_cell(TensorType((), scalar_dtype))).call(values)
    array = values
    if type(values) is not np.ndarray and not (hasattr(values, "shape") and hasattr(values, "dtype")):
        try:
            array = np.asarray(None if is_masked(values) else values)
        except ValueError:
            array = np.asarray(None)
    form = (type(values), array.dtype, array.shape) if dtype is None and type(array) is np.ndarray else None
    if form is not None and form in _of_arrays:
        return _of_arrays[form].call(array)
    array_dtype = (
        array.dtype if isinstance(array.dtype, np.dtype) else str(array.dtype).removeprefix("torch.")
    )
    try:
        kind = np.dtype(array_dtype).kind
    except TypeError:  # bfloat16 of PyTorch, where no ml_dtypes has told NumPy of one
        kind = "V"
    if kind not in "fiub":
        fix = "give numbers, in rows of one length, none masked; values are stacked by ops.stack"
        fix = "convert it, as in x.float()" if hasattr(values, "detach") else fix
        raise WalkError("fb.tensor", "numbers", describe_value(values), fix)
    if dtype is None and isinstance(values, bool | int | float | list | tuple):
        dtype = {"f": "float32", "b": "bool"}.get(kind, "int32")
    elif dtype is None:
        dtype = read_as(array)
    shape = tuple(array.shape)
    cell = _of_data.get((shape, dtype)) or data_cell(TensorType(shape, dtype))
    if form is not None:
        _of_arrays[form] = cell
    return cell.call(array)


def data_cell(type_: TensorType) -> CellFunction:
    """Return the cell that brings numbers in, read as a type."""
    key = type_.shape, type_.dtype
    cell = _cells.get(("tensor", *key))
    if cell is None:
        cell = _cells["tensor", *key] = _cell("tensor", _identity, [type_])
        cell.origin = ("tensor", type_)
    _of_data[key] = cell
    return cell


def _identity(x: object) -> object:
    return x
