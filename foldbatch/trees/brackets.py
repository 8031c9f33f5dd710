"""Trees in brackets: a streaming reader for the Penn Treebank and SST, and a writer.

Source: the format is that of the Penn Treebank (Marcus et al. 1993); SST is Socher et al. 2013.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import length_hint
from sys import intern

from foldbatch.errors import ExampleError, ReadError
from foldbatch.trees.text import BYTE_ORDER_MARK, TextPiece, read_pieces, shorten, text_pieces
from foldbatch.trees.tree import LABEL_KINDS, Label, Tree, kids_of, trusted_tree
from foldbatch.types import describe_value

Source = str | os.PathLike[str] | Iterable[str]
_Mark = tuple[TextPiece, int]  # the k-th part of a piece
# A leaf (half of all nodes are leaves), the beginning of a node with its label, a bracket, or a word.
_PART = re.compile(
    r"\([ \t\r\n]*+([^ \t\r\n()]++)(?:[ \t\r\n]++([^ \t\r\n()]++)[ \t\r\n]*+\))?|([()]|[^ \t\r\n()]++)"
)
_WORD = re.compile(r"[^ \t\r\n()\0]+")
_ESCAPES = (("(", "-LRB-"), (")", "-RRB-"), ("/", "\\/"))
_MANY_LABELS = 1 << 16
_OUTSIDE, _OPENED, _HAS_WORD, _LABELLED, _HAS_CHILDREN = range(5)  # what has been read of the innermost node
_NEXT_NODE = "wrap each word in a node of its own: (LABEL word)"
# what is expected where a part does not fit, and how to mend it, by what has been read of the innermost node
_EXPECTED = {
    ("(", _OPENED): (
        "a label after '('",
        "only the outermost bracket may lack one; docs/data.md reads trees without labels",
    ),
    ("(", _HAS_WORD): ("')' after the node's word", _NEXT_NODE),
    (")", _OUTSIDE): ("'(' to begin a tree", "remove it, or add the '(' that it closes"),
    (")", _OPENED): ("a label after '('", "remove the empty node, or write (LABEL word)"),
    (")", _LABELLED): ("a word or children after the label", "write (LABEL word)"),
    ("word", _OUTSIDE): ("'(' to begin a tree", "put text in brackets: (LABEL word)"),
    ("word", _HAS_WORD): ("')' after the node's word", _NEXT_NODE),
    ("word", _HAS_CHILDREN): ("'(' or ')' after a child", _NEXT_NODE),
}


def read_brackets(
    path_or_lines: Source,
    labels: Callable[[str], Label] = str,
    *,
    unescape: bool = False,
    allow_empty: bool = False,
) -> Iterator[Tree]:
    r"""Yield the trees of a file (plain or ``.gz``), or of an iterable of lines.

    A node is ``(LABEL child child ...)``, ``(LABEL word)`` or ``(LABEL)``. PTB's outer bracket
    without a label is dropped where it holds one child, else its label is ``""``.

    Args:
        path_or_lines: a path, or lines of text such as an open file.
        labels: makes a label of its text, e.g. ``int``; called once for each distinct text.
        unescape: whether ``-LRB-``, ``-RRB-`` and ``\/`` in words become ``(``, ``)`` and ``/``.
        allow_empty: whether a file without any tree will do.

    Raises:
        ReadError: when the text is malformed, with ``file:line:column``; while iterating.

    >>> for tree in read_brackets(["( (S (NP I)", "     (VP slept)))"]):
    ...     print(tree.label, tree.words())
    S ('I', 'slept')
    """
    if isinstance(path_or_lines, str) and "(" in path_or_lines and not os.path.exists(path_or_lines):  # noqa: PTH110 - quiet on any string
        fix = "read a string with parse_brackets, or give its lines: text.splitlines()"
        raise ReadError("read_brackets", "a path or lines", f"the text {shorten(path_or_lines)}", fix)
    pieces = read_pieces(path_or_lines)
    return (tree for tree, _ in _parse(pieces, _Labels(labels), unescape=unescape, allow_empty=allow_empty))


def parse_brackets(text: str, labels: Callable[[str], Label] = str, *, unescape: bool = False) -> Tree:
    """Return the one tree that `text` holds; see `read_brackets`.

    Raises:
        ReadError: when the text is malformed or holds another number of trees.

    >>> parse_brackets("(3 (2 a) (4 gem))", int).root[1].label
    4
    """
    trees = list(islice(_parse(text_pieces(text), _Labels(labels), unescape=unescape), 2))
    if len(trees) > 1:
        where = _where(trees[1][1])
        fix = "read several with read_brackets(text.splitlines())"
        raise ReadError(where, "one tree", "a second one", fix)
    return trees[0][0]


def read_sst(path_or_lines: Source) -> Iterator[Tree]:
    """Yield the trees of a file of the Stanford Sentiment Treebank; labels are ints from 0 to 4.

    Raises:
        ReadError: as `read_brackets` does, and where a label is no integer from 0 to 4 or a
            leaf has no word.

    >>> [tree.label for tree in read_sst(["(3 (2 a) (4 gem))"])]
    [3]
    """
    ratings = _Labels({str(label): label for label in range(5)}.__getitem__, "a label from 0 to 4")
    pieces = read_pieces(path_or_lines)
    return (tree for tree, _ in _parse(pieces, ratings, needs_words=True))


def read_tree_lines(
    lines: Iterable[str], where: str, *, unescape: bool = False
) -> Iterator[Tree | list[str]]:
    """Yield the trees in brackets, each of one line or several, and the words of any other line.

    >>> tree, words = read_tree_lines(["(S (NP I)", "  (VP slept))", "a gem"], "x")
    >>> tree.words(), words
    (('I', 'slept'), ['a', 'gem'])
    """
    labels, pieces, depth = _Labels(), list[TextPiece](), 0
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)  # noqa: PLW2901 - it is no part of the text
        if pieces or line.lstrip().startswith("("):
            line = line.rstrip("\r\n")  # noqa: PLW2901 - so that an error is told of this line
            pieces += text_pieces(line, where, number) if "\0" in line else [TextPiece(line, where, number)]
            depth += line.count("(") - line.count(")")
            if depth <= 0:
                yield from (tree for tree, _ in _parse(pieces, labels, unescape=unescape))
                pieces, depth = [], 0
        elif line.strip():
            (piece,) = text_pieces(line, where, number)  # refuses what is no text
            yield piece.text.split()
    yield from (tree for tree, _ in _parse(pieces, labels, unescape=unescape, allow_empty=True))


def write_brackets(tree: Tree, *, escape: bool = False) -> str:
    r"""Return the tree in brackets, on one line: what `parse_brackets` reads.

    Args:
        tree: any tree whose inner nodes have no token.
        escape: whether ``(``, ``)`` and ``/`` in words become ``-LRB-``, ``-RRB-`` and ``\/``.

    Raises:
        ExampleError: when the brackets could not be read back: a label is missing, a label or
            word holds a blank or a bracket, or a word stands beside children.

    >>> write_brackets(Tree.from_nested(("S", ("NP", "I"), ("VP", "slept"))))
    '(S (NP I) (VP slept))'
    """
    if not isinstance(tree, Tree):
        raise ExampleError("write_brackets", "a tree", describe_value(tree), "give one Tree at a time")
    kids, parts = kids_of(tree), list[str]()
    stack = [tree.size - 1]
    while stack:
        node = stack.pop()
        if node < 0:
            parts.append(")")
            continue
        below = kids[node]
        parts.append(f" ({_written_label(tree, node, len(below))}")
        word = tree.tokens[node]
        if word is None:
            stack.append(-1)
            stack.extend(reversed(below))
        elif below:
            fix = "write JSON, or move it to a leaf: read_conllu(..., heads='leaf')"
            expected = "a word or children"
            raise ExampleError(f"node {node}", expected, f"the word {word!r} beside children", fix)
        else:
            parts.append(f" {_written_word(word, node, escape=escape)})")
    return "".join(parts)[1:]


def unescape(word: str) -> str:
    r"""Return a treebank's word with ``-LRB-``, ``-RRB-`` and ``\/`` as ``(``, ``)`` and ``/``.

    >>> unescape("1\\/2")
    '1/2'
    """
    for plain, escaped in _ESCAPES:
        word = word.replace(escaped, plain)
    return word


def _written_label(tree: Tree, node: int, children: int) -> str:
    """Return the text of a node's label; raise an ExampleError where brackets cannot hold it."""
    label = tree.labels[node]
    text = "" if label is None else str(label)
    if _WORD.fullmatch(text) or (label == "" and node == tree.size - 1 and children > 1):
        return text
    fix = "rename it; only a root with two children or more may have the label ''"
    raise ExampleError(f"node {node}", "a label without blanks and brackets", describe_value(label), fix)


