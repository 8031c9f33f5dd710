"""conllu: a sentence becomes a tree of its words."""

from typing import Any

import conllu
from nodes import over_nodes

import foldbatch as fb

COLUMNS = [(1, "They", 2, "nsubj"), (2, "buy", 0, "root"), (3, "fish", 2, "obj")]
TEXT = "".join(f"{n}\t{form}\t{form}\t_\t_\t_\t{head}\t{of}\t_\t_\n" for n, form, head, of in COLUMNS) + "\n"
SENTENCES = conllu.parse(TEXT)
EXAMPLES = [sentence.to_tree() for sentence in SENTENCES]
LABELS = fb.trees.Vocabulary(["root", "nsubj", "obj"])


def label(word: Any) -> int:
    """Return the number of a word's relation to its head."""
    return LABELS[word.token["deprel"]]


def children(word: Any) -> list[Any]:
    """Return the words that depend on one."""
    return list(word.children)


doors = over_nodes(label, children, len(LABELS))
trees = fb.trees.from_(SENTENCES, label="deprel", token="lemma")
