"""Walks as plain data, and back: import paths of functions and layers, and the structures that were learnt.

A walk and its cells are written by import path, a layer by the variable that leads to it: ``model:encoder``,
and from there attributes of modules, numbers in lists, keys of dicts. The structures of arguments, the wires,
the results and the names of parameters are written besides, so that a program which reads the file need not
learn them again. `foldbatch.model.paths` decides which names a file may hold; nothing else is looked up.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any

import msgspec
import numpy as np

from foldbatch.errors import FoldbatchError, ModelError, shortened
from foldbatch.functions import loose
from foldbatch.functions.cells import CellFunction, Signature, all_cells
from foldbatch.functions.dependencies import (
    CODE,
    CONSTANT,
    covers,
    dependencies_of,
    digest_of,
    python_version,
    snapshot,
)
from foldbatch.functions.learnt import Learnt, Output, Slot
from foldbatch.functions.mixed import BlockCell, present_part
from foldbatch.functions.modules import MethodCell, Module, class_name
from foldbatch.functions.notes import LOCK
from foldbatch.functions.seam import Block, Layer
from foldbatch.functions.specs import DataSpec, ListSpec, NestSpec, ObjectSpec, Spec, StaticSpec, ValueSpec
from foldbatch.model.data import Sink, Source, from_data, refuse_other_fields, refused, to_data
from foldbatch.model.paths import NO_TRUST, Trust, called, find, path_of, variable_of
from foldbatch.model.tracer import Written
from foldbatch.operators import FUNCTIONS
from foldbatch.params.parameters import Array, Parameter
from foldbatch.system.showing import shown
from foldbatch.types import TensorType, Type, describe_value

PACKAGE = __name__.partition(".")[0]
AT_TOP = "define it with def at the top of a module, or as a method of a Module that a variable there holds"
CHANGED = "restore the functions that the file was saved with, or train anew"
_SCALARS = {"bool": bool, "int": int, "float": float}
# classes of nests that are compared and never called: of a dict of any class, a cell's function gets a dict
_NESTS: dict[str, type] = {"tuple": tuple, "dict": dict}
_NESTS |= {f"collections:{kind.__name__}": kind for kind in (OrderedDict, defaultdict, Counter)}


class WrittenCell(msgspec.Struct, forbid_unknown_fields=True):
    """A cell for one structure of arguments."""

    place: Any  # where its function is, as data
    arguments: list[tuple[str, Any]]  # name and structure of each
    # of each that it reads, in order, its name in its layer, and its name in the program
    parameters: list[tuple[str, str]]
    computed: str = ""  # a digest of its computation; older files have none


class WrittenWire(msgspec.Struct, forbid_unknown_fields=True):
    """The outputs that were read at an operand, or at a member of a list; cells stand by number."""

    cell: int
    operand: int
    sequence: int
    outputs: list[tuple[int, int]]


class WrittenDependency(msgspec.Struct, forbid_unknown_fields=True):
    """A dependency of a walk's functions, as it was when the file was written."""

    kind: str  # of `functions.dependencies`
    digest: str
    shown: str  # for people


class WrittenWalk(
    msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, tag_field="form", tag="walk"
):
    """A walk as plain data."""

    walk: Any  # where the function is, as data
    cells: list[WrittenCell]  # in the order in which they were learnt
    wires: list[WrittenWire]  # between them
    results: list[tuple[int, int]]  # the outputs that were part of results
    result: Any  # the structure of results, as data
    # the names of all, in the order of the program, and whether they are trained
    parameters: list[tuple[str, bool]]
    decides: bool = False  # whether it has asked for a number
    fresh: bool = False  # whether parameters of cells to come are the program's own, too
    # functions, and what they read besides arguments, by the names that lead there
    dependencies: dict[str, WrittenDependency] = {}
    python: str = ""  # the version of Python that digests of functions are of
    version: str = ""  # the version of foldbatch that digests of cells are of


# -- writing


