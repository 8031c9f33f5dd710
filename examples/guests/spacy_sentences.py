"""spaCy: a word's children depend on it. Pipelines make such a `Doc`; here it is made by hand."""

from typing import Any

import spacy
from nodes import over_nodes
from spacy.tokens import Doc

import foldbatch as fb

VOCABULARY = spacy.blank("en").vocab
EXAMPLES = [
    Doc(VOCABULARY, ["They", "buy", "fish"], heads=[1, 1, 1], deps=["nsubj", "ROOT", "obj"]),
    Doc(VOCABULARY, ["a", "fine", "film"], heads=[2, 2, 2], deps=["det", "amod", "ROOT"]),
]
LABELS = fb.trees.Vocabulary(["ROOT", "nsubj", "obj", "det", "amod"])


def label(part: Any) -> int:
    """Return the number of a word's relation to its head; 0 for a text."""
    return 0 if isinstance(part, Doc) else LABELS[part.dep_]


def children(part: Any) -> list[Any]:
    """Return the roots of a text, or the words that depend on one."""
    return [sentence.root for sentence in part.sents] if isinstance(part, Doc) else list(part.children)


doors = over_nodes(label, children, len(LABELS))
trees = fb.trees.from_(EXAMPLES, label="pos_", token="lemma_")  # any fields; by default dep_ and text
