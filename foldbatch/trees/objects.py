"""`from_`: trees of the objects in which other libraries hold them, such as nltk, spaCy and tree-sitter.

A type is known by its module and name, so that no library is imported before an object of it comes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeAlias, overload

import numpy as np

from foldbatch.errors import BlockValueError, ExampleError, ExampleKeyError, ExampleTypeError
from foldbatch.trees.pyast import expand_syntax
from foldbatch.trees.tree import Label, Tree, TreeNode, flatten, trusted_tree
from foldbatch.types import describe_value

Foreign: TypeAlias = Any  # an object of another library: a tree, a node, or what a field of one holds
Name: TypeAlias = str | Callable[[Foreign], Foreign]  # of a field, or a function that reads it
Expanded: TypeAlias = tuple[Label, str | None, Sequence[Foreign]]
Expand: TypeAlias = Callable[[Foreign, Callable[[], str]], Expanded]


@dataclass(frozen=True, slots=True)
class Opened:
    """The topmost node of an object of a library, and how nodes are read."""

    root: Foreign
    expand: Expand  # from a node to its label, token and children
    field: Callable[[Foreign, str], Foreign]  # reads a field of a node by its name
    words: Callable[[], Iterable[str]] | None = None  # in order, where the tree has another one
    size: int | None = None  # how many nodes there must be, where some may hang from no root


class Joint:
    """A node above several roots, as of a text of several sentences; its label is "", and it has no token."""

    __slots__ = ("children",)

    def __init__(self, children: Sequence[object]) -> None:
        self.children = children


@overload
def from_(  # type: ignore[overload-overlap]  # of an object that is a list, too, as those of nltk
    source: list[Foreign] | tuple[Foreign, ...],
    *,
    label: Name | None = None,
    token: Name | None = None,
    children: Name | None = None,
) -> list[Tree]: ...
@overload
def from_(
    source: object, *, label: Name | None = None, token: Name | None = None, children: Name | None = None
) -> Tree: ...
def from_(
    source: object, *, label: Name | None = None, token: Name | None = None, children: Name | None = None
) -> Tree | list[Tree]:
    """Return the tree that an object of another library holds; of a list, the list of its items' trees.

    | object | label | token | children |
    |---|---|---|---|
    | ``nltk.Tree`` | ``label`` | the word of a node of one word | all; words beside others are leaves |
    | ``Doc``, ``Span``, ``Token`` of spaCy | ``dep_`` | ``text`` | the tokens that depend on it |
    | ``Tree``, ``Node`` of tree-sitter | ``type``, with an operator | text of a leaf | ``named_children`` |
    | elements of lxml, ``xml.etree``, BeautifulSoup | the tag | its own text | elements |
    | ``ast.AST`` | as of `foldbatch.trees.python_tree` | | |
    | ``CSTNode`` of libcst | the class | ``value`` | all but blanks and punctuation |
    | ``TokenList``, ``TokenTree`` of conllu | ``deprel`` | ``form`` | the words that depend on it |
    | ``DiGraph`` of networkx | ``label``, or the node itself | ``token`` | its successors |
    | expressions of SymPy | the class | text of a leaf | ``args`` |

    Several roots, as of a text of several sentences, get a node above them. Depth costs no stack.

    Args:
        source: an object of these types, or of one that `register` has added; a list of them; a `Tree`.
        label: what is to be a node's label instead: the name of a field, or a function of the node. Fields
            are attributes, methods without arguments, attributes in the text of a page, columns of conllu and
            data of a node of networkx. A field that some nodes lack is None there.
        token: the same for the word of a node.
        children: the same for the nodes below one.

    Raises:
        ExampleTypeError: when nothing is known of its type, or a label is no str, int or None.
        ExampleKeyError: when no node has a field of a name.
        ExampleError: when it holds no tree: a text that was not parsed, a graph with several ways to a node.

    >>> import ast
    >>> print(from_(ast.parse("x = y + 1")).draw())
    Module
    └─ Assign
       ├─ Name x
       └─ BinOp:Add
          ├─ Name y
          └─ Constant:int 1
    >>> [tree.size for tree in from_([ast.parse("f(x)"), ast.parse("x")], label=lambda node: None)]
    [5, 3]
    """
    chosen = label, token, children
    opening = _opening(source)
    if opening is None:
        if isinstance(source, list | tuple):
            trees = (from_(part, label=label, token=token, children=children) for part in source)
            return list[Foreign](trees)
        expected = f"an object of {LIBRARIES}, or of a registered type"
        fix = "register its type by fb.trees.register, or call fb.trees.Tree.build"
        raise ExampleTypeError("from_", expected, describe_value(source), fix)
    if isinstance(source, TreeNode) and chosen == (None, None, None):
        return subtree(source)
    opened = opening(source)
    if chosen == (None, None, None):
        return _tree(opened, opened.expand)
    missing = {name for name in chosen if isinstance(name, str)}
    tree = _tree(opened, _chosen(opened, *chosen, missing), complete=children is None)
    for name in missing:
        fix = "name another field, or give a function of the node"
        raise ExampleKeyError("from_", f"a field {name!r} of a node", describe_value(opened.root), fix)
    return tree


def _tree(opened: Opened, expand: Expand, *, complete: bool = True) -> Tree:
    """Return the tree of what was opened; make sure that it is `complete`."""
    tree = trusted_tree(*flatten(opened.root, expand, "source"))
    reached = tree.size - isinstance(opened.root, Joint)
    if complete and opened.size is not None and reached != opened.size:
        actual = f"{opened.size} nodes, {opened.size - reached} of which hang from none"
        raise ExampleError("from_", "nodes that all hang from a root", actual, "cut the cycle")
    return tree


def register(
    kind: type | str,
    *,
    children: Name | None = None,
    label: Name | None = None,
    token: Name | None = None,
    root: Name | None = None,
) -> None:
    """Let `from_`, the zoo, estimators and predictions read objects of a type, and of types derived of it.

    Args:
        kind: the type; or its module and name, ``"library.module.Class"``, which imports nothing.
        children: where the nodes below a node are: the name of an attribute or of a method without arguments,
            or a function of the node. Nodes may be of any types.
        label: the same for a node's label, a str or an int; by default None.
        token: the same for a node's word; by default None.
        root: the same for the topmost node of an object that is no node itself. Without `children`, nodes are
            read as their own type is registered.

    Raises:
        BlockValueError: when neither `children` nor `root` is given.

    >>> class Folder:
    ...     def __init__(self, name, *inside):
    ...         self.name, self.inside = name, inside
    >>> register(Folder, children="inside", label="name")
    >>> from_(Folder("home", Folder("ada"), Folder("bob")))
    Tree('home', 3 nodes, height 1)
    """
    if children is None and root is None:
        fix = "for example children='children'"
        raise BlockValueError("register", "the name of the children, or of the root", "neither", fix)

    def opening(source: Foreign) -> Opened:
        """Open an object of the type."""
        top = source if root is None else _read(root, attribute)(source)
        if children is None:
            return _opened(top)
        below = _read(children, attribute)
        of_label, of_token = (None if name is None else _read(name, attribute) for name in (label, token))

        def expand(node: Foreign, where: Callable[[], str]) -> Expanded:
            """Read the registered fields of a node."""
            try:
                return (
                    None if of_label is None else plain_entry(of_label(node)),
                    None if of_token is None else plain_entry(of_token(node)),
                    _listed(below(node)),
                )
            except NoFieldError as error:
                fix = "look at what is registered for its type"
                raise ExampleKeyError(where(), f"a field {error!s}", describe_value(node), fix) from None

        return Opened(top, expand, attribute)

    OPENINGS[kind if isinstance(kind, str) else _name_of(kind)] = opening
    opening_of.cache_clear()


def tree_of(structure: object) -> Foreign:
    """Return the tree of an object that `from_` knows; what is none as it is, and so trees themselves.

    >>> tree_of(Tree([-1])), tree_of("a film")
    (Tree(None, 1 nodes, height 0), 'a film')
    """
    if isinstance(structure, TreeNode) or _opening(structure) is None:
        return structure
    return from_(structure)


def words_from(structure: object) -> tuple[str, ...] | None:
    """Return the words, in their order, of an object that `from_` knows; None of others.

    >>> words_from(Tree([1, -1], None, ["film", None])), words_from("a film")
    (('film',), None)
    """
    opening = _opening(structure)
    if opening is None:
        return None
    if isinstance(structure, TreeNode):
        return structure.words()
    opened = opening(structure)
    return from_(structure).words() if opened.words is None else tuple(opened.words())


def subtree(node: TreeNode) -> Tree:
    """Return the tree of a node and all below it; of a root, the tree that it is part of.

    >>> subtree(Tree.from_nested(("S", ("NP", "I"), ("VP", "slept")))[1])
    Tree('VP', 1 nodes, height 0)
    """
    tree, size = node.tree, node.size
    if size == len(tree.labels):
        return tree
    part = slice(node.index - size + 1, node.index + 1)
    parents = tree.parents[part] - part.start
    parents[-1] = -1
    return trusted_tree(parents, tree.labels[part], tree.tokens[part])


def _opening(source: Foreign) -> Callable[[Foreign], Opened] | None:
    return opening_of(type(source))  # type: ignore[arg-type]  # a class can be hashed


@lru_cache(1000)
def opening_of(kind: type) -> Callable[[Foreign], Opened] | None:
    """Return the function that opens objects of a type; None where nothing is known of it."""
    for base in kind.__mro__:
        opening = OPENINGS.get(_name_of(base))
        if opening is not None:
            return opening
    return None


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _opened(source: Foreign) -> Opened:
    opening = _opening(source)
    if opening is None:
        expected, fix = "a node of a registered type", "register its type, too, or give children="
        raise ExampleTypeError("from_", expected, describe_value(source), fix)
    return opening(source)


class NoFieldError(Exception):
    """A node has no field of a name, which is the message."""


def attribute(node: Foreign, name: str) -> Foreign:
    """Read an attribute, or call a method without arguments.

    >>> attribute("ab", "upper"), attribute(1 + 2j, "imag")
    ('AB', 2.0)
    """
    try:
        value = getattr(node, name)
    except AttributeError:
        raise NoFieldError(name) from None
    return value() if callable(value) else value


def _read(name: Name, field: Callable[[Foreign, str], Foreign]) -> Callable[[Foreign], Foreign]:
    """Return the function that reads a field of a node."""
    return name if callable(name) else lambda node: field(node, name)


def _chosen(
    opened: Opened, label: Name | None, token: Name | None, children: Name | None, missing: set[str]
) -> Expand:
    """Return a function that expands nodes as a library's objects are, but for what a user has chosen.

    A field that a node lacks is None: nodes of syntax trees are of many classes. Names leave `missing` when a
    node has them.
    """
    usual = opened.expand

    def reader(name: Name | None) -> Callable[[Foreign], Foreign] | None:
        """Return the function that reads a chosen field."""
        if name is None or callable(name):
            return name

        def read(node: Foreign) -> Any:
            """Return the field of a node, or None."""
            try:
                value = opened.field(node, name)
            except NoFieldError:
                return None
            missing.discard(name)
            return value

        return read

    of_label, of_token, below = map(reader, (label, token, children))

    def expand(node: Foreign, where: Callable[[], str]) -> Expanded:
        """Read what was chosen in place of what is usual."""
        if isinstance(node, Joint):
            return "", None, node.children
        usual_label, usual_token, usual_below = usual(node, where)
        return (
            usual_label if of_label is None else plain_entry(of_label(node)),
            usual_token if of_token is None else plain_entry(of_token(node)),
            usual_below if below is None else _listed(below(node)),
        )

    return expand


def _listed(nodes: Iterable[object] | None) -> Sequence[Foreign]:
    return () if nodes is None else nodes if type(nodes) in (list, tuple) else list(nodes)  # type: ignore[return-value]


def plain_entry(value: object) -> Foreign:
    """Return the str or int that a library's text or whole number stands for; other values as they are.

    >>> plain_entry(b"film"), plain_entry(np.int64(3)), plain_entry(2.5)
    ('film', 3, 2.5)
    """
    if value is None or type(value) in (str, int):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return int(value) if isinstance(value, int | np.integer | np.bool_) else value


def _spaces(parts: Iterable[str | None]) -> str | None:
    """Join texts with single blanks between words; None where there are no words."""
    return " ".join("".join([part for part in parts if part]).split()) or None


def _open_node(source: TreeNode) -> Opened:
    return Opened(source, lambda node, _: (node.label, node.token, node.children), attribute)


def _open_nltk(source: Foreign) -> Opened:
    def field(node: Foreign, name: str) -> Foreign:
        return None if isinstance(node, str | tuple) else attribute(node, name)  # words have no fields

    return Opened(source, _expand_nltk, field, lambda: map(_word_of, source.leaves()))


def _expand_nltk(node: Foreign, _: object) -> Expanded:
    """Expand a phrase, or a leaf."""
    if isinstance(node, str):
        return None, plain_entry(node), ()
    if isinstance(node, tuple):  # a word with its tag, as chunkers yield them
        return plain_entry(node[1] if len(node) > 1 else None), plain_entry(node[0]), ()
    label = node.label()
    if type(label) is not str:
        label = label if isinstance(label, int | None) else str(label)
    if len(node) == 1 and isinstance(node[0], str):
        return plain_entry(label), plain_entry(node[0]), ()
    return plain_entry(label), None, node


def _word_of(leaf: object) -> str:
    return str(leaf[0] if isinstance(leaf, tuple) else leaf)


def _open_spacy(source: Any) -> Opened:
    """Open a text of spaCy, or a part of one: words whose heads are outside are roots."""
    doc = getattr(source, "doc", source)
    if not doc.has_annotation("DEP"):
        fix = "run a pipeline with a parser, or give Doc(..., heads=, deps=)"
        raise ExampleError("from_", "a text whose words have heads", "one that was not parsed", fix)
    tokens = list(source)
    if not tokens:
        raise ExampleError("from_", "one word or more", "none", "leave the text out")
    first = tokens[0].i
    heads = [token.head.i - first for token in tokens]
    below, roots = _dependents(tokens, [-1 if head == place else head for place, head in enumerate(heads)])

    def expand(node: Foreign, _: object) -> Expanded:
        if isinstance(node, Joint):
            return "", None, node.children
        return node.dep_, node.text, below[node.i - first]

    return Opened(_joined(roots), expand, attribute, lambda: [token.text for token in tokens], len(tokens))


def _open_token(source: Foreign) -> Opened:
    """Open a word of spaCy with the words below it."""
    return Opened(source, lambda node, _: (node.dep_, node.text, list(node.children)), attribute)


def _dependents(words: Sequence[object], heads: Sequence[int]) -> tuple[list[list[Foreign]], list[Foreign]]:
    """Return the words that depend on each one, and those whose head is none of them."""
    below: list[list[Foreign]] = [[] for _ in words]
    roots: list[object] = []
    for word, head in zip(words, heads, strict=True):
        (below[head] if 0 <= head < len(words) else roots).append(word)
    if not roots:
        raise ExampleError("from_", "a word without a head", "words that are below one another", "mend heads")
    return below, roots


def _joined(roots: Sequence[object]) -> Foreign:
    return roots[0] if len(roots) == 1 else Joint(roots)


def _open_syntax(source: Foreign) -> Opened:
    """Open a node of tree-sitter."""
    return Opened(source, _expand_syntax, attribute)


def _expand_syntax(node: Foreign, _: object) -> Expanded:
    """Expand a node of tree-sitter; an operator is part of its label."""
    below = node.named_children
    if not below:
        text = node.text  # None where the source was not kept
        return node.type, None if text is None else text.decode("utf-8", "replace"), below
    operator = node.child_by_field_name("operator")
    return node.type if operator is None else f"{node.type}:{operator.type}", None, below


def _open_markup(source: Foreign) -> Opened:
    """Open an element of lxml or of ``xml.etree``; a name is of a field or of an attribute in the text."""

    def field(node: Foreign, name: str) -> Foreign:
        return getattr(node, name) if name in ("tag", "text", "tail") else node.get(name)

    return Opened(source, _expand_markup, field)


def _expand_markup(node: Foreign, _: object) -> Expanded:
    """Expand an element; its own text is what stands before, between and after the elements below it."""
    below = list(node)
    if not below:
        text = node.text
        return plain_entry(node.tag), text and (" ".join(text.split()) or None), below
    text = _spaces([node.text, *[child.tail for child in below]])
    # comments and instructions have a function for a tag
    return plain_entry(node.tag), text, [child for child in below if isinstance(child.tag, str)]


def _open_soup(source: Foreign) -> Opened:
    """Open a tag of BeautifulSoup; a name is that of an attribute in the text, or of a field."""

    def field(node: Foreign, name: str) -> Foreign:
        value = node.attrs.get(name)
        if value is not None:
            return " ".join(value) if isinstance(value, list) else value
        return getattr(node, name) if name in ("name", "string", "text") else None

    return Opened(source, _expand_soup, field)


def _expand_soup(node: Foreign, _: object) -> Expanded:
    """Expand a tag, as `_expand_markup` does an element."""
    texts, below = [], []
    for part in node.contents:
        if not isinstance(part, str):
            below.append(part)
        elif not getattr(part, "PREFIX", ""):  # comments and declarations have one
            texts.append(part)
    return plain_entry(node.name), _spaces(texts), below


def _open_ast(source: ast.AST) -> Opened:
    return Opened(source, expand_syntax, attribute)


def _open_libcst(source: Foreign) -> Opened:
    return Opened(source, _expand_libcst, attribute)


BLANKS = ("whitespace", "lines", "comment", "newline", "header", "footer", "indent")
PUNCTUATION = frozenset(
    (
        *("AssignEqual", "Asynchronous", "Colon", "Comma", "Dot", "LeftCurlyBrace", "LeftParen"),
        *("LeftSquareBracket", "RightCurlyBrace", "RightParen", "RightSquareBracket", "Semicolon"),
    )
)


@lru_cache(1000)
def _parts_of(kind: type) -> tuple[tuple[str, ...], bool]:
    """Return the fields of a class of libcst in which nodes may be, and whether it has a text."""
    names = [part.name for part in fields(kind)] if is_dataclass(kind) else []
    inside = tuple(name for name in names if not any(word in name for word in BLANKS))
    return inside, "value" in names


def _expand_libcst(node: Foreign, _: object) -> Expanded:
    """Expand a node of libcst, without blanks and punctuation."""
    kind = type(node)
    names, has_value = _parts_of(kind)  # type: ignore[arg-type]
    below: list[Foreign] = []
    for name in names:
        value = getattr(node, name)
        if isinstance(value, list | tuple):
            below.extend([part for part in value if hasattr(part, "_codegen_impl")])
        elif hasattr(value, "_codegen_impl"):
            below.append(value)
    if below:
        below = [part for part in below if type(part).__name__ not in PUNCTUATION]
    value = node.value if has_value else None
    return kind.__name__, value if type(value) is str else None, below


def _open_token_list(source: Foreign) -> Opened:
    """Open a sentence of conllu."""
    words = [word for word in source if isinstance(word["id"], int)]
    if not words:
        raise ExampleError("from_", "one word or more", "none", "leave the sentence out")
    places = {word["id"]: place for place, word in enumerate(words)}
    below, roots = _dependents(words, [places.get(word["head"], -1) for word in words])

    def expand(node: Foreign, _: object) -> Expanded:
        if isinstance(node, Joint):
            return "", None, node.children
        return node["deprel"], node["form"], below[places[node["id"]]]

    return Opened(_joined(roots), expand, _column, lambda: [word["form"] for word in words], len(words))


def _open_token_tree(source: Foreign) -> Opened:
    """Open a word of conllu with the words below it."""

    def expand(node: Foreign, _: object) -> Expanded:
        return node.token["deprel"], node.token["form"], node.children

    return Opened(source, expand, lambda node, name: _column(node.token, name))


def _column(word: Foreign, name: str) -> Foreign:
    if name not in word:
        raise NoFieldError(name)
    return word[name]


def _open_graph(source: Foreign) -> Opened:
    """Open a directed graph of networkx, which must be a tree."""
    below, data = source.adj, source.nodes
    fix = "take one tree of it, such as networkx.bfs_tree(graph, root)"
    expected = "a directed graph with one way from a root to each node"
    if not source.is_directed():
        raise ExampleError("from_", expected, "a graph without directions", fix)
    roots = [node for node, degree in source.in_degree() if not degree]
    if len(roots) != 1:
        raise ExampleError("from_", expected, f"{len(roots)} nodes that none leads to", fix)
    if source.number_of_edges() != len(data) - 1:
        actual = f"{len(data)} nodes with {source.number_of_edges()} edges"
        raise ExampleError("from_", expected, actual, fix)

    def expand(node: Foreign, _: object) -> Expanded:
        of_node = data[node]
        label = of_node.get("label", node if isinstance(node, str | int) else None)
        return plain_entry(label), plain_entry(of_node.get("token")), list(below[node])

    def field(node: Foreign, name: str) -> Foreign:
        if name not in data[node]:
            raise NoFieldError(name)
        return data[node][name]

    return Opened(roots[0], expand, field, size=len(data))


def _open_sympy(source: Foreign) -> Opened:
    def expand(node: Foreign, _: object) -> Expanded:
        return type(node).__name__, None if node.args else str(node), node.args

    return Opened(source, expand, attribute)


LIBRARIES = "nltk, spaCy, tree-sitter, lxml, xml.etree, BeautifulSoup, ast, libcst, conllu, networkx or SymPy"
OPENINGS: dict[str, Callable[[Foreign], Opened]] = {
    _name_of(TreeNode): _open_node,
    "nltk.tree.tree.Tree": _open_nltk,
    "spacy.tokens.doc.Doc": _open_spacy,
    "spacy.tokens.span.Span": _open_spacy,
    "spacy.tokens.token.Token": _open_token,
    "tree_sitter.Tree": lambda tree: _open_syntax(tree.root_node),
    "tree_sitter.Node": _open_syntax,
    "lxml.etree._Element": _open_markup,
    "lxml.etree._ElementTree": lambda tree: _open_markup(tree.getroot()),
    "xml.etree.ElementTree.Element": _open_markup,
    "xml.etree.ElementTree.ElementTree": lambda tree: _open_markup(tree.getroot()),
    "bs4.element.Tag": _open_soup,
    "ast.AST": _open_ast,
    "libcst._nodes.base.CSTNode": _open_libcst,
    "conllu.models.TokenList": _open_token_list,
    "conllu.models.TokenTree": _open_token_tree,
    "networkx.classes.digraph.DiGraph": _open_graph,
    "networkx.classes.graph.Graph": _open_graph,
    "sympy.core.basic.Basic": _open_sympy,
}