def written(walk: object, learnt: Learnt, parameters: Mapping[str, Parameter]) -> Written:
    """Return a walk as plain data, with what was learnt of it, given the program's parameters by name.

    Raises:
        ModelError: when the walk, a cell or a layer has no name under which it is found again.
    """
    sink = Sink(parameters)
    functions = [walk.func if isinstance(walk, partial) else walk]
    for signature in learnt.cells:
        cell_function = signature.cell
        called = (
            cell_function.part.calls.values() if isinstance(cell_function, BlockCell) else [cell_function]
        )
        functions += [member.function for member in called]
    modules = dict.fromkeys(getattr(f, "__module__", None) for f in functions)
    places = _Places([name for name in modules if name in sys.modules])
    walk_data = _walk_data(walk, places, sink)
    number = {signature: k for k, signature in enumerate(learnt.cells)}
    names = {parameter: name for name, parameter in parameters.items()}
    cells = []
    for signature in learnt.cells:
        arguments = [(name, _spec_data(spec, signature, sink)) for name, spec in signature.specs.items()]
        read = [(p.path, names[learnt.replacements.of(p)]) for p in signature.parameters]
        place = _cell_data(signature.cell, places, sink)
        cells.append(WrittenCell(place, arguments, read, signature.computed))
    unread = parameters.keys() - {name for cell in cells for _, name in cell.parameters}
    if unread:
        fix = "call program.warm(examples) before, with examples that reach them"
        where, expected = "Program.save", "parameters that batches have read"
        raise ModelError(where, expected, f"{', '.join(sorted(unread))}, read by debug alone", fix)

    def outputs(members: set[Output]) -> list[tuple[int, int]]:
        return sorted((number[signature], j) for signature, j in members)

    wires = [WrittenWire(number[s], i, at, outputs(read)) for (s, i, at), read in learnt.wires.items()]
    result = None if learnt.result is None else to_data(learnt.result, sink)
    if sink.lost:
        raise _refused("the result", sink.lost[0])
    trained = [(name, parameter.trainable) for name, parameter in parameters.items()]
    dependencies = _written_dependencies(
        learnt, _roots(walk_data, walk, [(x.place, s) for x, s in zip(cells, number, strict=True)])
    )
    flags = learnt.decides, learnt.replacements.fresh
    plain = WrittenWalk(
        walk_data,
        cells,
        wires,
        outputs(learnt.results),
        result,
        trained,
        *flags,
        dependencies=dependencies,
        python=python_version(),
        version=_version(),
    )
    return Written(plain, sink.arrays)


def _roots(
    data: object, walk: object, cells: Sequence[tuple[object, Signature]]
) -> Iterator[tuple[str, Any]]:
    """Yield the walk, and the cells and blocks that it calls, each with its name in a file."""
    yield _named(data), walk
    for cell_data, signature in cells:
        if not signature.cell.is_pure:
            yield _named(cell_data), signature.cell.read


def _version() -> str:
    """Return the version of foldbatch, as another version may have other digests of cells."""
    return str(sys.modules[PACKAGE].__version__)


def _named(data: Any) -> str:
    """Return the name of the object that plain data lead to: ``mymodel:net.step``."""
    ((kind, content),) = data.items()
    match kind, content:
        case "variable", path:
            return ".".join(map(str, path))
        case "method", [path, name]:
            return ".".join(map(str, [*path, name]))
        case (("layer" | "block"), [path, *_]):
            return ".".join(map(str, path))
        case "partial", [inner, *_]:
            return _named(inner) if isinstance(inner, dict) else str(inner)
    return str(content)


def _written_dependencies(
    learnt: Learnt, roots: Iterable[tuple[str, object]]
) -> dict[str, WrittenDependency]:
    """Return the dependencies that a file keeps: data that stayed as they were since the compilation."""
    dependencies = dependencies_of(roots)
    moved = set() if learnt.before is None else {*learnt.before.moved(dependencies)}
    kept = {}
    for key, dependency in reversed([*dependencies.entries.items()]):
        digest = digest_of(dependency)
        if digest is not None and key not in moved:
            kept[dependency.where] = WrittenDependency(dependency.kind, digest, dependency.shown)
    return kept


