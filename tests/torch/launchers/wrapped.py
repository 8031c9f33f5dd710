"""Work of ranks that torchrun has started: modules inside of DistributedDataParallel.

    python -m torch.distributed.run --standalone --nproc-per-node 2 -m tests.torch.launchers.wrapped FOLDER

Each rank writes what it found to ``FOLDER/RANK.json``.
"""

import json
import random
import sys
import warnings
from hashlib import sha256
from pathlib import Path

import torch
from torch import distributed
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import foldbatch as fb
from foldbatch.errors import RankWarning
from tests.torch.models import loss_of, tree_of


def tree(draws, depth=3):
    if depth == 0 or draws.random() < 0.3:
        return draws.randrange(10)
    return (tree(draws, depth - 1), tree(draws, depth - 1))


DRAWS = random.Random(0)
TREES = [tree(DRAWS) for _ in range(48)]


class Net(torch.nn.Module):
    """A tree, and PyTorch's layers on top of it, one of them with buffers."""

    def __init__(self, normalised=False):
        super().__init__()
        torch.manual_seed(3)
        self.tree = fb.torch.Module(tree_of(), "numpy", seed=1)
        self.norm = torch.nn.BatchNorm1d(4) if normalised else torch.nn.Identity()
        self.out = torch.nn.Linear(4, 2)

    def forward(self, trees):
        return self.out(self.norm(self.tree(trees)))


class Loss(fb.torch.Module):
    """A module whose forward pass is its own loss."""

    forward = fb.torch.Module.loss


def heads(names="abc"):
    """A module whose layers are used by some examples each."""
    cases = {name: fb.GetItem(1) >> fb.Vector(2) >> fb.Linear(1, name=name) for name in names}
    return fb.torch.Module(fb.OneOf(fb.GetItem(0), cases), "numpy", seed=1)


def function():
    """A module of a plain function that calls one of two layers; it has seen no examples."""
    layers = {name: fb.Linear(2, name=name) for name in "ab"}

    def chosen(example):
        return layers[example[0]](fb.tensor(example[1]))

    return fb.torch.Module(chosen, "numpy")


def digest(module):
    return sha256(b"".join(p.detach().numpy().tobytes() for p in module.parameters())).hexdigest()[:16]


def gradients(module):
    return {
        name: None if p.grad is None else p.grad.flatten().tolist() for name, p in module.named_parameters()
    }


def loss_on(model, trees):
    return (model(trees) ** 2).mean()


def said(attempt):
    """The sentences of the errors and warnings of an attempt."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            attempt()
        except Exception as error:  # noqa: BLE001 - its sentence is looked at
            return [f"{type(error).__name__}: {str(error).splitlines()[0]}"]
    return [f"RankWarning: {each.message}" for each in caught if issubclass(each.category, RankWarning)]


def trained(rank, size, steps=50, **options):
    """Fifty steps on shares of a batch."""
    net = Net()
    wrapper = DistributedDataParallel(net, **options)
    optimizer = torch.optim.Adam(wrapper.parameters(), 0.01)
    losses = []
    for step in range(steps):
        batch = TREES[step % 3 :: 3][rank::size]
        optimizer.zero_grad()
        loss = ((wrapper(batch) - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"digest": digest(net), "first": losses[0], "last": losses[-1]}


def split(rank, size):
    """The gradients of a batch that is split over the ranks, and of the whole batch."""
    whole, net = Net(), Net()
    loss_on(whole, TREES).backward()
    wrapper = DistributedDataParallel(net)
    loss_on(wrapper, TREES[rank::size]).backward()
    return {"whole": gradients(whole), "split": gradients(net)}


def accumulated(rank, size):
    """The gradients of four parts of a batch, of which the last exchanges; and how often ranks exchanged."""
    net = Net()
    wrapper = DistributedDataParallel(net)
    share = TREES[rank::size]
    parts = [share[k::4] for k in range(4)]
    alike = []
    for part in parts[:-1]:
        with wrapper.no_sync():
            (loss_on(wrapper, part) / 4).backward()
        mine = net.out.bias.grad.tolist()
        peers = [None] * size
        distributed.all_gather_object(peers, mine)
        alike.append(all(peer == mine for peer in peers))
    (loss_on(wrapper, parts[-1]) / 4).backward()
    return {"gradients": gradients(net), "exchanged before the last": any(alike)}


def unused(rank, size):
    """The gradients where rank 0 uses one layer, rank 1 another, and none the third."""
    result = {}
    for find in (False, True):
        module = heads()
        wrapper = DistributedDataParallel(module, find_unused_parameters=find)
        for _ in range(2):
            module.zero_grad()
            wrapper([("ab"[rank % 2], [1, 2])]).sum().backward()
        result[f"found {find}"] = gradients(module)
    for find in (False, True):
        net = torch.nn.ModuleDict({"one": heads("a"), "other": heads("b")})
        net.forward = lambda batch, net=net: net["one"](batch)
        wrapper = DistributedDataParallel(net, find_unused_parameters=find)

        def twice(wrapper=wrapper):
            for _ in range(2):
                wrapper([("a", [1 + rank, 2])]).sum().backward()

        result[f"a module that is not called, found {find}"] = said(twice)
    return result


def buffers(rank, size):
    """The statistics of BatchNorm, of this rank's shares; and after a call, which takes them over from rank 0."""
    net = Net(normalised=True)
    wrapper = DistributedDataParallel(net)
    loss_on(wrapper, TREES[rank::size]).backward()
    own = net.norm.running_mean.tolist()
    loss_on(wrapper, TREES).backward()
    return {"own": own, "taken over": net.norm.running_mean.tolist()}


