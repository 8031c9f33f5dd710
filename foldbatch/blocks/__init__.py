"""Blocks: recipes for one example, combined into models."""

from foldbatch.blocks.block import Block, Pipe
from foldbatch.blocks.choice import ForwardDeclaration, OneOf, Optional
from foldbatch.blocks.composition import Composition
from foldbatch.blocks.folds import RNN, Fold, Max, Mean, Min, Reduce, Sum
from foldbatch.blocks.function import Concat, FromTensor, Function, Zeros
from foldbatch.blocks.items import AllOf, GetItem, Items, Nth, Record, Slice
from foldbatch.blocks.layers import (
    RNTN,
    Attention,
    ChildSumTreeLSTM,
    Dropout,
    Embedding,
    GRUCell,
    LayerNorm,
    Linear,
    LSTMCell,
    TreeGRU,
    TreeLSTM,
    TreeRNN,
)
from foldbatch.blocks.leaves import (
    Identity,
    InputTransform,
    OneHot,
    OneHotFromList,
    Scalar,
    Tensor,
    Vector,
    Void,
)
from foldbatch.blocks.metrics import Collect, Collected, Loss, Metric
from foldbatch.blocks.sequences import Broadcast, Length, Map, NGrams, Zip, ZipWith

__all__ = [
    "RNN",
    "RNTN",
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
    "Pipe",
    "Record",
    "Reduce",
    "Scalar",
    "Slice",
    "Sum",
    "Tensor",
    "TreeGRU",
    "TreeLSTM",
    "TreeRNN",
    "Vector",
    "Void",
    "Zeros",
    "Zip",
    "ZipWith",
]


def __dir__() -> list[str]:
    return list(__all__)