def _refused(where: str, actual: str, fix: str = AT_TOP) -> ModelError:
    return ModelError(f"Program.save: {where}", "what an import path leads to", actual, fix)


def _walk_data(walk: object, places: _Places, sink: Sink) -> object:
    """Return a walk as data for a file: the path of its variable or method, or that of a function."""
    if isinstance(walk, Module | Block):
        return {"variable": places.of(walk, "the walk")}
    if isinstance(walk, MethodType) and isinstance(walk.__self__, Module):
        return {"method": [places.of(walk.__self__, "the walk"), walk.__name__]}
    data = to_data(walk, sink)
    if sink.lost:
        raise _refused("the walk", sink.lost[0])
    return data


def _cell_data(cell: CellFunction | BlockCell, places: _Places, sink: Sink) -> Any:
    """Return a cell as data for a file: its kind, with the path or the parts by which it is found again."""
    if isinstance(cell, BlockCell):
        return {"block": [places.of(cell.block, "a block"), to_data(cell.input_type, sink), cell.place]}
    where = f"the cell {cell.name}"
    match cell.origin:
        case None:
            path = path_of(cell.call)
            if path is None:
                code = inspect.unwrap(cell.function).__code__
                place = (
                    f"a function within another ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"
                )
                raise _refused(where, place)
            return {"function": path}
        case ("method", instance, name):
            return {"method": [places.of(instance, where), name]}
        case ("layer", layer, arguments):
            return {"layer": [places.of(layer, where), arguments]}
        case ("op", name, pattern, options):
            operands = [
                {"read": None if read is None else to_data(read, sink)}
                if dynamic
                else {"variable": places.of(x, where)}
                if isinstance(x, Parameter)
                else [to_data(x, sink)]
                for x, dynamic, read in pattern
            ]
            named = [[key, to_data(x, sink)] for key, x in options.items()]
            _refuse_lost(where, sink)
            return {"op": [name, operands, named]}
        case ("tensor", type_):
            return {"tensor": [to_data(type_, sink)]}
        case (kind, *content):
            return {kind: content}
    raise AssertionError(cell.origin)


def _refuse_lost(where: str, sink: Sink) -> None:
    if sink.lost:
        raise _refused(
            where, sink.lost[0], "a static argument is a number, a text, or a function with a path"
        )


def _spec_data(spec: Spec, signature: Signature, sink: Sink) -> Any:
    """Return the structure of an argument as data for a file; `_spec_of` reads it."""
    match spec:
        case ValueSpec(type_):
            return {"value": to_data(type_, sink)}
        case DataSpec(type_, class_, form):
            name = None if class_ is None else f"{class_.__module__}:{class_.__qualname__}"
            return {"data": [to_data(type_, sink), name, None if form is None else [list(form[0]), form[1]]]}
        case ListSpec(element, hinted):
            return {"list": None if element is None else [_spec_data(element, signature, sink), hinted]}
        case StaticSpec(value):
            data = to_data(value, sink)
            _refuse_lost(f"the cell {signature.name}", sink)
            return {"static": data}
        case ObjectSpec():
            return {"object": None}
    kind = spec.kind.__name__ if spec.kind in (tuple, dict) else path_of(spec.kind)
    if kind is None:
        raise _refused(f"the cell {signature.name}", f"the class {spec.kind.__qualname__}")
    names = getattr(spec.kind, "_fields", spec.keys) if issubclass(spec.kind, tuple) else spec.keys
    keys = [to_data(key, sink) for key in names]
    return {"nest": [kind, keys, [_spec_data(item, signature, sink) for item in spec.items]]}


_TARGETS = Block, Module, Parameter
_PARTS = *_TARGETS, list, tuple, dict  # and their containers


