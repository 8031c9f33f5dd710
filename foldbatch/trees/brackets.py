"""Trees in brackets: a streaming reader for the Penn Treebank and SST, and a writer.

In comes a path, lines or a string, out come `Tree`s; or a tree goes in and its text comes out.
Trees may be spread over any number of lines, or share one. The reader holds one piece of text
and one open tree, keeps its own stack, and so reads files of any length and trees of any depth.
Words are split at blanks, tabs and line ends alone: they may hold no-break spaces.

Source: the format is that of the Penn Treebank (Marcus et al. 1993); SST is Socher et al. 2013.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from sys import intern

from foldbatch.errors import ExampleError, ReadError
from foldbatch.trees.postorder import LABEL_KINDS, Label
from foldbatch.trees.text import Piece, read_pieces, shorten, text_pieces, whole_pieces
from foldbatch.trees.tree import Tree, trusted_tree
from foldbatch.types import describe_value

Source = str | os.PathLike[str] | Iterable[str]
_Mark = tuple[Piece, int]  # the k-th token of a piece
_SPLITS = " \t\r\n()"
_TOKEN = re.compile(r"[()]|[^ \t\r\n()]+")
_WORD = re.compile(r"[^ \t\r\n()\0]+")
_ESCAPES = (("(", "-LRB-"), (")", "-RRB-"), ("/", "\\/"))
_MANY_LABELS = 1 << 16
_OUTSIDE, _OPENED, _LABELLED, _HAS_WORD, _HAS_CHILDREN = range(5)  # what has been read of a node
_NEXT_NODE = "wrap each word in a node of its own: (LABEL word)"


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
        raise ReadError(
            where, "one tree", "a second one", "read several with read_brackets(text.splitlines())"
        )
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
    return (tree for tree, _ in _parse(read_pieces(path_or_lines), ratings, needs_words=True))


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
    starts, indices = (array.tolist() for array in tree.csr)
    parts: list[str] = []
    stack = [tree.size - 1]
    while stack:
        node = stack.pop()
        if node < 0:
            parts.append(")")
            continue
        below = indices[starts[node] : starts[node + 1]]
        parts.append(f" ({_written_label(tree, node, len(below))}")
        word = tree.tokens[node]
        if word is None:
            stack.append(-1)
            stack.extend(reversed(below))
        elif below:
            fix = "move the word to a leaf of its own"
            raise ExampleError(
                f"node {node}", "a word or children", f"the word {word!r} beside children", fix
            )
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
    label = tree.labels[node]
    text = "" if label is None else str(label)
    if _WORD.fullmatch(text) or (label == "" and node == tree.size - 1 and children > 1):
        return text
    fix = "rename it; only a root with two children or more may have the label ''"
    raise ExampleError(f"node {node}", "a label without blanks and brackets", describe_value(label), fix)


def _written_word(word: str, node: int, *, escape: bool) -> str:
    text = word
    for plain, escaped in _ESCAPES if escape else ():
        text = text.replace(plain, escaped)
    if _WORD.fullmatch(text):
        return text
    fix = "brackets need escape=True; blanks cannot be written"
    raise ExampleError(f"node {node}", "a word without blanks and brackets", describe_value(word), fix)


class _Misfit(Exception):  # noqa: N818 - becomes an error where its place is known
    """What a token should have been, and how to mend it; *found* is the token unless given."""

    def __init__(self, expected: str, fix: str, found: str = "") -> None:
        super().__init__(expected, fix, found)
        self.expected = expected
        self.fix = fix
        self.found = found


class _Labels(dict[str, Label]):
    """The label of each text seen so far; a new one is made by the user's function."""

    def __init__(self, make: Callable[[str], Label], expected: str = "") -> None:
        super().__init__()
        self.make = make
        self.expected = expected or f"a label that {getattr(make, '__name__', 'labels')} accepts"

    def __missing__(self, text: str) -> Label:
        try:
            label = self.make(text)
        except (ValueError, LookupError):
            found = "" if text else "none at the tree's outermost bracket"
            raise _Misfit(
                self.expected, "correct the label, or use read_brackets with labels=str", found
            ) from None
        if type(label) not in LABEL_KINDS or label is None:
            found = f"{describe_value(label)} for it"
            raise _Misfit("a str or an int from the function labels", "convert its result", found)
        if len(self) >= _MANY_LABELS:
            self.clear()  # a file in which every label differs must not fill the memory
        self[text] = label
        return label


