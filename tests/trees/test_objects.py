"""Trees of objects: those of the standard library, and of registered types; other libraries' are in tests/guests."""

import ast
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import (
    BackendError,
    BlockValueError,
    ExampleError,
    ExampleKeyError,
    ExampleTypeError,
    ReadError,
)
from foldbatch.trees import Tree, code_tree, from_, html_tree, register
from foldbatch.trees.objects import OPENINGS, opening_of, subtree, tree_of

DEPTH = 20_000
XML = "<a><b>one <c/>two</b><!-- left out --><b x='1'> </b></a>"


@pytest.fixture(autouse=True)
def registered():
    """Forget the types that a test has registered."""
    before = dict(OPENINGS)
    yield
    OPENINGS.clear()
    OPENINGS.update(before)
    opening_of.cache_clear()


@dataclass
class Folder:
    name: Any
    inside: list[Any] = field(default_factory=list)
    word: Any = None

    def below(self) -> list[Any]:
        return self.inside


class Drive(Folder):
    pass


def test_elements_have_tags_and_their_own_text():
    tree = from_(ET.fromstring(XML))
    assert tree == Tree.from_nested(("a", ("b", ("c",)), ("b",))) or tree.tokens
    assert (tree.labels, tree.tokens) == (("c", "b", "b", "a"), (None, "one two", None, None))
    assert from_(ET.ElementTree(ET.fromstring(XML))) == tree
    assert from_(ET.fromstring(XML), label="x").labels == (None, None, "1", None)


def test_syntax_is_that_of_python_tree():
    source = "def f(x):\n    return x + 1\n"
    assert from_(ast.parse(source)) == fb.trees.python_tree(source)
    names = from_(ast.parse("x + f(y)"), label="lineno", token="id")  # which some classes lack
    assert set(names.labels) == {1, None} and set(names.tokens) == {"x", "f", "y", None}


def test_fields_are_chosen_by_name_or_by_a_function():
    root = Folder("home", [Folder("ada", word="a"), Folder("bob")])
    register(Folder, children="below", label="name", token="word")
    assert (from_(root).labels, from_(root).tokens) == (("ada", "bob", "home"), ("a", None, None))
    assert from_(Drive("c", [root])).labels == ("ada", "bob", "home", "c")  # of a derived class
    assert from_(root, label="word", token=lambda node: node.name.upper()).tokens == ("ADA", "BOB", "HOME")
    assert from_(root, children=lambda node: node.inside[:1]).labels == ("ada", "home")
    assert [tree.size for tree in from_([root, root.inside[0]])] == [3, 1]
    assert from_(()) == []
    with pytest.raises(
        ExampleKeyError, match=r"from_: expected a field 'size' of a node, found .*Folder; name another field"
    ):
        from_(root, label="size")
    with pytest.raises(ExampleKeyError, match=r"from_: expected a field 'size' of a node"):
        from_(root, label="name", token="size")


def test_a_type_is_registered_by_name_and_opened_by_its_root():
    holder = type("Holder", (), {"__module__": "nowhere.at_all", "top": Folder("x")})
    register("nowhere.at_all.Holder", root="top")
    with pytest.raises(ExampleTypeError, match="expected a node of a registered type, found .*Folder"):
        from_(holder())
    register(Folder, children="inside", label="name")
    assert from_(holder()).labels == ("x",)
    register("nowhere.at_all.Holder", root="top", children="inside", label=lambda node: 7)
    assert from_(holder()).labels == (7,)
    with pytest.raises(
        BlockValueError, match="register: expected the name of the children, or of the root, found neither"
    ):
        register(Folder)


def test_labels_are_texts_and_whole_numbers_of_any_library():
    class Text(str):
        __slots__ = ()

    register(Folder, children="inside", label="name", token="word")
    labels = [np.int64(3), True, b"b", Text("t"), None]
    tree = from_(Folder(0, [Folder(label, word=Text("w")) for label in labels]))
    assert tree.labels == (3, 1, "b", "t", None, 0) and {*map(type, tree.labels)} == {int, str, type(None)}
    assert tree.tokens[0] == "w" and type(tree.tokens[0]) is str
    with pytest.raises(
        ExampleTypeError, match=r"source.children\[0\]: expected a label of str, int or None, found float"
    ):
        from_(Folder(0, [Folder(1.5)]))


def test_what_is_no_tree_is_refused():
    with pytest.raises(
        ExampleTypeError, match="expected an object of nltk, spaCy, .*, found Folder|found .*Folder"
    ):
        from_(Folder("x"))
    with pytest.raises(ExampleTypeError, match="or call fb.trees.Tree.build"):
        from_(["S", "NP"])
    register(Folder, children="inside")
    circle = Folder("x")
    circle.inside.append(circle)
    with pytest.raises(ExampleError, match="found an object that lies below itself"):
        from_(circle)