class _Places:
    """The paths from variables of modules to layers, parameters and modules."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._paths: dict[int, tuple[Any, Any]] = {}  # by id: the path of its container, and the key there
        self.targets: list[Any] = []  # these layers, parameters and modules
        for name in modules:
            for variable, value in list(vars(sys.modules[name]).items()):
                self._add(value, (None, f"{called(name)}:{variable}"))

    def _add(self, value: object, path: tuple[object, object]) -> None:
        """Note where a part stands, and those in it, however deep; the first place counts."""
        waiting = [(value, path)]
        while waiting:
            value, path = waiting.pop()
            if isinstance(value, _PARTS) and id(value) not in self._paths:
                self._paths[id(value)] = path
                if isinstance(value, _TARGETS):
                    self.targets.append(value)
                inside = [(part, (path, key)) for key, part in _inside(value) if isinstance(part, _PARTS)]
                waiting += reversed(inside)

    def of(self, part: object, where: str) -> list[Any]:
        """Return the path from a variable of a module to a part; refuse parts that no variable holds."""
        if id(part) not in self._paths:
            fix = "let a variable of the walk's module hold it, or the Module that it is a part of"
            name = f"a {type(part).__name__}" if isinstance(part, Module) else repr(part)
            raise _refused(where, f"{name}, which no variable holds", fix)
        path, keys = self._paths[id(part)], list[Any]()
        while path is not None:
            path, key = path
            keys.append(key)
        return keys[::-1]


def _inside(value: object) -> Iterator[tuple[object, Any]]:
    """Yield the parts of a value, by attribute, number or key."""
    match value:
        case Module():
            yield from vars(value).items()
        case list() | tuple():
            yield from enumerate(value)
        case dict():
            yield from ((key, part) for key, part in value.items() if type(key) in (str, int))


# -- reading


def from_written(
    plain: WrittenWalk, arrays: dict[str, Array], trust: Trust = NO_TRUST, accepted: Sequence[str] = ()
) -> tuple[Any, Learnt, dict[str, Parameter], list[str]]:
    """Return the walk that plain data stand for, what was learnt of it, and its parameters by name.

    The last item has the names that lead to functions, or to lists, dicts and arrays that they read, and that
    have changed.

    The parameters are the reader's own, with the numbers of the file: layers that the walk calls keep theirs.
    Names in `accepted` may lead to other objects than when the file was written.

    Raises:
        ModelError: when a function or a layer is not found or not trusted, or is another one than when the
            file was written; when a cell computes something else, or a constant that functions read is
            another.
    """
    source, learnt = Source(arrays, trust), Learnt()
    parameters: dict[str, Parameter] = {}
    try:
        walk = _walk_of(plain.walk, source)  # its module is imported then
        with LOCK, _undone(plain):
            for cell in plain.cells:
                _read_cell(cell, plain, source, learnt, parameters)
            changed = _changed(plain, walk, learnt, accepted)
            _read_wires(plain, learnt)
            learnt.result = None if plain.result is None else _type_of(from_data(plain.result, source))
    except FoldbatchError:
        raise
    except Exception as error:
        actual = " ".join(f"data that raise {type(error).__name__}: {error}".split())
        raise ModelError("the walk", "data that foldbatch wrote", actual, CHANGED) from error
    if parameters.keys() != dict(plain.parameters).keys():
        raise refused("parameters that no cell reads")
    learnt.version = 1 if learnt.cells or learnt.result is not None else 0
    learnt.decides = plain.decides
    learnt.replacements.fresh = plain.fresh
    learnt.parameters = dict.fromkeys(parameters[name] for name, _ in plain.parameters)
    return walk, learnt, {name: parameters[name] for name, _ in plain.parameters}, changed


def _changed(plain: WrittenWalk, walk: object, learnt: Learnt, accepted: Sequence[str]) -> list[str]:
    """Return the dependencies of a file that differ now, by name; errors are those of `from_written`."""
    roots = [
        *_roots(plain.walk, walk, [(x.place, s) for x, s in zip(plain.cells, learnt.cells, strict=True)])
    ]
    learnt.before = snapshot(roots)
    now = learnt.before.dependencies.by_name()
    changed = {
        name: kept
        for name, kept in plain.dependencies.items()
        if (name not in now or digest_of(now[name]) != kept.digest)
        and (kept.kind != CODE or plain.python == python_version())
        and not covers(accepted, name)
    }
    for name, kept in changed.items():
        if kept.kind == CONSTANT and name in now:
            fix = f"restore it, or pass accept=({name!r},) if the program may read it as it is now"
            actual = now[name].shown
            shown = f"another one, {actual}" if actual == kept.shown else actual
            raise ModelError(name, f"{kept.shown}, as when the file was saved", shown, fix)
    for cell, signature in zip(plain.cells, learnt.cells, strict=True):
        if plain.version == _version() and cell.computed not in ("", signature.computed):
            actual = f"another one, after changes of {shortened(changed)}" if changed else "another one"
            expected = "the computation that the file was saved with"
            raise ModelError(f"the cell {signature.name}", expected, actual, CHANGED)
    return [*changed]


@contextmanager
def _undone(plain: WrittenWalk) -> Iterator[None]:
    """Restore cells and layers where reading within the context fails: layers have made parameters."""
    named = {path.partition(":")[0] for path in _paths([plain.walk, *(cell.place for cell in plain.cells)])}
    signatures, parameters = {cell: len(cell.signatures) for cell in all_cells()}, _parameters(named)
    try:
        yield
    except Exception:
        for cell in all_cells():
            cell.forget(signatures.get(cell, 0))
        for layer, layer_parameters in parameters.items():
            layer.parameters.clear()
            layer.parameters |= layer_parameters
        raise


def _paths(data: object) -> Iterator[str]:
    if isinstance(data, str) and ":" in data:
        yield data
    elif isinstance(data, list | dict):
        for part in data.values() if isinstance(data, dict) else data:
            yield from _paths(part)


def _parameters(named: set[str]) -> dict[Layer[Any, Any], dict[str, Parameter]]:
    """Return the parameters of layers in variables of modules, as far as they are made, by layer."""
    present = [name for name in sys.modules if called(name) in named]
    return {x: dict(x.parameters) for x in _Places(present).targets if isinstance(x, Layer)}


def _walk_of(data: object, source: Source) -> Any:
    """Return the walk that a file's data names; the opposite of `_walk_data`."""
    match data:
        case {"variable": path}:
            walk = _variable(path, source)
            if isinstance(walk, Module | Block) and callable(walk):
                return walk
        case {"method": [path, str(name)]}:
            walk = _method(path, name, source)
            if isinstance(walk, MethodType):
                return walk
        case {"function": _} | {"partial": _}:
            walk = from_data(data, source)
            if isinstance(walk, FunctionType | MethodType | partial):  # of a class, it is a method
                return walk
    raise refused(f"{describe_value(data)} in place of a walk")


