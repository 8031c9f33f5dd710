"""Modules: objects that own layers, and name parameters by where these stand."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any
from weakref import ref

from foldbatch.errors import WalkError
from foldbatch.functions.seam import Layer
from foldbatch.model.paths import called
from foldbatch.params.parameters import Parameter
from foldbatch.system.showing import arguments_of


class Module:
    """Owns layers, parameters and other modules as attributes, for models written as functions.

    A layer or parameter without a name of its own is called as the attribute that holds it, and one inside
    of another module as the path to it: ``encoder.lstm``. So names of parameters do not depend on which
    part ran first. A part of several modules is called by the first one. Methods may be cells
    (`foldbatch.cell`). The subclass defines ``__call__``; recursion is by methods.

    >>> class Pair(fb.Module):
    ...     def __init__(self):
    ...         self.first, self.second = fb.Linear(2), fb.Linear(1)
    ...     @fb.cell
    ...     def scored(self, x):
    ...         return self.second(fb.ops.tanh(self.first(x)))
    >>> pair = Pair()
    >>> program = fb.compile(lambda x: pair.scored(fb.tensor(x)), "numpy")
    >>> program.warm([[1.0, 2.0, 3.0]])
    >>> sorted(program.params)
    ['first.bias', 'first.weight', 'second.bias', 'second.weight']
    """

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
        _name(self, value, name)

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Yield the layers, parameters and modules that it holds, by attribute, those in lists by number."""
        for name, value in vars(self).items():
            yield from _members(name, value)

    def parameters(self) -> Iterator[Parameter]:
        """Yield the parameters that its layers have made so far, and those of its parts."""
        for _, part in self.parts():
            match part:
                case Parameter():
                    yield part
                case Module():
                    yield from part.parameters()
                case Layer():
                    yield from part.parameters.values()


def is_walk(model: object) -> bool:
    """Whether a model is a function or a module that can be called, and no block."""
    return isinstance(model, FunctionType | MethodType | partial) or (
        isinstance(model, Module) and callable(model)
    )


def refuse_no_walk(walk: object) -> None:
    """Refuse a function that cannot be called with one example, or that yields."""
    signature = arguments_of(walk)
    shown = f"{getattr(walk, '__name__', type(walk).__name__)}{signature}"
    try:
        signature.bind(None)
    except TypeError:
        fix = "an example may be a tuple; functools.partial gives other arguments"
        raise WalkError("fb.compile", "a function of one example", shown, fix) from None
    if inspect.isgeneratorfunction(walk):
        raise WalkError("fb.compile", "a function that returns", f"{shown}, which yields", "return a list")


