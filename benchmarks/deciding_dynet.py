"""The halting loop in DyNet, one example after the other: its user reads a number wherever it is needed.

All examples of a batch are one graph; what a number needs is computed when it is read, as DyNet does.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import numpy as np

from benchmarks.deciding_walks import LIMIT


class DynetHalting:
    """The walk ``halting`` of `benchmarks.deciding_walks`, and its training.

    Args:
        values: the weights; they are copied.
        hidden: size of states.
    """

    def __init__(self, values: dict[str, np.ndarray], hidden: int) -> None:
        import_module("dynet_config").set(mem="200,200,200,200", random_seed=1)
        self.dynet, self.hidden = import_module("dynet"), hidden
        self._held = self.dynet.ParameterCollection()
        self._embed = self._held.lookup_parameters_from_numpy(values["embed"])
        rows = np.ascontiguousarray(values["step"].T), np.ascontiguousarray(values["score"].T)
        self._step, self._score = map(self._held.parameters_from_numpy, rows)

    def train(self, examples: Sequence[tuple[int, float]]) -> float:
        """Return the loss of examples, and compute its gradients."""
        dynet, size = self.dynet, self.hidden
        dynet.renew_cg()
        losses = []
        for word, bar in examples:
            x, times = self._embed[word], 0
            h, c = dynet.tanh(x), x
            while times < LIMIT and (self._score * h).value() > bar - 0.3 * times:
                gates = self._step * dynet.concatenate([x, h])
                i, f, o = (dynet.logistic(gates[k * size : (k + 1) * size]) for k in range(3))
                c = dynet.cmult(f, c) + dynet.cmult(i, dynet.tanh(gates[3 * size :]))
                h, times = dynet.cmult(o, dynet.tanh(c)), times + 1
            losses.append(dynet.squared_norm(h))
        loss = dynet.esum(losses)
        found = float(loss.value())
        loss.backward()
        return found
