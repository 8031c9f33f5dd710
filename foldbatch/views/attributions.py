"""An attribution drawn: an example's data in colours, red where they raise the number, blue where not."""

from os import PathLike

from foldbatch.errors import ExampleError
from foldbatch.program.attributing import Attribution
from foldbatch.system.files import write_picture
from foldbatch.system.showing import Drawing
from foldbatch.trees.tree import Tree
from foldbatch.types import describe_value
from foldbatch.views.shapes import LETTER, PALE, Box, Shape, Size, Text, as_svg
from foldbatch.views.trees import BORDER, CAPTION, MAX_NODES, add_tree, shortened_word

RAISES, LOWERS = (200, 56, 44), (47, 111, 208)  # red, green and blue of the largest amounts
ROW_HEIGHT, BAR = 24.0, 120.0  # pixels: of a row, and of the longest bar


def draw_attribution(attribution: Attribution, path: str | PathLike[str] | None = None) -> str:
    """Return a picture of what decided a number; write it to `path` if there is one.

    An example that is a tree, or a pair of one and a label, is drawn as a tree, each node with its amount, as
    far as its data belong to nodes; any other as rows, one a datum.

    Args:
        attribution: what `Program.attribute` returns.
        path: of a file `.svg`, which is replaced.

    Raises:
        ExampleError: when the tree has more than 200 nodes.
        BlockValueError: when the path has another ending.

    >>> def letters(node):
    ...     return fb.tensor(float(len(node.token))) if node.is_leaf else letters(node[0]) + letters(node[1])
    >>> program = fb.compile(letters, "numpy")
    >>> tree = fb.trees.parse_brackets("(1 (0 bad) (1 good))", labels=int)
    >>> text = draw_attribution(program.attribute(tree))
    >>> "bad" in text, "+4" in text
    (True, True)
    """
    shown = Drawing(as_svg(*shapes_of(attribution)))
    if path is not None:
        write_picture(path, shown)
    return shown


def shapes_of(attribution: Attribution) -> tuple[list[Shape], Size]:
    """Return the shapes of a picture of an attribution, and its size."""
    number = f"{attribution.target or 'number'} {attribution.number:.3g}"
    caption = f"{number}, with zeros for all data {attribution.baseline:.3g}"
    shapes: list[Shape] = [Text(BORDER, BORDER + 6, caption)]
    least, top = 2 * BORDER + LETTER * len(caption), BORDER + CAPTION
    tree = _tree_of(attribution)
    across, down = (
        _add_rows(shapes, attribution, top) if tree is None else _add(shapes, attribution, tree, top)
    )
    return shapes, (max(least, across + 2 * BORDER), top + down + BORDER)


def _tree_of(attribution: Attribution) -> Tree | None:
    """Return the tree whose inner or outer nodes the data belong to; None where they belong to no nodes."""
    trees = {id(entry.node.tree): entry.node.tree for entry in attribution.nodes if entry.node is not None}
    if len(trees) != 1 or not all(entry.node for entry in attribution.nodes):
        return None
    (tree,) = trees.values()
    root_alone = all(entry.node and entry.node.index == tree.size - 1 for entry in attribution.nodes)
    return None if root_alone and len(attribution.nodes) > 1 else tree


def _add(shapes: list[Shape], attribution: Attribution, tree: Tree, top: float) -> Size:
    """Add the shapes of a tree; return its width and height."""
    if tree.size > MAX_NODES:
        fix = "print the attribution"
        raise ExampleError("draw_attribution", f"a tree of {MAX_NODES} nodes or fewer", f"{tree.size}", fix)
    amounts = attribution.amounts(tree)
    largest = max(map(abs, amounts)) or 1.0
    read = {entry.node.index for entry in attribution.nodes if entry.node is not None}
    texts = [f"{amount:+.2g}" if node in read else "" for node, amount in enumerate(amounts)]
    fills = [colour(amount / largest) for amount in amounts]
    return add_tree(shapes, tree, texts, fills, top)


def _add_rows(shapes: list[Shape], attribution: Attribution, top: float) -> Size:
    """Add a row for each datum: path, datum, amount and a bar; return their width and height."""
    largest = max((abs(entry.amount) for entry in attribution.nodes), default=0.0) or 1.0
    rows = [
        (
            entry.path or "(all)",
            shortened_word(_words(entry.datum)),
            f"{entry.amount:+.3g}",
            entry.amount / largest,
        )
        for entry in attribution.nodes
    ]
    widths = [LETTER * max((len(str(row[column])) for row in rows), default=1) + 14 for column in range(3)]
    places = [BORDER, BORDER + widths[0], BORDER + widths[0] + widths[1]]
    middle = places[2] + widths[2] + BAR / 2
    for number, row in enumerate(rows):
        y = top + ROW_HEIGHT * number
        shapes += [Text(x, y + 13, words) for x, words in zip(places, row[:3], strict=True)]
        extent = max(abs(row[3]) * BAR / 2, 1.0)
        x = middle if row[3] > 0 else middle - extent
        shapes.append(Box(x, y + 2, extent, 14, colour(row[3]), PALE))
    return middle + BAR / 2 - BORDER, ROW_HEIGHT * len(rows)


def _words(datum: object) -> str:
    return datum if isinstance(datum, str) else describe_value(datum)


def colour(share: float) -> str:
    """Return the colour of an amount, given its share of the largest one, from -1 to 1.

    >>> colour(0.0), colour(1.0), colour(-1.0)
    ('#ffffff', '#dd847c', '#7ea6e2')
    """
    ink = RAISES if share > 0 else LOWERS
    depth = 0.62 * min(abs(share), 1.0)  # so that letters on it can be read
    return "#" + "".join(f"{round(255 + (part - 255) * depth):02x}" for part in ink)
