"""What a module must do on a card: the same checks run on a GPU and on the card that the CPU stands for.

``python -m tests.torch.on_cuda cuda:0`` is one process of DistributedDataParallel, as `torchrun` starts it.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from unittest import mock

import torch

import foldbatch as fb
import tests.backends  # noqa: F401 - enters the engine that runs the GPU's kernels on the CPU
from tests.torch.card import on_card
from tests.torch.models import TREES, loss_of, tree_of

EXAMPLES = [*TREES, (4, (5, (6, 7))), ((8, 9), (1, 2)), 0, (0, 0)]


def pair_on(place, make, seed=3):
    """A module on the CPU, and one with the same numbers on a card."""
    with mock.patch("foldbatch.torch.device.find", lambda place: None):
        plain, moved = (fb.torch.Module(make(), seed=seed) for _ in range(2))
    return plain, moved.to(place)


def words_of():
    return fb.Map(fb.Vector(8) >> fb.Linear(8, "tanh", name="word")) >> fb.Sum() >> fb.Linear(2, name="out")


def results_equal(place):
    """Results, node values, losses, and all gradients; by rows, sparse, and after steps of an optimizer."""
    plain, moved = pair_on(place, lambda: tree_of(16))
    _stepped(plain, moved, lambda module: (module(EXAMPLES) ** 2).sum())
    plain, moved = pair_on(place, lambda: loss_of(tree_of(16)))
    _stepped(plain, moved, lambda module: module.loss(EXAMPLES))
    plain, moved = pair_on(place, lambda: fb.blocks.Collected(tree_of(16)) >> fb.GetItem(1))
    _stepped(plain, moved, lambda module: (module.nodes(EXAMPLES).values ** 2).sum())
    plain, moved = pair_on(place, words_of)
    numbers, found = torch.randn(3, 5, 8), []
    for module in (plain, moved):
        encoded = numbers.to(next(module.parameters()).device, copy=True).requires_grad_()
        rows = fb.torch.rows(encoded)
        result = module([rows[0], rows[1][:2], [], rows[2]])
        assert result.device == encoded.device
        (result**2).sum().backward()
        found += [result.detach().cpu(), encoded.grad.cpu()]
    torch.testing.assert_close(found[2], found[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[3], found[1], rtol=1e-4, atol=1e-5)


def _stepped(plain, moved, loss_of_module, steps=4):
    optimizers = [torch.optim.Adam(module.parameters(), 0.01) for module in (plain, moved)]
    for _ in range(steps):
        losses = []
        for module, optimizer in zip((plain, moved), optimizers, strict=True):
            optimizer.zero_grad()
            loss = loss_of_module(module)
            assert loss.device == next(module.parameters()).device
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().cpu())
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-5)
    for name, parameter in moved.named_parameters():
        torch.testing.assert_close(
            parameter.detach().cpu(), plain.get_parameter(name).detach(), rtol=1e-2, atol=1e-3
        )


def memory_is_shared(place):
    """Parameters and gradients are memory that the engine reads and writes."""
    _, module = pair_on(place, lambda: tree_of(16))
    engine = module.program.engine.device
    (module(EXAMPLES) ** 2).sum().backward()
    for name, parameter in module.named_parameters():
        ours = module.program.params.parameters[name]
        assert engine.values[ours].pointer == parameter.data_ptr()
        assert parameter.grad.device == parameter.device


def two_modules(place):
    """Modules on one card, one after the other and with backward passes in any order."""
    plain, moved = pair_on(place, lambda: tree_of(16))
    plain_words, moved_words = pair_on(place, words_of)
    x = torch.randn(2, 3, 8)
    found = []
    for trees, words in ((plain, plain_words), (moved, moved_words)):
        rows = fb.torch.rows(x.to(next(trees.parameters()).device))
        first, second, third = trees(EXAMPLES[:3]), words([rows[0], rows[1]]), trees(EXAMPLES[3:])
        ((first**2).sum() + (second**2).sum()).backward()
        (third**2).sum().backward()
        found.append([p.grad.cpu() for p in (*trees.parameters(), *words.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-5)


CHECKS = results_equal, memory_is_shared, two_modules


def main(place: str) -> int:
    """Train under DistributedDataParallel on one card, ``cpu`` for the emulated one; say that ranks are equal."""
    with on_card() if place == "cpu" else nullcontext():
        return trained_on(place)


def trained_on(place):
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    module = fb.torch.Module(tree_of(16), seed=3).to(place)
    assert module._device is not None
    parallel = torch.nn.parallel.DistributedDataParallel(module)
    optimizer = torch.optim.Adam(module.parameters(), 0.01, fused=True)
    for _ in range(10):
        optimizer.zero_grad()
        (parallel(EXAMPLES[rank::world]) ** 2).sum().backward()
        optimizer.step()
    numbers = torch.cat([p.detach().reshape(-1).cpu() for p in module.parameters()])
    found = [torch.empty_like(numbers) for _ in range(world)]
    torch.distributed.all_gather(found, numbers)
    assert all(torch.equal(one, found[0]) for one in found), "ranks differ"
    torch.distributed.destroy_process_group()
    print("equal")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
