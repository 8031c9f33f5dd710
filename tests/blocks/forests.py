"""Random trees for the laws of tracing."""

from hypothesis import strategies as st

from foldbatch.trees import Tree
from tests.strategies import Draw

WORDS = ("a", "good", "film", "unheard")


@st.composite
def trees(draw: Draw, *, binary: bool = False, most: int = 8) -> Tree:
    """Return a tree: of any arity, or binary with words at the leaves alone."""
    waiting = [_leaf(draw, words=binary) for _ in range(draw(st.integers(1, most)))]
    while len(waiting) > 1:
        place = draw(st.integers(0, len(waiting) - 2))
        count = 2 if binary else draw(st.integers(1, 3))
        token = None if binary else draw(st.sampled_from((None, "film")))
        waiting[place : place + count] = [(draw(st.integers(0, 4)), token, waiting[place : place + count])]
        if not binary and draw(st.integers(0, 9)) == 0:
            break
    label, token, children = waiting[0]
    return Tree.build((label, token, children), lambda x: x[2], lambda x: x[0], lambda x: x[1])


def _leaf(draw: Draw, *, words: bool) -> tuple[int, str | None, list]:
    return draw(st.integers(0, 4)), draw(st.sampled_from(WORDS if words else (*WORDS, None))), []


def batches(*, binary: bool = False) -> st.SearchStrategy[list[Tree]]:
    some = st.lists(trees(binary=binary), min_size=1, max_size=4)
    return st.builds(lambda given: [*given, *given[:1]], some)
