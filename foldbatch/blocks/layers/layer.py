"""Layers: blocks that own parameters. Sharing parameters is using the same object twice."""

from __future__ import annotations

from typing import Any

from foldbatch.blocks.block import named
from foldbatch.blocks.function import TensorBlock
from foldbatch.errors import BlockTypeError, GraphError, UnknownNameError
from foldbatch.params import INITIALIZERS, Initializer, Owner, Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import TensorType, describe_value

ACTIVATIONS = {
    "relu": ops.relu,
    "sigmoid": ops.sigmoid,
    "softmax": ops.softmax,
    "softplus": ops.softplus,
    "tanh": ops.tanh,
}


class Layer(TensorBlock):
    """A block of tensors with parameters, made when the first input shows their shapes.

    Args:
        name: the stem of the parameters' names; by default the layer's kind.
    """

    kind = "layer"

    def __init__(self, name: str | None = None) -> None:
        self.owner = Owner(self.kind if name is None else named(name, type(self).__name__))
        self.parameters: dict[str, Parameter] = {}

    def parameter(
        self, name: str, type_: TensorType, init: Initializer, *, trainable: bool = True
    ) -> Parameter:
        """Return the layer's parameter of that name, made at the first call.

        Raises:
            GraphError: when it was made for an input of another size.
        """
        known = self.parameters.get(name)
        if known is None:
            known = Parameter(type_, init, name, trainable=trainable, owner=self.owner)
            self.parameters[name] = known
        if known.type != type_:
            fix = "a layer shares its parameters wherever it stands; make one for each input size"
            raise GraphError(repr(self), f"a {name} of {known.type}, as made before", str(type_), fix)
        return known


def find_activation(spec: Any, where: str) -> Any:
    """Return an activation by name, or the function itself; None is the identity."""
    if spec is None or callable(spec):
        return spec or (lambda x: x)
    if isinstance(spec, str) and spec in ACTIVATIONS:
        return ACTIVATIONS[spec]
    expected = f"an activation of {', '.join(ACTIVATIONS)}, a function or None"
    raise BlockTypeError(where, expected, describe_value(spec), "give a function of tensors for any other")


def find_initializer(init: Initializer, where: str) -> Initializer:
    """Return an initialiser, refusing a name that stands for none.

    Raises:
        UnknownNameError: when it is such a name.
    """
    if isinstance(init, str) and init not in INITIALIZERS:
        expected = f"an initialiser of {', '.join(INITIALIZERS)}"
        raise UnknownNameError(where, expected, repr(init), "or give a number, an array or a function")
    return init


def single(layer: Layer, xs: tuple[Any, ...]) -> Any:
    """Return the only value of a layer's input, refusing a tuple of several."""
    if len(xs) != 1:
        fix = "join them with Concat, or select one with GetItem"
        raise GraphError(repr(layer), "one tensor", describe(xs), fix)
    return xs[0]


def vector(layer: Layer, x: Any, what: str = "input") -> Node:
    """Return `x`, refusing anything but a float tensor of at least one axis."""
    if isinstance(x, Node) and x.shape and x.type.is_float:
        return x
    fix = "give it a vector"
    if isinstance(x, Node):
        fix = (
            "cast ids with ops.cast, or look them up with Embedding"
            if x.shape
            else "Vector(1) reads a vector of one"
        )
    raise GraphError(repr(layer), f"a float vector as {what}", describe(x), fix)


def describe(value: Any) -> str:
    """Return the type of a symbolic value, for errors."""
    if isinstance(value, Node):
        return str(value.type)
    if isinstance(value, tuple):
        inner = ", ".join(map(describe, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return "void" if value is None else describe_value(value)
