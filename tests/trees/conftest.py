"""Random trees for ``st.from_type(Tree)``, and the real data where they are at hand."""

from pathlib import Path

import pytest
from hypothesis import strategies as st

from foldbatch.errors import ReadError
from foldbatch.trees import Tree

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@st.composite
def trees(draw):
    """Any tree: a shift-reduce machine run on drawn arities, with labels and tokens anywhere."""
    parents, waiting = [], []
    for arity in draw(st.lists(st.integers(0, 4), max_size=25)):
        cut = len(waiting) - min(arity, len(waiting))
        for child in waiting[cut:]:
            parents[child] = len(parents)
        waiting[cut:] = [len(parents)]
        parents.append(-1)
    if len(waiting) != 1:
        for child in waiting:
            parents[child] = len(parents)
        parents.append(-1)
    size = len(parents)
    labels = draw(
        st.lists(st.none() | st.integers(-3, 3) | st.sampled_from(["S", "NP"]), min_size=size, max_size=size)
    )
    tokens = draw(st.lists(st.none() | st.sampled_from(["a", "b"]), min_size=size, max_size=size))
    return Tree(parents, labels, tokens)


st.register_type_strategy(Tree, trees())


@pytest.fixture(scope="session")
def data_folder():
    """The folder of the real treebank and vectors, beside the repository."""
    if not DATA.is_dir():
        pytest.skip(f"no real data: there is no folder {DATA.parent.name}/{DATA.name} beside the repository")
    return DATA


@pytest.fixture
def assert_refused(tmp_path):
    """A function that checks where a reader finds a fault in a file of some content, and what it says."""

    def check(read, content, place, message):
        path = tmp_path / "x.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ReadError) as caught:
            read(path)
        assert caught.value.where == f"{path}:{place}"
        assert message in str(caught.value)

    return check