def _written_word(word: str, node: int, *, escape: bool) -> str:
    """Return a word as text between brackets, escaped where asked for."""
    text = word
    for plain, escaped in _ESCAPES if escape else ():
        text = text.replace(plain, escaped)
    if _WORD.fullmatch(text):
        return text
    fix = "brackets need escape=True; blanks cannot be written"
    raise ExampleError(f"node {node}", "a word without blanks and brackets", describe_value(word), fix)


class _Misfit(Exception):  # noqa: N818 - becomes an error where its place is known
    """The expected text of a part that does not fit, and how to mend it; *actual* is the part by default."""

    def __init__(self, expected: str, fix: str, actual: str = "", *, bracket: bool = False) -> None:
        super().__init__(expected, fix, actual)
        self.expected = expected
        self.fix = fix
        self.actual = actual
        self.bracket = bracket  # whether the '(' before a label is what does not fit


class _Labels(dict[str, Label]):
    """The label of each text seen so far; a new one is made by the user's function."""

    def __init__(self, make: Callable[[str], Label] = str, expected: str = "") -> None:
        super().__init__()
        if not callable(make):
            raise ReadError("labels", "a function of a label's text", describe_value(make), "for example int")
        self.make = make
        self.expected = expected or f"a label that {getattr(make, '__name__', 'labels')} accepts"

    def __missing__(self, text: str) -> Label:
        try:
            label = self.make(text)
        except (ValueError, LookupError):
            actual = "" if text else "none at the tree's outermost bracket"
            raise _Misfit(
                self.expected, "correct the label; data.format brackets, or labels=str, takes any", actual
            ) from None
        if type(label) not in LABEL_KINDS or label is None:
            actual = f"{describe_value(label)} for it"
            raise _Misfit("a str or an int from the function labels", "convert its result", actual)
        if len(self) >= _MANY_LABELS:
            self.clear()  # a file in which every label differs must not fill the memory
        self[text] = label
        return label


