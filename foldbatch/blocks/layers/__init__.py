"""Blocks that own parameters."""

from foldbatch.blocks.layers.dense import Embedding, Linear
from foldbatch.blocks.layers.layer import Layer
from foldbatch.blocks.layers.trees import ChildSumTreeLSTM, TreeLSTM

__all__ = ["ChildSumTreeLSTM", "Embedding", "Layer", "Linear", "TreeLSTM"]
