"""Second derivatives: the gradients of a call as a function that PyTorch differentiates once more.

A call maps parameters and data to results, and its backward pass maps these, with cotangents u of the
results, to gradients. Where a penalty reads the gradients, PyTorch asks for the derivatives of that second
map along directions v, one for each gradient. All of them follow from one dual batch (`foldbatch.model.dual`)
in which parameters and data move along v: the derivatives of u are the tangents of the results, and those of
parameters and data are the gradients of the inner product of u with these tangents.

Source: Pearlmutter 1994 (Fast exact multiplication by the Hessian), section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from foldbatch.errors import BackendError
from foldbatch.model.dual import FeedTangents
from foldbatch.params.parameters import Array
from foldbatch.program.variants import Derivatives
from foldbatch.scheduler.trace import Trace
from foldbatch.torch.gradients import BackwardCall, as_tensor, numbers_of


@dataclass(frozen=True, slots=True, eq=False)
class SecondPass:
    """All that second derivatives of a call need besides the call."""

    derivatives: Derivatives  # of the model that has run
    traces: list[Trace]
    step: int  # what random numbers were drawn for: the same ones are drawn again
    training: bool  # whether the model computed what it trains, where that differs from inference

    def differentiable(
        self,
        call: BackwardCall,
        gradients: Sequence[torch.Tensor | None],
        sources: Sequence[torch.Tensor],
        grads: Sequence[torch.Tensor | None],
        groups: Sequence[NDArray[np.int64]] | None,
    ) -> Sequence[torch.Tensor | None]:
        """Return the gradients of a call as a function of all that they depend on.

        Args:
            call: the call.
            gradients: those of parameters, then of reads; None for parameters that the batch does not use.
            sources: the tensors that these are the gradients of.
            grads: the gradients of the loss, or of the stacked results, from which they were computed.
            groups: the values that each of the stacked results holds; None for a loss.
        """
        tensors: Sequence[torch.Tensor | None] = _Gradients.apply(
            self, call, groups, gradients, *sources, *grads
        )
        return tensors

    def products(
        self,
        call: BackwardCall,
        groups: Sequence[NDArray[np.int64]] | None,
        grads: Sequence[torch.Tensor | None],
        directions: Sequence[torch.Tensor | None],
    ) -> list[torch.Tensor | None]:
        """Return the derivatives of a call's gradients along directions: for its sources, then its grads.

        Arguments are those of `differentiable`, and a direction for each gradient, None for one of zeros.
        """
        count = len(call.parameters)
        tangents = {
            parameter: _numbers(direction)
            for parameter, direction in zip(call.parameters, directions[:count], strict=True)
            if direction is not None
        }
        of_data = self._of_data(call, directions[count:]) if call.reads else None
        cotangents = None if groups is None else call.cotangents(groups, grads)
        second = self.derivatives.second(
            self.traces, self.step, tangents, of_data, cotangents, training=self.training
        )
        if groups is None:
            (grad,) = grads
            assert grad is not None, "a loss has a gradient"
            products = call.tensors(second.gradients, float(numbers_of(grad)))
            return [*products, torch.tensor(float(second.loss), dtype=grad.dtype)]
        moved = [
            None if grad is None else as_tensor(np.stack([second.values[n] for n in places])).to(grad.dtype)
            for places, grad in zip(groups, grads, strict=True)
        ]
        return [*call.tensors(second.gradients, 1.0), *moved]

    def _of_data(self, call: BackwardCall, directions: Sequence[torch.Tensor | None]) -> FeedTangents:
        """Return the directions of reads as those of the data of all calls."""
        counts = np.array([trace.counts for trace in self.traces], np.int64)
        zero = np.zeros(1, np.int64)
        firsts = [np.concatenate([zero, calls.cumsum()]) for calls in counts.T]
        columns: dict[tuple[int, int], Array] = {}
        for read, direction in zip(call.reads, directions, strict=True):
            if direction is not None:
                example_of_visit = np.repeat(np.arange(len(counts)), counts[:, read.cell])
                rows = _numbers(direction)
                column = np.zeros((len(example_of_visit), *rows.shape[1:]), rows.dtype)
                column[call.visits(read, example_of_visit)] = rows
                columns[read.cell, read.feed] = column
        return FeedTangents(columns, firsts)


class FirstPass:
    """First derivatives alone, of a call on a device: nothing differentiates them again."""

    def differentiable(
        self,
        call: BackwardCall,
        gradients: Sequence[torch.Tensor | None],
        sources: Sequence[torch.Tensor],
        grads: Sequence[torch.Tensor | None],
        groups: Sequence[NDArray[np.int64]] | None,
    ) -> Sequence[torch.Tensor | None]:
        """Return the gradients such that differentiating them is an error; see `SecondPass`."""
        fix = "compute the penalty on the CPU, where gradients can be differentiated: model.cpu()"
        expected = "gradients, taken once on a GPU"
        return _guarded(gradients, (*sources, *grads), expected, "gradients of gradients", fix)


def _numbers(tensor: torch.Tensor) -> Array:
    return numbers_of(tensor.to_dense() if tensor.is_sparse else tensor)


class _Gradients(torch.autograd.Function):
    """The function from parameters, reads and incoming gradients of a call to the gradients that go out."""

    @staticmethod
    def forward(
        ctx: Any,
        second: SecondPass,
        call: BackwardCall,
        groups: Sequence[NDArray[np.int64]] | None,
        gradients: Sequence[torch.Tensor | None],
        *inputs: torch.Tensor | None,
    ) -> Any:
        ctx.second, ctx.call, ctx.groups = second, call, groups
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        return tuple(gradients)

    @staticmethod
    def backward(ctx: Any, *directions: torch.Tensor | None) -> Any:
        """Return the derivatives along directions, one for each gradient."""
        inputs = ctx.saved_tensors
        if all(direction is None for direction in directions):
            return (None,) * (4 + len(inputs))
        grads = inputs[len(directions) :]
        products: Sequence[torch.Tensor | None] = ctx.second.products(ctx.call, ctx.groups, grads, directions)
        if torch.is_grad_enabled():
            fix = "differentiate twice at most; torch.autograd.functional.vhp does so, and hvp three times"
            expected, actual = "first and second derivatives", "a third derivative of a call"
            products = _guarded(products, (*inputs, *directions), expected, actual, fix)
        return None, None, None, None, *products


class _Last(torch.autograd.Function):
    """The function to derivatives of a batch that cannot be differentiated again.

    PyTorch would take them for constants otherwise, and what is made of their derivatives would be zero.
    """

    @staticmethod
    def forward(
        ctx: Any, refusal: BackendError, tensors: Sequence[torch.Tensor | None], *_: torch.Tensor
    ) -> Any:
        ctx.refusal = refusal
        return tuple(tensors)

    @staticmethod
    def backward(ctx: Any, *_: object) -> Any:
        raise ctx.refusal

    jvp = backward


def _guarded(
    tensors: Sequence[torch.Tensor | None],
    inputs: Iterable[torch.Tensor | None],
    expected: str,
    actual: str,
    fix: str,
) -> Sequence[torch.Tensor | None]:
    """Return derivatives such that differentiating them by their inputs raises an error of these parts."""
    refusal = BackendError("fb.torch.Module", expected, actual, fix)
    guarded: Sequence[torch.Tensor | None] = _Last.apply(
        refusal, tensors, *(x for x in inputs if x is not None)
    )
    return guarded
