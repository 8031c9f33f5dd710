"""Fold's model in PyTorch, batched by hand for one tree shape.

Nothing is scheduled: which rows a level reads and writes follows from the shape and is worked out once, with
all buffers. It runs level by level or, as Fold's baseline did,
node by node; and as one CUDA graph, since with one shape every batch has the same. Gradients are written by
hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from benchmarks.fold_model import Rows, Shape, rows_of
from benchmarks.gpu.torch_graph import captured
from benchmarks.peers import Array, Tensor, import_torch


class TorchFold:
    """The model for batches of one shape.

    Args:
        shape: of every tree.
        batch: how many trees there are.
        parameters: by the names of our program's; copied.
        device: where PyTorch computes.
        by_node: whether every node is a level of its own.
        captured: whether a batch is one CUDA graph; without a GPU nothing is captured.
    """

    def __init__(
        self,
        shape: Shape,
        batch: int,
        parameters: Mapping[str, Array],
        *,
        device: str = "cpu",
        by_node: bool = False,
        captured: bool = False,
    ) -> None:
        self.torch = torch = import_torch()
        self.device, self.batch, self.by_node = device, batch, by_node
        self.parameters = {name: torch.tensor(np.asarray(a), device=device) for name, a in parameters.items()}
        self.gradients = {name: torch.zeros_like(w) for name, w in self.parameters.items()}
        inner, size = sum(shape.levels), len(parameters["hidden.bias"])
        widths = [1] * inner if by_node else list(shape.levels)
        self.levels = [slice(*level) for level in pairwise((np.cumsum([0, *widths]) * batch).tolist())]
        self.leaf_rows, self.node_rows = (
            torch.tensor(rows_of(slots, batch, inner), device=device)
            for slots in (shape.leaf_slots, shape.node_slots)
        )
        rows, like = inner * batch, self.parameters["hidden.weight"]
        self.states, self.d_states = (like.new_zeros(2 * rows + batch, size) for _ in range(2))
        self.hidden, self.d_hidden = (like.new_zeros(rows, size) for _ in range(2))
        self.gates = like.new_zeros(rows, 4 * size)
        self.words = torch.zeros(len(shape.leaf_slots) * batch, dtype=torch.int64, device=device)
        self.total = like.new_zeros(())
        self._train: Callable[[], None] = self._captured(self._whole) if captured else self._whole
        self._infer: Callable[[], None] = self._captured(self._forward) if captured else self._forward

    def value_and_grad(self, words: Rows) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the summed loss and all gradients, which the next batch overwrites.

        Args:
            words: ``[batch, leaves]``, rows of the table.
        """
        self._bring(words)
        self._train()
        return self.total, self.gradients

    def run(self, words: Rows) -> Array:
        """Return the states of the roots: ``[batch, size]``."""
        self._bring(words)
        self._infer()
        roots: Array = self.states[-self.batch :].cpu().numpy()
        return roots

    def _bring(self, words: Rows) -> None:
        numbers = self.torch.from_numpy(np.ascontiguousarray(words.T.reshape(-1)))
        self.words.copy_(numbers if self.device == "cpu" else numbers.pin_memory(), non_blocking=True)

    def _captured(self, task: Callable[[], None]) -> Callable[[], None]:
        if self.device == "cpu":
            return task
        return captured(self.torch, task)

    def _forward(self) -> None:
        torch, p, size = self.torch, self.parameters, self.states.shape[1]
        self.states.index_copy_(0, self.leaf_rows, p["leaf.weight"].index_select(0, self.words))
        pairs = self.states[: -self.batch].view(-1, 2 * size)
        for level in self.levels:
            x, h, g = pairs[level], self.hidden[level], self.gates[level]
            torch.addmm(p["hidden.bias"], x, p["hidden.weight"], out=h)
            h.relu_()
            torch.addmm(p["gates.bias"], h, p["gates.weight"], out=g)
            g[:, : 3 * size].sigmoid_()
            g[:, 3 * size :].tanh_()
            f_left, f_right, i, u = g.split(size, 1)
            y = (i * u).addcmul_(f_left, x[:, :size]).addcmul_(f_right, x[:, size:])
            self.states.index_copy_(0, self.node_rows[level], y)

    def _whole(self) -> None:
        torch, p, size = self.torch, self.parameters, self.states.shape[1]
        self._forward()
        roots = self.states[-self.batch :]
        self.total.copy_(roots.square().sum() / 2)
        self.d_states[-self.batch :] = roots
        pairs, d_pairs = (a[: -self.batch].view(-1, 2 * size) for a in (self.states, self.d_states))
        sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
        for level in reversed(self.levels):
            x, dx, h, g = pairs[level], d_pairs[level], self.hidden[level], self.gates[level]
            dy = self.d_states.index_select(0, self.node_rows[level])
            f_left, f_right, i, u = g.split(size, 1)
            torch.mul(dy, f_left, out=dx[:, :size])
            torch.mul(dy, f_right, out=dx[:, size:])
            d = torch.empty_like(g)
            torch.mul(dy, x[:, :size], out=d[:, :size])
            torch.mul(dy, x[:, size:], out=d[:, size : 2 * size])
            torch.mul(dy, u, out=d[:, 2 * size : 3 * size])
            torch.mul(dy, i, out=d[:, 3 * size :])
            sigmoid_backward(d[:, : 3 * size], g[:, : 3 * size], grad_input=g[:, : 3 * size])
            torch.ops.aten.tanh_backward.grad_input(d[:, 3 * size :], u, grad_input=u)
            dh = self.d_hidden[level]
            torch.mm(g, p["gates.weight"].t(), out=dh)
            dh.mul_(h > 0)
            dx.addmm_(dh, p["hidden.weight"].t())
            if self.by_node:
                self._add_gradients(x, h, dh, g, first=level.stop == len(self.gates))
        if not self.by_node:
            self._add_gradients(pairs, self.hidden, self.d_hidden, self.gates, first=True)
        table = self.gradients["leaf.weight"]
        table.zero_().index_add_(0, self.words, self.d_states.index_select(0, self.leaf_rows))

    def _add_gradients(self, x: Tensor, h: Tensor, dh: Tensor, g: Tensor, *, first: bool) -> None:
        found, beta = self.gradients, 0 if first else 1
        for name, left, right in (("gates", h, g), ("hidden", x, dh)):
            weight, bias = found[f"{name}.weight"], found[f"{name}.bias"]
            weight.addmm_(left.t(), right, beta=beta)
            bias.mul_(beta).add_(right.sum(0))