def uneven(rank, size):
    """One rank has more batches than the others, and one an empty batch."""
    net = Net()
    wrapper = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with Join([wrapper]):
        for k in range(2 + rank):
            optimizer.zero_grad()
            loss_on(wrapper, TREES[k :: 6 + rank]).backward()
            optimizer.step()
    joined = digest(net)
    optimizer.zero_grad()
    wrapper(TREES[:4] if rank == 0 else []).sum().backward()
    optimizer.step()
    lossy = Loss(loss_of(tree_of()), "numpy", seed=1)
    lossy_wrapper = DistributedDataParallel(lossy)
    lossy_wrapper(TREES[:4] if rank == 0 else []).backward()
    alone = Loss(loss_of(tree_of()), "numpy", seed=1)
    (alone(TREES[:4]) / size).backward()
    return {"joined": joined, "digest": digest(net), "loss": gradients(lossy), "alone": gradients(alone)}


def functions(rank, size):
    """Modules of plain functions."""
    examples = [("a", [1.0, 2.0]), ("b", [3.0, 4.0])]
    module = function().warm(examples)
    wrapper = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for step in range(5):
        optimizer.zero_grad()
        wrapper([("ab"[(rank + step) % 2], [1.0 + rank, step])]).sum().backward()
        optimizer.step()
    inside = torch.nn.Sequential(function(), torch.nn.Linear(2, 1))
    late = function().warm(examples[:1])
    late_wrapper = DistributedDataParallel(late)
    late.warm(examples[1:])
    brought = function().warm(examples[:1])
    brought_wrapper = DistributedDataParallel(brought)
    unlike = function().warm(examples[rank % 2 :][:1])
    unlike_wrapper = DistributedDataParallel(unlike)

    def unlike_twice():
        for k in range(3):
            unlike_wrapper([("ab"[rank % 2], [1.0 + k, rank])]).sum().backward()

    return {
        "digest": digest(module),
        "not warm": said(lambda: DistributedDataParallel(function())),
        "not warm, inside": said(lambda: DistributedDataParallel(inside)),
        "not warm, optimizer": said(lambda: torch.optim.SGD(function().parameters(), 0.1)),
        "warm when wrapped": said(lambda: late_wrapper(examples)),
        "brought by a batch": said(lambda: brought_wrapper(examples)),
        "another at each rank": said(unlike_twice),
    }


def sentences(rank, size):
    """What is said of wrong uses, and not of right ones."""
    torch.manual_seed(0)

    def made():
        module = Loss(loss_of(tree_of()), "numpy", seed=1)
        return module, DistributedDataParallel(module)

    def calls(wrapper, batches):
        for batch in batches:
            wrapper(batch).backward()

    own = [TREES[k::6][rank::size] for k in range(3)]
    module, wrapper = made()
    checkpointed, around = Loss(loss_of(tree_of()), "numpy", seed=1), torch.nn.Module()
    around.inside = checkpointed
    around.forward = lambda batch: checkpoint(checkpointed, batch, use_reentrant=False)

    def past_without_exchange():
        with wrapper.no_sync():
            module(own[0]).backward()
        with torch.no_grad():
            module(own[0])

    return {
        "sparse": said(lambda: DistributedDataParallel(fb.torch.Module(tree_of(), "numpy", sparse=True))),
        "the same examples": said(lambda: calls(made()[1], [TREES[:4]] * 4)),
        "examples of its own": said(lambda: calls(made()[1], own)),
        "prepared": said(lambda: calls(wrapper, map(module.prepare, own))),
        "planned": said(lambda: calls(wrapper, map(module.plan, own))),
        "past the wrapper": said(lambda: calls(module, own)),
        "past it, on purpose": said(past_without_exchange),
        "checkpointed": said(lambda: calls(DistributedDataParallel(around), own)),
    }


def options(rank, size):
    """Some steps with other options of the wrapper."""
    chosen = [{"static_graph": True}, {"gradient_as_bucket_view": True}]
    return {str(each): trained(rank, size, 10, **each) for each in [{}, *chosen]}


ALL = [trained, split, accumulated, unused, buffers, uneven, functions, sentences, options]


def main(folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    found = {work.__name__: work(rank, size) for work in ALL}
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
