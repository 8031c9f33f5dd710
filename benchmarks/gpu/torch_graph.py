"""The SST Tree-LSTM in PyTorch as one CUDA graph a batch: the strongest peer on a GPU.

A graph has fixed shapes and addresses, and no two batches have the same shape. So every level has room for
the most rows that it has in any batch that will be run (as the JAX peer has), and rows to spare read and
write where it does not matter. That favours the peer: over a whole treebank there would be more rows to
spare. A batch is one copy of its row numbers and one launch of the graph; the backward pass is written by
hand.

Without a GPU the same program runs without being captured, to be tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.flat import FlatTree, level_order
from benchmarks.gpu.room import packed, room_for
from benchmarks.jax_peer import common_shape
from benchmarks.peers import BETAS, EPS, LEARNING_RATE, Array, Tensor, TorchPeer

Batch = Sequence[FlatTree] | Array  # trees, or what `TorchCaptured.planned` made of them
WARM_UP = 3  # runs before a graph is captured


class TorchCaptured(TorchPeer):
    """The model for batches of one size that are known beforehand.

    Args:
        hidden: as of `TorchPeer`, with `vocabulary_size`, `parameters` and `device`.
        batches: all batches that will be run, each of as many trees.
    """

    def __init__(
        self,
        hidden: int,
        vocabulary_size: int,
        parameters: Mapping[str, Array],
        batches: Sequence[Sequence[FlatTree]],
        *,
        device: str = "cpu",
    ) -> None:
        spare = np.zeros_like(parameters["embedding"][:1])
        more = {**parameters, "embedding": np.concatenate([parameters["embedding"], spare])}
        super().__init__(hidden, vocabulary_size + 1, more, device=device)
        torch = self.torch
        self.room = room = room_for(common_shape([level_order(trees) for trees in batches]), len(batches[0]))
        sizes = room.sizes
        self._numbers = torch.zeros(sum(sizes.values()), dtype=torch.int64, device=device)
        self.at = dict(zip(sizes, self._numbers.split(list(sizes.values())), strict=True))
        new, rows = self.embedding.new_zeros, room.rows + 1
        self.h, self.c, self.d_h, self.d_c = (new(rows, hidden) for _ in range(4))
        self.gates, self.tanh_c = new(room.nodes, 5 * hidden), new(room.nodes, hidden)
        self.total, self.power = new(()), new(())
        self.scores = new(room.roots, 5)
        for weight in self.parameters.values():
            weight.grad = torch.zeros_like(weight)
        self._means = {
            name: (torch.zeros_like(w), torch.zeros_like(w)) for name, w in self.parameters.items()
        }
        state = [*self.parameters.values(), self.embedding, self._mean, self._square, self.power]
        state += [moment for moments in self._means.values() for moment in moments]
        self._train = self._captured(self._whole_step, state)
        self._infer = self._captured(self._whole_inference, state)

    def advance(self, trees: Batch) -> Tensor:
        """Train on a batch; return the loss before the update, which the next batch overwrites."""
        self._bring(trees)
        self._train()
        return self.total

    def loss(self, trees: Batch) -> float:
        """Return the loss of a batch, without learning from it."""
        self._bring(trees)
        with self.torch.no_grad():
            self._forward()
            return float(self._losses()[0])

    def infer(self, trees: Batch) -> Array:
        """Return the logits of the roots: ``[trees, 5]``."""
        self._bring(trees)
        self._infer()
        scores: Array = self.scores.cpu().numpy()
        return scores

    def planned(self, trees: Sequence[FlatTree]) -> Array:
        """Return a batch's row numbers, which all methods take in the place of its trees."""
        return packed(level_order(trees), self.room, len(self.embedding) - 1)

    def _bring(self, batch: Batch) -> None:
        numbers = self.torch.from_numpy(batch if isinstance(batch, np.ndarray) else self.planned(batch))
        if self.device != "cpu":
            numbers = numbers.pin_memory()
        self._numbers.copy_(numbers, non_blocking=True)

    def _captured(self, task: Callable[[], None], state: Sequence[Tensor]) -> Callable[[], None]:
        """Return what runs a task: a graph of it where there is a GPU. What warming up changed is undone."""
        if self.device == "cpu":
            return task
        kept = [tensor.detach().clone() for tensor in state]
        self._numbers.fill_(0)
        self.at["labels"].fill_(-1)
        replay = captured(self.torch, task)
        with self.torch.no_grad():
            for tensor, value in zip(state, kept, strict=True):
                tensor.copy_(value)
        return replay

    def _whole_inference(self) -> None:
        with self.torch.no_grad():
            self._forward()
            roots = self.h[self.room.rows - self.room.roots : self.room.rows]
            self.scores.copy_(self._classify(roots))

    def _whole_step(self) -> None:
        with self.torch.no_grad():
            x, leaf_gates, leaf_tanh_c = self._forward()
            loss, d_logits = self._losses()
            self.total.copy_(loss)
            self._backward_levels(d_logits)
            d_x = self._backward_leaves(x, leaf_gates, leaf_tanh_c)
            self._update(d_x)

    def _forward(self) -> tuple[Tensor, Tensor, Tensor]:
        torch, w, size, at = self.torch, self.parameters, self.hidden, self.at
        x = self.embedding.index_select(0, at["words"])
        leaf_gates = torch.addmm(w["leaf_bias"], x, w["leaf_weight"])
        leaf_gates[:, : 2 * size].sigmoid_()
        leaf_gates[:, 2 * size :].tanh_()
        i, o, u = leaf_gates.split(size, 1)
        leaf_c = i * u
        leaf_tanh_c = leaf_c.tanh()
        self.h.index_copy_(0, at["leaf_rows"], (o * leaf_tanh_c).index_select(0, at["word_of_leaf"]))
        self.c.index_copy_(0, at["leaf_rows"], leaf_c.index_select(0, at["word_of_leaf"]))
        for nodes, children in self.room.levels:
            g, to = self.gates[nodes], at["inner_rows"][nodes]
            torch.addmm(w["node_bias"], self.h[children].view(-1, 2 * size), w["node_weight"], out=g)
            g[:, : 4 * size].sigmoid_()
            g[:, 4 * size :].tanh_()
            i, f_left, f_right, o, u = g.split(size, 1)
            left, right = self.c[children].view(-1, 2, size).unbind(1)
            new_c = (i * u).addcmul_(f_left, left).addcmul_(f_right, right)
            t = torch.tanh(new_c, out=self.tanh_c[nodes])
            self.h.index_copy_(0, to, o * t)
            self.c.index_copy_(0, to, new_c)
        return x, leaf_gates, leaf_tanh_c

    def _losses(self) -> tuple[Tensor, Tensor]:
        """Return the mean loss of a tree, and its gradient by the logits: zero in rows to spare."""
        labels = self.at["labels"]
        valid = (labels >= 0).to(self.h.dtype)[:, None] / self.room.roots
        at = labels.clamp_min(0)[:, None]
        log_p = self._classify(self.h).log_softmax(1)
        loss = -(log_p.gather(1, at) * valid).sum()
        d_logits = log_p.exp_()
        d_logits.scatter_add_(1, at, d_logits.new_full(at.shape, -1.0)).mul_(valid)
        return loss, d_logits

    def _backward_levels(self, d_logits: Tensor) -> None:
        torch, w, size = self.torch, self.parameters, self.hidden
        sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
        tanh_backward = torch.ops.aten.tanh_backward
        torch.mm(self.h.t(), d_logits, out=w["out_weight"].grad)
        torch.sum(d_logits, 0, out=w["out_bias"].grad)
        torch.mm(d_logits, w["out_weight"].t(), out=self.d_h)
        # d_c of roots and of the spare row is zero, as nobody reads their c and nobody writes it
        for nodes, children in reversed(self.room.levels):
            g, t, rows = self.gates[nodes], self.tanh_c[nodes], self.at["inner_rows"][nodes]
            i, f_left, f_right, o, u = g.split(size, 1)
            left, right = self.c[children].view(-1, 2, size).unbind(1)
            dh = self.d_h.index_select(0, rows)
            d = torch.empty_like(g)
            d_i, d_left, d_right, d_o, d_u = d.split(size, 1)
            torch.mul(dh, t, out=d_o)
            dc = self.d_c.index_select(0, rows).add_(tanh_backward(dh.mul_(o), t))
            torch.mul(dc, u, out=d_i)
            torch.mul(dc, left, out=d_left)
            torch.mul(dc, right, out=d_right)
            torch.mul(dc, i, out=d_u)
            child_c = self.d_c[children].view(-1, 2, size)
            torch.mul(dc, f_left, out=child_c[:, 0])
            torch.mul(dc, f_right, out=child_c[:, 1])
            sigmoid_backward(d[:, : 4 * size], g[:, : 4 * size], grad_input=g[:, : 4 * size])
            tanh_backward.grad_input(d[:, 4 * size :], g[:, 4 * size :], grad_input=g[:, 4 * size :])
            self.d_h[children].view(-1, 2 * size).addmm_(g, w["node_weight"].t())
        if self.room.levels:
            last = self.room.levels[-1][1].stop
            torch.mm(self.h[:last].view(-1, 2 * size).t(), self.gates, out=w["node_weight"].grad)
            torch.sum(self.gates, 0, out=w["node_bias"].grad)

    def _backward_leaves(self, x: Tensor, leaf_gates: Tensor, t: Tensor) -> Tensor:
        torch, w, size, at = self.torch, self.parameters, self.hidden, self.at
        dh, dc = (
            torch.zeros_like(x).index_add_(0, at["word_of_leaf"], d.index_select(0, at["leaf_rows"]))
            for d in (self.d_h, self.d_c)
        )
        i, o, u = leaf_gates.split(size, 1)
        dc += torch.ops.aten.tanh_backward(dh * o, t)
        d = torch.cat([dc * u, dh * t, dc * i], 1)
        d[:, : 2 * size] = torch.ops.aten.sigmoid_backward(d[:, : 2 * size], leaf_gates[:, : 2 * size])
        d[:, 2 * size :] = torch.ops.aten.tanh_backward(d[:, 2 * size :], leaf_gates[:, 2 * size :])
        torch.mm(x.t(), d, out=w["leaf_weight"].grad)
        torch.sum(d, 0, out=w["leaf_bias"].grad)
        return d @ w["leaf_weight"].t()

    def _update(self, d_x: Tensor) -> None:
        """Take a step of Adam, its bias corrections computed on the device: a graph's numbers are fixed."""
        torch, rows = self.torch, self.at["words"]
        self.power += 1
        first, second = (1 - torch.pow(beta, self.power) for beta in BETAS)
        for name, weight in self.parameters.items():
            mean, square = self._means[name]
            mean.lerp_(weight.grad, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(weight.grad, weight.grad, value=1 - BETAS[1])
            weight.sub_(mean / ((square / second).sqrt_().add_(EPS)) * (LEARNING_RATE / first))
        mean = self._mean.index_select(0, rows).lerp_(d_x, 1 - BETAS[0])
        square = self._square.index_select(0, rows).mul_(BETAS[1]).addcmul_(d_x, d_x, value=1 - BETAS[1])
        self._mean.index_copy_(0, rows, mean)
        self._square.index_copy_(0, rows, square)
        step = mean / ((square / second).sqrt_().add_(EPS)) * (LEARNING_RATE / first)
        self.embedding.index_copy_(0, rows, self.embedding.index_select(0, rows).sub_(step))


def captured(torch: Any, task: Callable[[], None]) -> Callable[[], None]:
    """Run a task some times to warm up, capture it as a CUDA graph, and return what runs the graph."""
    cuda = torch.cuda
    stream = cuda.Stream()
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        for _ in range(WARM_UP):
            task()
    cuda.current_stream().wait_stream(stream)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        task()
    replay: Callable[[], None] = graph.replay
    return replay
