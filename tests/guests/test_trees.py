"""`fb.trees.from_` of other libraries' objects: what is in the tree, at any depth; estimators, and commands."""

import json
from pathlib import Path

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.cli import main
from foldbatch.errors import ExampleError, ExampleKeyError
from foldbatch.trees import from_

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
DEPTH = 5_000
ROWS = [(1, "They", 2, "nsubj"), (2, "buy", 0, "root"), (3, "fish", 2, "obj"), (4, "now", 3, "advmod")]


def conllu_text(rows):
    lines = [f"{n}\t{form}\t{form.lower()}\tX\t_\t_\t{head}\t{of}\t_\t_\n" for n, form, head, of in rows]
    return "".join(lines) + "\n"


def test_nltk():
    nltk = pytest.importorskip("nltk")
    text = "(S (NP (DT the) (NN film)) (VP (VBD made) (NP (PRP us)) (. .)))"
    assert from_(nltk.Tree.fromstring(text)) == fb.trees.parse_brackets(text)
    beside = from_(nltk.Tree.fromstring("(S the (N film))"))
    assert (beside.labels, beside.tokens) == ((None, "N", "S"), ("the", "film", None))
    chunks = from_(nltk.Tree("S", [("a", "DT"), nltk.Tree("NP", [("film", "NN")])]))
    assert chunks == fb.trees.Tree.from_nested(("S", ("DT", "a"), ("NP", ("NN", "film"))))
    upper = from_(
        nltk.ParentedTree.fromstring("(S (N film))"),
        token=lambda part: part if isinstance(part, str) else None,
    )
    assert upper.labels == ("N", "S")
    deep = nltk.Tree("a", ["b"])
    for _ in range(DEPTH):
        deep = nltk.Tree("a", [deep])
    assert from_(deep).height == DEPTH


def test_conllu():
    conllu = pytest.importorskip("conllu")
    text = conllu_text(ROWS)
    (sentence,) = conllu.parse(text)
    (expected,) = fb.trees.read_conllu(text.splitlines())
    assert from_(sentence) == from_(sentence.to_tree()) == expected
    assert from_(conllu.parse(text)) == [expected]
    assert (
        from_(sentence, label="upos", token="lemma").tokens == from_(sentence.to_tree(), token="lemma").tokens
    )
    two = [(1, "Go", 0, "root"), (2, "on", 0, "root")]
    (joined,) = fb.trees.read_conllu(conllu_text(two).splitlines(), roots="join")
    assert from_(conllu.parse(conllu_text(two))[0]) == joined
    assert from_(conllu.parse(conllu_text(two))[0], label="upos").labels == ("X", "X", "")
    with pytest.raises(ExampleKeyError, match="expected a field 'pos'"):
        from_(sentence, label="pos")
    circle = [(1, "a", 2, "x"), (2, "b", 1, "x"), (3, "c", 0, "root")]
    with pytest.raises(ExampleError, match="found 3 nodes, 2 of which hang from none"):
        from_(conllu.parse(conllu_text(circle))[0])
    chain = conllu.parse(conllu_text([(n, "w", n - 1, "x") for n in range(1, DEPTH)]))[0]
    assert from_(chain).height == DEPTH - 2


def test_spacy():
    spacy = pytest.importorskip("spacy")
    vocabulary = spacy.blank("en").vocab
    words = [word for _, word, _, _ in ROWS]
    heads = [1, 1, 1, 2]
    doc = spacy.tokens.Doc(vocabulary, words, heads=heads, deps=[of for *_, of in ROWS])
    (expected,) = fb.trees.read_conllu(conllu_text(ROWS).splitlines())
    assert from_(doc) == from_(doc[1]) == from_(doc[:]) == expected
    assert from_(doc[2:4]).tokens == ("now", "fish")
    assert from_(doc[0:2], label=lambda token: token.i).labels == (0, 1)
    assert from_(doc, label="i", token="lower_").tokens == ("they", "now", "fish", "buy")
    with pytest.raises(
        ExampleError, match="expected a text whose words have heads, found one that was not parsed"
    ):
        from_(spacy.blank("en")("They buy fish"))
    chain = spacy.tokens.Doc(
        vocabulary, ["w"] * DEPTH, heads=[max(n - 1, 0) for n in range(DEPTH)], deps=["x"] * DEPTH
    )
    assert from_(chain).height == DEPTH - 1


def test_tree_sitter():
    tree_sitter, grammar = pytest.importorskip("tree_sitter"), pytest.importorskip("tree_sitter_javascript")
    parser = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    parsed = parser.parse("let é = a + [1];".encode())
    tree = from_(parsed)
    assert tree == from_(parsed.root_node) == fb.trees.code_tree("let é = a + [1];", "javascript")
    leaves = [(node.label, node.token) for node in tree.leaves()]
    assert leaves == [("identifier", "é"), ("identifier", "a"), ("number", "1")]
    assert "binary_expression:+" in tree.labels
    everything = from_(parsed, children="children", label="kind_id")
    assert everything.size > tree.size and all(type(label) is int for label in everything.labels)
    assert from_(parser.parse(b"[" * DEPTH + b"]" * DEPTH)).height > DEPTH


def test_pages_are_alike_by_lxml_and_soup():
    html, bs4 = pytest.importorskip("lxml.html"), pytest.importorskip("bs4")
    page = "<html><body><p class='a b'>a <b>fine</b> film<!-- of 1995 --> of 1995</p><p></p></body></html>"
    tree, soup = from_(html.document_fromstring(page)), bs4.BeautifulSoup(page, "html.parser")
    assert tree == from_(soup.html) == from_(html.document_fromstring(page).getroottree())
    assert tree.tokens == ("fine", "a film of 1995", None, None, None)
    assert from_(html.document_fromstring(page), label="class") == from_(soup.html, label="class")
    deep = etree = pytest.importorskip("lxml.etree").Element("a")
    for _ in range(DEPTH):
        deep = pytest.importorskip("lxml.etree").SubElement(deep, "a")
    assert from_(etree).height == DEPTH


