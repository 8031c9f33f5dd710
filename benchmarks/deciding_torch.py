"""PyTorch beside walks that decide: the same walks one by one, and batches padded with masks by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.deciding_walks import BEAMS, END, LIMIT, LONGEST, START, Tensors, walks


class Peer:
    """The walks in PyTorch.

    Args:
        values: the weights.
        hidden: the size of states.
    """

    def __init__(self, values: dict[str, np.ndarray], hidden: int) -> None:
        torch.set_num_threads(1)
        self.hidden = hidden
        self.weights = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
        self._losses: list[torch.Tensor] = []
        tensors = Tensors(
            torch,
            lambda function: function,
            torch.cat,
            self.weights,
            self._losses.append,
            torch.tensor,
            lambda table, i: table[i],
            lambda x: float(x.detach()),
        )
        self.walks = walks(tensors, hidden)

    def run(self, name: str, examples: list[Any]) -> list[Any]:
        """Run a walk on examples, one by one."""
        self._losses.clear()
        with torch.no_grad():
            return [self.walks[name](example) for example in examples]

    def train(self, name: str, examples: list[Any]) -> float:
        """Return the loss of examples, run one by one, and compute its gradients."""
        self._losses.clear()
        for weight in self.weights.values():
            weight.grad = None
        for example in examples:
            self.walks[name](example)
        loss = torch.stack(self._losses).sum()
        loss.backward()
        return float(loss.detach())

    def _step(self, words: Any, h: Any, c: Any) -> tuple[Any, Any]:
        gates = torch.cat([self.weights["embed"][words], h], 1) @ self.weights["step"]
        i, f, o, u = gates.split(self.hidden, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def padded_decode(self, trees: list[Any]) -> list[list[int]]:
        """Decode a batch: trees by level, then all sentences until the longest ends."""
        with torch.no_grad():
            h, c = self._encoded(trees)
            words = torch.full((len(trees),), START)
            going = torch.ones(len(trees), dtype=torch.bool)
            said: list[Any] = []
            while len(said) < LONGEST and bool(going.any()):
                h, c = self._step(words, h, c)
                words = (h @ self.weights["out"] + self.weights["end"]).argmax(1)
                said.append(words)
                going &= words != END
            columns = torch.stack(said, 1).tolist()
        return [row[: row.index(END) + 1] if END in row else row for row in columns]

    def padded_beams(self, trees: list[Any]) -> list[list[int]]:
        """Search with beams in a batch: all beams of all sentences step together, until all have ended."""
        with torch.no_grad():
            h, c = (x.repeat_interleave(BEAMS, 0) for x in self._encoded(trees))
            totals = torch.full((len(trees), BEAMS), -torch.inf)
            totals[:, 0] = 0
            said = torch.full((len(trees) * BEAMS, 1), START)
            first = torch.arange(len(trees))[:, None] * BEAMS
            done: list[Any] = [(-np.inf, [])] * len(trees)
            while said.shape[1] <= 20 and bool((totals > -torch.inf).any()):
                h, c = self._step(said[:, -1], h, c)
                scores = torch.log_softmax(h @ self.weights["out"] + self.weights["end"], -1)
                chances, words = scores.topk(BEAMS)
                grown = totals[:, :, None] + chances.view(len(trees), BEAMS, BEAMS)
                totals, places = grown.flatten(1).topk(BEAMS)
                beams = (first + places // BEAMS).flatten()
                new = words.view(len(trees), -1).gather(1, places).view(-1, 1)
                h, c, said = h[beams], c[beams], torch.cat([said[beams], new], 1)
                ended = (new.view(-1, BEAMS) == END) & (totals > -torch.inf)
                for i, k in ended.nonzero().tolist():
                    done[i] = max(done[i], (float(totals[i, k]), said[i * BEAMS + k].tolist()))
                totals = totals.masked_fill(ended, -torch.inf)
            left = zip(
                totals.max(1).values.tolist(), said[first[:, 0] + totals.argmax(1)].tolist(), strict=True
            )
        return [max(pair, key=lambda beam: beam[0])[1] for pair in zip(done, left, strict=True)]

    def _encoded(self, trees: list[Any]) -> tuple[Any, Any]:
        """Encode trees level by level, with indices into all states so far."""
        leaves: list[int] = []
        levels: list[list[tuple[Any, Any]]] = []

        def placed(tree: Any) -> tuple[int, int]:
            if isinstance(tree, int):
                leaves.append(tree)
                return 0, len(leaves) - 1
            left, right = placed(tree[0]), placed(tree[1])
            level = 1 + max(left[0], right[0])
            while len(levels) < level:
                levels.append([])
            levels[level - 1].append((left, right))
            return level, len(levels[level - 1]) - 1

        roots = [placed(tree) for tree in trees]
        x = self.weights["embed"][torch.tensor(leaves)]
        h, c = torch.tanh(x), x
        starts = [0]
        for level in levels:
            starts.append(len(h))
            sides = [torch.tensor([starts[pair[s][0]] + pair[s][1] for pair in level]) for s in (0, 1)]
            gates = torch.cat([h[sides[0]], h[sides[1]]], 1) @ self.weights["node"]
            i, f, g, o, u = gates.split(self.hidden, 1)
            new = (
                torch.sigmoid(f) * c[sides[0]]
                + torch.sigmoid(g) * c[sides[1]]
                + torch.sigmoid(i) * torch.tanh(u)
            )
            h, c = torch.cat([h, torch.sigmoid(o) * torch.tanh(new)]), torch.cat([c, new])
        places = torch.tensor([starts[level] + place for level, place in roots])
        return h[places], c[places]

    def masked_halting(self, examples: list[tuple[int, float]]) -> float:
        """Return the loss of the halting loop, all going on until the last has halted; compute gradients."""
        for weight in self.weights.values():
            weight.grad = None
        words = torch.tensor([word for word, _ in examples])
        bars = torch.tensor([bar for _, bar in examples])
        x = self.weights["embed"][words]
        h, c = torch.tanh(x), x
        going = torch.ones(len(words), dtype=torch.bool)
        for times in range(LIMIT):
            going = going & ((h @ self.weights["score"])[:, 0] > bars - 0.3 * times)
            if not bool(going.any()):
                break
            new, cell = self._step(words, h, c)
            h, c = torch.where(going[:, None], new, h), torch.where(going[:, None], cell, c)
        loss = (h * h).sum()
        loss.backward()
        return float(loss.detach())
