"""The benchmark's model in PyTorch with its backward pass written by hand.

The strongest peer: no tape, states and gates in buffers that live from batch to batch, every
weight's gradient one GEMM over all nodes. It shows what is left to gain over a level program in
PyTorch once automatic differentiation costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod

from benchmarks.flat import FlatTree, LevelOrder, level_order
from benchmarks.peers import Array, Placed, Tensor, TorchPeer


@dataclass(frozen=True, slots=True)
class _Level:
    """A step of the level program: rows ``children`` make the inner nodes ``nodes``."""

    nodes: slice  # of the arrays that hold inner nodes only
    children: slice  # of the arrays that hold all rows


@dataclass(frozen=True, slots=True)
class _Forward:
    """What the forward pass leaves for the backward pass; ``[rows, ...]`` or ``[inner nodes, ...]``."""

    h: Tensor
    c: Tensor
    gates: Tensor
    tanh_c: Tensor
    leaf_gates: Tensor
    leaf_tanh_c: Tensor
    levels: list[_Level]


class TorchByHand(TorchPeer):
    """The model hand-batched by level, its gradient written by hand.

    Args:
        hidden: as in `TorchPeer`, with `vocabulary_size`, `parameters` and `device`.
        onednn: multiply matrices with oneDNN instead of PyTorch's default, through operations that
            PyTorch keeps for its compiler: faster for large batches where the default (MKL)
            does not use the widest vectors, slower for single trees.
    """

    def __init__(
        self,
        hidden: int,
        vocabulary_size: int,
        parameters: Mapping[str, Array],
        *,
        device: str = "cpu",
        onednn: bool = False,
    ) -> None:
        super().__init__(hidden, vocabulary_size, parameters, device=device)
        self.onednn = onednn
        self._buffers: dict[str, Tensor] = {}

    def _loss(self, trees: Sequence[FlatTree]) -> tuple[Tensor, Tensor, Tensor]:
        order = level_order(trees)
        at = self._place(order)
        x = self.embedding.index_select(0, at.words)
        h = self._forward(order, at, x).h
        return self._cross_entropy(h, at.labels) / len(trees), at.words, x

    def _roots(self, trees: Sequence[FlatTree]) -> Tensor:
        order = level_order(trees)
        at = self._place(order)
        x = self.embedding.index_select(0, at.words)
        return self._forward(order, at, x).h[-len(trees) :]

    def _backward(self, trees: Sequence[FlatTree]) -> tuple[Tensor, Tensor, Tensor]:
        torch, weights = self.torch, self.parameters
        with torch.no_grad():
            order = level_order(trees)
            at = self._place(order)
            x = self.embedding.index_select(0, at.words)
            forward = self._forward(order, at, x)
            log_p = self._classify(forward.h).log_softmax(1)
            labels = at.labels[:, None]
            loss = log_p.gather(1, labels).sum() / -len(trees)
            d_logits = log_p.exp_()
            d_logits.scatter_add_(1, labels, d_logits.new_full(labels.shape, -1.0)).div_(len(trees))
            weights["out_weight"].grad = forward.h.t() @ d_logits
            weights["out_bias"].grad = d_logits.sum(0)
            d_h = self._buffer("d_h", *forward.h.shape)
            torch.mm(d_logits, weights["out_weight"].t(), out=d_h)
            d_c = self._buffer("d_c", *forward.h.shape)
            d_c[-len(trees) :].zero_()  # no one reads the c of a root
            self._nodes_backward(at, forward, d_h, d_c)
            return loss, at.words, self._leaves_backward(at, forward, d_h, d_c, x)

    def _forward(self, order: LevelOrder, at: Placed, x: Tensor) -> _Forward:
        torch, weights, size = self.torch, self.parameters, self.hidden
        rows, inner = len(order.labels), len(order.inner_rows)
        h, c = self._buffer("h", rows, size), self._buffer("c", rows, size)
        gates, tanh_c = self._buffer("gates", inner, 5 * size), self._buffer("tanh_c", inner, size)
        leaf_gates = torch.addmm(weights["leaf_bias"], x, weights["leaf_weight"])
        leaf_gates[:, : 2 * size].sigmoid_()
        leaf_gates[:, 2 * size :].tanh_()
        i, o, u = leaf_gates.split(size, 1)
        leaf_c = i * u
        leaf_tanh_c = leaf_c.tanh()
        h.index_copy_(0, at.leaf_rows, (o * leaf_tanh_c).index_select(0, at.word_of_leaf))
        c.index_copy_(0, at.leaf_rows, leaf_c.index_select(0, at.word_of_leaf))
        inner_rows = at.inner_rows
        weight = weights["node_weight"].t().contiguous() if self.onednn else weights["node_weight"]
        levels = list(_levels(order))
        for level in levels:
            g = gates[level.nodes]
            self._affine(h[level.children].view(-1, 2 * size), weight, weights["node_bias"], g)
            g[:, : 4 * size].sigmoid_()
            g[:, 4 * size :].tanh_()
            i, f_left, f_right, o, u = g.split(size, 1)
            left, right = c[level.children].view(-1, 2, size).unbind(1)
            new_c = (i * u).addcmul_(f_left, left).addcmul_(f_right, right)
            t = torch.tanh(new_c, out=tanh_c[level.nodes])
            h.index_copy_(0, inner_rows[level.nodes], o * t)
            c.index_copy_(0, inner_rows[level.nodes], new_c)
        return _Forward(h, c, gates, tanh_c, leaf_gates, leaf_tanh_c, levels)

    def _nodes_backward(self, at: Placed, forward: _Forward, d_h: Tensor, d_c: Tensor) -> None:
        """Turn the gates into their own gradients and add the children's to `d_h` and `d_c`."""
        torch, weights, size = self.torch, self.parameters, self.hidden
        sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
        tanh_backward = torch.ops.aten.tanh_backward
        inner_rows = at.inner_rows
        for level in reversed(forward.levels):
            g, t = forward.gates[level.nodes], forward.tanh_c[level.nodes]
            i, f_left, f_right, o, u = g.split(size, 1)
            left, right = forward.c[level.children].view(-1, 2, size).unbind(1)
            dh = d_h.index_select(0, inner_rows[level.nodes])
            d = torch.empty_like(g)  # by the gates' values
            d_i, d_left, d_right, d_o, d_u = d.split(size, 1)
            torch.mul(dh, t, out=d_o)
            dc = d_c.index_select(0, inner_rows[level.nodes]).add_(tanh_backward(dh.mul_(o), t))
            torch.mul(dc, u, out=d_i)
            torch.mul(dc, left, out=d_left)
            torch.mul(dc, right, out=d_right)
            torch.mul(dc, i, out=d_u)
            child_c = d_c[level.children].view(-1, 2, size)
            torch.mul(dc, f_left, out=child_c[:, 0])
            torch.mul(dc, f_right, out=child_c[:, 1])
            sigmoid_backward(d[:, : 4 * size], g[:, : 4 * size], grad_input=g[:, : 4 * size])
            tanh_backward.grad_input(d[:, 4 * size :], g[:, 4 * size :], grad_input=g[:, 4 * size :])
            self._add_product(d_h[level.children].view(-1, 2 * size), g, weights["node_weight"])
        if forward.levels:
            children = forward.h[: forward.levels[-1].children.stop].view(-1, 2 * size)
            weights["node_weight"].grad = self._gram(children, forward.gates)
            weights["node_bias"].grad = forward.gates.sum(0)

    def _leaves_backward(self, at: Placed, forward: _Forward, d_h: Tensor, d_c: Tensor, x: Tensor) -> Tensor:
        """Return the gradient of the distinct words' embeddings: ``[distinct words, hidden]``."""
        torch, weights, size = self.torch, self.parameters, self.hidden
        dh, dc = (
            torch.zeros_like(x).index_add_(0, at.word_of_leaf, d.index_select(0, at.leaf_rows))
            for d in (d_h, d_c)
        )
        i, o, u = forward.leaf_gates.split(size, 1)
        t = forward.leaf_tanh_c
        dc += torch.ops.aten.tanh_backward(dh * o, t)
        d = torch.cat([dc * u, dh * t, dc * i], 1)
        sigmoids, tanh = forward.leaf_gates[:, : 2 * size], forward.leaf_gates[:, 2 * size :]
        d[:, : 2 * size] = torch.ops.aten.sigmoid_backward(d[:, : 2 * size], sigmoids)
        d[:, 2 * size :] = torch.ops.aten.tanh_backward(d[:, 2 * size :], tanh)
        weights["leaf_weight"].grad = x.t() @ d
        weights["leaf_bias"].grad = d.sum(0)
        return d @ weights["leaf_weight"].t()

    def _affine(self, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
        if self.onednn:
            out.copy_(self._linear(x, weight, bias))
        else:
            self.torch.addmm(bias, x, weight, out=out)

    def _add_product(self, out: Tensor, x: Tensor, weight: Tensor) -> None:
        """Add ``x weight'`` to `out`."""
        if self.onednn:
            out.add_(self._linear(x, weight, None))
        else:
            self.torch.addmm(out, x, weight.t(), out=out)

    def _gram(self, x: Tensor, y: Tensor) -> Tensor:
        """Return ``x' y``."""
        return self._linear(x.t().contiguous(), y.t().contiguous(), None) if self.onednn else x.t() @ y

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``x weight' + bias`` by oneDNN; `weight` is contiguous."""
        return self.torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """Return an array of that shape whose content does not matter; it lives on under its name."""
        buffer = self._buffers.get(name)
        if buffer is None or len(buffer) < prod(shape):
            # a quarter more, so that a slightly larger batch does not allocate afresh
            buffer = self._buffers[name] = self.embedding.new_empty(prod(shape) * 5 // 4)
        return buffer[: prod(shape)].view(shape)


def _levels(order: LevelOrder) -> Iterator[_Level]:
    inner = [size - leaves for size, leaves in zip(order.sizes, order.leaves, strict=True)]
    nodes = pairwise(accumulate(inner))  # the deepest level has none
    children = pairwise(accumulate(order.sizes, initial=0))
    for (first, last), (start, stop) in zip(nodes, children, strict=False):
        yield _Level(slice(first, last), slice(start, stop))
