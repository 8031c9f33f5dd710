"""A reader notes what is read of a node."""

from __future__ import annotations

import pytest

from foldbatch.blocks.columnar.reader import Reader, UnseenError
from foldbatch.trees import Tree, TreeNode

TREE = Tree.from_nested(("S", ("NP", "I"), ("VP", "slept")))


@pytest.mark.parametrize(
    ("read", "fields"),
    [
        (lambda t: t.label, {"label"}),
        (lambda t: t["label"] or t["token"], {"label"}),
        (lambda t: t["token"] or t["label"], {"label", "token"}),
        (lambda t: t.is_leaf, {"is_leaf"}),
        (len, {"arity"}),
        (lambda t: t.size, {"size"}),
        (lambda t: t.words(), {"node"}),
        (bool, set()),
        (lambda t: isinstance(t, TreeNode), set()),
    ],
)
def test_fields_are_noted(read, fields):
    reader = Reader(TREE)
    assert read(reader) == read(TREE)
    assert reader.fields == fields


@pytest.mark.parametrize(
    "read",
    [
        *(lambda t: t.children, lambda t: t.parent, lambda t: t.root, lambda t: t.height, lambda t: t.index),
        *(lambda t: t[0], lambda t: t["children"], list, hash, str, lambda t: t == t.tree, lambda t: t == 1),
        *(lambda t: t.nodes(), lambda t: t.leaves(), lambda t: t.draw(), "{}".format),
    ],
)
def test_anything_else_is_refused_and_remembered(read):
    reader = Reader(TREE)
    with pytest.raises(UnseenError):
        read(reader)
    assert reader.unseen


def test_all_that_a_node_has_is_a_field_or_refused():
    public = {name for name in dir(TreeNode) if not name.startswith("_")}
    assert public <= set(vars(Reader))
