"""Mistakes of a model on trees, drawn as trees."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from foldbatch.errors import TrainingError
from foldbatch.trees import Tree

Answers = int | str | Sequence[int | str | None]


def draw_errors(
    trees: Sequence[Tree],
    answers: Sequence[Answers],
    path: str | os.PathLike[str] | None = None,
    *,
    most: int = 20,
) -> str:
    """Return drawings of the trees that were answered wrong, and write them to `path` if there is one.

    A wrong node is drawn as ``answer, not label``, a right one by its label. A node without a label is not
    judged.

    Args:
        trees: labelled as the answers are, by numbers or texts.
        answers: for each tree, that for its root, or one for each node, children first as in ``tree.labels``;
            None where a node has no answer.
        path: of a text file, which is replaced.
        most: so many trees are drawn; the others are counted.

    Raises:
        TrainingError: when there is another number of answers than of trees, or of nodes.

    >>> import foldbatch as fb
    >>> trees = fb.trees.parse_brackets("(1 (0 not) (0 bad))"), fb.trees.parse_brackets("(1 fine)")
    >>> print(draw_errors(trees, [["0", "0", "0"], "1"]))
    1 of 2 trees have a wrong answer
    <BLANKLINE>
    tree 0
    0, not 1
    ├─ 0 not
    └─ 0 bad
    """
    if len(trees) != len(answers):
        raise TrainingError("draw_errors", f"{len(trees)} answers", str(len(answers)), "one a tree")
    wrong = [(number, marked) for number in range(len(trees)) if (marked := _marked(number, trees, answers))]
    drawn = [f"tree {number}\n{tree.draw()}" for number, tree in wrong[:most]]
    parts = [f"{len(wrong)} of {len(trees)} trees have a wrong answer", *drawn]
    if len(wrong) > most:
        parts.append(f"and {len(wrong) - most} more")
    text = "\n\n".join(parts)
    if path is not None:
        Path(path).write_text(f"{text}\n", encoding="utf-8")
    return text


def _marked(number: int, trees: Sequence[Tree], answers: Sequence[Answers]) -> Tree | None:
    """Return a tree with its wrong nodes marked, or None where there is none."""
    tree, answer = trees[number], answers[number]
    by_node = [*[None] * (tree.size - 1), answer] if isinstance(answer, int | str) else list(answer)
    if len(by_node) != tree.size:
        found = f"{len(by_node)} for tree {number}"
        raise TrainingError("draw_errors", f"{tree.size} answers, one a node", found, "or one for the root")
    wrong = [
        given is not None and label is not None and str(given) != str(label)
        for given, label in zip(by_node, tree.labels, strict=True)
    ]
    if not any(wrong):
        return None
    labels = [
        f"{given}, not {label}" if bad else label
        for bad, given, label in zip(wrong, by_node, tree.labels, strict=True)
    ]
    return Tree(tree.parents, labels, tree.tokens)
