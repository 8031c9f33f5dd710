"""Suited models: which models of the zoo can read the examples of a format, the usual one first."""

from __future__ import annotations

from foldbatch.errors import UnknownNameError, with_nearest
from foldbatch.recipes.settings import Configuration

BINARY_TREES = ("tree_lstm", "child_sum", "rntn", "bilstm")
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
    name, format_ = str(configuration.model.__struct_config__.tag), configuration.data.format
    suited = MODELS_OF[format_]
    if name not in suited:
        expected = f"{' or '.join(suited)} for data of format {format_}"
        raise UnknownNameError("model.name", expected, with_nearest(name, suited), "set model.name")