class _Grower:
    """Builds trees from tokens: the open nodes, and post-order arrays of the finished ones.

    The innermost open node has a `state`, a `label`, a `word`, and a `mark`: how many nodes
    were waiting for a parent when it began. `around` keeps label and mark of those around it.
    """

    __slots__ = (
        "around", "bare", "label", "label_of", "labels", "mark", "needs_words", "parents", "state", "tokens",
        "unescape", "waiting", "word",
    )  # fmt: skip

    def __init__(self, label_of: _Labels, *, unescape: bool, needs_words: bool) -> None:
        self.label_of = label_of
        self.unescape = unescape
        self.needs_words = needs_words
        self.around: list[tuple[Label, int]] = []
        self.reset()

    def reset(self) -> None:
        self.parents: list[int] = []
        self.labels: list[Label] = []
        self.tokens: list[str | None] = []
        self.waiting: list[int] = []
        self.state = _OUTSIDE
        self.label: Label = None
        self.word: str | None = None
        self.mark = 0
        self.bare = False  # the outermost bracket has no label

    def open(self) -> None:
        """Begin a node inside the innermost one."""
        state = self.state
        if state == _HAS_WORD:
            raise _Misfit("')' after the node's word", _NEXT_NODE)
        if state == _OPENED:
            if len(self.around) > 1:
                raise _Misfit("a label after '('", "only the outermost bracket of a tree may lack one")
            self.bare = True
        self.around.append((self.label, self.mark))
        self.mark = len(self.waiting)
        self.state = _OPENED

    def take(self, word: str) -> None:
        """Read the innermost node's label or word."""
        if self.state == _OPENED:
            self.label = self.label_of[word]
            self.state = _LABELLED
        elif self.state == _LABELLED:
            self.word = intern(unescape(word) if self.unescape else word)  # one object for all places
            self.state = _HAS_WORD
        elif self.state == _OUTSIDE:
            raise _Misfit("'(' to begin a tree", "put text in brackets: (LABEL word)")
        elif self.state == _HAS_WORD:
            raise _Misfit("')' after the node's word", _NEXT_NODE)
        else:
            raise _Misfit("'(' or ')' after a child", _NEXT_NODE)

    def close(self) -> Tree | None:
        """Finish the innermost node; return the tree when that was its root."""
        if self.state < _HAS_WORD:
            self.check_close()
        waiting = self.waiting
        if not (self.bare and len(self.around) == 1 and len(waiting) == 1):
            node = len(self.parents)
            for child in waiting[self.mark :]:
                self.parents[child] = node
            del waiting[self.mark :]
            waiting.append(node)
            self.parents.append(-1)
            self.labels.append(self.label)
            self.tokens.append(self.word)
        self.word = None
        self.label, self.mark = self.around.pop()
        self.state = _HAS_CHILDREN
        if self.around:
            return None
        if self.bare and self.labels[-1] is None:
            self.labels[-1] = self.label_of[""]
        tree = trusted_tree(self.parents, self.labels, self.tokens)
        self.reset()
        return tree

    def check_close(self) -> None:
        """Raise unless the innermost node may be closed though it has neither word nor children."""
        if self.state == _OUTSIDE:
            raise _Misfit("'(' to begin a tree", "remove it, or add the '(' that it closes")
        if self.state == _OPENED:
            raise _Misfit("a label after '('", "remove the empty node, or write (LABEL word)")
        if self.needs_words:
            raise _Misfit("a word or children after the label", "write (LABEL word)")


def _number(tokens: Sequence[str], unread: Iterator[str]) -> int:
    """Return the number of the token that was read last, counted from 0."""
    # Counting while reading would cost a tenth of the time, and only errors ask for it.
    return len(tokens) - length_hint(unread) - 1


def _where(mark: _Mark) -> str:
    piece, number = mark
    return piece.where(next(islice(_TOKEN.finditer(piece.text), number, None)).start())


def _parse(
    pieces: Iterable[Piece],
    label_of: _Labels,
    *,
    unescape: bool = False,
    allow_empty: bool = False,
    needs_words: bool = False,
) -> Iterator[tuple[Tree, _Mark]]:
    """Yield every tree with the place where it begins."""
    grower = _Grower(label_of, unescape=unescape, needs_words=needs_words)
    begin: _Mark | None = None
    end = ""
    for piece in whole_pieces(pieces, _SPLITS):
        tokens = _TOKEN.findall(piece.text)
        unread = iter(tokens)
        try:
            for word in unread:
                if word == "(":
                    if grower.state == _OUTSIDE:
                        begin = piece, _number(tokens, unread)
                    grower.open()
                elif word == ")":
                    tree = grower.close()
                    if tree is not None:
                        assert begin is not None
                        yield tree, begin
                else:
                    grower.take(word)
        except _Misfit as misfit:
            where = _where((piece, _number(tokens, unread)))
            raise ReadError(where, misfit.expected, misfit.found or shorten(word), misfit.fix) from None
        end = piece.where(len(piece.text))
    if grower.around:
        assert begin is not None
        expected = f"{len(grower.around)} more ')' to close the tree that begins at {_where(begin)}"
        raise ReadError(end, expected, "the end of the file", "close it, or remove what is left of it")
    if begin is None and not allow_empty:
        raise ReadError(end, "a tree", "the end of the file", "check the path, or pass allow_empty=True")