def _variable(path: Any, source: Source) -> Any:
    """Return the block, Parameter or Module at a path, which begins with a variable of a module."""
    first, *keys = path
    value = variable_of(first, source.trust)
    for key in keys:
        value = dict(_inside(value)).get(key)
    if not isinstance(value, Block | Module | Parameter):
        expected = "a block, a Parameter or a Module, as when the file was saved"
        raise ModelError(".".join(map(str, path)), expected, describe_value(value), CHANGED)
    return value


def _method(path: Any, name: str, source: Source) -> Any:
    """Return a method that a class of a module defines, `__call__` among them; no property runs."""
    owner = _variable(path, source)
    # a class is named where `super()` asks for its method, with a ' for each of its name before it
    home, _, last = name.rstrip("'").rpartition(".")
    classes = type(owner).__mro__ if isinstance(owner, Module) else ()
    # files of before name classes without their modules
    homes = [(c, ("", class_name(c), c.__qualname__)) for c in classes if last in vars(c)]
    named = [vars(c)[last] for c, names in homes if home in names][name.count("'") :]
    pythons = last.startswith("__") and last.endswith("__") and last != "__call__"
    if pythons or not named or not isinstance(named[0], MethodCell | FunctionType):
        raise ModelError(f"{path[0]}.{name}", "a method of a Module", describe_value(owner), CHANGED)
    return named[0].__get__(owner)


