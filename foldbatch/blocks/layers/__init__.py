"""Blocks that own parameters."""

from foldbatch.blocks.layers.attention import Attention
from foldbatch.blocks.layers.dense import Embedding, Linear
from foldbatch.blocks.layers.dropout import Dropout
from foldbatch.blocks.layers.layer import Layer
from foldbatch.blocks.layers.normalize import LayerNorm
from foldbatch.blocks.layers.recurrent import GRUCell, LSTMCell
from foldbatch.blocks.layers.recursive import RNTN, TreeGRU, TreeRNN
from foldbatch.blocks.layers.trees import ChildSumTreeLSTM, TreeLSTM

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