def test_trees_and_their_nodes_are_trees():
    tree = Tree.from_nested(("S", ("NP", ("D", "a"), ("N", "film")), ("VP", "ended")))
    assert from_(tree) is from_(tree.root) is tree_of(tree) is tree
    assert from_(tree[0]) == subtree(tree[0]) == Tree.from_nested(("NP", ("D", "a"), ("N", "film")))
    assert from_(tree, label="token").labels == tree.tokens
    assert tree_of([tree]) == [tree] and tree_of("S") == "S"


def test_depth_costs_no_stack():
    register(Folder, children="inside", label="name")
    folder, element, node = Folder(0), ET.Element("a"), ast.Name("x", ast.Load())
    top = element
    for number in range(DEPTH):
        folder, top, node = Folder(number, [folder]), ET.SubElement(top, "b"), ast.UnaryOp(ast.Not(), node)
    assert {from_(deep).height for deep in (folder, element, node)} == {DEPTH}
    while folder.inside:
        folder = folder.inside.pop()


def test_no_library_is_imported():
    program = (
        "import sys, foldbatch; foldbatch.trees.register('a.B', children='c'); print(sorted(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"nltk", "spacy", "tree_sitter", "lxml", "bs4", "libcst", "conllu", "networkx", "sympy"} & {
        *eval(run.stdout)
    }


def test_models_by_name_read_objects_as_trees():
    register(Folder, children="inside", label="name", token="word")
    folders = [Folder("x", [Folder("y", word="a"), Folder("y", word="b")]), Folder("y", word="a")]
    words, kinds = fb.trees.Vocabulary(["a", "b"]), fb.trees.Vocabulary(["x", "y"])
    for model in (
        fb.zoo.child_sum(fb.zoo.Words(words, 4), fb.zoo.Task(classes=2), kinds=kinds, hidden=3),
        fb.zoo.tree_lstm(fb.zoo.Words(words, 4), fb.zoo.Task(classes=2), hidden=3),
        fb.zoo.rntn(fb.zoo.Words(words, 4), fb.zoo.Task(classes=2)),
        fb.zoo.bilstm(fb.zoo.Words(words, 4), fb.zoo.Task(classes=2), hidden=3),
    ):
        program = fb.compile(model, "numpy")
        expected = program.run([(tree, 0) for tree in from_(folders)])
        assert np.array_equal(program.run([(folder, 0) for folder in folders]), expected)
    labelled = from_(folders, label=lambda folder: int(folder.name == "x"))
    program = fb.compile(fb.zoo.tree_lstm(fb.zoo.Words(words, 4), fb.zoo.Task("nodes"), hidden=3), "numpy")
    register(Folder, children="inside", label=lambda folder: int(folder.name == "x"), token="word")
    assert np.array_equal(program.run(folders), program.run(labelled))
    assert program.value_and_grad(folders)[0] == program.value_and_grad(labelled)[0]
    program.notes = {"task": "nodes", "classes": ["no", "yes"]}
    assert program.predict(folders) == program.predict(labelled)
    assert "warning" not in program.predict(folders)[0]


def test_parsers_that_are_missing_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lxml", None)
    with pytest.raises(
        BackendError, match=r"html_tree: expected lxml to be installed, found none; pip install"
    ):
        html_tree("<p>")
    with pytest.raises(
        BackendError,
        match="expected tree_sitter_no_such to be installed, .*; pip install tree-sitter tree-sitter-no-such",
    ):
        code_tree("x", "no_such")
    with pytest.raises(BlockValueError, match="expected the name of a language, found str 'os.path'"):
        code_tree("x", "os.path")


def test_pages_and_programs():
    pytest.importorskip("lxml")
    page = html_tree("<p>a <b>fine</b> film")
    assert page == html_tree(b"\xef\xbb\xbf<p>a <b>fine</b> film".removeprefix(b"\xef\xbb\xbf"))
    assert (page.labels, page.tokens) == (("b", "p", "body", "html"), ("fine", "a film", None, None))
    with pytest.raises(ReadError, match=r"a.html:1:1: expected a page of HTML, found"):
        html_tree("", "a.html")
    pytest.importorskip("tree_sitter_javascript")
    code = code_tree("x = a - f(b);", "javascript")
    assert "binary_expression:-" in code.labels and set(code.tokens) == {None, "x", "a", "f", "b"}
    with pytest.raises(ReadError, match="a.js:1:1: expected text that UTF-8 can hold"):
        code_tree("'\ud800'", "javascript", "a.js")