def _cell_of(data: Any, source: Source) -> CellFunction:
    """Return the cell that a file's data names; the opposite of `_cell_data`, but for cells of blocks."""
    ((kind, content),) = data.items()
    match kind, content:
        case "function", path:
            function = find(path, source.trust)
        case "method", [path, str(name)]:
            function = _method(path, name, source)
        case "layer", [path, int(arguments)]:
            return loose.layer_cell(_variable(path, source), arguments)
        case "op", [str(name), list(operands), list(named)] if name in FUNCTIONS:
            pattern = [_operand(x, source) for x in operands]
            options = {str(key): from_data(x, source) for key, x in named}
            return loose.op_cell(inspect.unwrap(FUNCTIONS[name]), pattern, options)
        case "aside", ["loss" | "metric" as aside, str(name), float() | int() as weight]:
            return loose.aside_cell(aside, name, float(weight))
        case "tensor", [type_]:
            return loose.data_cell(_tensor_type(type_, source))
        case _:
            raise refused(f"the cell {data!r}")
    cell = getattr(function, "__dict__", {}).get("cell")
    if not isinstance(cell, CellFunction):
        raise ModelError(str(content), "a function with @fb.cell", describe_value(function), CHANGED)
    return cell


def _operand(data: Any, source: Source) -> loose.CallOperand:
    """Return an operand of a loose cell of an op, as a file's data describe it.

    A triple: the operand itself if it is fixed in the cell, else None; whether each call gives its own; and
    the type in which data of a call are read, if it is declared.

    Args:
        data: plain data of the file.
        source: the arrays and trusted names of the file.
    """
    match data:
        case {"read": None}:
            return None, True, None
        case {"read": type_}:
            return None, True, _tensor_type(type_, source)
        case {"variable": path}:
            return _variable(path, source), False, None
    return from_data(data[0], source), False, None


def _spec_of(data: Any, source: Source) -> Spec:
    """Return the structure of an argument from a file's data; the opposite of `_spec_data`."""
    ((kind, content),) = data.items()
    match kind, content:
        case "value", type_:
            return ValueSpec(_tensor_type(type_, source))
        case "data", [type_, name, form]:
            shaped = None if form is None else (tuple(map(int, form[0])), str(form[1]))
            return DataSpec(_tensor_type(type_, source), _class_of_data(name, source), shaped)
        case "list", None:
            return ListSpec(None)
        case "list", [element, bool(hinted)]:
            return ListSpec(_spec_of(element, source), hinted)
        case "static", value:
            return StaticSpec(from_data(value, source))
        case "object", None:
            return ObjectSpec()
        case "nest", [str(name), list(keys), list(items)] if len(keys) == len(items):
            cls = _NESTS.get(name) or find(name, source.trust)
            if not isinstance(cls, type) or not (issubclass(cls, tuple | dict) or is_dataclass(cls)):
                raise refused(f"{name}, which is no dataclass")
            field_keys = tuple([from_data(key, source) for key in keys])
            if is_dataclass(cls):
                refuse_other_fields(cls, field_keys)
            elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
                refuse_other_fields(cls, field_keys)
                field_keys = tuple(range(len(field_keys)))
            return NestSpec(cls, field_keys, tuple([_spec_of(item, source) for item in items]))
    raise refused(f"the structure {data!r}")


def _tensor_type(data: object, source: Source) -> TensorType:
    type_ = from_data(data, source)
    if not isinstance(type_, TensorType):
        raise refused(f"{data!r} in place of the type of a tensor")
    return type_


def _type_of(type_: object) -> Type:
    if not isinstance(type_, Type):
        raise refused(f"{type_!r} in place of a type")
    return type_


def _class_of_data(name: object, source: Source) -> object:
    """Return the class of a number or an array, which is compared and never called."""
    if name is None:
        return None
    module, _, attribute = str(name).partition(":")
    if module == "builtins" and attribute in _SCALARS:
        return _SCALARS[attribute]
    if module == "numpy" or name == "torch:Tensor":
        cls = getattr(import_module(module), attribute, None)
        if module == "torch" or (isinstance(cls, type) and issubclass(cls, np.ndarray | np.generic)):
            return cls
    return find(name, source.trust)


