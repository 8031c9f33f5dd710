"""The call of a module as an op of `torch.library`, which `torch.compile` keeps in its graphs.

Examples are no tensors, and a graph holds tensors alone. So a prepared batch has a number, which a tensor
carries into the graph (`PreparedBatch.key`); when the graph runs, the op finds the batch by it. What the
backward pass needs, the batch that waits, is found by the address of a tensor that the op yields beside its
values: PyTorch keeps that tensor for the backward pass, and the waiting batch goes when it goes.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
import torch
from numpy.typing import NDArray

from foldbatch.errors import BackendError
from foldbatch.program.traced import Prepared
from foldbatch.torch import gradients


class PreparedBatch(Sequence[Prepared]):
    """Prepared examples. What moves batches to a device, as Lightning does, may call `to`.

    Attributes:
        key: ``[examples + 1] int64``: the number of the batch in this process, many times. A graph reads from
            its shape how many examples there are.
    """

    def __init__(self, examples: Iterable[Prepared] = ()) -> None:
        self._examples = tuple(examples)
        number = next(_numbers)
        self.key = torch.full((len(self._examples) + 1,), number)
        _BATCHES[number] = self

    @overload
    def __getitem__(self, place: int) -> Prepared: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Prepared, ...]: ...

    def __getitem__(self, place: int | slice) -> Prepared | tuple[Prepared, ...]:
        return self._examples[place]

    def __len__(self) -> int:
        return len(self._examples)

    def __repr__(self) -> str:
        return f"PreparedBatch({len(self)} examples)"

    def __reduce__(self) -> tuple[type[PreparedBatch], tuple[object, ...]]:
        return PreparedBatch, (self._examples,)  # a copy has a number of its own

    def to(self, *args: object, **kwargs: object) -> PreparedBatch:
        """Return the batch itself: it holds no tensors of examples."""
        return self


class Called(Protocol):
    """A module, as the op calls it."""

    def called(
        self,
        examples: PreparedBatch,
        parameters: Sequence[torch.Tensor],
        step: int | None,
        *,
        losses: bool,
        trained: bool,
    ) -> tuple[gradients.BackwardCall, list[torch.Tensor]]:
        """Run a batch forward; where it is `trained`, a backward pass may follow.

        The step draws random numbers. Parameters with other numbers than the module's own are refused.
        """


class Waiting(NamedTuple):
    """A call whose backward pass may come."""

    call: gradients.BackwardCall
    groups: list[NDArray[np.int64]] | None  # see `gradients.BackwardCall.groups`; None of a loss


_numbers = itertools.count(1)
_BATCHES: weakref.WeakValueDictionary[int, PreparedBatch] = weakref.WeakValueDictionary()
_MODULES: weakref.WeakValueDictionary[int, Called] = weakref.WeakValueDictionary()
_WAITING: dict[int, Waiting] = {}  # by the address of the tensor that stands for the call


def numbered(module: Called) -> int:
    """Return a number by which the op finds a module, as long as that lives."""
    number = next(_numbers)
    _MODULES[number] = module
    return number


# The seed is drawn in the graph, so PyTorch may take calls with the same inputs for one. `shape` is that of a
# result, or empty for a loss. The op yields the values, ``[examples, *shape]`` or a scalar, and the tensor
# that stands for the call.
torch.library.define(
    "foldbatch::call",
    "(Tensor key, Tensor? seed, Tensor[] parameters, SymInt module, SymInt[] shape, ScalarType dtype, "
    "bool losses, bool trained) -> (Tensor, Tensor)",
)
torch.library.define("foldbatch::gradients", "(Tensor call, Tensor grad, Tensor[] parameters) -> Tensor[]")


@torch.library.impl("foldbatch::call", "default")
def _call(
    key: torch.Tensor,
    seed: torch.Tensor | None,
    parameters: Sequence[torch.Tensor],
    module: int,
    shape: Sequence[int],
    dtype: torch.dtype,
    losses: bool,  # noqa: FBT001 - a schema has these in order
    trained: bool,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a batch forward."""
    batch, called = _BATCHES.get(int(key[0])), _MODULES.get(module)
    if batch is None or called is None:
        actual = "a graph that has outlived them"
        fix = "compile the model in the process that runs it, and keep what module.prepare returns"
        raise BackendError("fb.torch.Module", "a module and a batch of this process", actual, fix)
    step = None if seed is None else int(seed)
    call, sources = called.called(batch, parameters, step, losses=losses, trained=trained)
    with torch.no_grad():
        if losses:
            values = gradients.summed_loss(call, dtype, sources)
        else:
            stacked = gradients.stacked_results(call, sources)
            device = parameters[0].device if parameters else None
            values = stacked[0] if stacked else torch.zeros(0, *shape, dtype=dtype, device=device)
    address = np.zeros(1, np.int64)  # it lives as long as a tensor looks at its memory
    ticket = torch.from_numpy(address)
    if trained:
        _WAITING[ticket.data_ptr()] = Waiting(call, None if losses else call.groups())
        weakref.finalize(address, _WAITING.pop, ticket.data_ptr(), None)
    return values, ticket


