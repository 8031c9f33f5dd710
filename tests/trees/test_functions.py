"""The embedded data set."""

import asyncio
import email
from collections import Counter
from pathlib import Path

import pytest

from foldbatch.errors import ReadError
from foldbatch.trees import standard_library_functions
from foldbatch.trees.pyast import HIDDEN, leading_verb, python_functions


def parts(corpus):
    return (corpus.train, corpus.dev, corpus.test)


def library(folder, modules):
    for name, source in modules.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return folder


def every(corpus):
    return sorted((e for part in parts(corpus) for e in part), key=lambda e: (e.module, e.name))


def test_functions_have_the_verbs_of_their_names_which_they_hide():
    corpus = standard_library_functions(Path(asyncio.__file__).parent)
    assert min(map(len, parts(corpus))) > 10 and len(every(corpus)) > 200
    assert len(corpus.verbs) == 16
    assert {"get", "set", "call", "create", "close"} <= set(corpus.verbs)
    for example in every(corpus):
        assert corpus.verbs[example.verb] == leading_verb(example.name)
        assert 8 <= example.tree.size <= 400
        assert example.tree.label in ("FunctionDef", "AsyncFunctionDef")
        assert example.tree.token == HIDDEN
        assert example.name not in example.tree.tokens


VERB_FIRST = [
    ("get_foo", "get"),
    ("_get_foo", "get"),
    ("getFoo", "get"),
    ("GetFoo", "get"),
    ("read", "read"),
    ("isatty", "isatty"),
    ("HTTPServer", "http"),
    ("do_GET", "do"),
    ("__mangled", "mangled"),
    ("__getitem__", ""),
    ("test_get", ""),
    ("testGet", ""),
    ("_", ""),
    ("f", ""),
    ("x1", ""),
    ("_2to3", ""),
    ("read2", "read"),
]


def test_the_verb_is_the_first_word_of_the_name():
    for name, verb in VERB_FIRST:
        assert leading_verb(name) == verb


SOURCE = '''
class Store:
    @property
    def get_row(self):
        """Get the row."""
        def read_all():
            """Read all of it."""
            return self.rows[0], self.rows[1]
        if self.closed:
            raise KeyError("get_row failed", get_row, self.get_row(get_rows))
        return read_all()

    @get_row.setter
    def get_row(self, value):
        self.rows[0] = value + 1
        self.forget_row()
'''


def test_the_name_is_hidden_in_uses_decorators_and_messages_and_the_docstring_is_gone(tmp_path):
    first, second, nested = every(standard_library_functions(library(tmp_path, {"store.py": SOURCE})))
    assert [first.name, second.name, nested.name] == ["get_row", "get_row", "read_all"]
    tokens = Counter(first.tree.tokens)
    assert tokens[HIDDEN] == 4
    assert tokens["get_rows"] == 1
    assert tokens["Get the row."] == tokens["Read all of it."] == tokens["get_row"] == 0
    assert first.tree.labels.count("Expr") == 0
    assert second.tree.tokens.count(HIDDEN) == 2
    assert "forget_row" in second.tree.tokens
    assert "read_all" in first.tree.tokens
    assert "read_all" not in nested.tree.tokens


def test_copies_under_other_names_small_functions_and_tests_are_left_out(tmp_path):
    body = "(self):\n    return self.a + self.b * self.c\n"
    library(
        tmp_path,
        {
            "a.py": f"def get_x{body}\ndef set_y{body}\ndef load(): pass\n",
            "b.py": f"def get_z{body.replace('self.c', 'self.d')}\nasync def find_w{body}",
            "c.py": "def read_all(n):\n" + "    n = n + 1\n" * 100,
            "broken.py": "def get_v(:\n",
            "test/d.py": f"async def parse_u{body.replace('*', '-')}",
            "lib/tests/e.py": f"async def parse_u{body.replace('*', '-')}",
            "notes.txt": f"async def parse_u{body.replace('*', '-')}",
        },
    )
    (tmp_path / "binary.py").write_bytes(b"\xff\0")
    found = every(standard_library_functions(tmp_path))
    assert [(example.module, example.name) for example in found] == [("a", "get_x"), ("b", "find_w")]


def test_functions_of_a_module_hide_their_names():
    text = "class A:\n  def get_b(self):\n    'Get b.'\n    def inner(): return get_b\n    return inner\n"
    (first, tree), (second, inner) = python_functions(text)
    assert (first, second) == ("get_b", "inner")
    assert "get_b" not in tree.tokens and "Get b." not in tree.tokens
    assert inner.tokens.count(HIDDEN) == 1
    with pytest.raises(ReadError, match=r"my.py:1:"):
        python_functions("def", "my.py")


def test_more_verbs_are_for_training_only(tmp_path):
    """Dev and test stay as they are; training gains functions, and the verbs keep their numbers."""
    folder = Path(email.__file__).parent.parent
    tree = library(
        tmp_path,
        {name: (folder / name).read_text() for name in ("pickle.py", "ast.py", "dis.py", "mailbox.py")},
    )
    few, many = standard_library_functions(tree), standard_library_functions(tree, training_verbs=40)
    assert (many.dev, many.test) == (few.dev, few.test)
    assert len(many.train) > len(few.train)
    assert set(few.train) <= set(many.train)
    assert many.verbs[:16] == few.verbs
    assert len(many.verbs) == 40