def _parse(  # noqa: PLR0915 - one loop: calls would double its time
    pieces: Iterable[TextPiece],
    label_of: _Labels,
    *,
    unescape: bool = False,
    allow_empty: bool = False,
    needs_words: bool = False,
) -> Iterator[tuple[Tree, _Mark]]:
    """Yield every tree with the place where it begins; pieces are whole lines."""
    state = _OUTSIDE
    around: list[tuple[Label, int]] = []  # of each open node: label, and how many nodes were waiting before
    waiting: list[int] = []  # nodes that have no parent yet
    parents: list[int] = []
    labels: list[Label] = []
    tokens: list[str | None] = []
    begin: _Mark | None = None
    leaf_word: str | None = None  # of the innermost node
    clean = _unescaped if unescape else intern  # one object for all places of a word
    end = ""
    for piece in pieces:
        parts = _PART.findall(piece.text)
        unread = iter(parts)
        try:
            for text, word, part in unread:
                if text or part == "(":
                    if state < _LABELLED:
                        if state == _OUTSIDE:
                            begin = piece, len(parts) - length_hint(unread) - 1
                        elif state == _HAS_WORD or len(around) > 1:
                            raise _misfit("(", state)
                    if not word:
                        around.append((label_of[text] if text else None, len(waiting)))
                        state = _LABELLED if text else _OPENED
                        continue
                    waiting.append(len(parents))
                    labels.append(label_of[text])
                    tokens.append(clean(word))
                    parents.append(-1)
                elif part == ")":
                    if state < _HAS_WORD or (needs_words and state == _LABELLED):
                        raise _misfit(")", state)
                    label, mark = around.pop()
                    if label is not None or len(waiting) != 1:  # else it is PTB's outer bracket
                        node = len(parents)
                        for child in waiting[mark:]:
                            parents[child] = node
                        waiting[mark:] = (node,)
                        labels.append(label_of[""] if label is None else label)
                        tokens.append(leaf_word)
                        leaf_word = None
                        parents.append(-1)
                elif state == _OPENED:
                    around[-1] = label_of[part], around[-1][1]
                    state = _LABELLED
                    continue
                elif state == _LABELLED:
                    leaf_word = clean(part)
                    state = _HAS_WORD
                    continue
                else:
                    raise _misfit("word", state)
                state = _HAS_CHILDREN
                if not around:
                    assert begin is not None
                    yield trusted_tree(parents, labels, tokens), begin
                    state = _OUTSIDE
                    parents, labels, tokens, waiting = [], [], [], []
        except _Misfit as misfit:
            match = _nth(piece, len(parts) - length_hint(unread) - 1)
            group = 0 if misfit.bracket or not match[1] else 1
            actual = misfit.actual or shorten("(" if misfit.bracket else match[group])
            raise ReadError(piece.where(match.start(group)), misfit.expected, actual, misfit.fix) from None
        end = piece.where(len(piece.text))
    if around:
        assert begin is not None
        expected = f"{len(around)} more ')' to close the tree that begins at {_where(begin)}"
        raise ReadError(end, expected, "the end of the file", "close it, or remove what is left of it")
    if begin is None and not allow_empty:
        fix = "check the path; in Python, allow_empty=True takes such a file"
        raise ReadError(end, "a tree", "the end of the file", fix)


def _unescaped(word: str) -> str:
    return intern(unescape(word))


def _misfit(part: str, state: int) -> _Misfit:
    return _Misfit(*_EXPECTED[part, state], bracket=part == "(")


def _nth(piece: TextPiece, number: int) -> re.Match[str]:
    return next(islice(_PART.finditer(piece.text), number, None))


def _where(mark: _Mark) -> str:
    piece, number = mark
    return piece.where(_nth(piece, number).start())
