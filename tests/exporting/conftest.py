"""Small models of the zoo, and trees for them."""

import pytest

import foldbatch as fb
from foldbatch import trees
from foldbatch.zoo.models import MODELS
from foldbatch.zoo.tasks import Task
from foldbatch.zoo.words import Words

TREES = [
    "(3 (4 good) (2 film))",
    "(2 film)",
    "(1 (2 (2 a) (1 (1 bad) (2 film))) (2 (2 or) (4 (4 good) (2 film))))",
]


@pytest.fixture(scope="session")
def forest():
    return [trees.parse_brackets(text, labels=int) for text in TREES]


@pytest.fixture(scope="session")
def program_of():
    """A function that compiles a model of the zoo."""

    def compiled(name, kind="nodes", **options):
        words = Words(trees.Vocabulary(["good", "film", "bad"]), size=4, spread=1.0)
        return fb.compile(
            MODELS[name](words, Task(kind, classes=5, dropout=0.5), hidden=3, **options), "numpy"
        )

    return compiled
