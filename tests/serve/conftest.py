"""A tiny saved model of sentiments, which nobody has trained."""

import pytest

import foldbatch as fb
from foldbatch.zoo import Task, Words, tree_lstm

NEEDS = "needs what serves: pip install -e '.[around]'"
CLASSES = ["bad", "good"]
GOOD, BAD, LONG = "(1 (1 good) (1 film))", "(0 (0 bad) (0 film))", "(1 (1 a) (1 (1 good) (1 film)))"


def save_model(path, *, seed=0, task="nodes", model="tree_lstm", format="sst-binary", size=2, scale=1):
    """Save a model; with larger parameters its answers to different trees differ more."""
    words = Words(fb.trees.Vocabulary(["good", "bad", "film"]), 3)
    configuration = {"data": {"format": format}, "model": {"name": model, "hidden": size}}
    notes = {"task": task, "classes": CLASSES, "configuration": configuration}
    program = fb.compile(tree_lstm(words, Task(task, 2), hidden=size), "numpy", seed=seed)
    program.params = {name: scale * value for name, value in program.params.items()}
    program.save(path, notes)


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "model.safetensors"
    save_model(path)
    return path
