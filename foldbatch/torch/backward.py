"""Backward: a held batch as a function of PyTorch, from parameters and data read to values of results.

PyTorch sees few tensors: the parameters, one for each place that read tensors, and one for all values of the
results that have one shape and dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from foldbatch.engines.held import Gradients, Held
from foldbatch.errors import BackendError
from foldbatch.params import Array, Gradient, Parameter, SparseRows
from foldbatch.torch.reads import Read, numbers_of
from foldbatch.types import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a module: a batch that waits for its backward pass.

    Attributes:
        held: the batch.
        parameters: those that gradients are wanted of.
        reads: the data that gradients are wanted of.
        traced: the numbers of the examples that were read now.
        sparse: whether gradients of tables stay sparse.
    """

    held: Held
    parameters: Sequence[Parameter]
    reads: Sequence[Read]
    traced: Sequence[int]
    sparse: bool

    def groups(self) -> list[NDArray[np.int64]]:
        """Return the places of values that have one shape and dtype, in the order of values."""
        groups: dict[Any, list[int]] = {}
        for place, value in enumerate(self.held.values):
            groups.setdefault((value.shape, value.dtype), []).append(place)
        return [np.array(places, np.int64) for places in groups.values()]

    def results(self, stacked: Sequence[torch.Tensor]) -> list[Any]:
        """Return the results, made of the stacked values that `apply` returned."""
        tensors: list[Any] = [None] * len(self.held.values)
        for places, values in zip(self.groups(), stacked, strict=True):
            for place, value in zip(places.tolist(), values.unbind(), strict=True):
                tensors[place] = value
        return self.held.results(tensors)

    def backward(self, cotangents: Sequence[Array | None], scale: float) -> list[torch.Tensor | None]:
        """Return the gradients of parameters, then those of reads; all times `scale`.

        A parameter that only other things read, such as losses, has none.
        """
        gradients = self.held.backward(cotangents, visited=bool(self.reads))
        found = [self._of_parameter(gradients.parameters.get(p), p) for p in self.parameters]
        found += [self._of_read(gradients, read) for read in self.reads]
        settle(self.parameters)
        return found if scale == 1 else [g if g is None else g * scale for g in found]

    def _of_parameter(self, gradient: Gradient | None, parameter: Parameter) -> torch.Tensor | None:
        if gradient is None:
            return None
        dtype = getattr(torch, parameter.type.dtype)
        if isinstance(gradient, SparseRows):
            if not self.sparse:
                return as_tensor(gradient.dense()).to(dtype)
            rows, values = torch.from_numpy(gradient.rows)[None], as_tensor(gradient.values).to(dtype)
            return torch.sparse_coo_tensor(
                rows, values, gradient.shape, is_coalesced=True, check_invariants=False
            )
        return as_tensor(gradient).to(dtype)

    def _of_read(self, gradients: Gradients, read: Read) -> torch.Tensor:
        places = read.places
        own = np.concatenate(
            [
                part.examples[read.cell] + begun.part.first
                for part, begun in zip(gradients.visits, self.held.parts, strict=True)
            ]
        )
        ours = np.isin(own, np.asarray(self.traced, np.int64))  # others were traced before, with no tensors
        if not ours.all():
            places = np.flatnonzero(ours)[places]
        array = np.asarray(gradients.of_data(read.cell, read.feed))[places]
        return as_tensor(array).to(read.values.dtype)


def settle(parameters: Sequence[Parameter]) -> None:
    """Bring parameters home that an engine has on a device: PyTorch's optimizers write to their memory."""
    for parameter in parameters:
        if parameter.away is not None:
            _ = parameter.value


def as_tensor(array: Any) -> torch.Tensor:
    """Return an array as a tensor, over the same memory where it can be written to."""
    array = np.asarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


class _Once(torch.autograd.Function):
    """From what gradients were computed of to these gradients, which cannot be differentiated."""

    @staticmethod
    def forward(_: Any, gradients: Sequence[torch.Tensor | None], *__: torch.Tensor) -> Any:
        return tuple(gradients)

    @staticmethod
    def backward(*_: Any) -> Any:
        fix = "leave the module out of the penalty or the Hessian; there is Program.hvp"
        raise BackendError("fb.torch.Module", "gradients, taken once", "gradients of gradients", fix)

    jvp = backward


def once(
    gradients: Sequence[torch.Tensor | None], origins: Sequence[torch.Tensor | None]
) -> Sequence[torch.Tensor | None]:
    """Return gradients; under ``create_graph=True`` such that differentiating them is an error.

    Otherwise PyTorch would take them for constants, and a penalty on them would add nothing.

    Args:
        gradients: of some tensors.
        origins: all that they depend on.
    """
    if not torch.is_grad_enabled():
        return gradients
    found: Sequence[torch.Tensor | None] = _Once.apply(gradients, *(x for x in origins if x is not None))
    return found


class _Results(torch.autograd.Function):
    """From parameters and reads to the stacked values of results."""

    @staticmethod
    def forward(ctx: Any, call: Call, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.call = call
        ctx.groups = call.groups()
        ctx.save_for_backward(*given)  # PyTorch then refuses parameters changed before the backward pass
        ctx.set_materialize_grads(False)
        values = call.held.values
        stacked = [torch.from_numpy(np.stack([values[n] for n in places])) for places in ctx.groups]
        ctx.mark_non_differentiable(*[values for values in stacked if not values.is_floating_point()])
        return tuple(stacked)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        given = ctx.saved_tensors
        cotangents: list[Array | None] = [None] * len(ctx.call.held.values)
        for places, grad in zip(ctx.groups, grads, strict=True):
            if grad is not None:
                for place, row in zip(places.tolist(), numbers_of(grad), strict=True):
                    cotangents[place] = row
        return None, *once(ctx.call.backward(cotangents, 1.0), (*given, *grads))


class _Loss(torch.autograd.Function):
    """From parameters and reads to the sum of the losses."""

    @staticmethod
    def forward(ctx: Any, call: Call, dtype: torch.dtype, *given: torch.Tensor) -> torch.Tensor:
        ctx.call = call
        ctx.save_for_backward(*given)
        return torch.tensor(float(call.held.loss), dtype=dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        given = ctx.saved_tensors
        return None, None, *once(ctx.call.backward((), float(numbers_of(grad))), (*given, grad))


def stacked_results(call: Call, given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return the values of results, those of one shape and dtype as one tensor ``[m, *shape]``.

    Args:
        call: the call.
        given: the parameters and reads that gradients are wanted of, in the order of the call's.
    """
    stacked: tuple[torch.Tensor, ...] = _Results.apply(call, *given)
    return stacked


def summed_loss(call: Call, dtype: torch.dtype, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the sum of the losses, of a dtype; other arguments are those of `stacked_results`."""
    loss: torch.Tensor = _Loss.apply(call, dtype, *given)
    return loss


def nothing_of(type_: TensorType, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the stacked results of no examples, ``[0, *shape]``; the gradients of them are zeros.

    >>> nothing_of(TensorType((2,), "float32"), [torch.ones(3, requires_grad=True)]).requires_grad
    True
    """
    dtype = getattr(torch, type_.dtype)
    nothing = [tensor.reshape(-1)[:0].to(dtype) for tensor in given]
    return torch.cat([torch.zeros(0, dtype=dtype), *nothing]).reshape(0, *type_.shape)