@torch.library.register_fake("foldbatch::call")
def _call_on_fakes(
    key: torch.Tensor,
    seed: torch.Tensor | None,
    parameters: Sequence[torch.Tensor],
    module: int,
    shape: Sequence[int],
    dtype: torch.dtype,
    losses: bool,  # noqa: FBT001 - a schema has these in order
    trained: bool,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tensors of the shapes that `_call` yields."""
    extents = shape if losses else (key.shape[0] - 1, *shape)
    device = parameters[0].device if parameters else key.device
    return torch.empty(extents, dtype=dtype, device=device), torch.empty(1, dtype=torch.int64)


@torch.library.impl("foldbatch::gradients", "default")
def _gradients(
    ticket: torch.Tensor, grad: torch.Tensor, parameters: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Run a call backward; parameters that no call of the batch reads have gradients of zeros."""
    waiting = _WAITING.get(ticket.data_ptr())
    if waiting is None:
        expected, actual = "the tensor that the call has yielded, kept for its backward pass", "a copy of it"
        fix = "let no saved_tensors_hooks move what compiled models save, or give examples not prepared"
        raise BackendError("fb.torch.Module", expected, actual, fix)
    call, groups = waiting
    tensors = call.of_loss(grad) if groups is None else call.of_results([grad] if groups else [])
    pairs = zip(tensors, parameters, strict=True)
    return [torch.zeros_like(p) if g is None else g.contiguous() for g, p in pairs]


@torch.library.register_fake("foldbatch::gradients")
def _gradients_on_fakes(
    ticket: torch.Tensor, grad: torch.Tensor, parameters: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return tensors of the shapes of the parameters."""
    return [torch.empty_like(parameter) for parameter in parameters]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Keep what the backward pass reads: of the parameters those that gradients are wanted of."""
    _, _, parameters, _, shape, *_ = inputs
    ctx.wanted = [parameter.requires_grad for parameter in parameters]
    ctx.none_of_shape = None if shape else []  # PyTorch takes an empty list for one of tensors
    ctx.save_for_backward(output[1], *itertools.compress(parameters, ctx.wanted))


def _backward(ctx: Any, grad: torch.Tensor | None, _: object) -> tuple[Any, ...]:
    """Return the gradients of a call's parameters; other inputs have none."""
    ticket, *parameters = ctx.saved_tensors
    slopes = iter([None] * len(parameters))
    if grad is not None:
        slopes = iter(torch.ops.foldbatch.gradients(ticket, grad, parameters))
    of_parameters = [next(slopes) if wanted else None for wanted in ctx.wanted]
    return None, None, of_parameters, None, ctx.none_of_shape, None, None, None


def _refuse(ctx: Any, *_: object) -> Any:
    """Refuse second derivatives."""
    fix = "compute penalties on gradients outside of torch.compile, whose graphs know no second derivatives"
    raise BackendError("fb.torch.Module", "gradients, taken once", "gradients of gradients in a graph", fix)


torch.library.register_autograd("foldbatch::call", _backward, setup_context=_keep)
torch.library.register_autograd("foldbatch::gradients", _refuse)


class Form(NamedTuple):
    """The form of a module's calls, which a graph must know before they run."""

    number: int  # of the module, see `numbered`
    shape: tuple[int, ...] | None  # that of a result; None where a result is not one tensor
    dtype: torch.dtype
    of_loss: torch.dtype | None  # the dtype of the loss, if there is one


def results(
    form: Form, batch: PreparedBatch, parameters: Sequence[torch.Tensor], *, draws: bool
) -> torch.Tensor:
    """Return the stacked results of a batch, ``[examples, *shape]``, by the op.

    Args:
        form: of the module.
        batch: the batch.
        parameters: all of the module, in order.
        draws: whether the model draws random numbers.
    """
    assert form.shape is not None, "a result is one tensor"
    return _values(form, batch, parameters, form.shape, form.dtype, draws=draws, losses=False)


def loss(
    form: Form, batch: PreparedBatch, parameters: Sequence[torch.Tensor], *, draws: bool
) -> torch.Tensor:
    """Return the summed loss of a batch, a scalar, by the op; arguments are those of `results`."""
    assert form.of_loss is not None, "there is a loss"
    return _values(form, batch, parameters, (), form.of_loss, draws=draws, losses=True)


def _values(
    form: Form,
    batch: PreparedBatch,
    parameters: Sequence[torch.Tensor],
    shape: Sequence[int],
    dtype: torch.dtype,
    *,
    draws: bool,
    losses: bool,
) -> torch.Tensor:
    """Return the values of a call by the op, with a seed drawn for it."""
    seed = torch.randint(2**62, (), device="cpu") if draws else None
    trained = torch.is_grad_enabled()
    values: torch.Tensor
    values, _ = torch.ops.foldbatch.call(
        batch.key, seed, parameters, form.number, shape, dtype, losses, trained
    )
    return values
