"""foldbatch: models whose shape changes with every example, batched.

Describe a model for one parse tree, record or sequence with blocks; `compile` turns every tensor
computation in it into static cells and runs any mixture of examples as a few large kernels.
In the examples of docstrings it is `fb`, and NumPy `np`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foldbatch import blocks as blocks
    from foldbatch import communicators as communicators
    from foldbatch import contest as contest
    from foldbatch import errors, train, trees
    from foldbatch import functions as functions
    from foldbatch import params as params
    from foldbatch import program as program
    from foldbatch import schema as schema
    from foldbatch import timelines as timelines
    from foldbatch import torch as torch
    from foldbatch import types as types
    from foldbatch import views as views
    from foldbatch import zoo as zoo
    from foldbatch.blocks import *  # noqa: F403 - and no list of them twice
    from foldbatch.contest import compare
    from foldbatch.functions import Module, cell, loss, metric, tensor, together
    from foldbatch.gain import bench
    from foldbatch.params.parameters import Parameter
    from foldbatch.program.compiling import compile, load
    from foldbatch.program.program import Program
    from foldbatch.static import ops
    from foldbatch.train import SGD, Adam
    from foldbatch.views.explanation import explain

__version__ = "0.2.0"

__all__ = [
    "RNN",
    "SGD",
    "Adam",
    "AllOf",
    "Block",
    "Broadcast",
    "ChildSumTreeLSTM",
    "Composition",
    "Concat",
    "Dropout",
    "Embedding",
    "Fold",
    "ForwardDeclaration",
    "FromTensor",
    "Function",
    "GRUCell",
    "GetItem",
    "Identity",
    "InputTransform",
    "LSTMCell",
    "Length",
    "Linear",
    "Loss",
    "Map",
    "Max",
    "Mean",
    "Metric",
    "Min",
    "Module",
    "NGrams",
    "Nth",
    "OneHot",
    "OneHotFromList",
    "OneOf",
    "Optional",
    "Parameter",
    "Pipe",
    "Program",
    "Record",
    "Reduce",
    "Scalar",
    "Slice",
    "Sum",
    "Tensor",
    "TreeLSTM",
    "Vector",
    "Void",
    "Zeros",
    "Zip",
    "ZipWith",
    "bench",
    "cell",
    "compare",
    "compile",
    "errors",
    "explain",
    "load",
    "loss",
    "metric",
    "ops",
    "tensor",
    "together",
    "train",
    "trees",
]

# All is imported when it is first asked for: programs that only load and run a model need half of the rooms.
_ROOMS = (
    *(
        "blocks",
        "communicators",
        "contest",
        "errors",
        "estimators",
        "exporting",
        "functions",
        "params",
        "program",
    ),
    *("schema", "timelines", "torch", "train", "trees", "types", "views", "zoo"),
)
_HOMES = dict.fromkeys(__all__, "blocks") | {
    **dict.fromkeys(("Adam", "SGD"), "train"),
    **dict.fromkeys(("Module", "cell", "loss", "metric", "tensor", "together"), "functions"),
    **dict.fromkeys(("Program", "compile", "load"), "program"),
    "Parameter": "params.parameters",
    "bench": "gain",
    "compare": "contest",
    "explain": "views",
}
_FOREIGN_NAMES = {  # names of TensorFlow Fold and PyTorch
    "FC": "Linear",
    "Compiler": "compile",
    "Sequential": "a >> b",
    "nn": "Linear and other layers",
    "LSTM": "RNN(LSTMCell(size))",
    "GRU": "RNN(GRUCell(size))",
    "DataLoader": "train.Trainer",
}
if not TYPE_CHECKING:  # for checkers, names that do not exist stay mistakes

    def __getattr__(name: str) -> Any:
        """Import a room, or what a room has."""
        if name in _ROOMS:
            return import_module(f"foldbatch.{name}")
        if name == "ops":
            globals()[name] = value = import_module("foldbatch.static.ops")  # walks ask for it at each op
            return value
        if name in _HOMES:
            globals()[name] = value = getattr(import_module(f"foldbatch.{_HOMES[name]}"), name)
            return value
        looked = (
            () if name.startswith("_") else ("errors", "train", "trees", "blocks", "types", "views", "ops")
        )
        homes = [f"; it is foldbatch.{room}.{name}" for room in looked if hasattr(__getattr__(room), name)]
        homes += [f"; see {_FOREIGN_NAMES[name]}"] if name in _FOREIGN_NAMES else []
        raise AttributeError(f"module 'foldbatch' has no attribute {name!r}{''.join(homes[:1])}")


def __dir__() -> list[str]:
    return [*__all__, *(("torch",) if find_spec("torch") else ()), "__version__"]
