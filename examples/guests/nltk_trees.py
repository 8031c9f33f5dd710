"""nltk: a phrase is a list of its parts with a label, a word a str."""

from typing import Any

import nltk
from nodes import over_nodes

import foldbatch as fb

TEXTS = ["(S (NP the film) (VP ended))", "(S (NP a (ADJ fine) film) (VP made (NP us) laugh))"]
EXAMPLES = [nltk.Tree.fromstring(text) for text in TEXTS]
LABELS = fb.trees.Vocabulary(["S", "NP", "VP", "ADJ", "the", "a", "film", "ended"])


def label(part: Any) -> int:
    """Return the number of a phrase's label, or of a word."""
    return LABELS[part if isinstance(part, str) else part.label()]


def children(part: Any) -> list[Any]:
    """Return the parts of a phrase; a word has none."""
    return [] if isinstance(part, str) else list(part)


doors = over_nodes(label, children, len(LABELS))
trees = fb.trees.from_(EXAMPLES)  # for the models by name, and for scikit-learn's estimators
