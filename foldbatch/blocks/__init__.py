"""Blocks: recipes for one example, combined into models."""

from foldbatch.blocks.block import Block, FromTensor, Pipe
from foldbatch.blocks.choice import OneOf
from foldbatch.blocks.forward import ForwardDeclaration
from foldbatch.blocks.function import Concat, Function
from foldbatch.blocks.layers import ChildSumTreeLSTM, Embedding, Linear, TreeLSTM
from foldbatch.blocks.leaves import GetItem, Identity, InputTransform, Scalar, Tensor, Vector, Void
from foldbatch.blocks.metrics import Loss, Metric
from foldbatch.blocks.records import AllOf, Record
from foldbatch.blocks.sequences import Map

__all__ = [
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
    "Linear",
    "Loss",
    "Map",
    "Metric",
    "OneOf",
    "Pipe",
    "Record",
    "Scalar",
    "Tensor",
    "TreeLSTM",
    "Vector",
    "Void",
]
