"""Suited models: which models of the zoo can read the examples of a format, the usual one first."""

from __future__ import annotations

from typing import Any

import numpy as np

from foldbatch.errors import ReadError, UnknownNameError, with_nearest
from foldbatch.recipes.settings import Configuration
from foldbatch.trees.node import TreeNode

BINARY_TREES = ("tree_lstm", "child_sum", "rntn", "bilstm")
OF_PAIRS = ("tree_lstm", "rntn")  # inner nodes have two children
ANY_TREES = ("child_sum", "bilstm")  # nodes have any number of children, and inner nodes have words
MODELS_OF: dict[str, tuple[str, ...]] = {
    "functions": ANY_TREES,
    "sst": BINARY_TREES,
    "sst-binary": BINARY_TREES,
    "brackets": BINARY_TREES,
    "python": ANY_TREES,
    "conllu": ANY_TREES,
    "jsonlines": ("json",),
}


def usual_model(format_: object) -> str:
    """Return the name of the model that is trained where none is named.

    >>> usual_model("jsonlines"), usual_model("sst")
    ('json', 'tree_lstm')
    """
    return MODELS_OF.get(str(format_), BINARY_TREES)[0]


def check_model(configuration: Configuration) -> None:
    """Refuse a model that cannot read the examples of the format.

    Raises:
        UnknownNameError: when it cannot.
    """
    name, format_ = _name(configuration), configuration.data.format
    suited = MODELS_OF[format_]
    if name not in suited:
        expected = f"{' or '.join(suited)} for data of format {format_}"
        raise UnknownNameError("model.name", expected, with_nearest(name, suited), "set model.name")


def check_arity(configuration: Configuration, example: Any, where: str) -> None:
    """Refuse a tree with nodes of one child, or of three and more, where the model has no cell for them.

    Raises:
        ReadError: when it is such a tree.
    """
    if _name(configuration) in OF_PAIRS and isinstance(example, TreeNode):
        odd = set(np.bincount(example.tree.parents[:-1]).tolist()) - {0, 2}  # the root is last, and no child
        if odd:
            found, fix = f"a node with {min(odd)}", "binarise the trees, or train with model.name child_sum"
            raise ReadError(where, "two children at each inner node", found, fix)


def _name(configuration: Configuration) -> str:
    return str(configuration.model.__struct_config__.tag)
