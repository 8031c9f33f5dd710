"""Trees with a model's answers at their nodes: those that are wrong are marked."""

from collections.abc import Sequence
from os import PathLike

import numpy as np

from foldbatch.errors import ExampleError, counted
from foldbatch.system.files import write_picture
from foldbatch.system.showing import Drawing
from foldbatch.trees.tree import Tree, TreeNode
from foldbatch.types import describe_value
from foldbatch.views.shapes import LETTER, PALE, Box, Line, Shape, Size, Text, as_svg

RIGHT, WRONG, PLAIN = "#dcefdc", "#f6cfcb", "#eef0f2"  # boxes of answers; of nodes without a label
MAX_NODES = 200  # of a tree that is drawn
MAX_SIGNS = 18  # of a word that is drawn
LEAF_GAP, LEVEL_HEIGHT, CAPTION, BORDER = 12.0, 42.0, 26.0, 16.0  # pixels


def draw_errors(
    trees: Sequence[TreeNode],
    answers: Sequence[object],
    classes: Sequence[str] = (),
    path: str | PathLike[str] | None = None,
    *,
    count: int = 12,
) -> str:
    """Return a picture of trees with a wrong answer, marked at its node; write it to `path` if there is one.

    Args:
        trees: with whole numbers as labels, the classes; without a label, or with -1, there is no error.
        answers: for each tree the class of each node, in the order of its nodes, children first; or one
            class, that of the root.
        classes: the names of the classes; by default their numbers.
        path: of a file `.svg`, which is replaced.
        count: how many trees are drawn: the first ones that have an error, of 200 nodes or fewer.

    Raises:
        ExampleError: when answers do not fit trees.
        BlockValueError: when the path has another ending.

    >>> trees = [fb.trees.parse_brackets(text, labels=int) for text in ("(1 (0 bad) (1 good))", "(1 fine)")]
    >>> text = draw_errors(trees, [[0, 0, 1], [1]], ["no", "yes"])
    >>> "1 of 2 trees" in text, text.count("no, not yes"), "fine" in text
    (True, 1, False)
    """
    shown = Drawing(as_svg(*shapes_of(trees, answers, classes, count)))
    if path is not None:
        write_picture(path, shown)
    return shown


def shapes_of(
    trees: Sequence[TreeNode], answers: Sequence[object], classes: Sequence[str], count: int
) -> tuple[list[Shape], Size]:
    """Return the shapes of the trees with errors, one below the other, and the size of the picture."""
    if len(trees) != len(answers):
        fix = "give the answers of each tree"
        raise ExampleError("draw_errors", f"answers for {len(trees)} trees", str(len(answers)), fix)
    numbered = enumerate(zip(trees, answers, strict=True))
    pairs = [_checked(tree, answer, number) for number, (tree, answer) in numbered]
    wrong = [(tree, listed) for tree, listed in pairs if any(map(is_wrong, tree.labels, listed))]
    drawn = [(tree, listed) for tree, listed in wrong if tree.size <= MAX_NODES][:count]
    caption = f"{len(wrong)} of {counted(len(trees), 'tree')} with an error"
    caption += f"; {len(drawn)} of them" if len(drawn) < len(wrong) else ""
    shapes: list[Shape] = [Text(BORDER, BORDER + 6, caption)]
    width, top = 2 * BORDER + LETTER * len(caption), BORDER + CAPTION
    for tree, listed in drawn:
        across, down = _add_answers(shapes, tree, listed, classes, top)
        width, top = max(width, across + 2 * BORDER), top + down + CAPTION
    return shapes, (width, top)


def is_wrong(label: object, answer: object) -> bool:
    """Return whether an answer differs from a label; what is not labelled, None or -1, has no wrong answer.

    >>> is_wrong(1, 0), is_wrong(1, 1), is_wrong(None, 0), is_wrong(1, None)
    (True, False, False, False)
    """
    return label is not None and label != -1 and answer is not None and label != answer


