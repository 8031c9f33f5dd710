"""Layers: blocks that own parameters. Sharing parameters is using the same object twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, get_args

import numpy as np

from foldbatch.blocks.block import DERIVED, In_contra, Out_co, Settings, named, settings_of, signature_of
from foldbatch.blocks.drafts import is_int
from foldbatch.blocks.function import TensorBlock
from foldbatch.errors import BlockTypeError, BlockValueError, GraphError, UnknownNameError, with_nearest
from foldbatch.operators import is_symbolic
from foldbatch.params.parameters import INITIALIZERS, Initializer, Owner, Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Node, parameter_node
from foldbatch.types import TensorType, describe_value

Activation: TypeAlias = Literal[
    "gelu", "log_sigmoid", "log_softmax", "relu", "sigmoid", "softmax", "softplus", "tanh"
]
ACTIVATIONS = {name: getattr(ops, name) for name in get_args(Activation)}


class Layer(TensorBlock[In_contra, Out_co]):
    """A block of tensors with parameters, made when the first input shows their shapes.

    Args:
        name: the stem of the parameters' names; by default the layer's kind. Where a program has several
            layers of one name, all but the first get a number.
    """

    kind = "layer"

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        stem = self.kind if name is None else named(name, type(self).__name__)
        self.owner = Owner(stem, given=name is not None)
        self.parameters: dict[str, Parameter] = {}

    def __setattr__(self, name: str, value: object) -> None:
        old = self.__dict__.get(name, value)
        if old is not value and name in signature_of(type(self)).parameters:
            fix = "make another layer; what freezes is trainable of its parameters, see docs/parameters.md"
            where = f"{type(self).__name__}.{name}"
            raise BlockValueError(where, "what the layer was made with", describe_value(value), fix)
        super().__setattr__(name, value)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            parameter_names = {"weight", "bias", *self.__dict__.get("parameters", ())}
            fix = (
                f"; see parameters[{name!r}], made when the layer is first called"
                if name in parameter_names
                else ""
            )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{fix}")

    def parameter(
        self, name: str, type_: TensorType, init: Initializer, *, trainable: bool = True
    ) -> Parameter:
        """Return the layer's parameter of that name, made at the first call.

        Raises:
            GraphError: when it was made for an input of another size.
        """
        parameter = self.parameters.get(name)
        if parameter is None:
            parameter = Parameter(type_, init, name, trainable=trainable, owner=self.owner)
            self.parameters[name] = parameter
        if parameter.type != type_:
            fix = "a layer shares its parameters wherever it stands; make one for each input size"
            raise GraphError(repr(self), f"a {name} of {parameter.type}, as made before", str(type_), fix)
        return parameter

    def called(self) -> tuple[str, str]:
        return "", self.owner.name

    @property
    def is_named(self) -> bool:
        return self.owner.given

    def settings(self) -> Settings:
        settings = settings_of(self)
        if self.parameters and not isinstance(settings.get("init", ""), str | int | float):
            settings["init"] = "zeros"  # the parameters were drawn, and will not be again
        return settings

    def state(self) -> Settings:
        return {"parameters": self.parameters} if self.parameters else {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the parameters that `state` of an equal layer has, and their owner."""
        if not state:
            return
        parameters = state["parameters"]
        owners = {parameter.owner for parameter in parameters.values()}
        if state.keys() != {"parameters"} or len(owners) != 1 or None in owners:
            raise BlockTypeError(repr(self), "parameters of one layer", describe_value(parameters))
        self.parameters = dict(parameters)
        (self.owner,) = owners
        for name in DERIVED:  # of the parameters before
            self.__dict__.pop(name, None)

    def written(self, value: object) -> str:
        names = [name for name, activation in ACTIVATIONS.items() if activation is value]
        if names:
            return repr(names[0])
        plain = value is None or callable(value) or isinstance(value, str | int | float)
        return super().written(value) if plain else "..."  # for arrays and nested lists


def positive(size: Any, where: str) -> int:
    """Return a size, refusing a value that is no positive int."""
    if not is_int(size) or size < 1:
        raise BlockValueError(where, "a positive int as size", describe_value(size), "for example 150")
    return int(size)


def finite(value: Any, where: str, above: float = -np.inf) -> float:
    """Return a finite number above a bound, refusing anything else."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not above < value < np.inf:
        expected = "a finite number" + (f" above {above:g}" if above > -np.inf else "")
        raise BlockValueError(where, expected, describe_value(value), "give a float")
    return float(value)


def dropout_rate(value: Any, where: str) -> float:
    """Return a share of elements to drop, from 0 up to but not including 1, refusing anything else."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 <= value < 1:
        fix = "0.5 drops half of the elements"
        raise BlockValueError(where, "a rate from 0 up to 1", describe_value(value), fix)
    return float(value)


