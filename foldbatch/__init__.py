"""foldbatch: models whose shape changes with every example, batched.

Describe a model for one parse tree, record or sequence with blocks; `compile` turns every tensor
computation in it into static cells and runs any mixture of examples as a few large kernels.
"""

from foldbatch import errors, train, trees, types
from foldbatch.blocks import (
    AllOf,
    Block,
    ChildSumTreeLSTM,
    Concat,
    Embedding,
    ForwardDeclaration,
    FromTensor,
    Function,
    GetItem,
    Identity,
    InputTransform,
    Linear,
    Loss,
    Map,
    Metric,
    OneOf,
    Pipe,
    Record,
    Scalar,
    Tensor,
    TreeLSTM,
    Vector,
    Void,
)
from foldbatch.params import Parameter, SparseRows
from foldbatch.program import Program, compile
from foldbatch.static import ops
from foldbatch.train import SGD, AdaGrad, Adam, LazyAdam

__version__ = "0.1.0"

__all__ = [
    "SGD",
    "AdaGrad",
    "Adam",
    "AllOf",
    "Block",
    "ChildSumTreeLSTM",
    "Concat",
    "Embedding",
    "ForwardDeclaration",
    "FromTensor",
    "Function",
    "GetItem",
    "Identity",
    "InputTransform",
    "LazyAdam",
    "Linear",
    "Loss",
    "Map",
    "Metric",
    "OneOf",
    "Parameter",
    "Pipe",
    "Program",
    "Record",
    "Scalar",
    "SparseRows",
    "Tensor",
    "TreeLSTM",
    "Vector",
    "Void",
    "compile",
    "errors",
    "ops",
    "train",
    "trees",
    "types",
]
