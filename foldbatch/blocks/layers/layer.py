"""Layers: blocks that own parameters. Sharing parameters is using the same object twice."""

from __future__ import annotations

from typing import Any

from foldbatch.blocks.block import named
from foldbatch.blocks.function import TensorBlock
from foldbatch.errors import BlockTypeError
from foldbatch.params import Initializer, Owner, Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import TensorType

ACTIVATIONS = {"relu": ops.relu, "sigmoid": ops.sigmoid, "softmax": ops.softmax, "softplus": ops.softplus, "tanh": ops.tanh}


class Layer(TensorBlock):
    """A block of tensors with parameters, made when the first input shows their shapes.

    Args:
        name: the stem of the parameters' names; by default the layer's kind.
    """

    kind = "layer"

    def __init__(self, name: str | None = None) -> None:
        self.owner = Owner(self.kind if name is None else named(name, type(self).__name__))
        self.parameters: dict[str, Parameter] = {}

    def parameter(self, name: str, type_: TensorType, init: Initializer, *, trainable: bool = True) -> Parameter:
        """Return the layer's parameter of that name, made at the first call.

        Raises:
            BlockTypeError: when it was made for an input of another size.
        """
        known = self.parameters.get(name)
        if known is None:
            known = Parameter(type_, init, name, trainable=trainable, owner=self.owner)
            self.parameters[name] = known
        if known.type != type_:
            fix = "a layer that stands in several places shares its parameters; make a layer for each input size"
            raise BlockTypeError(f"{self!r} {name}", f"{known.type}, as made before", str(type_), fix)
        return known


def find_activation(spec: Any, where: str) -> Any:
    """Return an activation by name, or the function itself; None is the identity."""
    if spec is None or callable(spec):
        return spec or (lambda x: x)
    if spec in ACTIVATIONS:
        return ACTIVATIONS[spec]
    raise BlockTypeError(where, f"an activation of {', '.join(ACTIVATIONS)}, a function or None", repr(spec))


def vector(layer: Layer, x: Any, what: str = "input") -> Node:
    """Return `x`, refusing anything but a float tensor of at least one axis."""
    if not isinstance(x, Node) or not x.shape or not x.type.is_float:
        found = str(x.type) if isinstance(x, Node) else "void" if x is None else f"a {type(x).__name__}"
        raise BlockTypeError(f"{layer!r}", f"a float vector as {what}", found, "see the layer's documentation")
    return x
