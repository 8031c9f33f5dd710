"""Layers taken over from PyTorch, with their weights."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch

from foldbatch.blocks.layers import Embedding, GRUCell, Linear, LSTMCell
from foldbatch.blocks.layers.layer import AnyLayer
from foldbatch.errors import BlockTypeError
from foldbatch.params.parameters import Array
from foldbatch.types import TensorType, describe_value

Taken: TypeAlias = tuple[AnyLayer, dict[str, Array]]  # a layer, and the arrays of its parameters


def from_torch(module: Any, *, name: str | None = None) -> Any:
    """Return a layer that computes what a layer of PyTorch does, with a copy of its weights.

    `torch.nn.Linear`, `LSTMCell`, `GRUCell` and `Embedding` have one. The layer has the dtype of the
    weights, and its data must be of it. It is frozen where all weights of the module are. Gates are put in
    this package's order, and the two biases of an LSTM are added.

    Args:
        module: of PyTorch.
        name: the stem of the parameters' names.

    Raises:
        BlockTypeError: when there is no such layer, or none with the module's settings.

    >>> import torch
    >>> import foldbatch as fb
    >>> linear = torch.nn.Linear(3, 2)
    >>> ours = fb.compile(fb.Vector(3) >> fb.torch.from_torch(linear)).run([[1, 2, 3]])
    >>> bool(np.allclose(ours[0], linear(torch.tensor([1.0, 2, 3])).detach(), atol=1e-6))
    True
    """
    take = TAKEN.get(type(module))
    if take is None:
        supported = ", ".join(f"torch.nn.{kind.__name__}" for kind in TAKEN)
        fix = "compute it in PyTorch, and let examples hold the tensors that it yields"
        raise BlockTypeError("from_torch", f"one of {supported}", describe_value(module), fix)
    weights = {key: value.detach().cpu().numpy() for key, value in module.named_parameters()}
    trainable = any(value.requires_grad for value in module.parameters())
    layer, arrays = take(module, weights, name)
    layer.parameters.clear()  # an Embedding has made its own
    for key, array in arrays.items():
        type_ = TensorType(array.shape, array.dtype.name)
        layer.parameter(key, type_, np.ascontiguousarray(array), trainable=trainable)
    return layer


def _linear(module: Any, weights: dict[str, Array], name: str | None) -> Taken:
    layer = Linear(module.out_features, bias=module.bias is not None, name=name)
    arrays = {"weight": weights["weight"].T} | {k: v for k, v in weights.items() if k == "bias"}
    return layer, arrays


def _gates(array: Array, order: tuple[int, ...]) -> Array:
    parts = np.split(array, len(order))
    return np.concatenate([parts[place] for place in order])


def _biases(module: Any, weights: dict[str, Array]) -> tuple[Array, Array]:
    if module.bias:
        return weights["bias_ih"], weights["bias_hh"]
    none = np.zeros(len(weights["weight_ih"]), weights["weight_ih"].dtype)
    return none, none


def _lstm(module: Any, weights: dict[str, Array], name: str | None) -> Taken:
    order = (2, 0, 3, 1)  # from i, f, u, o to u, i, o, f
    given, recurrent = _biases(module, weights)
    arrays = {
        "weight": _gates(weights["weight_ih"], order).T,
        "recurrent": _gates(weights["weight_hh"], order).T,
        "bias": _gates(given + recurrent, order),
    }
    return LSTMCell(module.hidden_size, name=name), arrays


def _gru(module: Any, weights: dict[str, Array], name: str | None) -> Taken:
    order, size = (2, 0, 1), module.hidden_size  # from r, z, n to n, r, z
    given, recurrent = (_gates(bias, order) for bias in _biases(module, weights))
    arrays = {
        "weight": _gates(weights["weight_ih"], order).T,
        "recurrent": _gates(weights["weight_hh"], order).T,
        "bias": np.concatenate([given[:size], given[size:] + recurrent[size:]]),
        "recurrent_bias": recurrent[:size],
    }
    return GRUCell(size, name=name), arrays


def _embedding(module: Any, weights: dict[str, Array], name: str | None) -> Taken:
    for setting in ("max_norm", "padding_idx"):
        if getattr(module, setting) is not None:
            fix = "padding has no place in a tree; make the module without"
            found = f"{setting}={getattr(module, setting)}"
            raise BlockTypeError("from_torch", f"an Embedding without {setting}", found, fix)
    if module.scale_grad_by_freq:
        raise BlockTypeError("from_torch", "an Embedding", "scale_grad_by_freq=True", "make it without")
    weight = weights["weight"]
    return Embedding(*weight.shape, dtype=weight.dtype.name, name=name), {"weight": weight}


TAKEN: dict[Any, Callable[[Any, dict[str, Array], str | None], Taken]] = {
    torch.nn.Linear: _linear,
    torch.nn.LSTMCell: _lstm,
    torch.nn.GRUCell: _gru,
    torch.nn.Embedding: _embedding,
}
