"""``python -m benchmarks.gpu.host_torch``: the host's part of a step through `fb.torch.Module`, with no card.

The SST Tree-LSTM on batches planned before, on a card that does nothing (`benchmarks.gpu.nothing`) and whose
memory is that of PyTorch's tensors on the CPU. Milliseconds of the processor for both passes: of the program
itself, and of the module, by turns; and of the least function that PyTorch can have, which has as many
parameters and does nothing. The CPU does here what PyTorch does to tensors, and that is counted; on a card it
would be launched. So states are few: the host's own work does not depend on them.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch

import foldbatch as fb
from benchmarks.gpu import nothing
from benchmarks.gpu.contenders import MODELS, SST, launch_due
from benchmarks.gpu.trees import WORDS, sst_like_trees
from benchmarks.gpu.ways import WAYS
from benchmarks.options import add_batch, add_repeats, positive
from foldbatch.engines.engine import LAUNCH_VARIABLE
from foldbatch.torch import device
from foldbatch.torch.device import TorchDevice
from foldbatch.trees import Tree, Vocabulary

BATCHES, WARM = 4, 12  # that come in turn, and steps before the first that counts


class NothingCard:
    """A card that does nothing, with memory of the CPU; see `foldbatch.torch.device.Card`."""

    place, backend, pins, name = torch.device("cpu"), nothing.NAME, False, "nothing"

    def __init__(self) -> None:
        self.driver = nothing.driver()
        self._stream = self.driver.stream()

    def current(self) -> tuple[int, Any]:
        """Return the only stream."""
        return 0, self._stream

    def uses(self, tensor: torch.Tensor) -> None:
        """Do nothing: there is one stream."""

    def array(self, tensor: torch.Tensor) -> Any:
        """Return an array over a tensor's memory."""
        return tensor.numpy()

    def prepare(self, stream: Any) -> None:
        """Make ready a stream that is to be captured."""
        self.driver.prepare(stream)


class _Nowhere(torch.autograd.Function):  # type: ignore[misc]  # PyTorch has no types for it
    """The function that does nothing with parameters."""

    @staticmethod
    def forward(ctx: Any, *parameters: torch.Tensor) -> Any:
        """Return a loss."""
        ctx.save_for_backward(*parameters)
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Return gradients that are there."""
        return tuple([tensor.detach() for tensor in ctx.saved_tensors])


def _zeros(nbytes: int) -> Any:
    return np.zeros(nbytes, np.uint8)


def steps_of(
    way: str, hidden: int, words: int, batches: Sequence[Sequence[Tree]]
) -> tuple[Callable[[int], object], Callable[[int], object], Callable[[int], object]]:
    """Return functions that run both passes of a batch: the program's, a module's, and the least one's."""
    vocabulary = Vocabulary([f"w{i}" for i in range(1, words)], unknown="w0")
    backend: Any = nothing.NAME
    launch: Any = way
    program = fb.compile(MODELS[SST].block(hidden, vocabulary, "float32"), backend, launch=launch)
    there = TorchDevice(NothingCard())
    there.driver.pinned = _zeros  # type: ignore[method-assign] # nothing is copied: no batch is bad
    found = mock.patch.object(device, "find", return_value=there)
    with found, mock.patch.dict("os.environ", {LAUNCH_VARIABLE: way}):
        module = fb.torch.Module(MODELS[SST].block(hidden, vocabulary, "float32"), sparse=True)
    for owner in (program, module.program):
        owner.warm([tree for trees in batches for tree in trees], len(batches[0]))
    plans = [[owner.plan(trees) for trees in batches] for owner in (program, module.program)]

    def alone(number: int) -> None:
        program.value_and_grad(plans[0][number])
        launch_due(program)

    def inside(number: int) -> None:
        module.zero_grad()
        module.loss(plans[1][number]).backward()

    least = [torch.nn.Parameter(torch.zeros(1)) for _ in module.parameters()]

    def nowhere(_: int) -> None:
        for parameter in least:
            parameter.grad = None
        _Nowhere.apply(*least).backward()

    return alone, inside, nowhere


def main(arguments: Sequence[str] | None = None) -> int:
    """Time both, and print milliseconds; return the exit status."""
    parser = ArgumentParser(
        prog="python -m benchmarks.gpu.host_torch", description=(__doc__ or "").partition("\n")[0]
    )
    add_batch(parser, 256)
    add_repeats(parser, 50)
    parser.add_argument("--hidden", type=positive, default=8, metavar="N", help="size of states (default 8)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    trees = sst_like_trees(BATCHES * options.batch)
    batches = [trees[k * options.batch : (k + 1) * options.batch] for k in range(BATCHES)]
    print(f"{SST}, hidden {options.hidden}, {BATCHES} batches of {options.batch} trees; no card")
    for way in WAYS:
        with nothing.entered(), mock.patch.object(device, "ALIGNMENT", 1):  # a card's memory is aligned
            found = steps_of(way, options.hidden, WORDS, batches)
            seconds: tuple[list[float], ...] = [], [], []
            for turn in range(WARM + options.repeats * BATCHES):
                for times, step in zip(seconds, found, strict=True):
                    start = time.thread_time()
                    step(turn % BATCHES)
                    times.append(time.thread_time() - start)
        alone, inside, least = (1e3 * median(times[WARM:]) for times in seconds)
        pairs = zip(seconds[0][WARM:], seconds[1][WARM:], strict=True)
        more = 1e3 * median(b - a for a, b in pairs)
        told = f"{alone:.3f} ms by the program, {inside:.3f} ms by the module: {more:+.3f} ms"
        print(f"{way:9} {told}; {least:.3f} ms by one that does nothing", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
