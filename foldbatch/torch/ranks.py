"""Ranks: what a module sees of the `DistributedDataParallel` that wraps it, and of the other ranks' batches.

DistributedDataParallel adds the gradients of the parameters that it met when it was made, in the calls that
go through it, and takes it for granted that each rank has examples of its own. Each of these is looked at.
"""

from __future__ import annotations

import json
import os
import pickle
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from typing import Any, Final

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from foldbatch.communicators.finding import launched_by_torchrun
from foldbatch.errors import BackendError, ParameterError, RankWarning, frames_inside, shortened
from foldbatch.scheduler.trace import Trace

_WRAPPINGS: Final[weakref.WeakKeyDictionary[torch.nn.Module, Wrapping]] = weakref.WeakKeyDictionary()
_CALLS: Final = count()  # of modules in this process, that are to be differentiated
_WARNING_CALL: Final = 2  # the call that asks for a group: by then the program has made one
_WRAPPERS: Final[Counter[tuple[int, ...]]] = Counter()  # per group of ranks, how many wrappers it has made


@dataclass
class Wrapping:
    """A module inside of a DistributedDataParallel."""

    wrapper: weakref.ref[DistributedDataParallel]
    names: frozenset[str]  # of the parameters whose gradients are added
    key: str  # of the module, in the store of the group
    ranks: Sequence[int]  # of the group, the global numbers
    noted: bool = field(default=False, init=False)  # whether this rank has noted its first batch
    compared: bool = field(default=False, init=False)  # whether the notes of all ranks have been read
    warned: bool = field(default=False, init=False)  # whether a call past the wrapper has been warned of


def wrap(
    module: torch.nn.Module,
    number: int,
    names: Iterable[str],
    wrapper: DistributedDataParallel,
    *,
    sparse: bool,
) -> None:
    """Take note that a wrapper is being made around a module with parameters of these names.

    Args:
        module: one of ours.
        number: its place among the wrapped modules.
        names: of its parameters.
        wrapper: the DistributedDataParallel.
        sparse: whether the module yields sparse gradients.

    Raises:
        BackendError: when the module yields sparse gradients, which the wrapper cannot add.
    """
    if sparse:
        fix = "leave sparse=True out, or train with fb.train.DataParallel, which sends rows"
        raise BackendError(
            "fb.torch.Module", "dense gradients for DistributedDataParallel", "sparse=True", fix
        )
    ranks = tuple(distributed.get_process_group_ranks(wrapper.process_group))
    if number == 0:
        _WRAPPERS[ranks] += 1  # all ranks of the group make the wrapper together
    key = f"foldbatch/{'-'.join(map(str, ranks))}/{_WRAPPERS[ranks]}/{number}"
    _WRAPPINGS[module] = Wrapping(weakref.ref(wrapper), frozenset(names), key, ranks)


def check(module: torch.nn.Module, names: Iterable[str], traces: Iterable[Trace]) -> None:
    """Look at a call of a module that is to be differentiated.

    Of modules that no wrapper is around, or whose wrapper is not to add gradients, only one thing is asked:
    whether the processes that a launcher started are connected at all.

    Args:
        module: one of ours.
        names: of its parameters.
        traces: of the call's examples.

    Raises:
        ParameterError: when the module has parameters that its wrapper does not know, or other ones than at
            another rank: they would differ from rank to rank.
    """
    if next(_CALLS) == _WARNING_CALL:
        _warn_if_alone()
    wrapping = _WRAPPINGS.get(module)
    wrapper: Any = None if wrapping is None else wrapping.wrapper()
    if wrapping is None or wrapper is None or not wrapper.require_backward_grad_sync:
        return
    new = sorted({*names} - wrapping.names)
    if new:
        fix = "call module.warm(examples) before you make the wrapper, on all ranks with the same examples"
        expected = "the parameters that DistributedDataParallel knows"
        raise ParameterError("fb.torch.Module", expected, f"the new {shortened(new)}", fix)
    if DistributedDataParallel._get_active_ddp_module() is None:
        # what activation checkpointing computes again runs within a backward pass
        if wrapper.training and not wrapping.warned and torch._C._current_graph_task_id() == -1:
            wrapping.warned = True
            fix = "call the wrapper, around a module whose forward returns what you differentiate"
            expected = "a call of DistributedDataParallel, which adds the gradients of all ranks"
            actual = "one of the module inside, whose gradients stay this rank's"
            _warn(expected, actual, fix)
    elif not wrapping.compared and len(wrapping.ranks) > 1:
        _compare(wrapping, names, traces)


def _warn_if_alone() -> None:
    """Warn where torchrun, or a launcher that sets its variables, started processes that nothing connects."""
    processes = launched_by_torchrun(os.environ)
    if processes > 1 and not (distributed.is_available() and distributed.is_initialized()):
        fix = "call torch.distributed.init_process_group (Accelerate does on CPUs if ACCELERATE_USE_CPU=true)"
        actual = "none: each of them trains a model alone"
        _warn(f"a group that connects the {processes} processes that were started", actual, fix)


def _compare(wrapping: Wrapping, names: Iterable[str], traces: Iterable[Trace]) -> None:
    """Note this rank's first batch; at a later one compare the notes of all ranks. No rank waits.

    A backward pass adds the gradients of all ranks, so after the first one the notes are there.
    """
    store = _store()
    if store is None:
        wrapping.compared = True
        return
    keys = [f"{wrapping.key}/{rank}" for rank in wrapping.ranks]
    if not wrapping.noted:
        wrapping.noted = True
        note = json.dumps([sorted(names), _digest(traces)])
        store.set(f"{wrapping.key}/{distributed.get_rank()}", note)
        return
    if not store.check(keys):
        return
    wrapping.compared = True
    notes = [json.loads(store.get(key)) for key in keys]
    first, digest = notes[0]
    for rank, (peer, _) in zip(wrapping.ranks, notes, strict=True):
        if peer != first:
            odd = shortened(sorted({*peer} ^ {*first}))
            actual = f"{odd} at rank {rank} or {wrapping.ranks[0]} alone"
            fix = "call module.warm on all ranks with the same examples, before you make the wrapper"
            raise ParameterError("fb.torch.Module", "the same parameters at all ranks", actual, fix)
    if digest and all(peer == digest for _, peer in notes):
        fix = "split the data, as torch.utils.data.DistributedSampler or examples[rank::size] does"
        actual = f"the same first batch at all {len(notes)}"
        _warn("each rank to have examples of its own", actual, fix)


def _store() -> Any:
    """Return the store that the ranks share, None where this version of PyTorch does not tell it."""
    get = getattr(distributed.distributed_c10d, "_get_default_store", None)
    return get() if get is not None else None


def _digest(traces: Iterable[Trace]) -> str:
    """Return a digest of what was read of a batch, empty where there are no examples."""
    contents = [pickle.dumps(trace) for trace in traces]
    return blake2b(b"".join(contents), digest_size=16).hexdigest() if contents else ""


def _warn(expected: str, actual: str, fix: str) -> None:
    warnings.warn(RankWarning("fb.torch.Module", expected, actual, fix), stacklevel=frames_inside())
