"""Structures for models that know no structure: a line of tokens, and counts of what there is.

Baselines shall be hard to beat: a line of a tree has its brackets, so a sequence model could read the
structure off it; counts have the kinds of nodes, pairs of parent and child, words, sizes, and of numbers mean
and range.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean
from typing import Any

from foldbatch.contest.examples import Form
from foldbatch.trees.tree import Tree, TreeNode, kids_of

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|[0-9]+")
Counts = dict[str, float]
MAX_TOKENS = 512  # of a line that an LSTM reads; what is behind them is cut off
MAX_ATTENDED = 256  # of a line that a Transformer reads, whose time grows with the square


def tokens_of(structure: Any, form: Form) -> list[str]:
    """Return a structure as a line of tokens.

    A tree is written in brackets, from its root on; of phrases, whose labels are answers, the words alone. A
    record is written with its keys, a number with two digits.

    >>> tokens_of(fb.trees.python_tree("f(x)"), "trees")[:5]
    ['Module(', 'Expr(', 'Call(', 'Name', 'f']
    >>> tokens_of({"name": "red wine", "sizes": [1.234]}, "records")
    ['name:', 'red', 'wine', 'sizes:', '[', '1.2', ']']
    """
    if form == "records":
        return list(_record_tokens(structure))
    if isinstance(structure, tuple):
        return list(structure)
    return list(structure.words()) if form == "phrases" else _tree_tokens(structure.tree)


def _tree_tokens(tree: Tree) -> list[str]:
    """Return the labels and words of a tree, each node before its children, with brackets."""
    kids, tokens, unread = kids_of(tree), list[str](), [len(tree.parents) - 1]
    while unread:
        node = unread.pop()
        if node < 0:
            tokens.append(")")
            continue
        label, word = tree.labels[node], tree.tokens[node]
        name = "" if label is None else str(label)
        inner = len(kids[node]) > 0
        if name or inner:
            tokens.append(f"{name}(" if inner else name)
        if word is not None:
            tokens += word.split()
        if inner:
            unread += [-1, *reversed(kids[node])]
    return tokens


def _record_tokens(value: object) -> Iterator[str]:
    """Yield the tokens of a value of a record."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{key}:"
            yield from _record_tokens(item)
    elif isinstance(value, list | tuple):
        yield "["
        for item in value:
            yield from _record_tokens(item)
        yield "]"
    elif isinstance(value, float | int) and not isinstance(value, bool):
        yield f"{value:.2g}"
    elif isinstance(value, str):
        yield from value.split() or [value]
    else:
        yield str(value)


def counts_of(structure: Any, form: Form) -> Counts:
    """Return counts of what a structure holds, by names; of numbers also mean, least and greatest.

    >>> counts_of(("a", "film", "a"), "sequences")
    {'size': 3, 'word a': 2, 'word film': 1}
    >>> counts = counts_of({"sizes": [1, 3], "name": "wine"}, "records")
    >>> counts["mean .sizes[]"], counts["most .sizes[]"], counts["text .name=wine"]
    (2.0, 3, 1)
    """
    if form == "records":
        return _record_counts(structure)
    counts: Counts = defaultdict(int)
    if isinstance(structure, tuple):
        counts["size"] = len(structure)
        for word in structure:
            counts[f"word {word}"] += 1
        return dict(counts)
    counts["size"], counts["height"], counts["leaves"] = (
        structure.size,
        structure.height,
        len(structure.words()),
    )
    if form == "phrases":
        for word in structure.words():
            counts[f"word {word}"] += 1
        return dict(counts)
    _count_nodes(structure.tree, counts)
    return dict(counts)


def _count_nodes(tree: Tree, counts: Counts) -> None:
    """Add up the kinds of nodes, those of a node and its parent, of the root's children, and words."""
    names = ["" if label is None else str(label) for label in tree.labels]
    root = len(names) - 1
    for name, parent, token in zip(names, tree.parents.tolist(), tree.tokens, strict=True):
        counts[f"kind {name}"] += 1
        if parent >= 0:
            counts[f"{names[parent]} over {name}"] += 1
        if parent == root:
            counts[f"below the root {name}"] += 1
        for word in WORD.findall(token or ""):
            counts[f"word {word.lower()}"] += 1
        if token:
            counts[f"token {token}"] += 1
            if parent >= 0:
                counts[f"{names[parent]} over token {token}"] += 1


def _record_counts(record: dict[str, object]) -> Counts:
    """Return the counts of a record: texts and their words by path, lengths of lists, figures of numbers."""
    counts: Counts = defaultdict(int)
    numbers: dict[str, list[float]] = defaultdict(list)
    unread: list[tuple[str, object, int]] = [("", record, 1)]
    while unread:
        path, value, depth = unread.pop()
        counts["size"] += 1
        counts["depth"] = max(counts["depth"], depth)
        if isinstance(value, dict):
            unread += [(f"{path}.{key}", item, depth + 1) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            counts[f"items {path}"] += len(value)
            unread += [(f"{path}[]", item, depth + 1) for item in value]
        elif isinstance(value, float | int) and not isinstance(value, bool):
            numbers[path].append(value)
            if isinstance(value, int):  # it may be the number of a kind
                counts[f"value {path}={value}"] += 1
        else:
            counts[f"text {path}={value}"] += 1
            words = [word.lower() for word in WORD.findall(value)] if isinstance(value, str) else []
            for word in words:
                counts[f"word {path} {word}"] += 1
            for first, second in pairwise(words):
                counts[f"words {path} {first} {second}"] += 1
    for path, values in numbers.items():
        counts[f"mean {path}"], counts[f"least {path}"] = fmean(values), min(values)
        counts[f"most {path}"], counts[f"numbers {path}"] = max(values), len(values)
    return dict(counts)


STATISTICS = ("mean ", "least ", "most ")  # begin the names of features that are no counts


def bag_of(structure: object, form: Form) -> Counts:
    """Return the counts of a structure with those of pairs of neighbouring tokens, and without statistics.

    >>> bag_of(("a", "film"), "sequences")
    {'size': 2, 'word a': 1, 'word film': 1, 'a film': 1}
    """
    counts = defaultdict(
        int, {k: n for k, n in counts_of(structure, form).items() if not k.startswith(STATISTICS)}
    )
    tokens = tokens_of(structure, form) if form != "records" else []  # whose pairs are counted by path
    for first, second in pairwise(tokens):
        counts[f"{first} {second}"] += 1
    return dict(counts)


def phrases_of(root: TreeNode) -> list[tuple[tuple[str, ...], Any]]:
    """Return the words and the label of each labelled node below the root of a tree, children first.

    >>> phrases_of(fb.trees.parse_brackets("(3 (2 a) (4 (2 fine) (2 film)))"))[-1]
    (('fine', 'film'), '4')
    """
    tree = root.tree
    words: list[tuple[str, ...]] = []
    for node, children in enumerate(kids_of(tree)):
        token = tree.tokens[node]
        inner = tuple(word for child in children for word in words[child])
        words.append(inner if token is None else (token, *inner))
    pairs = zip(words[:-1], tree.labels[:-1], strict=True)
    return [(phrase, label) for phrase, label in pairs if phrase and label is not None]
