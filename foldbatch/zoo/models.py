"""The table of the zoo: names of models and the functions that make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foldbatch.zoo.bilstm import bilstm
from foldbatch.zoo.child_sum import child_sum
from foldbatch.zoo.records import json
from foldbatch.zoo.rntn import rntn
from foldbatch.zoo.tree_lstm import tree_lstm

MODELS: dict[str, Callable[..., Any]] = {
    "tree_lstm": tree_lstm,
    "child_sum": child_sum,
    "rntn": rntn,
    "bilstm": bilstm,
    "json": json,
}
