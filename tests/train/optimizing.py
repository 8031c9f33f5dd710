"""Optimizers, parameters and gradients to try them on, and the places where parameters may be."""

import shutil

import numpy as np
import pytest

from foldbatch.params.parameters import Parameter, ParameterStore, SparseRows, dense
from foldbatch.train import SGD, AdaGrad, Adam, AdamW, Eve, LazyAdam, RMSprop
from foldbatch.types import TensorType
from tests.backends import needs_llvm


class FedEve(Eve):
    """Eve with a loss that depends on the steps so far where a test gives none."""

    def update(self, params, grads, *, scale=1.0, loss=None):
        default = 1 + 0.37 * max(self._steps.values(), default=0) % 1
        super().update(params, grads, scale=scale, loss=default if loss is None else loss)


MAKERS = {
    "sgd": lambda **kw: SGD(0.1, **kw),
    "sgd decayed": lambda **kw: SGD(0.1, weight_decay=0.1, **kw),
    "momentum": lambda **kw: SGD(0.1, momentum=0.9, **kw),
    "nesterov": lambda **kw: SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1, **kw),
    "adagrad": lambda **kw: AdaGrad(0.1, **kw),
    "adagrad decayed": lambda **kw: AdaGrad(0.1, weight_decay=0.1, initial_accumulator=0.5, **kw),
    "adam": lambda **kw: Adam(0.1, **kw),
    "adam decayed": lambda **kw: Adam(0.1, weight_decay=0.1, **kw),
    "rmsprop": lambda **kw: RMSprop(0.1, **kw),
    "rmsprop with all": lambda **kw: RMSprop(0.1, momentum=0.9, weight_decay=0.1, **kw),
    "rmsprop centred": lambda **kw: RMSprop(0.1, momentum=0.9, centered=True, weight_decay=0.1, **kw),
    "eve": lambda **kw: FedEve(0.1, betas=(0.9, 0.999, 0.5), minimum=-10.0, **kw),
    "adamw": lambda **kw: AdamW(0.1, weight_decay=0.1, **kw),
    "lazy adam": lambda **kw: LazyAdam(0.1, **kw),
    "lazy adam decayed": lambda **kw: LazyAdam(0.1, weight_decay=0.1, **kw),
}

every_optimizer = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def parameters(seed: int = 0):
    rng = np.random.default_rng(seed)
    shapes = {"table.weight": (7, 3), "layer.weight": (3, 4), "layer.bias": (4,), "scale": ()}
    return {name: np.asarray(rng.normal(size=shape), "float32") for name, shape in shapes.items()}


def gradients(seed: int):
    rng = np.random.default_rng([1, seed])
    rows = np.flatnonzero(rng.random(7) < 0.4)
    grads = {name: np.asarray(rng.normal(size=p.shape), "float32") for name, p in parameters().items()}
    grads["table.weight"] = SparseRows(rows, rng.normal(size=(len(rows), 3)).astype("float32"), (7, 3))
    return grads


def densified(grads):
    return {name: dense(g) for name, g in grads.items()}


def copied(params):
    return {name: p.copy() for name, p in params.items()}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def on_host(arrays, updates=None):
    """Return arrays as the parameters of a program that computes on the host."""
    parameters = {name: Parameter(TensorType(a.shape, a.dtype.name), 0.0, name) for name, a in arrays.items()}
    store = ParameterStore(parameters, updates)
    store.update(arrays)
    return store


def with_llvm(arrays):
    """Return arrays as the parameters of a program of the LLVM engine."""
    from foldbatch.engines.llvm.updates import Compiled  # noqa: PLC0415 - it needs llvmlite

    return on_host(arrays, Compiled())


def on_device(arrays):
    """Return arrays as the parameters of a program on an emulated device."""
    from foldbatch.engines.cuda.updates import DeviceUpdates  # noqa: PLC0415 - so do steps there
    from tests.engines.cuda.emulated import device  # noqa: PLC0415 - it needs a C compiler

    return on_host(arrays, DeviceUpdates(device()))


wherever = pytest.mark.parametrize(
    "place",
    [
        dict,
        pytest.param(with_llvm, marks=needs_llvm),
        pytest.param(
            on_device, marks=pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
        ),
    ],
    ids=["numpy", "llvm", "device"],
)
