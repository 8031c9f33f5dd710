"""Blocks: recipes for one example, combined into models."""

from foldbatch.blocks.block import Block, Pipe
from foldbatch.blocks.categorical import OneHot, OneHotFromList
from foldbatch.blocks.choice import OneOf, Optional
from foldbatch.blocks.collect import Collect, Collected
from foldbatch.blocks.composition import Composition
from foldbatch.blocks.constants import FromTensor, Zeros
from foldbatch.blocks.folds import RNN, Fold, Reduce
from foldbatch.blocks.forward import ForwardDeclaration
from foldbatch.blocks.function import Concat, Function
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
from foldbatch.blocks.leaves import Identity, InputTransform, Scalar, Tensor, Vector, Void
from foldbatch.blocks.metrics import Loss, Metric
from foldbatch.blocks.sequences import Broadcast, Length, Map, NGrams, Zip, ZipWith
from foldbatch.blocks.sums import Max, Mean, Min, Sum

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
