"""Gradients: reads of PyTorch's tensors, and a batch that waits for its backward pass as a PyTorch function.

While examples are traced, all that one block reads at all its visits is noted as one list. Where that list
has tensors, they become one tensor of PyTorch, by operations that PyTorch differentiates itself. So PyTorch
sees few tensors: the parameters, one for each place that read tensors, and one for all values of the results
that have one shape and dtype.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd import forward_ad

from foldbatch.engines.held import Gradients, WaitingBatch
from foldbatch.errors import BackendError, BlockValueError
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Gradient, Parameter, SparseRows
from foldbatch.types import TensorType, describe_value


class Row:
    """A row of a tensor, which a block or a cell reads; made by `rows`."""

    __slots__ = ("flat", "index")

    def __init__(self, flat: torch.Tensor, index: int) -> None:
        self.flat, self.index = flat, index  # ``flat: [n, *row]``

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the row."""
        return tuple(self.flat.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the tensor."""
        return self.flat.dtype

    @property
    def requires_grad(self) -> bool:
        """Whether gradients reach the row, as of a tensor."""
        return bool(self.flat.requires_grad)

    def detach(self) -> torch.Tensor:
        """Return the row's numbers, which know no gradient."""
        return self.flat[self.index].detach()

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        if self.flat.requires_grad:
            raise RuntimeError("a row of a tensor that requires gradients is no array")
        row: NDArray[Any] = self.detach().cpu().numpy()
        return row if dtype is None else row.astype(dtype)

    def __repr__(self) -> str:
        return f"Row({list(self.shape)} of {self.flat.shape[0]})"


def rows(tensor: torch.Tensor, axes: int = 1) -> list[Any]:
    """Return a tensor as nested lists of its rows, for examples to hold; gradients flow back into it.

    A tensor ``[batch, words, dim]`` becomes a list of lists: ``rows(encoded)[b][i]`` is read by
    ``fb.Vector(dim)``. Slicing a tensor of PyTorch word by word yields the same numbers and gradients, but
    each slice costs microseconds, and as many again on the way back; rows cost a look-up each.

    Args:
        tensor: of floats.
        axes: how many of the last axes a row has: 0 for `fb.Scalar`, 1 for `fb.Vector`, 2 for matrices.

    Raises:
        BlockValueError: when the tensor has not more axes than a row.

    >>> import torch
    >>> encoded = torch.ones(1, 3, 2, requires_grad=True)
    >>> total = fb.torch.Module(fb.Map(fb.Vector(2)) >> fb.Sum())
    >>> total([rows(encoded)[0][:2]]).sum().backward()
    >>> encoded.grad.tolist()
    [[[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]]
    """
    if not isinstance(tensor, torch.Tensor) or not 0 <= axes < tensor.dim():
        fix = "a tensor [batch, words, dim] has rows of one axis"
        actual = f"{list(tensor.shape)}" if isinstance(tensor, torch.Tensor) else describe_value(tensor)
        raise BlockValueError("rows", f"a tensor of more than {axes} axes", actual, fix)
    leading = tensor.shape[: tensor.dim() - axes]
    flat = tensor.reshape(math.prod(leading), *tensor.shape[len(leading) :])
    numbered = map(partial(Row, flat), itertools.count())
    return _nested(numbered, leading)


def _nested(items: Iterator[Row], extents: Sequence[int]) -> list[Any]:
    if len(extents) == 1:
        return list(itertools.islice(items, extents[0]))
    return [_nested(items, extents[1:]) for _ in range(extents[0])]


@dataclass(frozen=True, slots=True, eq=False)
class TensorRead:
    """The rows of tensors that require gradients, as one feed of a cell read them."""

    cell: int  # the cell's number
    feed: int  # the feed's
    values: torch.Tensor  # ``[m, *shape]``: what was read
    # ``[m] int64``: where, among all data of the feed from the examples that were looked at
    places: NDArray[np.int64]


Index = Callable[[Sequence[int], torch.device], torch.Tensor]  # whole numbers as a tensor of a device


def as_index(numbers: Sequence[int], device: torch.device) -> torch.Tensor:
    """Return integers as a tensor of a device."""
    return torch.tensor(numbers, dtype=torch.int64).to(device)


class TensorReads:
    """The reads of tensors while examples are traced; `Tracer.trace_all` calls `look`.

    Args:
        place: the device on which what is read is to be, where it need not come to the host: zeros stand for
            it among the data then. None where data need their numbers.
        index: makes tensors of whole numbers.
    """

    def __init__(self, place: torch.device | None = None, index: Index = as_index) -> None:
        self.place, self._index = place, index
        self._counts: Counter[int] = Counter()
        # what was read of tensors: where there is a place all, else those that require gradients
        self.reads: list[TensorRead] = []
        # why a tensor that was read cannot be: then what was traced is not to be used
        self.refused: BackendError | None = None

    def wanted(self) -> list[TensorRead]:
        """Return the reads of tensors that require gradients."""
        return [read for read in self.reads if read.values.requires_grad]

    def look(self, model: Model, data: Sequence[Sequence[list[Any]]]) -> None:
        """Note tensors among data, per cell and feed, and put their numbers in their places."""
        for k, columns in enumerate(data):
            for i, items in enumerate(columns):
                if model.feeds[k][i].type.is_float:
                    self._look_at(k, i, model.feeds[k][i].type, items)
            self._counts[k] += len(columns[0]) if columns else 0

    def _look_at(self, k: int, i: int, type_: TensorType, items: list[Any]) -> None:
        """Replace the tensors among the values of a feed by arrays; note those that require gradients."""
        places = [n for n, item in enumerate(items) if isinstance(item, Row | torch.Tensor)]
        tensors = [items[n] for n in places]
        if not places or any(tuple(tensor.shape) != type_.shape for tensor in tensors):
            return  # the tracer tells of the first one that does not fit
        values = joined(tensors, self.place, self._index)
        if not values.is_floating_point():
            return
        values = values.to(getattr(torch, type_.dtype))
        try:
            numbers = numbers_of(values) if self.place is None else _zeros_for(values, type_)
        except BackendError as error:  # the tracer would blame the example
            self.refused = error
            return
        for n, row in zip(places, numbers, strict=True):
            items[n] = row
        if values.requires_grad or self.place is not None:
            self.reads.append(TensorRead(k, i, values, self._counts[k] + np.array(places, np.int64)))


def numbers_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's numbers as an array over its memory.

    >>> numbers_of(torch.ones(2, requires_grad=True))
    array([1., 1.], dtype=float32)
    """
    numbers: NDArray[Any] = _asked(tensor, torch.Tensor.numpy)
    return numbers


def refuse_hidden(tensor: torch.Tensor) -> None:
    """Refuse a tensor that hides its numbers, wherever they lie; errors are those of `numbers_of`."""
    _asked(tensor, torch.Tensor.data_ptr)


def _zeros_for(values: torch.Tensor, type_: TensorType) -> Iterator[NDArray[Any]]:
    """Return zeros that stand for the rows of a tensor; errors are those of `numbers_of`."""
    refuse_hidden(values)
    return itertools.repeat(np.zeros(type_.shape, type_.dtype), len(values))


def _asked(tensor: torch.Tensor, ask: Callable[[torch.Tensor], Any]) -> Any:
    """Ask a function about a tensor without its gradients; refuse one that hides its numbers."""
    expected = "tensors that hold numbers alone"
    try:
        tangent = forward_ad.unpack_dual(tensor).tangent
        numbers = ask(tensor.detach())
    except (RuntimeError, TypeError) as error:
        fix = "call the module outside of torch.func, vmap and torch.export, one gradient at a time"
        raise BackendError("fb.torch.Module", expected, str(error).split("\n", 1)[0], fix) from None
    if tangent is not None:
        fix = "Program.jvp has derivatives in forward mode"
        raise BackendError("fb.torch.Module", expected, "a dual tensor of torch.autograd.forward_ad", fix)
    return numbers


def joined(
    tensors: Sequence[Row | torch.Tensor], place: torch.device | None = None, index: Index = as_index
) -> torch.Tensor:
    """Return rows and tensors of one shape as one tensor ``[m, *shape]``, differentiably.

    Args:
        tensors: the rows and tensors, on any devices.
        place: where the result is to be; by default the CPU.
        index: makes tensors of whole numbers.

    >>> joined([torch.ones(2), rows(torch.zeros(1, 2))[0]]).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    indices: dict[int, list[int]] = {}  # by identity of the tensor
    places: list[int] = []
    loose, loose_places = [], []
    for n, tensor in enumerate(tensors):
        if isinstance(tensor, Row):
            indices.setdefault(id(tensor.flat), []).append(n)
        else:
            loose.append(tensor)
            loose_places.append(n)
    place = place or torch.device("cpu")
    parts = []
    for numbers in indices.values():
        flat = tensors[numbers[0]].flat
        rows_of_flat = index([tensors[n].index for n in numbers], flat.device)
        parts.append(flat.index_select(0, rows_of_flat).to(place))
        places += numbers
    if loose:
        parts.append(torch.stack(loose).to(place))
        places += loose_places
    if len(parts) == 1:
        return parts[0]
    order = np.empty(len(places), np.int64)
    order[places] = np.arange(len(places))
    return torch.cat(parts).index_select(0, index(order.tolist(), place))


class Twice(Protocol):
    """How the gradients of a call are differentiated once more; see `foldbatch.torch.second`."""

    def differentiable(
        self,
        call: BackwardCall,
        gradients: Sequence[torch.Tensor | None],
        sources: Sequence[torch.Tensor],
        grads: Sequence[torch.Tensor | None],
        groups: Sequence[NDArray[np.int64]] | None,
    ) -> Sequence[torch.Tensor | None]:
        """Return gradients such that PyTorch can differentiate them."""


@dataclass(frozen=True, slots=True, eq=False)
class BackwardCall:
    """One call of a module: a batch that waits for its backward pass."""

    batch: WaitingBatch
    parameters: Sequence[Parameter]  # those that gradients are wanted of
    reads: Sequence[TensorRead]  # the data that gradients are wanted of
    traced: Sequence[int]  # the numbers of the examples that were read now
    sparse: bool  # whether gradients of tables stay sparse
    twice: Twice  # what differentiates the gradients
    _groups: list[NDArray[np.int64]] = field(default_factory=list, init=False, repr=False)

    def groups(self) -> list[NDArray[np.int64]]:
        """Return the places of values that have one shape and dtype, in the order of values."""
        if not self._groups:
            self._groups.extend(self._grouped())
        return self._groups

    def _grouped(self) -> list[NDArray[np.int64]]:
        groups: dict[Any, list[int]] = {}
        for place, value in enumerate(self.batch.values):
            groups.setdefault((value.shape, value.dtype), []).append(place)
        return [np.array(places, np.int64) for places in groups.values()]

    def results(self, stacked: Sequence[torch.Tensor]) -> list[Any]:
        """Return the results, made of the stacked values that `apply` returned."""
        tensors: list[Any] = [None] * sum(map(len, self.groups()))
        for places, values in zip(self.groups(), stacked, strict=True):
            for place, value in zip(places.tolist(), values.unbind(), strict=True):
                tensors[place] = value
        return self.batch.results(tensors)

    def cotangents(
        self, groups: Sequence[NDArray[np.int64]], grads: Sequence[torch.Tensor | None]
    ) -> list[Array | None]:
        """Return the cotangent of each value, or None, from those of the stacked values."""
        cotangents: list[Array | None] = [None] * len(self.batch.values)
        for places, grad in zip(groups, grads, strict=True):
            if grad is not None:
                for place, row in zip(places.tolist(), numbers_of(grad), strict=True):
                    cotangents[place] = row
        return cotangents

    def summed(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the sum of the losses as a scalar."""
        return torch.from_numpy(np.array(float(self.batch.loss), numpy_dtype(dtype)))

    def stacked(self) -> list[torch.Tensor]:
        """Return the values of results, those of a group as one tensor ``[m, *shape]``."""
        values = self.batch.values
        return [torch.from_numpy(np.stack([values[n] for n in places])) for places in self.groups()]

    def of_loss(self, grad: torch.Tensor) -> list[torch.Tensor | None]:
        """Return the gradients of parameters, then those of reads, for the gradient of `summed`."""
        return self.backward((), float(numbers_of(grad)))

    def of_results(self, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Return the gradients of parameters, then those of reads, for the gradients of `stacked`."""
        return self.backward(self.cotangents(self.groups(), grads), 1.0)

    def backward(self, cotangents: Sequence[Array | None], scale: float) -> list[torch.Tensor | None]:
        """Return the gradients of parameters, then those of reads; all times `scale`."""
        return self.tensors(self.batch.backward(cotangents, visited=bool(self.reads)), scale)

    def tensors(self, gradients: Gradients, scale: float) -> list[torch.Tensor | None]:
        """Return gradients of the batch as tensors, those of parameters and then of reads, times `scale`."""
        of_parameters = gradients.parameters
        used = [None if p in of_parameters.unused else of_parameters.get(p) for p in self.parameters]
        tensors = [self._of_parameter(g, p) for g, p in zip(used, self.parameters, strict=True)]
        tensors += [self._of_read(gradients, read) for read in self.reads]
        settle(self.parameters)
        return tensors if scale == 1 else [g if g is None else g * scale for g in tensors]

    def _of_parameter(self, gradient: Gradient | None, parameter: Parameter) -> torch.Tensor | None:
        """Return the gradient of a parameter as a tensor, sparse where the module is; or None."""
        if gradient is None:
            return None
        dtype = parameter.type.dtype
        if isinstance(gradient, SparseRows):
            if not self.sparse:
                return as_tensor(np.asarray(gradient.dense(), dtype))
            rows, values = (
                torch.from_numpy(gradient.rows[None]),
                as_tensor(np.asarray(gradient.values, dtype)),
            )
            return torch.sparse_coo_tensor(
                rows, values, gradient.shape, is_coalesced=True, check_invariants=False
            )
        return as_tensor(np.asarray(gradient, dtype))

    def _of_read(self, gradients: Gradients, read: TensorRead) -> torch.Tensor:
        """Return the gradient of a read of tensors, in the order of its rows."""
        of_feed = gradients.of_data(read.cell, read.feed)
        if of_feed is None:
            return torch.zeros_like(read.values)
        example_of_visit = np.concatenate(
            [
                part.examples[read.cell] + first
                for part, first in zip(gradients.visits, gradients.firsts, strict=True)
            ]
        )
        array = np.asarray(of_feed)[self.visits(read, example_of_visit)]
        return as_tensor(array).to(read.values.dtype)

    def visits(self, read: TensorRead, example_of_visit: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the calls that read the rows of a read of tensors, given the example of each call."""
        # the other examples were traced before, with no tensors
        ours = np.isin(example_of_visit, np.asarray(self.traced, np.int64))
        return read.places if ours.all() else np.flatnonzero(ours)[read.places]


@cache
def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Return NumPy's dtype for one of PyTorch.

    >>> numpy_dtype(torch.float32)
    dtype('float32')
    """
    return np.dtype(str(dtype).removeprefix("torch."))


def settle(parameters: Sequence[Parameter]) -> None:
    """Bring parameters home that an engine has on a device: PyTorch's optimizers write to their memory."""
    for parameter in parameters:
        if parameter.away is not None and not parameter.away.stays:
            _ = parameter.value


def as_tensor(array: object) -> torch.Tensor:
    """Return an array as a tensor, over the same memory where it can be written to."""
    array = np.asarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


class _BatchFunction(torch.autograd.Function):
    """The function from parameters and reads to the stacked results of a batch; with a dtype, to its loss."""

    @staticmethod
    def forward(ctx: Any, call: BackwardCall, dtype: torch.dtype | None, *sources: torch.Tensor) -> Any:
        """Return the summed loss as a scalar, or the results stacked by shape and dtype."""
        ctx.call, ctx.of_loss = call, dtype is not None
        ctx.save_for_backward(*sources)  # PyTorch then refuses parameters changed before the backward pass
        if dtype is not None:
            return call.summed(dtype)
        ctx.set_materialize_grads(False)
        stacked = call.stacked()
        ctx.mark_non_differentiable(*[values for values in stacked if not values.is_floating_point()])
        return tuple(stacked)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of parameters and reads for the gradients of loss or results."""
        sources, call = ctx.saved_tensors, ctx.call
        groups = None if ctx.of_loss else call.groups()
        tensors = call.of_loss(*grads) if ctx.of_loss else call.of_results(grads)
        if torch.is_grad_enabled():  # as create_graph=True asks: else PyTorch takes gradients for constants
            tensors = call.twice.differentiable(call, tensors, sources, grads, groups)
        return None, None, *tensors


def stacked_results(call: BackwardCall, sources: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return the values of results, those of one shape and dtype as one tensor ``[m, *shape]``."""
    stacked: tuple[torch.Tensor, ...] = _BatchFunction.apply(call, None, *sources)
    return stacked


def summed_loss(call: BackwardCall, dtype: torch.dtype, sources: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the sum of the losses, of a dtype; other arguments are those of `stacked_results`."""
    loss: torch.Tensor = _BatchFunction.apply(call, dtype, *sources)
    return loss


def no_results(
    type_: TensorType, sources: Sequence[torch.Tensor], place: torch.device | None = None
) -> torch.Tensor:
    """Return the stacked results of no examples, ``[0, *shape]``, on a device; their gradients are zeros.

    >>> no_results(TensorType((2,), "float32"), [torch.ones(3, requires_grad=True)]).requires_grad
    True
    """
    dtype = getattr(torch, type_.dtype)
    slices = [tensor.reshape(-1)[:0].to(place, dtype) for tensor in sources]
    return torch.cat([torch.zeros(0, dtype=dtype, device=place), *slices]).reshape(0, *type_.shape)