def _members(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the layers, parameters and modules in a value, its lists and dicts, with dotted names."""
    match value:
        case Layer() | Parameter() | Module():
            yield name, value
        case list() | tuple():
            for number, item in enumerate(value):
                yield from _members(f"{name}.{number}", item)
        case dict():
            for key, item in value.items():
                yield from _members(f"{name}.{key}", item)


class _Home:
    """A weak reference to the module that first held a part, and named it; copies do not take it along."""

    def __init__(self, module: Module | None = None) -> None:
        self.first = None if module is None else ref(module)

    def of(self, module: Module) -> bool:
        if self.first is None:  # as of a copy: the first module on the way to it
            self.first = ref(module)
        return self.first() is module

    def __deepcopy__(self, memo: dict[int, Any]) -> _Home:
        return _Home(memo.get(id(self.first and self.first())))  # where that is copied, too

    def __reduce__(self) -> Any:
        return _Home, ()


def _name(owner: Module, value: object, path: str) -> None:
    """Name what has no name yet by its path, and put the path before names that came from inner modules."""
    for name, part in _members(path, value):
        match part:
            case Layer(name=None, owner=holder) | (Parameter(owner=None) as holder) if not holder.given:
                holder.name, holder.given, holder.placed = name, True, _Home(owner)
            case Module() if "_home" not in vars(part) or vars(part)["_home"].first is None:
                vars(part)["_home"] = _Home(owner)
                _prefix(name, part, {id(owner), id(part)})


def _prefix(path: str, module: Module, above: set[int]) -> None:
    """Put a path before the names of parts of a module, but for those that another one held first.

    `above` are the modules on the way there, which may be parts of their own parts.
    """
    for _, part in module.parts():
        match part:
            case Layer(owner=holder) | (Parameter(owner=None) as holder):
                if holder.placed and holder.placed.of(module):
                    holder.name = f"{path}.{holder.name}"
            case Module() if id(part) not in above:
                if vars(part).setdefault("_home", _Home(module)).of(module):
                    _prefix(path, part, above | {id(part)})


def _without_cells(instance: object) -> object:
    """Return the state of an object for pickles and copies, without the cells, which belong to it alone."""
    state: Any = object.__getstate__(instance)
    cells = {n: getattr(x, "__dict__", {}).get("cell") for n, x in vars(instance).items()}
    cell_names = {n for n, x in cells.items() if getattr(x, "origin", None) == ("method", instance, n)}
    contents = {n: x for n, x in vars(instance).items() if n not in cell_names}
    return (contents, state[1]) if isinstance(state, tuple) else contents


def class_name(owner: type) -> str:
    """Return the name of a class with its module, unlike those of classes elsewhere."""
    return f"{called(owner.__module__)}.{owner.__qualname__}"


def drop_replaced_methods(instance: object) -> bool:
    """Remove an object's cells of methods that its class has replaced, so that calls find the present ones.

    Return whether there were any.
    """
    dropped = False
    present = {id(x) for kind in type(instance).__mro__ for x in vars(kind).values()}
    for name, x in [*getattr(instance, "__dict__", {}).items()]:
        method = getattr(x, "__dict__", {}).get("method")
        if isinstance(method, MethodCell) and id(method) not in present:
            del instance.__dict__[name]
            dropped = True
    return dropped


class MethodCell:
    """A method that is a cell: each object, and each copy of one, has a cell of its own, made by `make`."""

    def __init__(self, function: Callable[..., Any], make: Callable[..., Any]) -> None:
        self.function, self.make = function, make
        self.__doc__, self.__signature__ = function.__doc__, arguments_of(function)
        self.names = (
            function.__name__,
            function.__qualname__,
        )  # of the attribute, and where super() asks for it

    def __set_name__(self, owner: type, name: str) -> None:
        self.names = name, f"{class_name(owner)}.{name}"
        getstate: object = owner.__getstate__
        if getstate is object.__getstate__:
            owner.__getstate__ = _without_cells  # type: ignore[assignment, method-assign]

    def __call__(self, instance: object, *arguments: object, **options: object) -> Any:
        """Call the method of an object."""
        return self.__get__(instance)(*arguments, **options)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        for name in self.names:  # `__call__` is looked up here each time
            if getattr(bound := instance.__dict__.get(name), "method", None) is self:
                return bound
        name = self.names[0]
        if inspect.getattr_static(type(instance), name, None) is not self:
            name = self._behind(type(instance))
            if getattr(bound := instance.__dict__.get(name), "method", None) is self:
                return bound
        bound = self.make(self.function.__get__(instance), self.names[0]).call
        bound.__dict__["cell"].origin = ("method", instance, name)
        bound.__dict__["method"] = self
        instance.__dict__[name] = bound  # found before this the next time
        return bound

    def _behind(self, kind: type) -> str:
        """Return the key of the cell in an object where a subclass overrides it, and `super()` calls it.

        It is the qualified name, with a ' for each class before it that has the same one.
        """
        name, qualified_name = self.names
        alike = [
            vars(c)[name]
            for c in kind.__mro__
            if name in vars(c) and f"{class_name(c)}.{name}" == qualified_name
        ]
        return qualified_name + "'" * (alike.index(self) if self in alike else 0)
