"""foldbatch: models whose shape changes with every example, batched.

Describe a model for one parse tree, record or sequence with blocks; `compile` turns every tensor
computation in it into static cells and runs any mixture of examples as a few large kernels.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from foldbatch import communicators, errors, schema, train, trees, types, zoo
from foldbatch.blocks import (
    RNN,
    RNTN,
    AllOf,
    Attention,
    Block,
    Broadcast,
    ChildSumTreeLSTM,
    Collect,
    Collected,
    Composition,
    Concat,
    Dropout,
    Embedding,
    Fold,
    ForwardDeclaration,
    FromTensor,
    Function,
    GetItem,
    GRUCell,
    Identity,
    InputTransform,
    Items,
    LayerNorm,
    Length,
    Linear,
    Loss,
    LSTMCell,
    Map,
    Max,
    Mean,
    Metric,
    Min,
    NGrams,
    Nth,
    OneHot,
    OneHotFromList,
    OneOf,
    Optional,
    Pipe,
    Record,
    Reduce,
    Scalar,
    Slice,
    Sum,
    Tensor,
    TreeGRU,
    TreeLSTM,
    TreeRNN,
    Vector,
    Void,
    Zeros,
    Zip,
    ZipWith,
)
from foldbatch.compiling import compile
from foldbatch.engines.planned import Planned
from foldbatch.gain import bench
from foldbatch.loading import load
from foldbatch.params import Parameter, SparseRows
from foldbatch.program import Program
from foldbatch.static import ops
from foldbatch.timelines.timeline import Timeline
from foldbatch.train import SGD, AdaGrad, Adam, AdamW, Eve, LazyAdam, RMSprop, load_prepared, prepare
from foldbatch.trees import read_json, read_jsonlines
from foldbatch.views.explanation import Explanation, explain
from foldbatch.views.picture import draw_schedule

if TYPE_CHECKING:
    from foldbatch import torch as torch
    from foldbatch.torch import from_torch as from_torch

__version__ = "0.1.0"

__all__ = [
    "RNN",
    "RNTN",
    "SGD",
    "AdaGrad",
    "Adam",
    "AdamW",
    "AllOf",
    "Attention",
    "Block",
    "Broadcast",
    "ChildSumTreeLSTM",
    "Collect",
    "Collected",
    "Composition",
    "Concat",
    "Dropout",
    "Embedding",
    "Eve",
    "Explanation",
    "Fold",
    "ForwardDeclaration",
    "FromTensor",
    "Function",
    "GRUCell",
    "GetItem",
    "Identity",
    "InputTransform",
    "Items",
    "LSTMCell",
    "LayerNorm",
    "LazyAdam",
    "Length",
    "Linear",
    "Loss",
    "Map",
    "Max",
    "Mean",
    "Metric",
    "Min",
    "NGrams",
    "Nth",
    "OneHot",
    "OneHotFromList",
    "OneOf",
    "Optional",
    "Parameter",
    "Pipe",
    "Planned",
    "Program",
    "RMSprop",
    "Record",
    "Reduce",
    "Scalar",
    "Slice",
    "SparseRows",
    "Sum",
    "Tensor",
    "Timeline",
    "TreeGRU",
    "TreeLSTM",
    "TreeRNN",
    "Vector",
    "Void",
    "Zeros",
    "Zip",
    "ZipWith",
    "bench",
    "communicators",
    "compile",
    "draw_schedule",
    "errors",
    "explain",
    "load",
    "load_prepared",
    "ops",
    "prepare",
    "read_json",
    "read_jsonlines",
    "schema",
    "train",
    "trees",
    "types",
    "zoo",
]

_LATER = ("from_torch", "torch")  # what needs PyTorch; a star import must not


if not TYPE_CHECKING:  # for checkers, names that do not exist stay mistakes

    def __getattr__(name: str) -> Any:
        """Load what needs PyTorch when it is first asked for."""
        if name in _LATER:
            room = import_module("foldbatch.torch")
            return room if name == "torch" else room.from_torch
        raise AttributeError(f"module 'foldbatch' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names only: importing makes a name of each module, too."""
    return [*__all__, *(_LATER if find_spec("torch") else ()), "__version__"]