def test_libcst():
    libcst = pytest.importorskip("libcst")
    tree = from_(libcst.parse_module("x = f(a, 'b')  # c\n"))
    assert [(node.label, node.token) for node in tree.leaves()] == [
        ("Name", "x"),
        ("Name", "f"),
        ("Name", "a"),
        ("SimpleString", "'b'"),
    ]
    whole = from_(libcst.parse_module("x = f(a)\n"), children="children")
    assert {"TrailingWhitespace", "Newline"} <= {*whole.labels}


def test_networkx():
    nx = pytest.importorskip("networkx")
    graph = nx.DiGraph([("a", "b"), ("a", "c")])
    graph.nodes["b"].update(label=3, token="word", kind="x")
    tree = from_(graph)
    assert (tree.labels, tree.tokens) == ((3, "c", "a"), ("word", None, None))
    assert from_(graph, label="kind").labels == ("x", None, None)
    with pytest.raises(ExampleKeyError, match="expected a field 'knid' of a node"):
        from_(graph, label="knid")
    assert from_(nx.bfs_tree(nx.path_graph(DEPTH), 0)).height == DEPTH - 1
    for wrong, found in [
        (nx.path_graph(3), "a graph without directions"),
        (nx.DiGraph([(0, 2), (1, 2)]), "2 nodes that none leads to"),
        (nx.DiGraph([(0, 1), (0, 2), (1, 3), (2, 3)]), "4 nodes with 4 edges"),
        (nx.DiGraph([(0, 1), (2, 3), (3, 2)]), "4 nodes, 2 of which hang from none"),
    ]:
        with pytest.raises(ExampleError, match=found):
            from_(wrong)


def test_sympy():
    sympy = pytest.importorskip("sympy")
    tree = from_(sympy.Symbol("x") ** 2 + 1)
    assert tree.label == "Add" and {node.token for node in tree.leaves()} == {"x", "1", "2"}


def test_estimators_take_objects_of_other_libraries():
    pytest.importorskip("sklearn")
    estimators = pytest.importorskip("foldbatch.estimators")
    nltk, spacy = pytest.importorskip("nltk"), pytest.importorskip("spacy")
    texts = ["(S (NP the film) (VP ended))", "(S (NP a dog) (VP (V ran) away))"]
    vocabulary = spacy.blank("en").vocab
    docs = [
        spacy.tokens.Doc(vocabulary, ["a", word], heads=[1, 1], deps=["det", "ROOT"])
        for word in ("film", "dog")
    ]
    for model, examples in (
        ("child_sum", [nltk.Tree.fromstring(text) for text in texts]),
        ("child_sum", docs),
        ("bilstm", docs),
        ("bilstm", [nltk.Tree.fromstring(text) for text in texts]),
    ):
        settings = {"hidden": 4, "size": 4, "epochs": 2, "backend": "numpy"}
        fitted = estimators.StructureClassifier(model, **settings).fit(examples * 4, ["x", "y"] * 4)
        plain = from_(examples)
        if model == "bilstm":
            plain = [
                part.leaves() if hasattr(part, "leaves") else [token.text for token in part]
                for part in examples
            ]
        again = estimators.StructureClassifier(model, **settings).fit(plain * 4, ["x", "y"] * 4)
        assert np.array_equal(fitted.predict_proba(examples), again.predict_proba(plain))


def test_estimators_take_tables_of_every_library(recipe):
    pytest.importorskip("sklearn")
    estimators = pytest.importorskip("foldbatch.estimators")
    rows = recipe("orders").ROWS
    settings = {"hidden": 4, "size": 4, "epochs": 2, "backend": "numpy"}
    expected = estimators.StructureClassifier("json", **settings).fit(rows, [0, 1, 0]).predict_proba(rows)
    for name in ("pandas", "polars", "duckdb", "arrow", "hugging_face"):
        table = recipe(f"{name}_orders").EXAMPLES
        fitted = estimators.StructureClassifier("json", **settings).fit(table, np.array([0, 1, 0]))
        assert np.array_equal(fitted.predict_proba(table), expected)


@pytest.mark.parametrize(
    ("format_", "ending", "texts"),
    [
        ("tree-sitter:javascript", "js", {"loop": "for (x of y) f(x);", "call": "f(x);"}),
        ("html", "html", {"list": "<ul><li>one</ul>", "text": "<p>one</p>"}),
    ],
)
def test_files_are_trained_on_and_predicted(format_, ending, texts, tmp_path, monkeypatch, capsys):
    pytest.importorskip("lxml")
    pytest.importorskip("tree_sitter_javascript")
    monkeypatch.chdir(tmp_path)
    for name, text in texts.items():
        for number in range(3):
            file = Path("train", name, f"{number}.{ending}")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    small = "--model.hidden 4 --words.size 4 --train.epochs 2 --train.backend numpy --no-gain --folder run".split()
    assert main(["train", "--data.format", format_, "--data.train", "train", *small]) == 0
    assert main(["data", "check", str(file), "--format", format_]) == 0
    assert "1 tree" in capsys.readouterr().out
    assert main(["predict", "run", str(file), "--backend", "numpy"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["name"] == str(file) and answer["label"] in texts
