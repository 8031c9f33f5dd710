"""Trees in brackets on a line of their own, read quickly; what is not plain is left to `read_brackets`.

One regular expression finds a leaf, the beginning of an inner node or its end at once. That nothing lies in
between is checked by counting characters.
"""

from __future__ import annotations

import re
from sys import intern

from foldbatch.trees.postorder import Label
from foldbatch.trees.tree import Tree, trusted_tree

_PART = re.compile(r"\(([^ \t\r\n()]+)(?:[ \t]+([^ \t\r\n()]+)\))?|\)")
_BLANKS = " \t\r\n"


def plain_trees(line: str) -> list[Tree] | None:
    """Return the trees of a line, as `foldbatch.trees.read_brackets` yields them; None where it is not plain.

    A line that is malformed is not plain, nor is one in which the outermost bracket has no label.

    >>> [tree.words() for tree in plain_trees("(S (NP I) (VP slept))")], plain_trees("( (S (NP I)))")
    ([('I', 'slept')], None)
    """
    trees: list[Tree] = []
    parents: list[int] = []
    labels: list[Label] = []
    tokens: list[str | None] = []
    waiting: list[int] = []  # nodes that have no parent yet
    around: list[tuple[str, int]] = []  # of each open node: its label, and how many nodes were waiting before
    characters = 0
    for label, word in _PART.findall(line):
        if word:
            waiting.append(len(parents))
            tokens.append(intern(word))
            labels.append(label)
            characters += len(word) + len(label)
        elif label:
            around.append((label, len(waiting)))
            continue
        elif around:
            opened, mark = around.pop()
            node = len(parents)
            for child in waiting[mark:]:
                parents[child] = node
            waiting[mark:] = (node,)
            tokens.append(None)
            labels.append(opened)
            characters += len(opened)
        else:
            return None
        parents.append(-1)
        if not around:
            trees.append(trusted_tree(parents, labels, tokens))
            characters += 2 * len(parents)  # their brackets
            parents, labels, tokens, waiting = [], [], [], []
    plain = characters == len(line) - sum(map(line.count, _BLANKS)) and "\0" not in line
    return trees if plain and trees and not around else None
