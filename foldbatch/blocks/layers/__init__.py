"""Blocks that own parameters."""

from foldbatch.blocks.layers.dense import Attention, Dropout, Embedding, LayerNorm, Linear
from foldbatch.blocks.layers.layer import Layer
from foldbatch.blocks.layers.recurrent import (
    RNTN,
    ChildSumTreeLSTM,
    GRUCell,
    LSTMCell,
    TreeGRU,
    TreeLSTM,
    TreeRNN,
)

__all__ = [
    "RNTN",
    "Attention",
    "ChildSumTreeLSTM",
    "Dropout",
    "Embedding",
    "GRUCell",
    "LSTMCell",
    "Layer",
    "LayerNorm",
    "Linear",
    "TreeGRU",
    "TreeLSTM",
    "TreeRNN",
]