def dropped(x: Node, rate: float) -> Node:
    """Return a tensor whose elements are dropped at random while training, and scaled up where they stay.

    In inference, and for a rate of 0, the tensor stays as it is.
    """
    if rate == 0:
        return x
    kept = ops.cast(ops.less_equal(rate, ops.random(x.shape, x.dtype)), x.dtype)
    return ops.when_training(x * kept * (1 / (1 - rate)), ops.batched(x))


Tensors: TypeAlias = Any  # a tensor, symbolic, of numbers or a value of a walk; or a tuple or list of such
AnyLayer: TypeAlias = Layer[Any, Any]


def unchanged(x: Node) -> Node:
    """Return a tensor as it is."""
    return x


def find_activation(spec: object, where: str) -> Any:
    """Return an activation by name, or the function itself; None is the identity."""
    if spec is None or callable(spec):
        return spec or unchanged
    if isinstance(spec, str) and spec in ACTIVATIONS:
        return ACTIVATIONS[spec]
    expected = f"an activation of {', '.join(ACTIVATIONS)}, a function or None"
    actual = with_nearest(spec, ACTIVATIONS) if isinstance(spec, str) else describe_value(spec)
    raise BlockTypeError(where, expected, actual, "give a function of tensors for any other")


def find_initializer(init: Initializer, where: str) -> Initializer:
    """Return an initialiser, refusing a name that stands for none."""
    if isinstance(init, str) and init not in INITIALIZERS:
        expected = f"an initialiser of {', '.join(INITIALIZERS)}"
        raise UnknownNameError(where, expected, repr(init), "or give a number, an array or a function")
    return init


def single(layer: AnyLayer, xs: tuple[object, ...]) -> Tensors:
    """Return the only value of a layer's input, refusing a tuple of several."""
    if len(xs) != 1:
        fix = "join them with Concat, or select one with GetItem"
        raise GraphError(repr(layer), "one tensor", describe(xs), fix)
    return xs[0]


def vector(layer: AnyLayer, x: object, role: str = "input") -> Node:
    """Return `x`, refusing anything but a float tensor of at least one axis; errors name its role."""
    if isinstance(x, Node) and x.shape and x.type.is_float:
        return x
    fix = "give it a vector" if is_symbolic() else "call it in a function given to foldbatch.compile"
    if isinstance(x, Node) and x.shape:
        fix = "cast ids with ops.cast, or look them up with Embedding"
        if x.type.dtype == "bool":
            fix = f"flags are numbers when read with Vector({x.shape[-1]})"
    elif isinstance(x, Node):
        fix = "Vector(1) reads a vector of one"
    raise GraphError(repr(layer), f"a float vector as {role}", describe(x), fix)


def flat(layer: AnyLayer, x: object, role: str = "input") -> Node:
    """Return `x`, refusing anything but a float tensor of exactly one axis."""
    node = vector(layer, x, role)
    if node.ndim > 1:
        fix = "flatten it with ops.reshape(x, -1)"
        raise GraphError(repr(layer), f"a float vector as {role}", describe(x), fix)
    return node


def pair(layer: AnyLayer, xs: tuple[object, ...], expected: str) -> tuple[Tensors, Tensors]:
    """Return the two values of a layer's input, refusing any other number of them."""
    if len(xs) != 2:
        actual = describe(xs if len(xs) > 1 else xs[0]) if xs else "()"
        fix = "put it behind a Record or AllOf of two; a plain function gives two arguments"
        if len(xs) == 1 and isinstance(xs[0], tuple) and len(xs[0]) == 2:
            actual, fix = f"one argument {actual}", "give it two arguments"
        raise GraphError(repr(layer), f"a pair {expected}", actual, fix)
    return xs[0], xs[1]


def hidden(layer: AnyLayer, state: object, size: int) -> Node:
    """Return a state, refusing anything but a vector of `size`."""
    if isinstance(state, Node) and state.shape == (size,):
        return state
    expected = f"a state of one vector of {size}"
    fix = "give that of another call, a first one of zeros, or a Parameter"
    raise GraphError(repr(layer), expected, describe(state), fix)


def projected(
    layer: AnyLayer,
    x: object,
    init: Initializer,
    type_: TensorType,
    *,
    bias: Initializer = "zeros",
    leading: int | None = None,
) -> Node:
    """Return ``x @ weight + bias``; the bias alone where there is no input (void).

    Of the result, which is of `type_`, the first `leading` elements are wanted; all by default.
    """
    (width,) = type_.shape
    b = parameter_node(layer.parameter("bias", type_, bias))[:leading]
    if x is None:
        return b
    x = flat(layer, x, "input x")
    weight = layer.parameter("weight", TensorType((x.shape[0], width), type_.dtype), init)
    return ops.matmul(x, parameter_node(weight)[:, :leading]) + b


def describe(value: object) -> str:
    """Return the type of a symbolic value, for errors."""
    if isinstance(value, Node):
        return str(value.type)
    if isinstance(value, tuple):
        inner = ", ".join(map(describe, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return "void" if value is None else describe_value(value)
