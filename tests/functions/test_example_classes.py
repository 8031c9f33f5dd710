"""Examples of classes of their own: lists and dicts whose classes give operators another meaning."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.functions.values import refuse_made
from foldbatch.model.rereading import iterator_in
from tests.backends import LLVM

embedding, linear = fb.Embedding(50, 4, name="words"), fb.Linear(4, "tanh", name="phrases")


@fb.cell
def leaf(length: Any) -> Any:
    return embedding(length)


@fb.cell
def node(children: list[Any]) -> Any:
    return linear(fb.ops.segment_sum(children))


def walk(tree: Any) -> Any:
    return leaf(len(tree)) if isinstance(tree, str) else node([walk(child) for child in tree])


def walk_with_cell_on_top(tree: Any) -> Any:
    return linear(walk(tree))


class Phrase(list[Any]):
    """Refuses to be added to a list, as trees of nltk do."""

    def __radd__(self, other: Any) -> Any:
        raise TypeError("unsupported operand")

    __add__ = __radd__


def examples() -> list[Any]:
    trees: list[Any] = [Phrase([Phrase(["the", "film"]), "ended"])]
    if find_spec("nltk"):
        nltk = pytest.importorskip("nltk")
        trees.append(nltk.Tree.fromstring("(S (NP the film) ended)"))
    return trees


@pytest.mark.parametrize("backend", ("numpy", *LLVM))
@pytest.mark.parametrize("function", [walk, walk_with_cell_on_top])
def test_a_list_that_cannot_be_added_is_walked_as_a_list(function: Any, backend: Any) -> None:
    program = fb.compile(function, backend)
    expected = program.run([[["the", "film"], "ended"]])
    for tree in examples():
        assert np.array_equal(program.run([tree]), expected)
        assert np.array_equal(fb.compile(function, backend).run([tree]), expected)


def test_its_items_are_looked_at() -> None:
    made = Phrase(["a", Phrase([iter("b")])])
    assert iterator_in(made) is not None
    assert iterator_in(Phrase(["a"])) is None
    refuse_made((Phrase(["a", Phrase(["b"])]),))
