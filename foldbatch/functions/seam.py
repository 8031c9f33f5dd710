"""The seam between the doors: all that walks know of blocks.

No other module here imports blocks, and blocks import nothing from here. A walk calls blocks (`mixed`) and
stands for one (`walks`); modules and files of walks hold layers.
"""

from foldbatch.blocks.block import DERIVED, AnyBlock, Block, function_name
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.drafts import Object, Terminal, Value, leaves, new_wires, run_time_terminals, type_of
from foldbatch.blocks.function import TensorBlock
from foldbatch.blocks.interrupts import interrupted
from foldbatch.blocks.layers.layer import Layer
from foldbatch.blocks.lower import alike, built
from foldbatch.blocks.printing import DEEPER, DRAW, TOOLS, program_text
from foldbatch.blocks.tracer import SHALLOW, Descent, Located
from foldbatch.blocks.tracing import InvokeWalk

__all__ = [
    "DEEPER",
    "DERIVED",
    "DRAW",
    "SHALLOW",
    "TOOLS",
    "AnyBlock",
    "Block",
    "Builder",
    "Descent",
    "InvokeWalk",
    "Layer",
    "Located",
    "Object",
    "TensorBlock",
    "Terminal",
    "Value",
    "alike",
    "built",
    "function_name",
    "interrupted",
    "leaves",
    "new_wires",
    "program_text",
    "run_time_terminals",
    "type_of",
]
