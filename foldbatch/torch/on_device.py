"""Calls of a module on a device: results, losses, gradients are tensors there, and the host waits for none.

`DeviceCall` does what `BackwardCall` does on the CPU. What it returns is memory that the engine has written,
and what it is given is read where it lies; indices alone, which depend on the examples' shapes, come from the
host. `CopiedCall` is the slow way, for batches that run in several parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from foldbatch.engines.batch import ScheduledBatch, arenas_of
from foldbatch.engines.cuda.device import DeviceArray, DeviceRows
from foldbatch.engines.cuda.run import CudaRun, PartlyThere, StackedCotangents
from foldbatch.engines.held import WaitingBatch
from foldbatch.params.gradients import BatchGradients
from foldbatch.params.parameters import Gradient, Parameter, dense
from foldbatch.torch.device import TorchDevice
from foldbatch.torch.gradients import BackwardCall, TensorRead, refuse_hidden
from foldbatch.torch.second import FirstPass

Place = tuple[int, int]  # cell and feed


@dataclass(slots=True)
class ReadsThere:
    """The rows of tensors that examples hold, for the data of a batch on a device, and their gradients."""

    device: TorchDevice
    reads: Sequence[TensorRead]
    traced: Sequence[int]  # the numbers of the examples that were read now

    def feed(self, batch: ScheduledBatch, feeds: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        """Return a batch's data by rank, in which the rows that the device has stand for zeros."""
        columns = [list(cell) for cell in feeds]
        for (k, i), reads in self.by_place().items():
            values = [read.values.detach() for read in reads]
            rows = self.device.array(values[0] if len(values) == 1 else torch.cat(values))
            columns[k][i] = PartlyThere(columns[k][i], self._ranks(batch, reads), rows)
        return columns

    def _ranks(self, batch: ScheduledBatch, reads: Sequence[TensorRead]) -> NDArray[np.int64]:
        """Return the ranks of the calls that read the rows of one feed, in their order."""
        order = np.asarray(batch.schedule.orders[reads[0].cell])
        rank_of_call = np.empty(len(order), np.int64)
        rank_of_call[order] = np.arange(len(order))
        ranks: NDArray[np.int64] = rank_of_call[np.concatenate([self._calls(batch, read) for read in reads])]
        return ranks

    def by_place(self) -> dict[Place, list[TensorRead]]:
        """Return the reads of each feed, in their order."""
        places: dict[Place, list[TensorRead]] = {}
        for read in self.reads:
            places.setdefault((read.cell, read.feed), []).append(read)
        return places

    def _calls(self, batch: ScheduledBatch, read: TensorRead) -> NDArray[np.int64]:
        """Return the calls that read rows: the other examples were traced before, with no tensors."""
        ours = np.isin(batch.merged.examples(read.cell), np.asarray(self.traced, np.int64))
        return read.places if ours.all() else np.flatnonzero(ours)[read.places]

    def gradients(self, run: CudaRun) -> dict[int, torch.Tensor]:
        """Return the gradients of reads after a backward pass, by identity, in the order of their rows."""
        gradients: dict[int, torch.Tensor] = {}
        for place, reads in self.by_place().items():
            array, rows = run.input_rows(place), run.placed_rows.get(place)
            if array is None:  # nothing depends on it
                gradients |= {id(read): torch.zeros_like(read.values) for read in reads}
                continue
            if rows is None:  # it came from the host
                rows = self.device.put(run.rows_of(place[0], self._ranks(run.ready.batch, reads)))
            start = 0
            for read in reads:
                stop = start + len(read.values)
                places = self.device.tensor(rows)[start:stop]
                gradient = self.device.tensor(array).index_select(0, places)
                gradients[id(read)] = gradient.to(read.values.device)
                start = stop
        return gradients


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCall(BackwardCall):
    """One call of a module on a device, of a batch that is one part."""

    device: TorchDevice
    all_reads: ReadsThere  # those that no gradient is wanted of, too
    together: bool  # whether the backward pass from the loss is launched with the forward pass
    _pulled_ahead: list[tuple[BatchGradients[Parameter], CudaRun]] = field(
        default_factory=list, init=False, repr=False
    )
    _numbers: list[NDArray[np.int64]] = field(default_factory=list, init=False, repr=False)

    @property
    def run(self) -> CudaRun:
        """The batch under way."""
        run = self.batch.parts[0].run
        assert isinstance(run, CudaRun), "it is a batch of the device"
        return run

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers of all values of results in the batch, in the order of values: ``[n]``."""
        if not self._numbers:
            self._numbers.append(np.array(self.batch.numbers[0], np.int64))
        return self._numbers[0]

    def _arenas(self) -> NDArray[np.int64]:
        """Return the arena of each value of results: ``[n]``."""
        model = self.run.model
        if len(model.results) == 1:
            return np.full(len(self.numbers), next(iter(model.results)), np.int64)
        trace = self.batch.parts[0].batch.merged.trace
        return arenas_of(trace, model.signatures).take(self.numbers)

    def _grouped(self) -> list[NDArray[np.int64]]:
        """Return the places of values that have one shape and dtype, by the types of their arenas."""
        arenas, groups = self._arenas(), dict[Any, list[NDArray[np.int64]]]()
        distinct, first = np.unique(arenas, return_index=True)
        for arena in distinct[np.argsort(first)].tolist():
            type_ = self.run.model.arenas[arena]
            groups.setdefault((type_.shape, type_.dtype), []).append(np.flatnonzero(arenas == arena))
        return [np.sort(np.concatenate(places)) for places in groups.values()]

    def summed(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the sum of the losses as a scalar; nobody waits for it."""
        run = self.run
        if self.together and not run.ready.looks:  # else the host would wait
            self._pulled_ahead.append(self._pull(()))
        name = "float32" if dtype == torch.float32 else "float64"
        loss = self.device.tensor(run.loss(name)).detach().to(dtype)  # which may be changed in place
        self.device.watch(run.status)
        return loss

    def stacked(self) -> list[torch.Tensor]:
        """Return the values of results, those of a group as one tensor ``[m, *shape]``; nobody waits."""
        arenas, tensors = self._arenas(), []
        for places in self.groups():
            arenas_of_group = arenas[places]
            parts, order = [], []
            for arena in np.unique(arenas_of_group).tolist():
                inside = np.flatnonzero(arenas_of_group == arena)
                order.append(inside)
                parts.append(self.device.tensor(self.run.gathered(arena, self.numbers[places[inside]])))
            if len(parts) == 1:
                tensors.append(parts[0])
            else:
                back = np.argsort(np.concatenate(order), kind="stable")
                tensors.append(torch.cat(parts).index_select(0, self.device.index(back)))
        self.device.watch(self.run.status)
        return tensors

    def of_loss(self, grad: torch.Tensor) -> list[torch.Tensor | None]:
        """Return the gradients of parameters, then those of reads, for the gradient of `summed`."""
        refuse_hidden(grad)
        pulled = self._pulled_ahead.pop() if self._pulled_ahead else self._pull(())
        return self._tensors(*pulled, grad.detach())

    def of_results(self, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Return the gradients of parameters, then those of reads, for the gradients of `stacked`."""
        arenas, stacked = self._arenas(), list[StackedCotangents]()
        for places, grad in zip(self.groups(), grads, strict=True):
            if grad is None or not grad.is_floating_point():
                continue
            refuse_hidden(grad)
            arenas_of_group = arenas[places]
            distinct = np.unique(arenas_of_group).tolist()
            for arena in distinct:
                inside = np.flatnonzero(arenas_of_group == arena)
                terms = grad if len(distinct) == 1 else grad.index_select(0, self.device.index(inside))
                numbers = self.numbers[places[inside]]
                stacked.append(StackedCotangents(arena, numbers, self.device.array(terms)))
        return self._tensors(*self._pull(stacked))

    def _pull(self, stacked: Sequence[StackedCotangents]) -> tuple[BatchGradients[Parameter], CudaRun]:
        """Run the batch backward from losses and cotangents of results; return gradients, and what ran."""
        self.device.enter()
        ran: list[CudaRun] = []

        def pull(run: CudaRun) -> dict[Parameter, Gradient]:
            ran.append(run)
            return run.backward((), stacked, looked=False)

        return self.batch.pulled(pull), ran[0]

    def _tensors(
        self, gradients: BatchGradients[Parameter], run: CudaRun, factor: torch.Tensor | None = None
    ) -> list[torch.Tensor | None]:
        """Return the gradients of parameters, then those of reads, after a backward pass; times a factor."""
        self.device.flush()
        slopes = run.slopes() if factor is not None else None
        if factor is not None and slopes is not None:  # first, so that what is made of them is scaled, too
            self.device.tensor(slopes).mul_(factor)
        tensors, unscaled = list[torch.Tensor | None](), list[torch.Tensor]()
        for parameter in self.parameters:
            gradient: Any = None if parameter in gradients.unused else gradients.get(parameter)
            tensor = None if gradient is None else self._of_parameter(gradient, parameter)
            tensors.append(tensor)
            array = gradient.values if isinstance(gradient, DeviceRows) else gradient
            scaled = slopes is not None and getattr(array, "buffer", None) is slopes.buffer
            if tensor is not None and not scaled:  # the memory of a sparse one is that of its values
                unscaled.append(tensor.values() if tensor.is_sparse else tensor)
        if self.reads:
            by_read = self.all_reads.gradients(run)
            of_reads = [by_read[id(read)] for read in self.reads]
            tensors += of_reads
            unscaled += of_reads
        if factor is not None and unscaled:
            torch._foreach_mul_(unscaled, factor)
        return tensors

    def _of_parameter(self, gradient: Any, parameter: Parameter) -> torch.Tensor | None:
        """Return the gradient of a parameter as a tensor, sparse where the module is."""
        if isinstance(gradient, DeviceRows) and self.sparse:
            values, places = self.device.tensor(gradient.values), self.device.tensor(gradient.places)  # type: ignore[arg-type]
            return torch.sparse_coo_tensor(
                places[None], values, gradient.shape, is_coalesced=True, check_invariants=False
            )
        array = dense(gradient)
        if isinstance(array, DeviceArray):
            tensor = self.device.tensor(array)
            # PyTorch keeps it as the parameter's gradient where nobody else has it
            return tensor.detach() if tensor is array.buffer.tensor else tensor
        # no call has a gradient of it
        zeros = torch.zeros(
            parameter.type.shape, dtype=getattr(torch, parameter.type.dtype), device=self.device.place
        )
        return zeros.to_sparse(1) if self.sparse and not isinstance(gradient, np.ndarray) else zeros


@dataclass(frozen=True, slots=True, eq=False)
class CopiedCall(BackwardCall):
    """One call of a module on a device, by way of the host: of a batch in several parts, or of none."""

    device: TorchDevice

    def summed(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the sum of the losses as a scalar."""
        return BackwardCall.summed(self, dtype).to(self.device.place)

    def stacked(self) -> list[torch.Tensor]:
        """Return the values of results, those of a group as one tensor ``[m, *shape]``."""
        return [tensor.to(self.device.place) for tensor in BackwardCall.stacked(self)]

    def of_loss(self, grad: torch.Tensor) -> list[torch.Tensor | None]:
        """Return the gradients of parameters, then those of reads, for the gradient of `summed`."""
        return self._there(BackwardCall.of_loss(self, grad.cpu()))

    def of_results(self, grads: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Return the gradients of parameters, then those of reads, for the gradients of `stacked`."""
        home = [grad if grad is None else grad.cpu() for grad in grads]
        return self._there(BackwardCall.of_results(self, home))

    def _there(self, tensors: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """Move the gradients of parameters to the device; those of reads are of tensors of the host."""
        count = len(self.parameters)
        moved = [tensor if tensor is None else tensor.to(self.device.place) for tensor in tensors[:count]]
        return [*moved, *tensors[count:]]


def call_on(
    device: TorchDevice,
    batch: WaitingBatch,
    parameters: Sequence[Parameter],
    reads: ReadsThere,
    traced: Sequence[int],
    *,
    sparse: bool,
    together: bool,
) -> BackwardCall:
    """Return the call of a batch on a device.

    Args:
        device: the device.
        batch: it has run forward, or will by itself.
        parameters: those that gradients are wanted of.
        reads: of tensors, on the device or on the host.
        traced: the numbers of the examples that were read now.
        sparse: whether gradients of tables stay sparse.
        together: whether a backward pass from the loss is expected, so that both passes run as one.
    """
    wanted = [read for read in reads.reads if torch.is_grad_enabled() and read.values.requires_grad]
    if len(batch.parts) == 1 and isinstance(batch.parts[0].run, CudaRun):
        return DeviceCall(batch, parameters, wanted, traced, sparse, FirstPass(), device, reads, together)
    return CopiedCall(batch, parameters, wanted, traced, sparse, FirstPass(), device)