def _checked(tree: object, answer: object, number: int) -> tuple[Tree, list[int | None]]:
    """Return a tree, and its answers by node; None where there is none."""
    if not isinstance(tree, TreeNode):
        raise ExampleError(f"draw_errors at tree {number}", "a tree", describe_value(tree), "see fb.trees")
    whole_tree = tree.tree
    listed = np.asarray(answer)
    if listed.ndim == 0:
        return whole_tree, [None] * (whole_tree.size - 1) + [int(listed)]
    if listed.shape != (whole_tree.size,):
        expected = f"{whole_tree.size} answers, one a node, or a single one of the root"
        fix = "give each node's class, children first"
        raise ExampleError(f"draw_errors at tree {number}", expected, f"shape {list(listed.shape)}", fix)
    return whole_tree, [int(entry) for entry in listed]


def _add_answers(
    shapes: list[Shape], tree: Tree, answers: Sequence[int | None], classes: Sequence[str], top: float
) -> Size:
    """Add the shapes of a tree with answers below a height; return its width and height."""
    pairs = [*zip(tree.labels, answers, strict=True)]
    texts = [_spelled(label, answer, classes) for label, answer in pairs]
    fills = [
        WRONG if is_wrong(label, answer) else PLAIN if answer is None or label in (None, -1) else RIGHT
        for label, answer in pairs
    ]
    return add_tree(shapes, tree, texts, fills, top)


def add_tree(shapes: list[Shape], tree: Tree, texts: Sequence[str], fills: Sequence[str], top: float) -> Size:
    """Add the shapes of a tree below a height; return its width and height.

    Args:
        shapes: the list that grows.
        tree: the tree.
        texts: those of the boxes of its nodes, in their order; an empty one has no box.
        fills: the colours of the boxes.
        top: the height.
    """
    parents, size = tree.parents.tolist(), tree.size
    words = [shortened_word(token) for token in tree.tokens]
    depth = [0] * size
    for node in range(size - 2, -1, -1):  # parents come later
        depth[node] = depth[parents[node]] + 1
    kids: list[list[int]] = [[] for _ in range(size)]
    middle, edge = [0.0] * size, BORDER
    places: dict[int, float] = {}  # by depth, the next free place
    for node in range(size):
        extent = LETTER * max(len(words[node]), len(texts[node]), 1) + 10
        inner = [middle[kid] for kid in kids[node]]
        wish = (inner[0] + inner[-1]) / 2 if inner else edge + extent / 2
        middle[node] = max(wish, places.get(depth[node], 0.0) + extent / 2)
        places[depth[node]] = middle[node] + extent / 2 + LEAF_GAP
        edge = edge if inner else max(edge, middle[node] + extent / 2 + LEAF_GAP)
        if node < size - 1:
            kids[parents[node]].append(node)
    for node in range(size - 1):
        above = parents[node]
        y1, y2 = top + depth[node] * LEVEL_HEIGHT, top + depth[above] * LEVEL_HEIGHT
        shapes.append(Line(middle[above], y2 + 18, middle[node], y1))
    for node in range(size):
        y = top + depth[node] * LEVEL_HEIGHT
        if texts[node]:
            extent = LETTER * len(texts[node]) + 10
            shapes.append(Box(middle[node] - extent / 2, y, extent, 18, fills[node], PALE))
            shapes.append(Text(middle[node], y + 13, texts[node], middle=True))
        if words[node]:
            shapes.append(Text(middle[node], y + 32, words[node], middle=True))
    return max(places.values()), (max(depth) + 1) * LEVEL_HEIGHT


def shortened_word(token: str | None) -> str:
    """Return a word as it is drawn: cut where it is long, empty where there is none."""
    if token is None or len(token) <= MAX_SIGNS:
        return token or ""
    return token[: MAX_SIGNS - 1] + "…"


def _spelled(label: object, answer: int | None, classes: Sequence[str]) -> str:
    """Return the text of a node's box: the answer, and if it is wrong the label, else the label alone."""

    def name(number: object) -> str:
        if isinstance(number, int) and 0 <= number < len(classes):
            return str(classes[number])
        return str(number)

    if answer is None:
        return "" if label in (None, -1) else name(label)
    return f"{name(answer)}, not {name(label)}" if is_wrong(label, answer) else name(answer)