def _read_cell(
    plain: WrittenCell, walk: WrittenWalk, source: Source, learnt: Learnt, parameters: dict[str, Parameter]
) -> None:
    """Find a cell, and give the parameters that it reads the numbers of the file."""
    signature = _signature_of(plain, source)
    where = f"the cell {signature.name}"
    read = signature.parameters
    if [p.path for p in read] != [path for path, _ in plain.parameters] or signature in learnt.cells:
        expected = f"the parameters {', '.join(path for path, _ in plain.parameters) or 'of none'}"
        raise ModelError(where, expected, ", ".join(p.path for p in read) or "none", CHANGED)
    trained = dict(walk.parameters)
    for parameter, (_, name) in zip(read, plain.parameters, strict=True):
        if parameter not in learnt.replacements:
            if name in parameters or name not in source.arrays or name not in trained:
                raise refused(f"no numbers for {parameter.path}, or those of another one: {name!r}")
            twin = parameter.twin()
            twin.trainable = trained[name]
            twin.assign(source.arrays[name], name)
            learnt.replacements[parameter] = parameters[name] = twin
        if parameters.get(name) is not learnt.replacements[parameter]:
            raise refused(f"two names of {parameter.path}")
        learnt.parameters[learnt.replacements[parameter]] = None
    learnt.cells[signature] = learnt.accepted[signature] = None


def _signature_of(plain: WrittenCell, source: Source) -> Signature:
    """Return the signature of a written cell, made anew from the cell and structures of arguments."""
    match plain.place:
        case {"block": [path, type_data, int(place)]}:
            block = _variable(path, source)
            signatures = present_part(block, _type_of(from_data(type_data, source))).signatures
            if not 0 <= place < len(signatures):
                raise ModelError(shown(block), f"{place + 1} cells or more", str(len(signatures)), CHANGED)
            return signatures[place]
    cell = _cell_of(plain.place, source)
    names = [name for name, _ in plain.arguments]
    if names != cell.parameters:
        where, actual = f"the cell {cell.name}", f"those of {cell.name}{cell.signature}"
        raise ModelError(where, f"the arguments {', '.join(names) or 'of none'}", actual, CHANGED)
    return cell.present({name: _spec_of(spec, source) for name, spec in plain.arguments})


def _read_wires(plain: WrittenWalk, learnt: Learnt) -> None:
    """Add the wires and results of a file to a walk whose cells are read; refuse those that do not fit."""
    cells = list(learnt.cells)

    def outputs(numbers: Sequence[tuple[int, int]], type_: TensorType | None = None) -> set[Output]:
        """Return outputs by numbers of cells and outputs; refuse missing ones, and those of another type."""
        sources = set()
        for k, j in numbers:
            if not (0 <= k < len(cells) and 0 <= j < len(cells[k].outputs)):
                raise ModelError("a wire", "an output of a cell", f"output {j} of cell {k}", CHANGED)
            if type_ not in (None, cells[k].outputs[j].type):
                expected = f"a {type_} from {cells[k].name}"
                raise ModelError("a wire", expected, str(cells[k].outputs[j].type), CHANGED)
            sources.add((cells[k], j))
        return sources

    for wire in plain.wires:
        signature = cells[wire.cell] if 0 <= wire.cell < len(cells) else None
        slots = [] if signature is None else _slots(signature, wire.sequence)
        if signature is None or not 0 <= wire.operand < len(slots):
            actual = f"operand {wire.operand} of cell {wire.cell}"
            raise ModelError("a wire", "an operand of a cell", actual, CHANGED)
        slot: Slot = signature, wire.operand, wire.sequence
        learnt.wires.setdefault(slot, set()).update(outputs(wire.outputs, slots[wire.operand]))
    learnt.results |= outputs(plain.results)


def _slots(signature: Signature, number: int) -> list[TensorType]:
    """Return the types of what a cell reads one by one (-1), or of the members of one of its lists."""
    if number == -1:
        return [node.type for _, node in signature.operands]
    if 0 <= number < len(signature.sequences):
        return [node.type for _, node in signature.sequences[number][2]]
    return []
